/* Norms, activations, soft caps and merged splits of attention as C functions, with the 8-bit quantisation of their
 * outputs (shader_params.h): the definition, from the C level of the kernels. The reference device calls them, from
 * any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "forward/gpu/cache.h"
#include "kernels/attn/attn.h"
#include "kernels/kernels.h"
#include "kernels/reduce.h"

#include <stdbool.h>
#include <string.h>

enum { STRETCH = 2048 }; /* values computed at once, whole blocks */

static hth_kernels reference(void)
{
    hth_kernels k;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    return k;
}

static size_t size_of_stretch(size_t n, size_t first) { return n - first < STRETCH ? n - first : STRETCH; }

/* Tokens to compute: those of the step, at most the grid's size. */
static uint32_t count_rows(const hth_dispatch_args *c, uint32_t i_count)
{
    const uint32_t *step = c->bind[0];
    return step[i_count] < c->grid[1] ? step[i_count] : c->grid[1];
}

/* ---- outputs --------------------------------------------------------------------------------------- */

/* Destination of values: as floats (NULL: none), and quantised in blocks (0: none). */
typedef struct outputs {
    float *y;
    uint32_t block;
    int8_t *q;
    float *d;
    int32_t *sum;
} outputs;

static void round_32(const hth_kernels *k, const outputs *to, const float *v, size_t n, size_t at)
{
    k->quant_act(v, n, to->q + at, to->d + at / HTH_ACT_BLOCK, to->sum + at / HTH_ACT_BLOCK);
}

static void round_256(const hth_kernels *k, const outputs *to, const float *v, size_t n, size_t at)
{
    int16_t sums[STRETCH / HTH_ACT_SUBBLOCK];
    k->quant_act_256(v, n, to->q + at, to->d + at / HTH_ACT_BLOCK_256, sums);
    for (size_t i = 0; i < n / HTH_ACT_SUBBLOCK; i++) to->sum[at / HTH_ACT_SUBBLOCK + i] = sums[i];
}

/* Writes n values (at most one stretch), the first of them at index `at`. */
static void put(const hth_kernels *k, const outputs *to, const float *v, size_t n, size_t at)
{
    if (to->y) memcpy(to->y + at, v, n * sizeof *v);
    if (to->block == HTH_ACT_BLOCK) round_32(k, to, v, n, at);
    if (to->block == HTH_ACT_BLOCK_256) round_256(k, to, v, n, at);
}

/* ---- norms ----------------------------------------------------------------------------------------- */

typedef struct norm_desc {
    uint32_t kind, n;
    const float *weight, *bias;
    float eps, inv_n;
} norm_desc;

static norm_desc norm_of(uint32_t kind, const hth_push_norm_quantize *push, const float *weight, const float *bias)
{
    return (norm_desc){kind, push->n, weight, push->has_bias ? bias : NULL, push->eps, push->inv_n};
}

static float sum_of(const float *x, size_t n)
{
    float p[8] = {0};
    for (size_t i = 0; i < n; i++) p[i % 8] = p[i % 8] + x[i];
    return hth_reduce8(p);
}

static float sum_of_squares(const float *x, size_t n, float mean)
{
    float p[8] = {0};
    for (size_t i = 0; i < n; i++) p[i % 8] = p[i % 8] + (x[i] - mean) * (x[i] - mean);
    return hth_reduce8(p);
}

/* Normalisation of a row before its weights: (x - mean) factor. */
static void find_factor(const hth_kernels *k, const norm_desc *norm, const float *x, float *mean,
                        float *factor)
{
    *mean = norm->kind == HTH_KIND_LAYER ? sum_of(x, norm->n) * norm->inv_n : 0.0f;
    float variance = sum_of_squares(x, norm->n, *mean) * norm->inv_n + norm->eps;
    k->rsqrt(&variance, 1, factor);
}

