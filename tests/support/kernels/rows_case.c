/* Random products of rows and tokens. */
#include "support/kernels/rows_case.h"

#include "base/bits.h"

const hth_type rows_types[ROWS_N_TYPE] = {
    HTH_TYPE_F32,  HTH_TYPE_F16,    HTH_TYPE_BF16,   HTH_TYPE_Q8_0,  HTH_TYPE_Q4_0, HTH_TYPE_Q4_1,
    HTH_TYPE_Q5_0, HTH_TYPE_Q5_1,   HTH_TYPE_Q2_K,   HTH_TYPE_Q3_K,  HTH_TYPE_Q4_K, HTH_TYPE_Q5_K,
    HTH_TYPE_Q6_K, HTH_TYPE_IQ4_NL, HTH_TYPE_IQ4_XS, HTH_TYPE_MXFP4,

    HTH_TYPE_IQ2_XXS, HTH_TYPE_IQ2_XS, HTH_TYPE_IQ2_S, HTH_TYPE_IQ3_XXS, HTH_TYPE_IQ3_S, HTH_TYPE_IQ1_S,
    HTH_TYPE_IQ1_M, HTH_TYPE_TQ1_0, HTH_TYPE_TQ2_0, HTH_TYPE_NVFP4,
};

const char *rows_type_name(hth_type type) { return hth_type_find(type)->name; }
bool rows_quantised(hth_type type) { return hth_type_find(type)->quantised; }
size_t rows_bytes(hth_type type, size_t n_col) { return hth_type_row_size(type, n_col); }
size_t rows_block(hth_type type) { return hth_type_find(type)->n_weight; }
size_t rows_act_block(hth_type type) { return rows_quantised(type) ? hth_type_act_block(type) : 1; }

void rows_case_open(rows_case *c, size_t max_weights, size_t max_inputs)
{
    guard_open(&c->w, max_weights + 64);
    guard_open(&c->list, 1 << 14);
    guard_open(&c->q, max_inputs);
    guard_open(&c->d, max_inputs / 8);
    guard_open(&c->sum, max_inputs / 8);
    guard_open(&c->x, 4 * max_inputs);
    guard_open(&c->y, 1 << 17);
    guard_open(&c->work, HTH_PANEL_WORK);
    guard_place(&c->work, HTH_PANEL_WORK, GUARD_BEFORE, 0); /* whole pages: guarded on both sides */
}

void rows_case_close(rows_case *c)
{
    guard *all[] = {&c->w, &c->list, &c->q, &c->d, &c->sum, &c->x, &c->y, &c->work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_close(all[i]);
}

/* Where the halves of a block lie: the scale, and the minimum where there is one. */
static void scale_places(hth_type type, size_t *scale, size_t *minimum)
{
    *scale = 0, *minimum = SIZE_MAX;
    switch (type) {
    case HTH_TYPE_Q4_1:
    case HTH_TYPE_Q5_1:
    case HTH_TYPE_Q4_K:
    case HTH_TYPE_Q5_K: *minimum = 2; break;
    case HTH_TYPE_Q2_K: *scale = 80, *minimum = 82; break;
    case HTH_TYPE_Q3_K: *scale = 108; break;
    case HTH_TYPE_Q6_K: *scale = 208; break;
    case HTH_TYPE_TQ1_0: *scale = 52; break;
    case HTH_TYPE_TQ2_0: *scale = 64; break;
    default: break;
    }
}

/* The exponent that is the scale of MXFP4. */
static uint8_t exponent(test_random *r, proof_kind kind)
{
    uint32_t any = test_random_below(r, 256);
    switch (kind) {
    case PROOF_PLAIN:
    case PROOF_OUTLIER: return (uint8_t)(118 + any % 10);
    case PROOF_WIDE: return (uint8_t)(85 + any % 85);
    case PROOF_LARGEST: return (uint8_t)(252 + any % 3);
    case PROOF_SPECIAL: return any < 8 ? 255 : (uint8_t)(118 + any % 10);
    case PROOF_BITS: return (uint8_t)any;
    default: return (uint8_t)(any % 3); /* zeros, subnormal: the smallest there are */
    }
}

/* The scale of a block. IQ1_M has a quarter of it in the upper half of each second byte of its last eight; NVFP4 has no
 * F16, but four bytes that are floats without a sign. */
static void put_scale(test_random *r, const rows_shape *s, uint8_t *block, size_t at, uint16_t scale)
{
    if (s->type == HTH_TYPE_MXFP4) block[0] = exponent(r, s->kind);
    else if (s->type == HTH_TYPE_IQ1_M)
        for (int i = 0; i < 4; i++) block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (scale >> 4 * i & 15) << 4);
    else if (s->type != HTH_TYPE_NVFP4) hth_store_u16(block + at, scale);
}

