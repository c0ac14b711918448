/* Down of neuron-major matrices on devices. Scales of clusters, sums and outputs of quantised rows have the bits of the
 * CPU's kernels on the null device and on the first that Vulkan knows. Rows of floats give the chains of
 * shader_params.h on both, near those of the CPU. Neurons that are not active are not read, tokens without requested
 * logits for not written. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

#include <math.h>

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2 };

static hth_kernels kernels;

static void *get(size_t n, size_t size) { return calloc(n ? n : 1, size); }
static size_t over(size_t n, size_t by) { return (n + by - 1) / by; }
static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* fn(device, its name, random numbers), on every device there is. */
static void on_each(void (*fn)(hth_device *, const char *, test_random *))
{
    hth_kernels_init(&kernels, HTH_CPU_GENERIC);
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        fn(d, devices[i], &r);
        shaders_close(d);
    }
}

/* ---- scales of clusters -------------------------------------------------------------------------- */

/* n values for each of n_tok tokens; n_class: those that the grid has. */
typedef struct scale_shape {
    size_t n, n_tok, n_class;
    proof_kind kind;
    float h, d_max; /* h: of all values, if not 0 */
    int safe;
    uint32_t local;
} scale_shape;

static void try_scales(hth_device *d, const char *name, test_random *r, const scale_shape *s)
{
    const size_t stride = s->n + 3, n_max = s->n_tok > s->n_class ? s->n_tok : s->n_class, n_cluster = hth_n_cluster(s->n);
    float *h = get(n_max * stride, sizeof *h), *d_max = get(n_cluster, sizeof *d_max);
    uint32_t *scales = get(n_max * n_cluster, 4), *expected = get(n_max * n_cluster, 4);
    const uint32_t step[4] = {(uint32_t)s->n_tok};
    const hth_push_down_scale push = {(uint32_t)s->n, (uint32_t)stride, s->safe};
    shaders_run run = {.id = HTH_SHADER_down_scale, .consts = &s->local, .push = &push,
                        .bind = {{(void *)(uintptr_t)step, sizeof step}, {h, n_max * stride * sizeof *h},
                                 {d_max, n_cluster * 4}, {scales, n_max * n_cluster * 4}},
                        .grid = {(uint32_t)n_cluster, (uint32_t)s->n_class, 1}};
    proof_fill_f32(r, s->kind, h, n_max * stride);
    for (size_t i = 0; i < n_max * stride && s->h != 0; i++) h[i] = s->h;
    for (size_t i = 0; i < n_cluster; i++) d_max[i] = s->d_max * (float)(1 << test_random_below(r, 6));
    memset(expected, SHADERS_POISON, n_max * n_cluster * 4);
    for (size_t t = 0; t < min(s->n_tok, s->n_class); t++)
        for (size_t i = 0; i < n_cluster; i++) {
            size_t first = i * HTH_CLUSTER_NEURONS, n = min(s->n - first, HTH_CLUSTER_NEURONS);
            expected[t * n_cluster + i] = hth_bits_of(hth_axpy_scale(h + t * stride + first, n, d_max[i], s->safe));
        }
    if (shaders_do(d, &run))
        for (size_t i = 0; i < n_max * n_cluster; i++) {
            if (scales[i] == expected[i]) continue;
            test_fail(__FILE__, __LINE__, "%s: %zu of %s, D %a, safe %d, token %zu, cluster %zu: %08x, not %08x", name,
                      s->n, proof_kind_name(s->kind), (double)d_max[i % n_cluster], s->safe, i / n_cluster,
                      i % n_cluster, scales[i], expected[i]);
            break;
        }
    free(h), free(d_max), free(scales), free(expected);
}

static void scales(hth_device *d, const char *name, test_random *r)
{
    static const size_t lengths[] = {1, 64, 255, 256, 600};
    static const size_t tokens[][2] = {{1, 1}, {3, 5}, {5, 3}, {0, 2}};
    static const uint32_t locals[] = {64, 8};
    for (size_t i = 0; i < 5; i++)
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            const size_t *n = tokens[(i + (size_t)kind) % 4];
            scale_shape s = {lengths[i], n[0], n[1], (proof_kind)kind, 0, 1e-3f, (int)i * 8 - 4, locals[i % 2]};
            try_scales(d, name, r, &s);
        }
    /* Single values and scales of all sizes: every power of two, its bounds, and where there is none. */
    for (size_t i = 0; i < 60; i++) {
        scale_shape s = {1, 500, 500, PROOF_BITS, 0.0f, 0.0f, i % 3 ? -100 : 5, 8};
        s.d_max = hth_float_of((uint32_t)(test_random_next(r) & 0x7fffffffu));
        if (i == 1) s.d_max = 0.0f;
        if (i == 2) s.d_max = hth_float_of(0x7fc00000u);
        try_scales(d, name, r, &s);
    }
    /* The largest products of a power, and the first of the next: 32766 / 16384. Sums of coefficients that are just
     * allowed, and just not. */
    for (int i = 0; i < 4; i++) {
        scale_shape s = {1, 1, 1, PROOF_ZEROS, hth_float_of(0x3f800000u + 0x7ffbffu + (uint32_t)i), 0x1p-3f, -100, 8};
        try_scales(d, name, r, &s);
    }
    for (size_t n = 1; n < 40; n++) {
        scale_shape s = {n, 2, 2, PROOF_ZEROS, 1.75f, 0x1p-3f, 20, 8};
        try_scales(d, name, r, &s);
    }
}
TEST(scales_of_clusters_are_those_of_the_cpu) { on_each(scales); }

