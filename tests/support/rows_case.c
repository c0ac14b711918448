/* Random products of rows and tokens. */
#include "support/rows_case.h"

#include "base/bits.h"

#include <string.h>

const hth_type rows_types[ROWS_N_TYPE] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16, HTH_TYPE_Q8_0,
                                          HTH_TYPE_Q4_0};

const char *rows_type_name(hth_type type)
{
    switch (type) {
    case HTH_TYPE_F32: return "F32";
    case HTH_TYPE_F16: return "F16";
    case HTH_TYPE_BF16: return "BF16";
    case HTH_TYPE_Q8_0: return "Q8_0";
    default: return "Q4_0";
    }
}

bool rows_quantised(hth_type type) { return type == HTH_TYPE_Q8_0 || type == HTH_TYPE_Q4_0; }

size_t rows_bytes(hth_type type, size_t n_col)
{
    switch (type) {
    case HTH_TYPE_F32: return 4 * n_col;
    case HTH_TYPE_Q8_0: return n_col / 32 * 34;
    case HTH_TYPE_Q4_0: return n_col / 32 * 18;
    default: return 2 * n_col;
    }
}

void rows_case_open(rows_case *c, size_t max_weights, size_t max_inputs)
{
    guard_open(&c->w, max_weights + 64);
    guard_open(&c->list, 1 << 14);
    guard_open(&c->q, max_inputs);
    guard_open(&c->d, max_inputs / 8);
    guard_open(&c->sum, max_inputs / 8);
    guard_open(&c->x, 4 * max_inputs);
    guard_open(&c->y, 1 << 16);
}

void rows_case_close(rows_case *c)
{
    guard *all[] = {&c->w, &c->list, &c->q, &c->d, &c->sum, &c->x, &c->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_close(all[i]);
}

/* Random nibbles or bytes, or those whose products are largest; scales of the kind. */
static void fill_blocks(test_random *r, const rows_shape *s, uint8_t *row)
{
    size_t size = rows_bytes(s->type, 32), n_block = s->n_col / 32;
    for (size_t b = 0; b < n_block; b++, row += size) {
        uint16_t scale;
        proof_fill_f16(r, s->kind, &scale, 1);
        proof_fill_bytes(r, row, size);
        hth_store_u16(row, scale);
        static const uint8_t largest[] = {0x80, 0x7f, 0x00, 0xff};
        if (s->kind == PROOF_LARGEST) memset(row + 2, largest[test_random_below(r, 4)], size - 2);
    }
}

static void fill_row(test_random *r, const rows_shape *s, uint8_t *row)
{
    if (rows_quantised(s->type)) {
        fill_blocks(r, s, row);
        return;
    }
    for (size_t i = 0; i < s->n_col; i++) {
        float x;
        uint16_t h;
        if (s->type == HTH_TYPE_F32) {
            proof_fill_f32(r, s->kind, &x, 1);
            hth_store_f32(row + 4 * i, x);
        } else {
            if (s->type == HTH_TYPE_F16) proof_fill_f16(r, s->kind, &h, 1);
            else proof_fill_bf16(r, s->kind, &h, 1);
            hth_store_u16(row + 2 * i, h);
        }
    }
}

/* Activations as hth_quant_act_fn could have made them: never -128. */
static void fill_activations(test_random *r, const rows_shape *s, int8_t *q, float *d, int32_t *sum)
{
    for (size_t b = 0; b < s->n_tok * (s->n_col / 32); b++) {
        uint32_t pattern = test_random_below(r, 6);
        sum[b] = 0;
        for (int i = 0; i < 32; i++) {
            int any = (int)test_random_below(r, 255) - 127;
            int saturated = pattern == 0 ? 127 : pattern == 1 ? -127 : i % 2 ? 127 : -127;
            q[32 * b + (size_t)i] = (int8_t)(pattern < 3 ? saturated : any);
            sum[b] += q[32 * b + (size_t)i];
        }
        proof_fill_f32(r, s->kind == PROOF_LARGEST || s->kind == PROOF_BITS ? PROOF_WIDE : s->kind, &d[b], 1);
    }
}

static size_t fill_list(test_random *r, const rows_shape *s, int32_t *list)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_row; i++)
        if (s->list == 2 || (s->list == 3 && test_random_below(r, 2))) list[n++] = (int32_t)i;
    return n;
}

/* The buffer for `size` bytes: as many as its elements need, no more. */
static void *place(guard *g, size_t size, guard_side side) { return guard_place(g, size, side, 0); }

void rows_case_make(rows_case *c, test_random *r, const rows_shape *shape)
{
    const rows_shape *s = &c->shape;
    c->shape = *shape;
    size_t bytes = rows_bytes(s->type, s->n_col), stride = bytes + s->row_gap;
    size_t n_input = s->n_tok * s->n_col, n_scale = s->n_tok * (s->n_col / 32);
    size_t w_size = s->n_row ? (s->n_row - 1) * stride + bytes : 0;
    uint8_t *w = guard_place(&c->w, w_size, s->side, s->shift);
    for (size_t i = 0; i < s->n_row; i++) fill_row(r, s, w + i * stride);

    hth_rows *job = &c->job;
    *job = (hth_rows){.w = w, .row_size = stride, .n_col = s->n_col, .end = s->n_row, .n_tok = s->n_tok};
    if (s->list) {
        int32_t list[1 << 12];
        job->end = fill_list(r, s, list);
        job->list = memcpy(place(&c->list, job->end * sizeof *list, s->side), list, job->end * sizeof *list);
    }
    if (rows_quantised(s->type)) {
        int8_t *q = place(&c->q, n_input, s->side);
        float *d = place(&c->d, n_scale * sizeof *d, s->side);
        int32_t *sum = place(&c->sum, n_scale * sizeof *sum, s->side);
        fill_activations(r, s, q, d, sum);
        job->act = (hth_act){.q = q, .d = d, .sum = sum};
    } else {
        float *x = place(&c->x, n_input * sizeof *x, s->side);
        proof_fill_f32(r, s->kind, x, n_input);
        job->act.x = x;
    }
    job->y_stride = job->end + s->y_gap;
    job->y = place(&c->y, rows_case_n_y(c) * sizeof(float), s->side);
}

size_t rows_case_n_y(const rows_case *c)
{
    const hth_rows *job = &c->job;
    return job->n_tok == 0 ? 0 : (job->n_tok - 1) * job->y_stride + job->end;
}
