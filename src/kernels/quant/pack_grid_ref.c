/* Packs rows of the types with a grid (IQ1, IQ2, IQ3; blocks of 256) by importance: some scales of a sub-block are tried,
 * the nearest entries of the grid found for each, and the scale that is best for them by least squares; then the scales
 * are rounded to the block's, and entries are chosen again for the rounded ones. quantize and tests call it through the kernel table.
 * Layouts: quant/TYPE/type.h. */
#include "kernels/isa.h"
#include "kernels/quant/grids.h"
#include "kernels/quant/pack_fit.h"
#include "kernels/quant/pack_grid.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, N_EIGHT = BLOCK / 8, MAX_SUB = 16, MAX_RATIO = 7 };

/* The weights that share one shift of IQ1. */
typedef enum sharing { NO_SHIFT, BY_SUB_BLOCK, BY_EIGHT } sharing;

/* Weight = d * unit * (2 * scale + 1) * (value + shift), with a sign. */
typedef struct format {
    hth_pack_grid grid;
    int n_sub, top_scale; /* sub-blocks, the largest scale */
    float unit, top;      /* the largest magnitude of a value with its shift */
    bool has_signs, has_even_signs;
    sharing shift;
    float ratios[MAX_RATIO + 1]; /* scales to try, times those that make the largest value the top; then 0 */
} format;

/* Eight weights. q: the values with shifts and signs. */
typedef struct eight {
    float q[8];
    uint16_t index[2];
    uint8_t minus; /* bit i: weight i is negative */
    int8_t shift;
} eight;

typedef struct block {
    float d;
    uint8_t scale[MAX_SUB];
    eight eights[N_EIGHT];
} block;

/* ---- eight weights ----------------------------------------------------------------------- */

/* Makes the number of minus signs even: the weight for which it costs least gets the wrong sign. x: magnitudes; the
 * changed one becomes negative. */
static void flip_one(const float *weight, float smallest, float *x, hth_grid_errors *w, eight *to)
{
    float least = 0.0f;
    int at = 0;
    for (int i = 0; i < 8; i++) {
        float e = x[i] + smallest, cost = weight[i] * (e * e) - w->least[i];
        if (i == 0 || cost < least) least = cost, at = i;
    }
    to->minus ^= (uint8_t)(1u << at);
    x[at] = -x[at];
}

static void find_errors(const float *x, const float *weight, const float *value, int n_value, hth_grid_errors *w)
{
    for (int i = 0; i < 8; i++) {
        float e = x[i] - value[0];
        w->of[0][i] = w->least[i] = weight[i] * (e * e), w->digit[i] = 0;
    }
    for (int d = 1; d < n_value; d++)
        for (int i = 0; i < 8; i++) {
            float e = x[i] - value[d], error = weight[i] * (e * e);
            w->of[d][i] = error;
            w->digit[i] = error < w->least[i] ? d : w->digit[i];
            w->least[i] = error < w->least[i] ? error : w->least[i];
        }
}

/* The nearest entries for a scale. Returns their error; INFINITY if that is not below `limit`, where `to` may be
 * incomplete. */
HTH_INLINE float choose_eight(const format *f, int width, const hth_grid_search *s, const float *from, const float *weight,
                              float unit, int shift, float limit, eight *to)
{
    const hth_pack_grid *g = &f->grid;
    const int n_value = width == 8 ? 3 : 8;
    hth_grid_errors w;
    float value[8], x[8], sum = 0.0f;
    for (int d = 0; d < n_value; d++) value[d] = unit * (g->value[d] + (float)shift);
    to->minus = 0, to->shift = (int8_t)shift;
    for (int i = 0; i < 8; i++) {
        x[i] = f->has_signs ? hth_fit_magnitude(from[i]) : from[i];
        if (f->has_signs) to->minus |= (uint8_t)((from[i] < 0.0f) << i);
    }
    find_errors(x, weight, value, n_value, &w);
    if (f->has_even_signs && __builtin_parity(to->minus)) {
        flip_one(weight, value[0], x, &w, to);
        find_errors(x, weight, value, n_value, &w);
    }
    for (int part = 0; part < 8 / width; part++) {
        int index = 0;
        sum += hth_grid_nearest(s, width, &w, part * width, limit - sum, &index);
        to->index[part] = (uint16_t)index;
        if (!(sum < limit)) return INFINITY;
        const uint8_t *byte = hth_grid_entry(g, index);
        for (int i = 0; i < width; i++) {
            float q = (float)(byte[i] - g->zero + shift);
            int at = part * width + i;
            to->q[at] = to->minus >> at & 1 ? -q : q;
        }
    }
    return sum;
}