/* ---- from sums to outputs ----------------------------------------------------------------------- */

/* Tokens [first_tok, first_tok + n_class) of the n_tok that the step has; sums begin with first_tok. */
typedef struct join {
    size_t n_tok, first_tok, n_class, n_split, n_out;
    bool floats, has_host, has_bias, accumulates;
    uint32_t *sums; /* [n_class][n_split][n_out] int32, or floats */
    float *scales;  /* [n_tok][clusters of the splits]; integers */
    int64_t *host;  /* [n_tok][n_out] */
    uint32_t flag;  /* HTH_HOST_* */
    float *bias;
    float *y; /* [first_tok + n_class][n_out]; accumulates: what is added to */
} join;

static size_t n_done(size_t n_tok, size_t first, size_t n_class)
{
    return first < n_tok ? min(n_tok - first, n_class) : 0;
}

static size_t n_cluster_of(const join *j) { return j->floats ? 0 : over(j->n_split * HTH_DOWN_SPLIT, HTH_CLUSTER_NEURONS); }

static int64_t fixed_of(uint32_t sum, float scale) { return (int64_t)((uint64_t)(int32_t)sum << (32 - ilogbf(scale))); }

static float join_one(const join *j, size_t i, size_t o)
{
    const size_t t = j->first_tok + i;
    int64_t total = j->has_host && j->flag == HTH_HOST_SUMS_VALID ? j->host[t * j->n_out + o] : 0;
    bool fits = !(j->has_host && j->flag == HTH_HOST_SUMS_OVERFLOW);
    const float *scales = j->scales + t * n_cluster_of(j);
    for (size_t c = 0; c < n_cluster_of(j); c++) fits &= scales[c] != 0.0f;
    for (size_t s = 0; s < j->n_split; s++) {
        uint32_t part = j->sums[(i * j->n_split + s) * j->n_out + o];
        float chain = hth_float_of(part);
        float scale = j->floats ? 1.0f : scales[s * HTH_DOWN_SPLIT / HTH_CLUSTER_NEURONS];
        if (!j->floats && scale != 0.0f) total = (int64_t)((uint64_t)total + (uint64_t)fixed_of(part, scale));
        else if (!j->floats) continue;
        else if (!hth_axpy_flush_chain(1, &chain, &total)) fits = false;
    }
    float y;
    hth_axpy_finish(&total, 1, &y);
    if (!fits) y = NAN;
    return j->has_bias ? y + j->bias[o] : y;
}

/* Runs it; j->y is what the device gives. */
static void try_join(hth_device *d, const char *name, uint32_t local, join *j)
{
    const size_t n_y = (j->first_tok + j->n_class) * j->n_out;
    const uint32_t consts[] = {local, j->floats, j->has_host, j->n_split % 2 ? 1 : 8}, step[4] = {(uint32_t)j->n_tok};
    uint32_t *host = get(HTH_HOST_SUMS + j->n_tok * j->n_out * 2, sizeof *host);
    host[0] = j->flag;
    if (j->has_host) memcpy(host + HTH_HOST_SUMS, j->host, j->n_tok * j->n_out * sizeof *j->host);
    const hth_push_down_reduce push = {(uint32_t)j->n_out, (uint32_t)j->n_split, j->has_bias, (uint32_t)j->first_tok,
                                       (uint32_t)n_cluster_of(j)};
    shaders_run run = {.id = j->accumulates ? HTH_SHADER_down_reduce_acc : HTH_SHADER_down_reduce,
                        .consts = consts,
                        .push = &push,
                        .bind = {{(void *)(uintptr_t)step, sizeof step},
                                 {j->sums, j->n_class * j->n_split * j->n_out * 4},
                                 {j->scales, j->n_tok * n_cluster_of(j) * 4},
                                 {host, j->has_host ? 4 * HTH_HOST_SUMS + j->n_tok * j->n_out * 8 : 0},
                                 {j->bias, j->has_bias ? j->n_out * 4 : 0},
                                 {j->y, n_y * 4}},
                        .grid = {(uint32_t)over(j->n_out, local / consts[3]), (uint32_t)j->n_class, 1}};
    float *expected = get(n_y, sizeof *expected);
    if (j->accumulates) memcpy(expected, j->y, n_y * sizeof *expected);
    else memset(expected, SHADERS_POISON, n_y * sizeof *expected);
    for (size_t i = 0; i < n_done(j->n_tok, j->first_tok, j->n_class); i++)
        for (size_t o = 0; o < j->n_out; o++) {
            float *y = expected + (j->first_tok + i) * j->n_out + o;
            *y = j->accumulates ? *y + join_one(j, i, o) : join_one(j, i, o);
        }
    if (shaders_do(d, &run)) {
        size_t at = proof_differ_f32(j->y, expected, n_y);
        if (at < n_y)
            test_fail(__FILE__, __LINE__, "%s: %s, %zu splits of %zu, token %zu, output %zu: %a, not %a",
                      name, j->floats ? "floats" : "integers", j->n_split, j->n_out, at / j->n_out,
                      at % j->n_out, (double)j->y[at], (double)expected[at]);
    }
    free(expected), free(host);
}