/* v[n] = normalised values of a row from `first` on. */
static void norm_stretch(const norm_desc *norm, const float *x, float mean, float factor, size_t first,
                         size_t n, float *v)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i;
        v[i] = norm->kind == HTH_KIND_NONE ? x[at] : ((x[at] - mean) * factor) * norm->weight[at];
        if (norm->kind >= HTH_KIND_LAYER && norm->bias) v[i] = v[i] + norm->bias[at];
    }
}

void hth_gpu_fill(const hth_dispatch_args *c)
{
    uint32_t push[2], *y = c->bind[0];
    memcpy(push, c->push, sizeof push);
    for (uint32_t i = 0; i < push[0]; i++) y[i] = push[1];
}

void hth_ref_float_rules(const hth_dispatch_args *c)
{
    hth_push_float_rules push;
    const float *a = c->bind[0], *b = c->bind[1];
    uint32_t *y = c->bind[2];
    memcpy(&push, c->push, sizeof push);
    for (uint32_t i = 0; i < push.n; i++) {
        y[3 * i] = hth_bits_of(a[i] * b[i]);
        y[3 * i + 1] = hth_bits_of(a[i] + b[i]);
        y[3 * i + 2] = (a[i] < b[i] ? 1u : 0u) + (a[i] == 0.0f ? 2u : 0u);
    }
}

void hth_ref_norm_quantize(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    const uint32_t *step = c->bind[0];
    const float *x = c->bind[1];
    hth_push_norm_quantize push;
    memcpy(&push, c->push, sizeof push);
    const norm_desc norm = norm_of(c->consts[HTH_NORM_QUANTIZE_KIND], &push, c->bind[2], c->bind[3]);
    const outputs to = {c->consts[HTH_NORM_QUANTIZE_STORE] ? c->bind[4] : NULL, c->consts[HTH_NORM_QUANTIZE_BLOCK],
                        c->bind[5], c->bind[6], c->bind[7]};
    bool gather = c->consts[HTH_NORM_QUANTIZE_GATHER];
    uint32_t n_row = count_rows(c, gather ? HTH_STEP_N_WANT : HTH_STEP_N_TOK);
    for (size_t t = 0; t < n_row; t++) {
        const uint32_t *words = step + HTH_STEP_ROWS + t * HTH_STEP_ROW_WORDS;
        const float *row = x + (gather ? words[HTH_STEP_WANT] : t) * push.n;
        float mean = 0.0f, factor = 1.0f, v[STRETCH];
        if (norm.kind != HTH_KIND_NONE) find_factor(&k, &norm, row, &mean, &factor);
        for (size_t first = 0; first < push.n; first += STRETCH) {
            size_t n = size_of_stretch(push.n, first);
            norm_stretch(&norm, row, mean, factor, first, n, v);
            put(&k, &to, v, n, t * push.n + first);
        }
    }
}

void hth_ref_norm_add(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    float *x = c->bind[1];
    const float *y = c->bind[2];
    hth_push_norm_quantize push;
    memcpy(&push, c->push, sizeof push);
    const norm_desc norm = norm_of(c->consts[HTH_NORM_ADD_KIND], &push, c->bind[3], c->bind[4]);
    uint32_t n_row = count_rows(c, HTH_STEP_N_TOK);
    for (size_t t = 0; t < n_row; t++, x += push.n, y += push.n) {
        float mean = 0.0f, factor = 1.0f, v[STRETCH];
        if (norm.kind != HTH_KIND_NONE) find_factor(&k, &norm, y, &mean, &factor);
        for (size_t first = 0; first < push.n; first += STRETCH) {
            size_t n = size_of_stretch(push.n, first);
            norm_stretch(&norm, y, mean, factor, first, n, v);
            k.add(x + first, v, n, x + first);
        }
    }
}

/* ---- element-wise operations ----------------------------------------------------------------------- */