/* ---- a sub-block ------------------------------------------------------------------------- */

static int eights_of(const format *f) { return N_EIGHT / f->n_sub; }

/* As choose_eight, for n of them with one shift. */
static float choose_with(const format *f, const hth_grid_search *s, int n, const float *x, const float *weight, float unit,
                         int shift, float limit, eight *to)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const float *xi = x + 8 * i, *wi = weight + 8 * i;
        if (f->grid.width == 8) sum += choose_eight(f, 8, s, xi, wi, unit, shift, limit - sum, to + i);
        else sum += choose_eight(f, 4, s, xi, wi, unit, shift, limit - sum, to + i);
        if (!(sum < limit)) return INFINITY;
    }
    return sum;
}

/* The same with the better one of two shifts. */
static float choose_shift(const format *f, const hth_grid_search *s, int n, const float *x, const float *weight, float unit,
                          float limit, eight *to)
{
    eight other[4];
    float plus = choose_with(f, s, n, x, weight, unit, 1, limit, to);
    float minus = choose_with(f, s, n, x, weight, unit, -1, plus < limit ? plus : limit, other);
    if (!(minus < plus)) return plus;
    memcpy(to, other, (size_t)n * sizeof *to);
    return minus;
}

/* The same for a sub-block. */
static float choose(const format *f, const hth_grid_search *s, const float *x, const float *weight, float unit, float limit,
                    eight *to)
{
    int n = eights_of(f);
    float sum = 0.0f;
    if (f->shift == NO_SHIFT) return choose_with(f, s, n, x, weight, unit, 0, limit, to);
    if (f->shift == BY_SUB_BLOCK) return choose_shift(f, s, n, x, weight, unit, limit, to);
    for (int i = 0; i < n; i++) {
        sum += choose_shift(f, s, 1, x + 8 * i, weight + 8 * i, unit, limit - sum, to + i);
        if (!(sum < limit)) return INFINITY;
    }
    return sum;
}

/* The scale by least squares, and what it takes from the error: xq^2 / qq. */
static float solve(const float *x, const float *weight, int n_eight, const eight *e, float *gain)
{
    float xq = 0.0f, qq = 0.0f;
    for (int i = 0; i < 8 * n_eight; i++) {
        float q = e[i / 8].q[i % 8], wq = weight[i] * q;
        xq += x[i] * wq, qq += wq * q;
    }
    *gain = 0.0f;
    if (!(qq > 0.0f && xq > 0.0f)) return 0.0f;
    *gain = xq * (xq / qq);
    return xq / qq;
}

/* The scale with the least error, not rounded. */
static float fit_scale(const format *f, const hth_grid_search *s, const float *x, const float *weight)
{
    int n = eights_of(f);
    float top = hth_fit_magnitude(hth_fit_top(x, 8 * n)), best = 0.0f, best_scale = 0.0f, gain;
    eight e[4];
    memset(e, 0, sizeof e);
    if (!(top >= 1e-30f)) return 0.0f;
    for (const float *ratio = f->ratios; *ratio > 0.0f; ratio++) {
        choose(f, s, x, weight, *ratio * top / f->top, INFINITY, e);
        float scale = solve(x, weight, n, e, &gain);
        if (gain > best) best = gain, best_scale = scale;
    }
    return best_scale;
}