/* Random bytes, or those whose products are largest; scales of the kind. */
static void fill_blocks(test_random *r, const rows_shape *s, uint8_t *row)
{
    static const uint8_t largest[] = {0x80, 0x7f, 0x00, 0xff};
    size_t n_block = s->n_col / rows_block(s->type), size = rows_bytes(s->type, rows_block(s->type));
    size_t scale_at, minimum_at;
    scale_places(s->type, &scale_at, &minimum_at);
    for (size_t b = 0; b < n_block; b++, row += size) {
        uint16_t scale, minimum = 0;
        proof_fill_f16(r, s->kind, &scale, 1);
        if (minimum_at != SIZE_MAX) proof_fill_f16(r, s->kind, &minimum, 1);
        proof_fill_bytes(r, row, size);
        if (s->kind == PROOF_LARGEST) memset(row, largest[test_random_below(r, 4)], size);
        put_scale(r, s, row, scale_at, scale);
        if (minimum_at != SIZE_MAX) hth_store_u16(row + minimum_at, minimum);
    }
}

void rows_fill_row(test_random *r, const rows_shape *s, uint8_t *row)
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

/* Activations as the rounding could have made them: never -128. The sums of the whole
 * blocks of 32, or of every 16 of a block of 256. */
static void fill_activations(test_random *r, const rows_shape *s, int8_t *q, float *d, int32_t *sum,
                             int16_t *sum_16)
{
    size_t n = rows_act_block(s->type);
    for (size_t b = 0; b < s->n_tok * (s->n_col / n); b++, q += n) {
        uint32_t pattern = test_random_below(r, 6);
        if (sum) sum[b] = 0;
        if (sum_16) memset(sum_16 + b * (n / 16), 0, n / 16 * sizeof *sum_16);
        for (size_t i = 0; i < n; i++) {
            int any = (int)test_random_below(r, 255) - 127;
            int saturated = pattern == 0 ? 127 : pattern == 1 ? -127 : i % 2 ? 127 : -127;
            q[i] = (int8_t)(pattern < 3 ? saturated : any);
            if (sum) sum[b] += q[i];
            if (sum_16) sum_16[(b * n + i) / 16] = (int16_t)(sum_16[(b * n + i) / 16] + q[i]);
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
    size_t n_input = s->n_tok * s->n_col, n_scale = s->n_tok * (s->n_col / rows_act_block(s->type));
    size_t w_size = s->n_row ? (s->n_row - 1) * stride + bytes : 0;
    uint8_t *w = guard_place(&c->w, w_size, s->side, s->shift);
    for (size_t i = 0; i < s->n_row; i++) rows_fill_row(r, s, w + i * stride);

    hth_rows *job = &c->job;
    *job = (hth_rows){
        .w = w, .row_size = stride, .n_col = s->n_col, .end = s->n_row, .n_tok = s->n_tok, .work = c->work.p};
    if (s->list) {
        int32_t list[1 << 12];
        job->end = fill_list(r, s, list);
        job->list = memcpy(place(&c->list, job->end * sizeof *list, s->side), list, job->end * sizeof *list);
    }
    if (rows_quantised(s->type)) {
        int8_t *q = place(&c->q, n_input, s->side);
        float *d = place(&c->d, n_scale * sizeof *d, s->side);
        job->act = (hth_act){.q = q, .d = d};
        if (rows_act_block(s->type) == 32) {
            int32_t *sum = place(&c->sum, n_scale * sizeof *sum, s->side);
            fill_activations(r, s, q, d, sum, NULL);
            job->act.sum = sum;
        } else {
            int16_t *sum_16 = place(&c->sum, n_input / 16 * sizeof *sum_16, s->side);
            fill_activations(r, s, q, d, NULL, sum_16);
            job->act.sum_16 = sum_16;
        }
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