/* Sets to zero what the selector leaves out of n neurons from `first` on; half: their first half. */
static void zero_inactive(const hth_dispatch_args *c, const hth_push_act_quantize *push, size_t t, const float *half,
                      size_t first, size_t n, hth_activate_fn *activate, float *v)
{
    const float *scores = (const float *)c->bind[2] + t * push->score_stride + first;
    const float *thresholds = (const float *)c->bind[3] + first;
    float activated[STRETCH];
    uint32_t select = c->consts[HTH_ACT_QUANTIZE_SELECT];
    if (select == HTH_SELECT_THRESHOLD) activate(NULL, half, n, activated);
    for (size_t i = 0; i < n; i++) {
        if (select == HTH_SELECT_PREDICTOR && scores[i] < push->min_score) v[i] = 0.0f;
        if (select == HTH_SELECT_THRESHOLD && __builtin_fabsf(activated[i]) < thresholds[i]) v[i] = 0.0f;
    }
}

/* NaN passes, as on the CPU. */
static void limit_halves(bool gated, float halves[2][STRETCH], size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) {
        float gate = halves[0][i], up = halves[1][i];
        if (gated) halves[0][i] = gate > limit ? limit : gate;
        halves[1][i] = up > limit ? limit : up < -limit ? -limit : up;
    }
}

void hth_ref_act_quantize(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    const float *gate_up = c->bind[1];
    hth_push_act_quantize push;
    memcpy(&push, c->push, sizeof push);
    const outputs to = {c->consts[HTH_ACT_QUANTIZE_STORE] ? c->bind[4] : NULL, c->consts[HTH_ACT_QUANTIZE_BLOCK],
                        c->bind[5], c->bind[6], c->bind[7]};
    hth_activate_fn *activate = k.activate[c->consts[HTH_ACT_QUANTIZE_KIND]];
    bool gated = c->consts[HTH_ACT_QUANTIZE_GATED];
    uint32_t n_row = count_rows(c, HTH_STEP_N_TOK);
    for (size_t t = 0; t < n_row; t++) {
        const float *gate = gated ? gate_up + t * 2 * push.d_ff : NULL;
        const float *up = gated ? gate + push.d_ff : gate_up + t * push.d_ff;
        for (size_t first = 0; first < push.d_ff; first += STRETCH) {
            float v[STRETCH], halves[2][STRETCH];
            size_t n = size_of_stretch(push.d_ff, first);
            memcpy(halves[0], (gate ? gate : up) + first, n * sizeof *v);
            memcpy(halves[1], up + first, n * sizeof *v);
            if (push.limit > 0.0f) limit_halves(gated, halves, n, push.limit);
            activate(gate ? halves[0] : NULL, halves[1], n, v);
            zero_inactive(c, &push, t, (gate ? gate : up) + first, first, n, activate, v);
            put(&k, &to, v, n, t * push.d_ff + first);
        }
    }
}

/* One word of the mask: 32 neurons from `first` on, for one token. */
static uint32_t mark_word(const hth_dispatch_args *c, const hth_push_active_mask *push, size_t t, size_t first,
                          hth_activate_fn *activate)
{
    const float *half = (const float *)c->bind[1] + t * push->stride + first;
    const float *scores = (const float *)c->bind[2] + t * push->score_stride + first;
    const float *thresholds = (const float *)c->bind[3] + first;
    size_t n = push->n - first < 32 ? push->n - first : 32;
    uint32_t select = c->consts[HTH_ACTIVE_MASK_SELECT], word = 0;
    bool by_half = c->consts[HTH_ACTIVE_MASK_HALF], by_threshold = by_half && select == HTH_SELECT_THRESHOLD;
    float activated[32] = {0.0f};
    if (by_threshold) activate(NULL, half, n, activated);
    for (size_t i = 0; i < n; i++) {
        bool out = select == HTH_SELECT_PREDICTOR && scores[i] < push->min_score;
        if (by_threshold) out = __builtin_fabsf(activated[i]) < thresholds[i];
        else if (by_half) out |= half[i] <= 0.0f;
        word |= (uint32_t)!out << i;
    }
    return word;
}