/* ---- a block ------------------------------------------------------------------------------ */

static float unit_of(const format *f, float d, int scale) { return d * f->unit * (float)(2 * scale + 1); }

/* Chooses entries, and moves scales to a neighbour that errs less. Returns the error of the block. */
static float move_scales(const format *f, const hth_grid_search *s, const float *x, const float *weight, block *b)
{
    int n = eights_of(f);
    float sum = 0.0f;
    for (int k = 0; k < f->n_sub; k++, x += 8 * n, weight += 8 * n) {
        int scale = b->scale[k];
        eight e[4], *to = b->eights + k * n;
        float best = choose(f, s, x, weight, unit_of(f, b->d, scale), INFINITY, to);
        for (int t = scale - 1; t <= scale + 1; t += 2) {
            if (t < 0 || t > f->top_scale) continue;
            float error = choose(f, s, x, weight, unit_of(f, b->d, t), best, e);
            if (!(error < best)) continue;
            best = error, b->scale[k] = (uint8_t)t;
            memcpy(to, e, (size_t)n * sizeof *e);
        }
        sum += best;
    }
    return sum;
}

/* Sums of products of weights x and values v for d = 1. */
typedef struct products {
    float xx, xv, vv;
} products;

static products multiply(const format *f, const float *x, const float *weight, const block *b)
{
    products p = {0};
    for (int i = 0; i < BLOCK; i++) {
        float v = unit_of(f, 1.0f, b->scale[i * f->n_sub / BLOCK]) * b->eights[i / 8].q[i % 8], wx = weight[i] * x[i];
        p.xx += wx * x[i], p.xv += wx * v, p.vv += weight[i] * v * v;
    }
    return p;
}

/* Least squares make weights of few bits smaller on average, and outputs with them. This d makes them as large as they
 * were: the product with x is that of x. They err a little more, but the model diverges less (docs/quantize.md). Blocks
 * that hardly fit are not enlarged without limit. */
static void keep_product(const format *f, const float *x, const float *weight, block *b)
{
    const float limit = 1.5f;
    products p = multiply(f, x, weight, b);
    if (!(p.xv > 0.0f)) return;
    float d = p.xx / p.xv, most = limit * (p.xv / p.vv);
    b->d = hth_fit_half(d < most ? d : most);
}

static void fit_block(const format *f, const hth_grid_search *s, const float *x, const float *weight, block *b)
{
    float scale[MAX_SUB];
    int n = 8 * eights_of(f);
    memset(b, 0, sizeof *b);
    for (int k = 0; k < f->n_sub; k++) scale[k] = fit_scale(f, s, x + k * n, weight + k * n);
    b->d = hth_fit_half(hth_fit_top(scale, f->n_sub) / unit_of(f, 1.0f, f->top_scale));
    float inverse = hth_fit_inverse(b->d * f->unit);
    for (int k = 0; k < f->n_sub; k++)
        b->scale[k] = (uint8_t)hth_fit_round(0.5f * (scale[k] * inverse - 1.0f), 0, f->top_scale);
    float best = move_scales(f, s, x, weight, b);
    block next = *b;
    products p = multiply(f, x, weight, b);
    next.d = p.xv > 0.0f && p.vv > 0.0f ? hth_fit_half(p.xv / p.vv) : 0.0f;
    if (move_scales(f, s, x, weight, &next) < best) *b = next;
    keep_product(f, x, weight, b);
}

/* ---- layouts ------------------------------------------------------------------------------- */

static void put_half(const block *b, uint8_t *p) { hth_store_u16(p, hth_f32_to_f16(b->d)); }

/* Scales of four bits, the low half of a byte first. */
static void put_scales(const block *b, int n, uint8_t *p)
{
    for (int i = 0; i < n / 2; i++) p[i] = (uint8_t)(b->scale[2 * i] | b->scale[2 * i + 1] << 4);
}