/* A 64-bit number of any length, near a power of two or a tie as often as not. */
static int64_t wide_number(test_random *r)
{
    uint32_t last = test_random_below(r, 63), low = last > 26 ? last - 26 : 0;
    uint64_t x = (uint64_t)1 << last;
    switch (test_random_below(r, 4)) {
    case 0: x = test_random_next(r) >> (63 - last) >> 1; break;
    case 1: x += (uint64_t)test_random_below(r, 9) << low; break; /* ties, and beside them */
    case 2: x += ((uint64_t)test_random_below(r, 9) << low) + test_random_below(r, 3) - 1; break;
    default: x -= (uint64_t)test_random_below(r, 5) << low; break;
    }
    return test_random_below(r, 2) ? (int64_t)x : -(int64_t)x;
}

/* Of every length beyond 24 bits: the last bit that a float has is even or odd, half of it lies behind, and
 * one more or less than that. */
enum { N_TIE = 39 * 2 * 3 };
static int64_t tie(size_t i)
{
    uint64_t last = (uint64_t)1 << (24 + i % 39), unit = last >> 23;
    return (int64_t)(last + unit * (i / 39 % 2) + unit / 2 + i / 78 - 1);
}

static void wide_sums(hth_device *d, const char *name, test_random *r)
{
    enum { N = 4000, SPLITS = 3 };
    static const int64_t ends[] = {
        0, INT64_MAX, INT64_MIN, -1, 1 << 24, (1 << 24) + 1, (1 << 24) + 3, (1 << 25) + 2, UINT32_MAX,
        -(int64_t)UINT32_MAX, (int64_t)1 << 32, -((int64_t)1 << 32), ((int64_t)1 << 53) + ((int64_t)1 << 29),
        ((int64_t)3 << 52) - 1,
    };
    uint32_t *sums = get(SPLITS * N, 4);
    float scales[2] = {0x1p32f, 0x1p32f};
    int64_t *host = get(N, sizeof *host);
    float *y = get(N, sizeof *y);
    join j = {.n_tok = 1, .n_class = 1, .n_split = SPLITS, .n_out = N, .has_host = true, .flag = HTH_HOST_SUMS_VALID};
    j.sums = sums, j.scales = scales, j.host = host, j.y = y;
    for (size_t o = 0; o < N; o++) {
        host[o] = o < N_TIE ? tie(o) : o < 2 * N_TIE ? -tie(o - N_TIE) : wide_number(r);
        if (o >= N - sizeof ends / sizeof *ends) host[o] = ends[N - 1 - o];
        /* Parts take the total away from there and bring it back, or carry from word to word. */
        uint32_t part = (uint32_t)test_random_next(r) >> test_random_below(r, 32);
        if (o < N / 2) sums[o] = part, sums[N + o] = ~part, sums[2 * N + o] = 1;
        else if (o < N - sizeof ends / sizeof *ends) sums[N + o] = part;
    }
    try_join(d, name, 64, &j);
    for (int k = 31; k > -31; k -= 3) {
        scales[0] = hth_float_of((uint32_t)(127 + k) << 23), scales[1] = 0x1p5f;
        try_join(d, name, k % 2 ? 24 : 64, &j);
    }
    scales[1] = 0, try_join(d, name, 64, &j);
    for (size_t o = 0; o < N; o++) CHECK(y[o] != y[o]);
    free(sums), free(host), free(y);
}
TEST(sums_of_64_bits_become_floats_as_on_the_cpu) { on_each(wide_sums); }