void hth_ref_active_mask(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    hth_activate_fn *activate = k.activate[c->consts[HTH_ACTIVE_MASK_KIND]];
    uint32_t n_tok = ((const uint32_t *)c->bind[0])[HTH_STEP_N_TOK], *mask = c->bind[4];
    hth_push_active_mask push;
    memcpy(&push, c->push, sizeof push);
    uint32_t n = (uint32_t)hth_min_u64(push.n, (uint64_t)c->grid[0] * c->consts[HTH_ACTIVE_MASK_LOCAL]);
    for (size_t first = 0; first < n; first += 32) {
        uint32_t word = 0;
        for (size_t t = 0; t < n_tok; t++) word |= mark_word(c, &push, t, first, activate);
        mask[first / 32] = word;
    }
}

void hth_ref_soft_cap(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    float *x = c->bind[1];
    hth_push_soft_cap push;
    memcpy(&push, c->push, sizeof push);
    uint32_t n_row = count_rows(c, HTH_STEP_N_WANT);
    for (size_t t = 0; t < n_row; t++)
        k.soft_cap(x + t * push.n, push.cap, push.inverse, push.n, x + t * push.n);
}

/* ---- splits of attention ------------------------------------------------------------------------------- */

/* The splits of a head merged, from split 0 of its token on. */
static void merge_head(const hth_dispatch_args *c, const hth_push_attn_reduce *push, size_t first_split, size_t n_split,
                       size_t head, float *y)
{
    const size_t d = c->consts[HTH_ATTN_REDUCE_D_HEAD];
    const float *values = c->bind[1], *parts = c->bind[2], *sinks = c->bind[7];
    hth_attn_partial total = {0}, part;
    for (size_t i = 0; i < n_split; i++) {
        size_t at = (first_split + i) * push->n_head + head;
        memcpy(&part, parts + 2 * at, sizeof part);
        hth_attn_merge(&total, y, &part, values + at * d, d);
    }
    hth_attn_finalize(&total, y, d, c->consts[HTH_ATTN_REDUCE_SINKS] ? sinks + head : NULL);
}

void hth_ref_attn_reduce(const hth_dispatch_args *c)
{
    const hth_kernels k = reference();
    hth_push_attn_reduce push;
    memcpy(&push, c->push, sizeof push);
    const size_t d = c->consts[HTH_ATTN_REDUCE_D_HEAD], n = push.n_head * d;
    const outputs to = {c->consts[HTH_ATTN_REDUCE_STORE] ? c->bind[3] : NULL, c->consts[HTH_ATTN_REDUCE_BLOCK],
                        c->bind[4], c->bind[5], c->bind[6]};
    uint32_t n_row = count_rows(c, HTH_STEP_N_TOK);
    for (size_t t = 0; t < n_row; t++) {
        const uint32_t *row = (const uint32_t *)c->bind[0] + HTH_STEP_ROWS + t * HTH_STEP_ROW_WORDS;
        uint32_t position = row[HTH_STEP_POSITION];
        hth_attn sees = {.n_row = 1,
                         .n_pos = (size_t)position + 1,
                         .window = hth_attn_window(position, push.window, push.chunk)};
        size_t n_split = hth_attn_last_split(&sees) + 1 - hth_attn_first_split(&sees);
        float v[STRETCH], head[HTH_GPU_MAX_D_HEAD];
        for (size_t first = 0; first < n; first += STRETCH) {
            size_t count = size_of_stretch(n, first);
            for (size_t i = 0; i < count; i++) {
                if (i == 0 || (first + i) % d == 0)
                    merge_head(c, &push, t * push.n_split, n_split, (first + i) / d, head);
                v[i] = head[(first + i) % d];
            }
            put(&k, &to, v, count, t * n + first);
        }
    }
}