/* Four times seven signs and a scale. */
static uint32_t sign_word(const block *b, int k)
{
    uint32_t word = (uint32_t)b->scale[k] << 28;
    for (int i = 0; i < 4; i++) word |= (uint32_t)(b->eights[4 * k + i].minus & 127) << 7 * i;
    return word;
}

static void put_iq2_xxs(const block *b, uint8_t *p)
{
    put_half(b, p);
    for (int i = 0; i < N_EIGHT; i++) p[2 + 8 * (i / 4) + i % 4] = (uint8_t)b->eights[i].index[0];
    for (int k = 0; k < 8; k++) hth_store_u32(p + 6 + 8 * k, sign_word(b, k));
}

static void put_iq2_xs(const block *b, uint8_t *p)
{
    put_half(b, p);
    for (int i = 0; i < N_EIGHT; i++)
        hth_store_u16(p + 2 + 2 * i, (uint16_t)(b->eights[i].index[0] | (b->eights[i].minus & 127) << 9));
    put_scales(b, 16, p + 66);
}

static void put_iq2_s(const block *b, uint8_t *p)
{
    put_half(b, p);
    memset(p + 66, 0, 8);
    for (int i = 0; i < N_EIGHT; i++) {
        p[2 + i] = (uint8_t)b->eights[i].index[0];
        p[34 + i] = b->eights[i].minus;
        p[66 + i / 4] |= (uint8_t)(b->eights[i].index[0] >> 8 << 2 * (i % 4));
    }
    put_scales(b, 16, p + 74);
}

static void put_iq3_xxs(const block *b, uint8_t *p)
{
    put_half(b, p);
    for (int i = 0; i < 2 * N_EIGHT; i++) p[2 + i] = (uint8_t)b->eights[i / 2].index[i % 2];
    for (int k = 0; k < 8; k++) hth_store_u32(p + 66 + 4 * k, sign_word(b, k));
}

static void put_iq3_s(const block *b, uint8_t *p)
{
    put_half(b, p);
    memset(p + 66, 0, 8);
    for (int i = 0; i < 2 * N_EIGHT; i++) {
        uint16_t index = b->eights[i / 2].index[i % 2];
        p[2 + i] = (uint8_t)index;
        p[66 + i / 8] |= (uint8_t)(index >> 8 << i % 8);
    }
    for (int i = 0; i < N_EIGHT; i++) p[74 + i] = b->eights[i].minus;
    put_scales(b, 8, p + 106);
}

static void put_iq1_s(const block *b, uint8_t *p)
{
    put_half(b, p);
    for (int k = 0; k < 8; k++) {
        const eight *e = b->eights + 4 * k;
        unsigned high = (unsigned)b->scale[k] << 12 | (e->shift < 0 ? 1u << 15 : 0);
        for (int i = 0; i < 4; i++) {
            p[2 + 4 * k + i] = (uint8_t)e[i].index[0];
            high |= (unsigned)e[i].index[0] >> 8 << 3 * i;
        }
        hth_store_u16(p + 34 + 2 * k, (uint16_t)high);
    }
}

static void put_iq1_m(const block *b, uint8_t *p)
{
    uint16_t half = hth_f32_to_f16(b->d);
    memset(p + 32, 0, 16);
    for (int i = 0; i < N_EIGHT; i++) {
        const eight *e = b->eights + i;
        p[i] = (uint8_t)e->index[0];
        p[32 + i / 2] |= (uint8_t)((e->index[0] >> 8 | (e->shift < 0 ? 8 : 0)) << 4 * (i % 2));
    }
    for (int k = 0; k < 4; k++) {
        unsigned word = (unsigned)(half >> 4 * k & 15) << 12;
        for (int i = 0; i < 4; i++) word |= (unsigned)b->scale[4 * k + i] << 3 * i;
        hth_store_u16(p + 48 + 2 * k, (uint16_t)word);
    }
}

/* ---- rows ---------------------------------------------------------------------------------- */