/* Tokens [FIRST, FIRST + N_CLASS) of which the step has one less; the others keep what they had. */
static void try_gather(hth_device *d, const char *name, test_random *r, bool start, const uint32_t consts[2],
                       uint32_t flag)
{
    enum { FIRST = 2, N_CLASS = 4, N_TOK = FIRST + N_CLASS - 1, SPLITS = 5, N = 700, N_CLUSTER = 4 };
    float scales[(FIRST + N_CLASS) * N_CLUSTER];
    enum { N_WIDE = HTH_HOST_SUMS + 2 * (FIRST + N_CLASS) * N };
    int32_t *sums = get(N_CLASS * SPLITS * N, sizeof *sums);
    uint32_t *wide = get(N_WIDE, sizeof *wide), *expected = get(N_WIDE, sizeof *expected),
             *host = get(N_WIDE, sizeof *host);
    const uint32_t step[4] = {N_TOK};
    bool adds = consts[HTH_DOWN_ACCUMULATE_HOST] && flag == HTH_HOST_SUMS_VALID;
    const hth_push_down_accumulate push = {N, SPLITS, FIRST, start, HTH_CLUSTER_NEURONS, N_CLUSTER};
    for (size_t i = 0; i < N_CLASS * SPLITS * N; i++)
        sums[i] = (int32_t)test_random_next(r) >> test_random_below(r, 32);
    for (size_t i = 0; i < N_WIDE; i++) expected[i] = wide[i] = (uint32_t)test_random_next(r);
    for (size_t i = 0; i < N_WIDE; i++) host[i] = (uint32_t)test_random_next(r);
    host[0] = flag;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        scales[i] = hth_float_of((127 + 32 - test_random_below(r, 50)) << 23);
    for (size_t i = 0; i < N_TOK - FIRST; i++)
        for (size_t o = 0; o < N; o++) {
            size_t at = HTH_HOST_SUMS + 2 * ((FIRST + i) * N + o);
            uint32_t *to = expected + at;
            uint64_t total = start ? 0 : (uint64_t)to[1] << 32 | to[0];
            total += adds ? (uint64_t)host[at + 1] << 32 | host[at] : 0;
            for (size_t s = 0; s < SPLITS; s++) total += (uint64_t)fixed_of((uint32_t)sums[(i * SPLITS + s) * N + o], scales[(FIRST + i) * N_CLUSTER + 1 + s / 2]);
            to[0] = (uint32_t)total, to[1] = (uint32_t)(total >> 32);
        }
    if (start) expected[0] = HTH_HOST_SUMS_VALID;
    if (consts[HTH_DOWN_ACCUMULATE_HOST] && flag == HTH_HOST_SUMS_OVERFLOW) expected[0] = HTH_HOST_SUMS_OVERFLOW;
    const shaders_run run = {.id = HTH_SHADER_down_accumulate,
                              .consts = consts,
                              .push = &push,
                              .bind = {{(void *)(uintptr_t)step, sizeof step},
                                       {sums, N_CLASS * SPLITS * N * sizeof *sums},
                                       {wide, N_WIDE * sizeof *wide},
                                       {host, N_WIDE * sizeof *host},
                                       {scales, sizeof scales}},
                              .grid = {(uint32_t)over(N, consts[HTH_DOWN_ACCUMULATE_LOCAL]), N_CLASS, 1}};
    if (shaders_do(d, &run) && memcmp(wide, expected, N_WIDE * sizeof *wide) != 0)
        test_fail(__FILE__, __LINE__, "%s: other sums, start %d, host's %u", name, start, flag);
    free(sums), free(wide), free(expected), free(host);
}

static void gathered(hth_device *d, const char *name, test_random *r)
{
    for (uint32_t i = 0; i < 12; i++)
        try_gather(d, name, r, i % 2, (const uint32_t[]){i % 4 < 2 ? 64 : 24, i < 9}, i % 3);
}
TEST(sums_are_gathered_in_64_bits) { on_each(gathered); }

static void float_sums(hth_device *d, const char *name, test_random *r)
{
    enum { N = 3000, SPLITS = 4 };
    static const uint32_t ends[] = {0x4b000000u, 0x4affffffu, 0xcb000000u, 0xcaffffffu, 0x7f800000u,
                                    0xff800000u, 0x7fc00000u, 0x00000001u, 0x807fffffu, 0x2f800000u,
                                    0x2f7fffffu, 0xaf800000u, 0xaf7fffffu, 0x3b800000u, 0x80000000u,
                                    0x4f800000u, 0x4f7fffffu, 0x24000000u, 0x00800000u, 0x2f800001u};
    float *chains = get(SPLITS * N, 4), *y = get(N, sizeof *y), *bias = get(N, sizeof *bias);
    int64_t *host = get(N, sizeof *host);
    uint32_t *sums = get(SPLITS * N, 4);
    join j = {.n_tok = 1, .n_class = 1, .n_split = SPLITS, .n_out = N, .floats = true, .has_bias = true};
    for (size_t i = 0; i < SPLITS * N; i++) {
        int shift = (int)test_random_below(r, 70) - 45;
        chains[i] = test_random_float(r) * hth_float_of((uint32_t)(shift + 127) << 23);
        if (!(chains[i] < 0x1p23f && chains[i] > -0x1p23f)) chains[i] = 1.0f;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        chains[i] = hth_float_of(ends[i]); /* beside others */
        for (size_t s = 0; s < SPLITS; s++) chains[s * N + 1000 + i] = s == 2 ? hth_float_of(ends[i]) : 0.0f;
    }
    memcpy(sums, chains, SPLITS * N * sizeof *sums);
    proof_fill_f32(r, PROOF_PLAIN, bias, N);
    for (size_t o = 0; o < N; o++) host[o] = wide_number(r) / 1024;
    j.sums = sums, j.host = host, j.bias = bias, j.y = y;
    try_join(d, name, 64, &j);
    CHECK(y[0] != y[0] && y[1] == y[1] && y[1006] != y[1006] && y[1007] == y[1007]);
    j.has_host = true, j.has_bias = false;
    for (j.flag = HTH_HOST_SUMS_NONE; j.flag <= HTH_HOST_SUMS_OVERFLOW; j.flag++) try_join(d, name, 64, &j);
    free(chains), free(sums), free(host), free(bias), free(y);
}
TEST(chains_of_floats_become_fixed_points_as_on_the_cpu) { on_each(float_sums); }

