/* Matrix times activations as C functions: mul_mat_vec_q and its variants over the structure-of-arrays layout
 * (weight_layout.h), mul_mat_vec_f and its variants over float rows (shader_params.h). Sums in the order of
 * docs/arithmetic.md 2; they run on the reference device. */
#include "forward/gpu/ref/ref_int.h"

#include "kernels/reduce.h"
#include "forward/gpu/weight_layout.h"

#include <string.h>

enum { MAX_PARTS = 16, TILE = 8 /* tokens processed per row */ };

/* Shared by both kinds of rows: the outputs that the grid covers, and their destination. */
typedef struct outputs {
    uint32_t n_row, n_tok;
    uint32_t y_stride, y_first;
    const float *bias; /* NULL: none */
    float *y;
    bool accumulate;
    const uint32_t *mask;           /* NULL: all rows; else mask bits, from mask_first on, */
    uint32_t row_first, mask_first; /* for rows from row_first on */
    bool is_sliced, weighs;         /* sliced: bias begins at the first row; weighs: times the weight */
    float weight;
} outputs;

/* Both kinds of rows number these constants alike. */
_Static_assert((int)HTH_ROWS_LOCAL == (int)HTH_FLOATS_LOCAL && (int)HTH_ROWS_COLS == (int)HTH_FLOATS_COLS &&
                   (int)HTH_ROWS_ROWS == (int)HTH_FLOATS_ROWS && (int)HTH_ROWS_WANT == (int)HTH_FLOATS_WANT &&
                   (int)HTH_ROWS_LANES == (int)HTH_FLOATS_LANES,
               "mul_mat_vec_q and mul_mat_vec_f share these");

static outputs outputs_of(const hth_dispatch_args *c, uint32_t n_row, bool accumulate)
{
    const uint32_t *step = c->bind[0];
    uint64_t rows = (uint64_t)c->grid[1] * hth_rows_per_workgroup(c->consts);
    uint64_t tokens = (uint64_t)c->grid[0] * c->consts[HTH_ROWS_COLS];
    uint32_t n_tok = step[c->consts[HTH_ROWS_WANT] ? HTH_STEP_N_WANT : HTH_STEP_N_TOK];
    return (outputs){
        .n_row = rows < n_row ? (uint32_t)rows : n_row,
        .n_tok = tokens < n_tok ? (uint32_t)tokens : n_tok,
        .accumulate = accumulate,
    };
}

/* binding: of the mask; push: byte offset after the push constants of the non-sparse shader. */
static void set_mask(outputs *out, const hth_dispatch_args *c, size_t binding, size_t push)
{
    hth_push_sparse sparse;
    memcpy(&sparse, (const uint8_t *)c->push + push, sizeof sparse);
    out->mask = c->bind[binding];
    out->row_first = sparse.row_first, out->mask_first = sparse.mask_first;
}

/* A pair of a token and one of the slices chosen for it. */
typedef struct pair {
    outputs out; /* of token 0 */
    size_t x;    /* row of the inputs */
    bool is_absent, is_elsewhere; /* the outputs are zeros; they are not written */
} pair;

/* Pair number i of all, of this expert and with this weight. */
static pair pair_of(const uint32_t *step, const outputs *all, const hth_push_sliced *s, uint32_t i, uint32_t expert,
                    uint32_t weight)
{
    uint32_t token = i / s->n_used, slot = s->slots_at > 0 ? step[s->slots_at + expert] : expert,
             here = slot - s->slot_first, slice = here * s->slice_step + s->slice_first;
    bool is_absent = slot == HTH_STEP_NO_SLOT;
    pair p = {*all, s->x_by_pair ? i : token, is_absent, !is_absent && (slot < s->slot_first || here >= s->n_slot)};
    p.out.row_first = slice * s->slice_rows + s->row_first;
    if (all->bias) p.out.bias = all->bias + (size_t)expert * s->slice_rows + s->row_first;
    p.out.y = all->y + (size_t)token * all->y_stride + (size_t)(i % s->n_used) * s->y_pair;
    p.out.is_sliced = true, p.out.weighs = s->weighs, p.out.weight = hth_float_of(weight);
    return p;
}