#define IQ1_GRID {hth_iq1_grid + 2048, 2048, 8, 3, 15, {-8, 0, 8}}
#define IQ2_GRID(NAME, N) {NAME, N, 8, 4, 0, {8, 25, 43}}
/* The second value of IQ2 becomes the top by a ratio of 1.72. */
#define RATIOS {1.75f, 1.3f, 1.0f, 0.84f, 0.7f, 0.58f, 0.46f}
#define IQ1_RATIOS {1.0f, 0.84f, 0.7f, 0.58f, 0.46f}
static const format iq2_xxs = {IQ2_GRID(hth_iq2_xxs_grid, 256), 8, 15, 0.125f, 43, true, true, NO_SHIFT, RATIOS};
static const format iq2_xs = {IQ2_GRID(hth_iq2_xs_grid, 512), 16, 15, 0.125f, 43, true, true, NO_SHIFT, RATIOS};
static const format iq2_s = {IQ2_GRID(hth_iq2_s_grid, 1024), 16, 15, 0.125f, 43, true, false, NO_SHIFT, RATIOS};
static const format iq3_xxs = {{hth_iq3_xxs_grid, 256, 4, 3, 0, {4, 12, 20, 28, 36, 44, 52, 62}}, 8, 15, 0.25f, 62, true,
                               true, NO_SHIFT, RATIOS};
static const format iq3_s = {{hth_iq3_s_grid, 512, 4, 1, 0, {1, 3, 5, 7, 9, 11, 13, 15}}, 8, 15, 1.0f, 15, true, false,
                             NO_SHIFT, RATIOS};
static const format iq1_s = {IQ1_GRID, 8, 7, 0.125f, 9, false, false, BY_SUB_BLOCK, IQ1_RATIOS};
static const format iq1_m = {IQ1_GRID, 16, 7, 0.125f, 9, false, false, BY_EIGHT, IQ1_RATIOS};

/* importance NULL: all columns count alike. */
static void pack_row(const format *f, void (*put)(const block *, uint8_t *), size_t size, const float *x,
                     const float *importance, size_t n_col, uint8_t *row)
{
    hth_grid_search s;
    float alike[BLOCK];
    block b;
    hth_grid_search_init(&f->grid, &s);
    for (int i = 0; i < BLOCK; i++) alike[i] = 1.0f;
    for (size_t i = 0; i < n_col; i += BLOCK, row += size) {
        fit_block(f, &s, x + i, importance ? importance + i : alike, &b);
        put(&b, row);
    }
}

#define PACK(TYPE, SIZE)                                                                                               \
    static void TYPE##_by(const float *x, const float *importance, size_t n_col, uint8_t *row)                         \
    {                                                                                                                  \
        pack_row(&TYPE, put_##TYPE, SIZE, x, importance, n_col, row);                                                  \
    }
PACK(iq2_xxs, 66)
PACK(iq2_xs, 74)
PACK(iq2_s, 82)
PACK(iq3_xxs, 98)
PACK(iq3_s, 110)
PACK(iq1_s, 50)
PACK(iq1_m, 56)

static void pack_iq3_s(const float *x, size_t n_col, uint8_t *row) { iq3_s_by(x, NULL, n_col, row); }

void hth_kernels_pack_grid_ref(hth_kernels *k)
{
    k->pack_by[HTH_TYPE_IQ2_XXS] = iq2_xxs_by;
    k->pack_by[HTH_TYPE_IQ2_XS] = iq2_xs_by;
    k->pack_by[HTH_TYPE_IQ2_S] = iq2_s_by;
    k->pack_by[HTH_TYPE_IQ3_XXS] = iq3_xxs_by;
    k->pack_by[HTH_TYPE_IQ3_S] = iq3_s_by;
    k->pack[HTH_TYPE_IQ3_S] = pack_iq3_s;
    k->pack_by[HTH_TYPE_IQ1_S] = iq1_s_by;
    k->pack_by[HTH_TYPE_IQ1_M] = iq1_m_by;
}