/* ---- a matrix ----------------------------------------------------------------------------------- */

typedef struct shape {
    hth_type type;
    size_t n_neuron, n_out, n_tok;
    size_t first_tok, n_class; /* tokens that are computed; those beyond n_tok are not */
    size_t part;               /* neurons that lie together, a multiple of a group; 0: all */
    proof_kind weights, h_kind;
    uint32_t local, cols;
    bool accumulates, has_host;
} shape;

typedef struct data {
    shape s;
    size_t row_size, stride, n_split, per; /* per: neurons of a split, or of a group */
    uint8_t *w;
    float *h;
    uint32_t *sums, *got; /* [n_class][n_split][n_out]: as they should be; as one part left them */
    join j;
} data;

static void free_data(data *a)
{
    void *all[] = {a->w, a->h, a->sums, a->got, a->j.scales, a->j.host, a->j.bias, a->j.y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void describe(char *text, size_t size, const char *device, const shape *s)
{
    snprintf(text, size,
             "%s, %s, %zu neurons in parts of %zu, %zu outputs, tokens %zu to %zu of %zu, weights %s, h %s, "
             "local %u, cols %u",
             device, rows_type_name(s->type), s->n_neuron, s->part, s->n_out, s->first_tok,
             s->first_tok + s->n_class, s->n_tok, proof_kind_name(s->weights), proof_kind_name(s->h_kind),
             s->local, s->cols);
}

/* Half of the neurons fire, some for no token; no token's h is larger than 2^60. */
static void fill_h(test_random *r, data *a)
{
    const shape *s = &a->s;
    proof_fill_f32(r, s->h_kind, a->h, s->n_tok * a->stride);
    for (size_t i = 0; i < s->n_tok * a->stride; i++) {
        if (s->h_kind == PROOF_LARGEST) a->h[i] = test_random_below(r, 2) ? 3.0f : -3.0f;
        if (!(a->h[i] < 0x1p60f && a->h[i] > -0x1p60f)) a->h[i] = test_random_float(r);
        if (i % a->stride % 5 == 3 || test_random_below(r, 2)) a->h[i] = i % 2 ? -0.0f : 0.0f;
    }
}

/* Every scale is finite, of the neurons that are active. */
static void fill_w(test_random *r, data *a, float *d_max)
{
    const shape *s = &a->s;
    const rows_shape row = {.type = s->type, .n_col = s->n_out, .kind = s->weights};
    for (size_t n = 0; n < s->n_neuron; n++) {
        uint8_t *w = a->w + n * a->row_size;
        float d;
        do rows_fill_row(r, &row, w), d = hth_axpy_absmax_scale(s->type, w, s->n_out);
        while (d - d != 0.0f);
        hth_axpy_raise(&d_max[n / HTH_CLUSTER_NEURONS], d);
        /* The values of a neuron that is active for no token must not be read. */
        if (!rows_quantised(s->type) && n % 5 == 3) memset(w, 0xff, a->row_size);
    }
}

static data make(test_random *r, const shape *s)
{
    data a = {.s = *s, .per = rows_quantised(s->type) ? HTH_DOWN_SPLIT : HTH_CLUSTER_NEURONS};
    a.row_size = rows_bytes(s->type, s->n_out), a.stride = (s->n_neuron + 4) / 5 * 5 + 5;
    a.n_split = over(s->n_neuron, a.per);
    const size_t n_sum = s->n_class * a.n_split * s->n_out, n_y = (s->first_tok + s->n_class) * s->n_out;
    a.w = get(s->n_neuron, a.row_size), a.h = get(s->n_tok * a.stride, sizeof *a.h);
    a.sums = get(n_sum, 4), a.got = get(n_sum, 4);
    fill_h(r, &a);
    FREED float *d_max = get(hth_n_cluster(s->n_neuron), sizeof *d_max);
    fill_w(r, &a, d_max);
    a.j = (join){
        s->n_tok, s->first_tok, s->n_class, a.n_split, s->n_out, !rows_quantised(s->type), s->has_host,
        .has_bias = s->n_out % 3 > 0, .accumulates = s->accumulates, .sums = a.sums, .flag = HTH_HOST_SUMS_VALID,
    };
    const size_t n_cluster = n_cluster_of(&a.j);
    a.j.scales = get(s->n_tok * n_cluster, 4), a.j.host = get(s->n_tok * s->n_out, 8);
    a.j.bias = get(s->n_out, 4), a.j.y = get(n_y, 4);
    int safe = hth_axpy_safe_exponent(s->type, hth_n_cluster(s->n_neuron));
    for (size_t i = 0; i < s->n_tok * n_cluster; i++) {
        size_t first = i % n_cluster * HTH_CLUSTER_NEURONS, n = min(s->n_neuron - first, HTH_CLUSTER_NEURONS);
        a.j.scales[i] = hth_axpy_scale(a.h + i / n_cluster * a.stride + first, n, d_max[i % n_cluster], safe);
    }
    for (size_t i = 0; i < s->n_tok * s->n_out; i++) a.j.host[i] = (int64_t)test_random_next(r) >> 25;
    proof_fill_f32(r, PROOF_PLAIN, a.j.bias, s->n_out);
    proof_fill_f32(r, PROOF_PLAIN, a.j.y, n_y);
    return a;
}

static float scale_at(const data *a, size_t t, size_t split)
{
    return a->j.scales[t * n_cluster_of(&a->j) + split * HTH_DOWN_SPLIT / HTH_CLUSTER_NEURONS];
}

/* What the CPU's kernel gives for the neurons of one split. */
static void expect_split(const data *a, size_t t, size_t split, uint32_t *sums)
{
    const size_t n_out = a->s.n_out, end = min(a->s.n_neuron, (split + 1) * a->per);
    int32_t list[HTH_DOWN_SPLIT], *narrow = get(n_out, 4), *offsets = get(n_out, 4);
    float h[HTH_DOWN_SPLIT];
    int64_t *acc64 = get(n_out, sizeof *acc64);
    hth_axpy_job job = {
        a->w,           a->row_size,       n_out, list, h, .scale = scale_at(a, t, split),
        .sums = narrow, .offsets = offsets};
    for (size_t n = split * a->per; n < end; n++)
        if (a->h[t * a->stride + n] != 0.0f) list[job.n] = (int32_t)n, h[job.n++] = a->h[t * a->stride + n];
    kernels.axpy[a->s.type](&job);
    kernels.axpy_flush(a->s.type, n_out, 0x1p32f, narrow, offsets, acc64);
    for (size_t o = 0; o < n_out; o++) sums[o] = (uint32_t)(int32_t)acc64[o];
    free(narrow), free(offsets), free(acc64);
}

static float weight(hth_type type, const uint8_t *row, size_t o)
{
    if (type == HTH_TYPE_F32) return hth_load_f32(row + 4 * o);
    uint16_t half = hth_load_u16(row + 2 * o);
    return type == HTH_TYPE_F16 ? hth_f16_to_f32(half) : hth_bf16_to_f32(half);
}

static void expect_chain(const data *a, size_t t, size_t group, uint32_t *chains)
{
    const size_t end = min(a->s.n_neuron, (group + 1) * a->per);
    for (size_t o = 0; o < a->s.n_out; o++) {
        float chain = 0.0f;
        for (size_t n = group * a->per; n < end; n++) {
            float h = a->h[t * a->stride + n];
            if (h == 0.0f) continue;
            float product = weight(a->s.type, a->w + n * a->row_size, o) * h;
            chain = chain + product;
        }
        chains[o] = hth_bits_of(chain);
    }
}

static void expect(data *a)
{
    const shape *s = &a->s;
    memset(a->sums, SHADERS_POISON, s->n_class * a->n_split * s->n_out * 4);
    for (size_t i = 0; i < n_done(s->n_tok, s->first_tok, s->n_class); i++)
        for (size_t k = 0; k < a->n_split; k++) {
            uint32_t *sums = a->sums + (i * a->n_split + k) * s->n_out;
            if (a->j.floats) expect_chain(a, s->first_tok + i, k, sums);
            else expect_split(a, s->first_tok + i, k, sums);
        }
}

/* ---- one matrix on one device ------------------------------------------------------------------- */

/* Of invocations, which divide the neurons of a split. */
static uint32_t groups_of(const shape *s) { return s->n_neuron % 2 ? 4 : 1; }

static bool run_part(hth_device *d, data *a, size_t first, size_t n, const hth_soa_layout *at,
                     uint8_t *planes)
{
    const shape *s = &a->s;
    const uint32_t step[4] = {(uint32_t)s->n_tok};
    uint32_t consts[HTH_DOWN_N_CONST] = {s->local, a->j.floats ? (uint32_t)s->type : s->cols, groups_of(s)};
    hth_quant_desc desc = {0};
    hth_push_down push = {.n_neuron = (uint32_t)n, .n_split = (uint32_t)a->n_split, .stride = (uint32_t)a->stride,
                          .n_cluster = (uint32_t)n_cluster_of(&a->j), .first = (uint32_t)first,
                          .first_split = (uint32_t)first / HTH_DOWN_SPLIT, .first_tok = (uint32_t)s->first_tok,
                          .at = at->offsets};
    const hth_push_down_f push_f = {(uint32_t)n,          (uint32_t)s->n_out, (uint32_t)a->stride,
                                    (uint32_t)a->n_split, (uint32_t)first,    (uint32_t)s->first_tok};
    shaders_binding sums = {a->got, s->n_class * a->n_split * s->n_out * 4};
    shaders_run run = {.id = a->j.floats ? HTH_SHADER_down_f : HTH_SHADER_down_q,
                        .consts = consts,
                        .push = a->j.floats ? (const void *)&push_f : &push,
                        .bind = {{(void *)(uintptr_t)step, sizeof step},
                                 {planes, (size_t)at->size},
                                 {a->h, s->n_tok * a->stride * 4}},
                        .grid = {0, (uint32_t)over(n, a->per), (uint32_t)s->n_class}};
    if (a->j.floats) {
        run.grid[0] = (uint32_t)over(over(a->row_size, 4), s->local);
        run.bind[3] = sums;
        return shaders_do(d, &run);
    }
    if (!CHECK(hth_quant_desc_of(s->type, &desc))) return false;
    memcpy(consts + HTH_DOWN_FORMAT, &desc, sizeof desc);
    push.n_block = (uint32_t)(s->n_out / desc.block);
    run.grid[0] = (uint32_t)over(s->n_out * desc.low_bits / 128, s->local / groups_of(s));
    run.grid[2] = (uint32_t)over(s->n_class, s->cols);
    run.bind[3] = (shaders_binding){a->j.scales, s->n_tok * n_cluster_of(&a->j) * 4}, run.bind[4] = sums;
    return shaders_do(d, &run);
}

static bool same_sum(const data *a, uint32_t x, uint32_t y)
{
    float of[] = {hth_float_of(x), hth_float_of(y)};
    return a->j.floats ? proof_differ_f32(of, of + 1, 1) == 1 : x == y;
}

/* Its splits have their sums, where these have a meaning; the others are as they were. */
static void check_part(const char *device, const data *a, size_t first, size_t n)
{
    const shape *s = &a->s;
    uint32_t untouched;
    char text[300];
    memset(&untouched, SHADERS_POISON, sizeof untouched);
    for (size_t i = 0; i < s->n_class * a->n_split * s->n_out; i++) {
        size_t split = i / s->n_out % a->n_split, t = s->first_tok + i / s->n_out / a->n_split;
        bool mine = split >= first / a->per && split < over(first + n, a->per);
        bool defined = a->j.floats || t >= s->n_tok || scale_at(a, t, split) != 0.0f;
        if (mine && !defined) continue;
        if (same_sum(a, a->got[i], mine ? a->sums[i] : untouched)) continue;
        describe(text, sizeof text, device, s);
        test_fail(__FILE__, __LINE__, "%s: part from %zu, token %zu, split %zu, output %zu is %08x, not %08x",
                  text, first, t, split, i % s->n_out, a->got[i], mine ? a->sums[i] : untouched);
        return;
    }
}

static void prove(hth_device *d, const char *device, test_random *r, const shape *s)
{
    CLEANUP(free_data) data a = make(r, s);
    const size_t part = s->part ? s->part : s->n_neuron;
    expect(&a);
    for (size_t first = 0, n; first < s->n_neuron; first += n) {
        hth_soa_layout at;
        n = min(part, s->n_neuron - first);
        if (!CHECK(hth_soa_layout_init(s->type, n, s->n_out, &at))) continue;
        FREED uint8_t *planes = get(1, (size_t)at.size);
        hth_soa_layout_pack(s->type, n, s->n_out, a.w + first * a.row_size, a.row_size, 0, n, planes);
        if (run_part(d, &a, first, n, &at, planes)) check_part(device, &a, first, n);
    }
    try_join(d, device, s->local, &a.j);
}

/* ---- shapes ------------------------------------------------------------------------------------- */

static const size_t neurons[] = {1, 127, 128, 129, 300};
static const struct {
    size_t n_tok, first_tok, n_class;
} tokens[] = {{1, 0, 1}, {3, 0, 8}, {9, 4, 4}, {6, 4, 4}, {2, 2, 3}};
enum { N_NEURONS = 5, N_TOKENS = 5 };

static shape shape_of(test_random *r, hth_type type, size_t i)
{
    const uint32_t max = rows_quantised(type) && rows_block(type) == 256 ? 9 : 19;
    shape s = {.type = type, .n_neuron = neurons[i % N_NEURONS], .part = i % 2 ? 0 : HTH_CLUSTER_NEURONS};
    s.n_out = rows_block(type) * (1 + test_random_below(r, rows_quantised(type) ? max : 130));
    s.n_tok = tokens[(i + i / 5) % N_TOKENS].n_tok, s.n_class = tokens[(i + i / 5) % N_TOKENS].n_class;
    s.first_tok = tokens[(i + i / 5) % N_TOKENS].first_tok;
    s.cols = i % 3 == 2 ? 2 : 1, s.local = i % 2 ? 64 : 24;
    s.accumulates = i % 3 == 1, s.has_host = i % 4 == 2;
    return s;
}

static void all_types(hth_device *d, const char *name, test_random *r)
{
    static const proof_kind kinds[][2] = {{PROOF_PLAIN, PROOF_PLAIN},   {PROOF_LARGEST, PROOF_LARGEST},
                                          {PROOF_WIDE, PROOF_OUTLIER},  {PROOF_PLAIN, PROOF_ZEROS},
                                          {PROOF_PLAIN, PROOF_WIDE},    {PROOF_SUBNORMAL, PROOF_PLAIN},
                                          {PROOF_BITS, PROOF_SUBNORMAL}};
    for (size_t t = 0; t < ROWS_N_FULL; t++)
        for (size_t i = 0; i < 14 && rows_quantised(rows_types[t]); i++) {
            if (shaders_are_few(name) && (i + t) % 3 != 0) continue;
            shape s = shape_of(r, rows_types[t], i);
            s.weights = kinds[i % 7][0], s.h_kind = kinds[i % 7][1];
            prove(d, name, r, &s);
        }
}
TEST(down_of_quantised_rows_has_the_bits_of_the_cpu) { on_each(all_types); }

static void large(hth_device *d, const char *name, test_random *r)
{
    static const shape shapes[] = {
        {HTH_TYPE_Q8_0, 1400, 32 * 67, 5, 0, 5, 512, PROOF_LARGEST, PROOF_LARGEST, 128, 2, true, true},
        {HTH_TYPE_Q4_K, 1000, 256 * 17, 4, 0, 4, 256, PROOF_PLAIN, PROOF_PLAIN, 64, 2, false, false},
    };
    for (size_t i = 0; i < 2; i++) prove(d, name, r, &shapes[i]);
}
TEST(down_in_many_parts_is_that_of_the_whole) { on_each(large); }

static void floats(hth_device *d, const char *name, test_random *r)
{
    static const hth_type types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16};
    static const proof_kind kinds[] = {PROOF_PLAIN, PROOF_OUTLIER, PROOF_PLAIN, PROOF_SPECIAL, PROOF_WIDE};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < 15; i++) {
            shape s = shape_of(r, types[t], i);
            s.n_neuron = i % 5 == 4 ? 600 : s.n_neuron; /* groups of 256 */
            s.weights = kinds[i / 3], s.h_kind = i % 4 == 3 ? PROOF_OUTLIER : PROOF_PLAIN;
            if (types[t] == HTH_TYPE_F16 && i == 14) s.weights = PROOF_SUBNORMAL;
            prove(d, name, r, &s);
        }
}
TEST(down_of_floats_is_its_definition_everywhere) { on_each(floats); }