typedef void pair_fn(const hth_dispatch_args *c, const void *rows, const pair *p);

static void put_zeros(const pair *p)
{
    for (uint32_t row = 0; row < p->out.n_row; row++) p->out.y[p->out.y_first + row] = 0.0f;
}

static void run_pair(const hth_dispatch_args *c, const pair *p, pair_fn *fn, const void *rows)
{
    if (p->is_absent) put_zeros(p);
    else if (!p->is_elsewhere) fn(c, rows, p);
}

/* The pairs of workgroups [0, n): COLS of a group each. */
static void for_each_group(const hth_dispatch_args *c, const uint32_t *words, const hth_push_sliced *s,
                           const outputs *all, pair_fn *fn, const void *rows)
{
    const uint32_t *consts = c->consts, of = consts[HTH_ROWS_GROUP], cols = consts[HTH_ROWS_COLS], n_share = of / cols;
    for (uint32_t i = 0; i < c->grid[0] && i / n_share < words[0]; i++) {
        const uint32_t *group = words + HTH_GROUPS_HEAD + (size_t)(i / n_share) * hth_group_words(of);
        uint32_t first = i % n_share * cols, end = hth_min_u32(group[1], first + cols);
        for (uint32_t k = first; k < end; k++) {
            const pair p = pair_of(c->bind[0], all, s, group[2 + k], group[0], group[2 + of + k]);
            run_pair(c, &p, fn, rows);
        }
    }
}

/* Calls fn for the pairs of a grid whose slices are here; binding: of pairs, or of groups of them. */
static void for_each_pair(const hth_dispatch_args *c, size_t binding, const hth_push_sliced *s, const outputs *all,
                          pair_fn *fn, const void *rows)
{
    const uint32_t *words = c->bind[binding], *step = c->bind[0];
    uint64_t n = hth_min_u64((uint64_t)step[HTH_STEP_N_TOK] * s->n_used, c->grid[0]);
    if (c->consts[HTH_ROWS_GROUP] > 1) {
        for_each_group(c, words, s, all, fn, rows);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *id = words + (size_t)(i / s->n_used) * 2 * s->n_used + i % s->n_used;
        const pair p = pair_of(step, all, s, i, *id, id[s->n_used]);
        run_pair(c, &p, fn, rows);
    }
}

static bool is_skipped(const outputs *out, uint32_t row)
{
    uint32_t i = out->mask_first + row;
    return out->mask && (out->mask[i / 32] >> i % 32 & 1) == 0;
}

static void put_value(const outputs *out, uint32_t token, uint32_t row, float value)
{
    float *y = out->y + (size_t)token * out->y_stride + out->y_first + row;
    if (out->bias) value = value + out->bias[(out->is_sliced ? 0 : out->row_first) + row];
    if (out->weighs) value = value * out->weight;
    *y = out->accumulate ? *y + value : value;
}

/* ---- quantised rows -------------------------------------------------------------------------- */

typedef struct matrix {
    hth_quant_desc desc;
    hth_push_mul_mat_vec_q push;
    const uint8_t *planes;
} matrix;

/* The tokens' quantised blocks. */
typedef struct inputs {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
} inputs;

static matrix matrix_of(const hth_dispatch_args *c)
{
    matrix a = {.planes = c->bind[1]};
    memcpy(&a.desc, c->consts + HTH_ROWS_FORMAT, sizeof a.desc);
    memcpy(&a.push, c->push, sizeof a.push);
    return a;
}

HTH_GPU_UNCHECKED static int32_t add_products(const int8_t w[16], const int8_t q[16])
{
    int32_t sum = 0;
    for (size_t i = 0; i < 16; i++) sum += w[i] * q[i];
    return sum;
}

/* The block of inputs around block b. */
static size_t input_of(const hth_quant_desc *f, size_t b) { return f->block == 16 ? b / 2 : b; }

