/* The transposed down of chosen experts on devices, from hidden values to outputs: on the null device and on the first that
 * Vulkan knows, quantised rows give the scales and outputs of the CPU's kernels, as forward/experts_down.c uses them. Rows
 * of floats give the chains of shader_params.h on both, near the CPU. Experts begin anywhere within a cluster. */
#include "base/bits.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"
#include "kernels/kernels.h"
#include "kernels/sparse_down.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, MAX_USED = 4, MAX_TOK = 9, MAX_D_FF = 768 };

static hth_kernels kernels;

static void *get(size_t n, size_t size) { return calloc(n ? n : 1, size); }
static uint32_t over(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

/* Tokens [first_tok, first_tok + n_class) have sums, if they are among the n_tok of the step. */
typedef struct shape {
    hth_type type;
    uint32_t d_ff, n_expert, n_used, n_out;
    uint32_t n_tok, first_tok, n_class;
    proof_kind weights, h_kind;
    uint32_t local, groups;
    bool accumulates;
} shape;

typedef struct data {
    shape s;
    bool floats;
    size_t row_size, stride;
    uint32_t n_cluster, n_split; /* of a token */
    int safe;
    uint8_t *w, *planes;
    hth_soa_layout places;
    float *h, *bounds; /* [n_tok][stride]; D of each cluster of the weights */
    uint32_t pairs[MAX_TOK * 2 * MAX_USED], step[4];
    float *scales,
        *expected_scales; /* [n_tok + 1][n_cluster]; expected: NaN where any power of two will do */
    uint32_t *sums;       /* [n_class][n_split][n_out] */
    float *y, *expected_y, *cpu_y, *x; /* [first_tok + n_class][n_out]; x: what outputs are added to */
} data;

static void free_data(data *a)
{
    void *all[] = {a->w,    a->planes, a->h,          a->bounds, a->scales, a->expected_scales,
                   a->sums, a->y,      a->expected_y, a->cpu_y,  a->x};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static size_t n_y_of(const shape *s) { return (size_t)(s->first_tok + s->n_class) * s->n_out; }
static uint32_t end_tok(const shape *s)
{
    return s->n_tok < s->first_tok + s->n_class ? s->n_tok : s->first_tok + s->n_class;
}

/* ---- values ------------------------------------------------------------------------------------------- */

/* Every scale is finite. Floats of an expert that no token uses are NaN: they must not be read. */
static void fill_weights(test_random *r, data *a)
{
    const shape *s = &a->s;
    const rows_shape row = {.type = s->type, .n_col = s->n_out, .kind = s->weights};
    bool is_used[64] = {false};
    for (uint32_t t = 0; t < s->n_tok; t++)
        for (uint32_t j = 0; j < s->n_used; j++) is_used[a->pairs[2 * t * s->n_used + j]] = true;
    for (uint32_t n = 0; n < s->n_expert * s->d_ff; n++) {
        uint8_t *w = a->w + n * a->row_size;
        float d;
        do rows_fill_row(r, &row, w), d = hth_axpy_absmax_scale(s->type, w, s->n_out);
        while (d - d != 0.0f);
        hth_axpy_raise(&a->bounds[n / HTH_CLUSTER_NEURONS], d);
        if (a->floats && !is_used[n / s->d_ff]) memset(w, 0xff, a->row_size);
    }
}

static void fill_pairs(test_random *r, data *a)
{
    const shape *s = &a->s;
    for (uint32_t t = 0; t < s->n_tok; t++)
        for (uint32_t j = 0; j < s->n_used; j++) {
            float weight = test_random_below(r, 8) ? test_random_float(r) : 0.0f;
            if (s->h_kind == PROOF_LARGEST) weight = 1.0f;
            a->pairs[2 * t * s->n_used + j] = test_random_below(r, s->n_expert);
            a->pairs[(2 * t + 1) * s->n_used + j] = hth_bits_of(weight);
        }
}

/* Half of the neurons fire, in some clusters none. No value is larger than 2^60, unless some are not finite. */
static void fill_hidden(test_random *r, data *a)
{
    const shape *s = &a->s;
    proof_fill_f32(r, s->h_kind, a->h, s->n_tok * a->stride);
    for (size_t i = 0; i < s->n_tok * a->stride; i++) {
        if (s->h_kind == PROOF_LARGEST) a->h[i] = test_random_below(r, 2) ? 3.0f : -3.0f;
        if (s->h_kind != PROOF_SPECIAL && !(a->h[i] < 0x1p60f && a->h[i] > -0x1p60f))
            a->h[i] = test_random_float(r);
        if (i / 200 % 5 == 3 || test_random_below(r, 2)) a->h[i] = i % 2 ? -0.0f : 0.0f;
    }
}

/* ---- what is expected --------------------------------------------------------------------------------- */

static float weight_at(hth_type type, const uint8_t *row, size_t o)
{
    if (type == HTH_TYPE_F32) return hth_load_f32(row + 4 * o);
    uint16_t half = hth_load_u16(row + 2 * o);
    return type == HTH_TYPE_F16 ? hth_f16_to_f32(half) : hth_bf16_to_f32(half);
}

/* A token's sums: as the CPU adds them up, and, of floats, with each product and each sum rounded. */
typedef struct sums {
    int64_t *of_cpu, *rounded;
    bool overflow;
} sums;

/* Active neurons of an expert's rows w which share a cluster. */
static void add_cluster(const data *a, const hth_axpy_job *of, sums *to, hth_axpy_state *state)
{
    size_t n_out = a->s.n_out;
    FREED float *chain = get(n_out, sizeof *chain);
    hth_axpy_add_rows(&kernels, a->s.type, of, to->of_cpu, state);
    for (size_t i = 0; a->floats && i < of->n; i++)
        for (size_t o = 0; o < n_out; o++)
            chain[o] =
                chain[o] + weight_at(a->s.type, of->w + (size_t)of->list[i] * a->row_size, o) * of->h[i];
    if (a->floats) hth_axpy_flush_chain(n_out, chain, to->rounded);
}

/* Pair j of token t. */
static void add_pair(data *a, uint32_t t, uint32_t j, hth_axpy_job of, sums *to)
{
    const shape *s = &a->s;
    const uint32_t *of_token = a->pairs + 2 * t * s->n_used;
    uint32_t slice = of_token[j] * s->d_ff, n = 0;
    float h[MAX_D_FF], scaled[MAX_D_FF],
        *scales = a->expected_scales + t * a->n_cluster + j * hth_down_clusters(s->d_ff);
    int32_t list[MAX_D_FF];
    hth_axpy_state state = {0};
    kernels.scale(a->h + t * a->stride + j * s->d_ff, hth_float_of(of_token[s->n_used + j]), s->d_ff, scaled);
    for (uint32_t i = 0; i < s->d_ff; i++)
        if (scaled[i] != 0.0f) list[n] = (int32_t)i, h[n++] = scaled[i];
    of.w = a->w + slice * a->row_size;
    for (uint32_t at = 0; at < n; at += (uint32_t)of.n) {
        uint32_t cluster = (slice + (uint32_t)list[at]) / HTH_CLUSTER_NEURONS;
        for (of.n = 1; at + of.n < n && (slice + (uint32_t)list[at + of.n]) / HTH_CLUSTER_NEURONS == cluster;)
            of.n++;
        of.list = list + at, of.h = h + at;
        of.scale = a->floats ? 0x1p32f : hth_axpy_scale(of.h, of.n, a->bounds[cluster], a->safe);
        scales[cluster - slice / HTH_CLUSTER_NEURONS] = of.scale;
        add_cluster(a, &of, to, &state);
    }
    hth_axpy_flush_pending(&kernels, s->type, &of, to->of_cpu, &state);
    to->overflow |= state.overflow;
}

static void expect_token(data *a, uint32_t t)
{
    const shape *s = &a->s;
    const float *x = a->x + (size_t)t * s->n_out;
    FREED int64_t *of_cpu = get(s->n_out, 8), *rounded = get(s->n_out, 8);
    FREED int32_t *parts = get(s->n_out, 4), *offsets = get(s->n_out, 4);
    FREED float *chain = get(s->n_out, 4);
    sums to = {of_cpu, rounded, false};
    const hth_axpy_job of = {
        .row_size = a->row_size, .n_out = s->n_out, .sums = parts, .offsets = offsets, .chain = chain};
    for (uint32_t i = 0; i < a->n_cluster; i++) a->expected_scales[t * a->n_cluster + i] = NAN;
    for (uint32_t j = 0; j < s->n_used; j++) add_pair(a, t, j, of, &to);
    if (t < s->first_tok || t >= end_tok(s)) return;
    float *cpu = a->cpu_y + (size_t)t * s->n_out, *y = a->expected_y + (size_t)t * s->n_out;
    hth_axpy_write(&kernels, of_cpu, s->n_out, to.overflow, NULL, cpu, NULL);
    if (a->floats) hth_axpy_finish(rounded, s->n_out, y);
    else memcpy(y, cpu, s->n_out * sizeof *y);
    for (uint32_t o = 0; s->accumulates && o < s->n_out; o++) y[o] = x[o] + y[o], cpu[o] = x[o] + cpu[o];
}

static data make(test_random *r, const shape *s)
{
    data a = {.s = *s, .floats = !rows_quantised(s->type), .row_size = rows_bytes(s->type, s->n_out)};
    const uint32_t n_row = s->n_expert * s->d_ff, clusters = hth_down_clusters(s->d_ff);
    a.stride = s->n_used * s->d_ff + 3, a.n_cluster = s->n_used * clusters;
    a.n_split = a.floats ? a.n_cluster : a.n_cluster * (HTH_CLUSTER_NEURONS / HTH_DOWN_SPLIT);
    a.safe = hth_axpy_safe_exponent(s->type, s->n_used * (hth_n_cluster(s->d_ff) + 1));
    a.w = get(n_row, a.row_size), a.h = get(s->n_tok * a.stride, 4), a.bounds = get(hth_n_cluster(n_row), 4);
    a.scales = get((s->n_tok + 1) * a.n_cluster, 4), a.expected_scales = get((s->n_tok + 1) * a.n_cluster, 4);
    a.sums = get((size_t)s->n_class * a.n_split * s->n_out, 4);
    a.y = get(n_y_of(s), 4), a.expected_y = get(n_y_of(s), 4), a.cpu_y = get(n_y_of(s), 4),
    a.x = get(n_y_of(s), 4);
    a.step[HTH_STEP_N_TOK] = s->n_tok;
    fill_pairs(r, &a), fill_hidden(r, &a), fill_weights(r, &a);
    if (s->accumulates) proof_fill_f32(r, PROOF_PLAIN, a.x, n_y_of(s));
    else memset(a.x, SHADERS_POISON, n_y_of(s) * 4);
    memcpy(a.expected_y, a.x, n_y_of(s) * 4), memcpy(a.cpu_y, a.x, n_y_of(s) * 4);
    CHECK(hth_soa_layout_init(s->type, n_row, s->n_out, &a.places));
    a.planes = get(1, (size_t)a.places.size);
    hth_soa_layout_pack(s->type, n_row, s->n_out, a.w, a.row_size, 0, n_row, a.planes);
    for (uint32_t t = 0; t < s->n_tok; t++) expect_token(&a, t);
    return a;
}

/* ---- what a device computes --------------------------------------------------------------------------- */

static shaders_binding step_of(data *a) { return (shaders_binding){a->step, sizeof a->step}; }
static shaders_binding planes_of(data *a) { return (shaders_binding){a->planes, (size_t)a->places.size}; }
static shaders_binding hidden_of(data *a) { return (shaders_binding){a->h, a->s.n_tok * a->stride * 4}; }
static shaders_binding pairs_of(data *a)
{
    return (shaders_binding){a->pairs, (size_t)a->s.n_tok * 2 * a->s.n_used * 4};
}
static shaders_binding sums_of(data *a)
{
    return (shaders_binding){a->sums, (size_t)a->s.n_class * a->n_split * a->s.n_out * 4};
}
static shaders_binding scales_of(data *a)
{
    return (shaders_binding){a->scales, a->floats ? 0 : (size_t)(a->s.n_tok + 1) * a->n_cluster * 4};
}

/* The grid is that of one token more than there is. */
static bool run_scales(hth_device *d, data *a)
{
    const shape *s = &a->s;
    const uint32_t n_bound = (uint32_t)hth_n_cluster((size_t)s->n_expert * s->d_ff);
    const hth_push_down_scale_sliced push = {{s->d_ff, (uint32_t)a->stride, a->safe}, s->n_used};
    const shaders_run run = {
        .id = HTH_SHADER_down_scale_sliced,
        .consts = &s->local,
        .push = &push,
        .bind = {step_of(a), hidden_of(a), {a->bounds, n_bound * 4}, scales_of(a), pairs_of(a)},
        .grid = {a->n_cluster, s->n_tok + 1, 1}};
    return shaders_do(d, &run);
}

static bool run_sums(hth_device *d, data *a)
{
    const shape *s = &a->s;
    hth_quant_desc desc;
    uint32_t consts[HTH_DOWN_N_CONST] = {s->local * s->groups, 1, s->groups};
    if (!CHECK(hth_quant_desc_of(s->type, &desc))) return false;
    memcpy(consts + HTH_DOWN_FORMAT, &desc, sizeof desc);
    const hth_push_down_sliced push = {{.n_neuron = s->d_ff,
                                        .n_block = s->n_out / desc.block,
                                        .stride = (uint32_t)a->stride,
                                        .n_split = a->n_split,
                                        .n_cluster = a->n_cluster,
                                        .first_tok = s->first_tok,
                                        .at = a->places.offsets},
                                       s->n_used};
    const shaders_run run = {
        .id = HTH_SHADER_down_q_sliced,
        .consts = consts,
        .push = &push,
        .bind = {step_of(a), planes_of(a), hidden_of(a), scales_of(a), sums_of(a), pairs_of(a)},
        .grid = {over(s->n_out * desc.low_bits / 128, s->local), a->n_split, s->n_class}};
    return shaders_do(d, &run);
}

static bool run_chains(hth_device *d, data *a)
{
    const shape *s = &a->s;
    const uint32_t consts[] = {s->local, (uint32_t)s->type};
    const hth_push_down_f_sliced push = {
        {s->d_ff, s->n_out, (uint32_t)a->stride, a->n_split, 0, s->first_tok}, s->n_used};
    const shaders_run run = {
        .id = HTH_SHADER_down_f_sliced,
        .consts = consts,
        .push = &push,
        .bind = {step_of(a), planes_of(a), hidden_of(a), sums_of(a), pairs_of(a)},
        .grid = {over(over((uint32_t)a->row_size, 4), s->local), a->n_split, s->n_class}};
    return shaders_do(d, &run);
}

static bool run_outputs(hth_device *d, data *a)
{
    const shape *s = &a->s;
    const uint32_t consts[] = {64, a->floats, 0, 4};
    const hth_push_down_reduce push = {s->n_out, a->n_split, 0, s->first_tok, a->floats ? 0 : a->n_cluster};
    uint32_t none = 0;
    const shaders_binding absent = {&none, sizeof none};
    const shaders_run run = {
        .id = s->accumulates ? HTH_SHADER_down_reduce_acc : HTH_SHADER_down_reduce,
        .consts = consts,
        .push = &push,
        .bind = {step_of(a), sums_of(a), scales_of(a), absent, absent, {a->y, n_y_of(s) * 4}},
        .grid = {over(s->n_out, consts[0] / consts[3]), s->n_class, 1}};
    memcpy(a->y, a->x, n_y_of(s) * 4);
    return shaders_do(d, &run);
}

/* ---- both --------------------------------------------------------------------------------------------- */

static void fail(int line, const data *a, const char *device, const char *what, size_t i, float got,
                 float expected)
{
    const shape *s = &a->s;
    test_fail(__FILE__, line,
              "%s, %s, %u experts of %u neurons, %u outputs, %u of them for tokens %u to %u of %u, weights "
              "%s, h %s, "
              "local %u, groups %u: %s %zu is %a, not %a",
              device, rows_type_name(s->type), s->n_expert, s->d_ff, s->n_out, s->n_used, s->first_tok,
              s->first_tok + s->n_class, s->n_tok, proof_kind_name(s->weights), proof_kind_name(s->h_kind),
              s->local, s->groups, what, i, (double)got, (double)expected);
}

/* Without an active neuron any power of two will do. That of the token that is not there is not written. */
static void check_scales(const char *device, const data *a)
{
    size_t n = (size_t)a->s.n_tok * a->n_cluster;
    for (size_t i = 0; i < n + a->n_cluster; i++) {
        uint32_t got = hth_bits_of(a->scales[i]);
        bool is_there = i < n, any = is_there && a->expected_scales[i] != a->expected_scales[i];
        bool good = any         ? (got & 0x807fffffu) == 0 && got > 0
                    : !is_there ? got == 0x01010101u * SHADERS_POISON
                                : a->scales[i] == a->expected_scales[i];
        if (good) continue;
        fail(__LINE__, a, device, "scale", i, a->scales[i], a->expected_scales[i]);
        return;
    }
}

static void check_unwritten(const char *device, const data *a)
{
    const shape *s = &a->s;
    size_t n_done = s->first_tok < s->n_tok ? end_tok(s) - s->first_tok : 0,
           of_token = (size_t)a->n_split * s->n_out;
    for (size_t i = n_done * of_token; i < s->n_class * of_token; i++)
        if (a->sums[i] != 0x01010101u * SHADERS_POISON) {
            fail(__LINE__, a, device, "sum", i, hth_float_of(a->sums[i]), 0.0f);
            return;
        }
}

static void check_near(const char *device, const data *a)
{
    double difference = 0.0, all = 0.0;
    for (size_t i = 0; i < n_y_of(&a->s); i++) {
        double e = (double)a->y[i] - (double)a->cpu_y[i];
        if (hth_bits_of(a->y[i]) == hth_bits_of(a->cpu_y[i])) continue;
        difference += e * e, all += (double)a->cpu_y[i] * (double)a->cpu_y[i];
    }
    if (!(difference <= 4e-12 * all)) fail(__LINE__, a, device, "error", 0, (float)difference, (float)all);
}

static void prove(hth_device *d, const char *device, test_random *r, const shape *s)
{
    CLEANUP(free_data) data a = make(r, s);
    if (!a.floats && !run_scales(d, &a)) return;
    if (!a.floats) check_scales(device, &a);
    if (!(a.floats ? run_chains(d, &a) : run_sums(d, &a))) return;
    check_unwritten(device, &a);
    if (!run_outputs(d, &a)) return;
    size_t i = proof_differ_f32(a.y, a.expected_y, n_y_of(s));
    if (i < n_y_of(s)) fail(__LINE__, &a, device, "output", i, a.y[i], a.expected_y[i]);
    if (a.floats) check_near(device, &a);
}

/* ---- shapes ------------------------------------------------------------------------------------------- */

static const uint32_t neurons[] = {16, 100, 256, 300, MAX_D_FF, 1, 255, 257, 512, 128};
static const struct {
    uint32_t n_tok, first_tok, n_class;
} tokens[] = {{1, 0, 1}, {3, 0, 5}, {MAX_TOK, 4, 4}, {6, 4, 4}, {2, 2, 3}};
enum { N_NEURONS = 10, N_TOKENS = 5 };

static shape shape_of(test_random *r, hth_type type, size_t i)
{
    shape s = {.type = type, .d_ff = neurons[i % N_NEURONS], .accumulates = i % 3 == 1};
    bool quantised = rows_quantised(type);
    s.n_out = (uint32_t)rows_block(type) * (1 + test_random_below(r, !quantised                ? 130
                                                                     : rows_block(type) == 256 ? 2
                                                                                               : 9));
    s.n_expert = 1 + test_random_below(r, 6), s.n_used = 1 + test_random_below(r, MAX_USED);
    s.n_tok = tokens[(i + i / 5) % N_TOKENS].n_tok, s.n_class = tokens[(i + i / 5) % N_TOKENS].n_class;
    s.first_tok = tokens[(i + i / 5) % N_TOKENS].first_tok;
    s.local = i % 4 < 2 ? 64 : 24, s.groups = i % 2 ? 4 : 1;
    return s;
}

/* fn(device, its name, random numbers), on every device there is. */
static void on_each(void (*fn)(hth_device *, const char *, test_random *))
{
    kernels = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        fn(d, devices[i], &r);
        shaders_close(d);
    }
}

static void quantised(hth_device *d, const char *name, test_random *r)
{
    static const proof_kind kinds[][2] = {{PROOF_PLAIN, PROOF_PLAIN},     {PROOF_LARGEST, PROOF_LARGEST},
                                          {PROOF_WIDE, PROOF_OUTLIER},    {PROOF_PLAIN, PROOF_ZEROS},
                                          {PROOF_PLAIN, PROOF_WIDE},      {PROOF_SUBNORMAL, PROOF_PLAIN},
                                          {PROOF_PLAIN, PROOF_SUBNORMAL}, {PROOF_PLAIN, PROOF_SPECIAL}};
    for (size_t t = 0; t < ROWS_N_FULL; t++)
        for (size_t i = 0; i < 2 * N_NEURONS && rows_quantised(rows_types[t]); i++) {
            shape s = shape_of(r, rows_types[t], i);
            s.weights = kinds[(i + i / 8 + t) % 8][0], s.h_kind = kinds[(i + i / 8 + t) % 8][1];
            if (shaders_are_few(name)) s.local = t % 4 < 2 ? 64 : 24, s.groups = t % 2 ? 4 : 1;
            prove(d, name, r, &s);
        }
}
TEST(down_of_quantised_experts_has_the_bits_of_the_cpu) { on_each(quantised); }

static void floats(hth_device *d, const char *name, test_random *r)
{
    static const hth_type types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < 2 * N_NEURONS; i++) {
            shape s = shape_of(r, types[t], i);
            s.weights = PROOF_PLAIN, s.h_kind = i % 5 == 3   ? PROOF_OUTLIER
                                                : i % 7 == 6 ? PROOF_ZEROS
                                                             : PROOF_PLAIN;
            prove(d, name, r, &s);
        }
}
TEST(down_of_experts_of_floats_is_its_definition_everywhere) { on_each(floats); }