/* The CPU fuses what devices round twice: that far apart they may be, and no further. */
TEST(down_of_floats_is_near_the_cpu)
{
    static const hth_type types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16};
    enum { N = 300, OUT = 257 };
    test_random r = proof_random();
    hth_kernels_init(&kernels, HTH_CPU_GENERIC);
    for (size_t k = 0; k < 3; k++) {
        shape s = {types[k], N, OUT, 1, 0, 1, 0, PROOF_PLAIN, PROOF_PLAIN, 64, 1, false, false};
        CLEANUP(free_data) data a = make(&r, &s);
        int32_t list[N];
        float h[N], chain[OUT] = {0}, y[OUT];
        int64_t acc64[OUT] = {0};
        double difference = 0, all = 0;
        expect(&a);
        a.j.has_bias = false;
        for (size_t first = 0; first < N; first += a.per) {
            hth_axpy_job job = {a.w, a.row_size, OUT, list, h, .chain = chain};
            for (size_t n = first; n < min(N, first + a.per); n++)
                if (a.h[n] != 0.0f) list[job.n] = (int32_t)n, h[job.n++] = a.h[n];
            kernels.axpy[types[k]](&job);
            CHECK(kernels.axpy_flush_chain(OUT, chain, acc64));
        }
        hth_axpy_finish(acc64, OUT, y);
        for (size_t o = 0; o < OUT; o++) {
            double e = (double)y[o] - (double)join_one(&a.j, 0, o);
            difference += e * e, all += (double)y[o] * (double)y[o];
        }
        if (!(difference <= 4e-12 * all))
            test_fail(__FILE__, __LINE__, "%s: error %g of %g", rows_type_name(types[k]), difference, all);
    }
}