/* Adds block b to a token's partial sums. */
static void add_block(const matrix *a, const hth_soa_block *k, const inputs *in, size_t b, float *p,
                      float *m)
{
    const hth_quant_desc *f = &a->desc;
    const int8_t *q = in->q + b * f->block;
    const int32_t *sum = in->sum + input_of(f, b) * (f->block == 256 ? MAX_PARTS : 1);
    int32_t isum = 0, msum = 0;
    for (size_t i = 0; i < f->block / 16; i++) {
        int8_t w[16], x[16];
        memcpy(w, k->w + 16 * i, sizeof w);
        memcpy(x, q + 16 * i, sizeof x);
        isum += k->sub_scale[i] * add_products(w, x);
        if (f->minima && f->block != 32) msum += k->sub_min[i] * sum[i];
    }
    float t = k->d * in->d[input_of(f, b)];
    *p += t * hth_gpu_to_float(isum);
    if (!f->minima) return;
    float s = k->m * in->d[b];
    *m += s * hth_gpu_to_float(f->block == 32 ? *sum : msum);
}

static float end_row(const hth_quant_desc *f, const float p[8], const float m[8])
{
    if (!f->minima) return hth_reduce8(p);
    return f->block == 32 ? hth_reduce8(p) + hth_reduce8(m) : hth_reduce8(p) - hth_reduce8(m);
}

static inputs inputs_of(const hth_dispatch_args *c, const matrix *a, size_t token)
{
    const size_t n_block = a->push.n_block, n_input = input_of(&a->desc, n_block);
    const size_t n_sum = a->desc.block == 256 ? MAX_PARTS : 1;
    return (inputs){
        .q = (const int8_t *)c->bind[2] + token * n_block * a->desc.block,
        .d = (const float *)c->bind[3] + token * n_input,
        .sum = (const int32_t *)c->bind[4] + token * n_input * n_sum,
    };
}

/* All rows for n tokens, at most TILE, the first of which is number `first`. */
static void multiply_q(const matrix *a, const outputs *out, const inputs in[TILE], uint32_t first, uint32_t n)
{
    for (uint32_t row = 0; row < out->n_row; row++) {
        float p[TILE][8] = {{0}}, m[TILE][8] = {{0}};
        hth_soa_block k;
        if (is_skipped(out, row)) continue;
        for (size_t b = 0; b < a->push.n_block; b++) {
            hth_soa_layout_unpack(&a->desc, &a->push.at, a->planes, a->push.n_block, out->row_first + row, b, &k);
            for (uint32_t t = 0; t < n; t++) add_block(a, &k, &in[t], b, &p[t][b % 8], &m[t][b % 8]);
        }
        for (uint32_t t = 0; t < n; t++) put_value(out, first + t, row, end_row(&a->desc, p[t], m[t]));
    }
}

static outputs outputs_q(const hth_dispatch_args *c, const matrix *a, bool accumulate)
{
    outputs out = outputs_of(c, a->push.n_row, accumulate);
    out.bias = a->push.has_bias ? c->bind[5] : NULL, out.y = c->bind[6];
    out.y_stride = a->push.y_stride, out.y_first = a->push.y_first;
    return out;
}

static void mul_mat_vec_q(const hth_dispatch_args *c, bool accumulate, bool by_mask)
{
    const matrix a = matrix_of(c);
    outputs out = outputs_q(c, &a, accumulate);
    if (by_mask) set_mask(&out, c, 7, offsetof(hth_push_mul_mat_vec_q_sparse, sparse));
    for (uint32_t first = 0; first < out.n_tok; first += TILE) {
        const uint32_t n = out.n_tok - first < TILE ? out.n_tok - first : TILE;
        inputs in[TILE];
        for (uint32_t t = 0; t < n; t++) in[t] = inputs_of(c, &a, first + t);
        multiply_q(&a, &out, in, first, n);
    }
}

static void multiply_pair_q(const hth_dispatch_args *c, const void *rows, const pair *p)
{
    const matrix *a = rows;
    const inputs in[TILE] = {inputs_of(c, a, p->x)};
    multiply_q(a, &p->out, in, 0, 1);
}

void hth_ref_mul_mat_vec_q_sliced(const hth_dispatch_args *c)
{
    const matrix a = matrix_of(c);
    const outputs all = outputs_q(c, &a, false);
    hth_push_sliced sliced;
    memcpy(&sliced, (const uint8_t *)c->push + offsetof(hth_push_mul_mat_vec_q_sliced, sliced), sizeof sliced);
    for_each_pair(c, 7, &sliced, &all, multiply_pair_q, &a);
}

void hth_ref_mul_mat_vec_q(const hth_dispatch_args *c) { mul_mat_vec_q(c, false, false); }
void hth_ref_mul_mat_vec_q_acc(const hth_dispatch_args *c) { mul_mat_vec_q(c, true, false); }
void hth_ref_mul_mat_vec_q_sparse(const hth_dispatch_args *c) { mul_mat_vec_q(c, false, true); }

/* ---- rows of floats ------------------------------------------------------------------------------ */

/* All rows for n tokens, at most TILE, the first of which is number `first`; x: that token's inputs. */
static void multiply_f(const hth_dispatch_args *c, const hth_push_mul_mat_vec_f *push, const outputs *out, const float *x,
                       uint32_t first, uint32_t n)
{
    const hth_type type = (hth_type)c->consts[HTH_FLOATS_TYPE];
    for (uint32_t row = 0; row < out->n_row; row++) {
        const uint8_t *w = (const uint8_t *)c->bind[1] + (size_t)(out->row_first + row) * push->row_words * 4;
        float p[TILE][16] = {{0}};
        if (is_skipped(out, row)) continue;
        for (size_t i = 0; i < push->n_col; i++) {
            float weight = hth_gpu_float_at(type, w, push->n_col, i);
            for (uint32_t t = 0; t < n; t++) p[t][i % 16] += weight * x[t * push->n_col + i];
        }
        for (uint32_t t = 0; t < n; t++) put_value(out, first + t, row, hth_reduce16(p[t]));
    }
}

static outputs outputs_f(const hth_dispatch_args *c, const hth_push_mul_mat_vec_f *push, bool accumulate)
{
    outputs out = outputs_of(c, push->n_row, accumulate);
    out.bias = push->has_bias ? c->bind[3] : NULL, out.y = c->bind[4];
    out.y_stride = push->y_stride, out.y_first = push->y_first;
    return out;
}

static void mul_mat_vec_f(const hth_dispatch_args *c, bool accumulate, bool by_mask)
{
    hth_push_mul_mat_vec_f push;
    memcpy(&push, c->push, sizeof push);
    outputs out = outputs_f(c, &push, accumulate);
    if (by_mask) set_mask(&out, c, 5, offsetof(hth_push_mul_mat_vec_f_sparse, sparse));
    for (uint32_t first = 0; first < out.n_tok; first += TILE)
        multiply_f(c, &push, &out, (const float *)c->bind[2] + (size_t)first * push.n_col, first,
                   out.n_tok - first < TILE ? out.n_tok - first : TILE);
}

static void multiply_pair_f(const hth_dispatch_args *c, const void *rows, const pair *p)
{
    const hth_push_mul_mat_vec_f *push = rows;
    multiply_f(c, push, &p->out, (const float *)c->bind[2] + p->x * push->n_col, 0, 1);
}

void hth_ref_mul_mat_vec_f_sliced(const hth_dispatch_args *c)
{
    hth_push_mul_mat_vec_f_sliced push;
    memcpy(&push, c->push, sizeof push);
    const outputs all = outputs_f(c, &push.rows, false);
    for_each_pair(c, 5, &push.sliced, &all, multiply_pair_f, &push.rows);
}

void hth_ref_mul_mat_vec_f(const hth_dispatch_args *c) { mul_mat_vec_f(c, false, false); }
void hth_ref_mul_mat_vec_f_acc(const hth_dispatch_args *c) { mul_mat_vec_f(c, true, false); }
void hth_ref_mul_mat_vec_f_sparse(const hth_dispatch_args *c) { mul_mat_vec_f(c, false, true); }
