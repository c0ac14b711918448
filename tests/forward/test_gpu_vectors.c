/* Norms, activations and soft caps as shaders of a device, with their rounding: the bits of the CPU's
 * kernels on null and on Vulkan, for ragged and long rows, all kinds of numbers, any size of workgroup,
 * fewer tokens than the grid has, and rows in any order; nothing is written that is not computed. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "forward/gpu/recorder.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

enum { MAX_N = 4704, MAX_TOK = 9, MAX_VALUE = MAX_N * MAX_TOK };

static float x[2 * MAX_VALUE], weight[MAX_N], bias[MAX_N]; /* x: space for gates */
static uint32_t step[HTH_STEP_ROWS + MAX_TOK * HTH_STEP_ROW_WORDS];

/* What a shader left, and what it should have; d and sum followed by a word that must not be written. */
typedef struct outputs {
    float y[MAX_VALUE];
    int8_t q[MAX_VALUE];
    float d[MAX_VALUE / 32 + 1];
    int32_t sum[MAX_VALUE / 16 + 1];
} outputs;
static outputs got, want;

static hth_kernels kernels;
static test_random numbers;

static void on_each_device(void (*promise)(hth_device *d))
{
    static const char *const names[] = {"null", "vulkan:0"};
    hth_kernels_init(&kernels, HTH_CPU_GENERIC);
    for (int i = 0; i < 2; i++) {
        hth_device *d = shaders_open(names[i]);
        numbers = proof_random();
        if (d) promise(d);
        shaders_close(d);
    }
}

/* ---- inputs ---------------------------------------------------------------------------------------- */

/* How many rows are computed, and of which class the grid is. */
typedef struct rows {
    uint32_t n_tok, n_want, grid;
} rows;
static const rows row_counts[] = {{1, 1, 1}, {3, 2, 4}, {8, 8, 8}, {9, 3, 9},
                                  {5, 0, 6}, {0, 0, 2}, {9, 9, 4}};
enum { N_ROW_COUNT = sizeof row_counts / sizeof *row_counts };

/* Those that want logits are in no order. */
static void fill_step(const rows *r)
{
    memset(step, 0xff, sizeof step);
    step[HTH_STEP_N_TOK] = r->n_tok;
    step[HTH_STEP_N_WANT] = r->n_want;
    for (uint32_t i = 0; i < r->n_want; i++)
        step[HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS + HTH_STEP_WANT] = (i * 5 + 2) % r->n_tok;
}

/* The bounds of a block's largest magnitude, 2^-60 and 2^60, met and missed by one bit. */
static void fill_at_bounds(float *to, size_t n)
{
    static const float bounds[] = {0x1p-60f, 0x1.fffffep-61f, 0x1p60f, 0x1.000002p60f, -0x1p-60f, -0x1p60f};
    for (size_t i = 0; i < n; i++) to[i] = bounds[i / 32 % 6] * (i % 32 == 7 ? 1.0f : 0.0f);
}

enum { KIND_BOUNDS = PROOF_N_KIND, N_KIND };
static const char *name_of(int kind) { return kind == KIND_BOUNDS ? "bounds" : proof_kind_name((proof_kind)kind); }

static void fill(int kind, float *to, size_t n)
{
    if (kind == KIND_BOUNDS) fill_at_bounds(to, n);
    else proof_fill_f32(&numbers, (proof_kind)kind, to, n);
}

/* ---- outputs --------------------------------------------------------------------------------------- */

static void clear(outputs *o) { memset(o, SHADERS_POISON, sizeof *o); }

/* Row t of n values v[n], as they are and in blocks. */
static void expect_row(const float *v, size_t t, size_t n, bool store, uint32_t block)
{
    int16_t sums[MAX_N / 16];
    if (store) memcpy(want.y + t * n, v, n * sizeof *v);
    if (block == 32) kernels.quant_act(v, n, want.q + t * n, want.d + t * n / 32, want.sum + t * n / 32);
    if (block != 256) return;
    kernels.quant_act_256(v, n, want.q + t * n, want.d + t * n / 256, sums);
    for (size_t i = 0; i < n / 16; i++) want.sum[t * n / 16 + i] = sums[i];
}

static bool same_outputs(size_t n_tok, size_t n)
{
    size_t n_value = n_tok * n;
    size_t differ = proof_differ_f32(got.y, want.y, n_value);
    if (differ < n_value) printf("value %zu: %a, not %a\n", differ, (double)got.y[differ], (double)want.y[differ]);
    return differ == n_value && memcmp(got.q, want.q, n_value) == 0 &&
           memcmp(got.d, want.d, n_value / 32 * sizeof *got.d) == 0 &&
           memcmp(got.sum, want.sum, n_value / 16 * sizeof *got.sum) == 0;
}

/* Four bindings from `first` on: y, q, d, sum, with space for `capacity` values. */
static void bind_outputs(shaders_run *run, size_t first, size_t capacity)
{
    run->bind[first] = (shaders_binding){got.y, capacity * sizeof *got.y};
    run->bind[first + 1] = (shaders_binding){got.q, capacity};
    run->bind[first + 2] = (shaders_binding){got.d, (capacity / 32 + 1) * sizeof *got.d};
    run->bind[first + 3] = (shaders_binding){got.sum, (capacity / 16 + 1) * sizeof *got.sum};
}

static void compare(const char *shader, const uint32_t *consts, size_t n, const rows *r, int kind)
{
    if (same_outputs(r->grid, n)) return;
    test_fail(__FILE__, __LINE__, "%s {%u %u %u %u %u}: n %zu, %u of %u tokens, %u wanted, %s numbers",
              shader, consts[0], consts[1], consts[2], consts[3], consts[4], n, r->n_tok, r->grid, r->n_want,
              name_of(kind));
}

static uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Lengths for a width of blocks: few, and past the stretch and the chains' unrolling. */
static const size_t lengths[3][7] = {{1, 7, 72, 575, 2049, 4703, 4704},
                                     {32, 96, 544, 1056, 2048, 2080, 4704},
                                     {256, 512, 768, 1280, 2304, 4096, 4608}};
enum { N_LENGTH = 7 };
static const size_t *lengths_of(uint32_t block) { return lengths[block == 256 ? 2 : block == 32 ? 1 : 0]; }

/* Rows of whole fours are tried in either way. */
static uint32_t is_wide(size_t n, int kind) { return n % 4 == 0 && kind % 3 != 0; }

/* ---- norms ----------------------------------------------------------------------------------------- */

static void norm_row(uint32_t kind, const float *from, size_t n, bool has_bias, float eps, float *y)
{
    float inv_n = 1.0f / (float)n;
    if (kind == HTH_KIND_NONE) memcpy(y, from, n * sizeof *y);
    if (kind == HTH_KIND_RMS || kind == HTH_KIND_RMS_BIAS) kernels.rms_norm(from, weight, n, inv_n, eps, y);
    if (kind == HTH_KIND_RMS_BIAS && has_bias) kernels.add(y, bias, n, y);
    if (kind == HTH_KIND_LAYER) kernels.layer_norm(from, weight, has_bias ? bias : NULL, n, inv_n, eps, y);
}

static void expect_norms(const uint32_t *consts, const rows *r, const hth_push_norm_quantize *push)
{
    float v[MAX_N];
    bool gather = consts[HTH_NORM_QUANTIZE_GATHER];
    uint32_t n_row = min(gather ? r->n_want : r->n_tok, r->grid);
    for (size_t t = 0; t < n_row; t++) {
        size_t from = gather ? step[HTH_STEP_ROWS + t * HTH_STEP_ROW_WORDS + HTH_STEP_WANT] : t;
        norm_row(consts[HTH_NORM_QUANTIZE_KIND], x + from * push->n, push->n, push->has_bias, push->eps, v);
        expect_row(v, t, push->n, consts[HTH_NORM_QUANTIZE_STORE], consts[HTH_NORM_QUANTIZE_BLOCK]);
    }
}

static void try_norm_round(hth_device *d, const uint32_t *set, size_t n, const rows *r, int kind)
{
    uint32_t consts[HTH_NORM_QUANTIZE_WIDE + 1] = {0};
    memcpy(consts, set, HTH_NORM_QUANTIZE_WIDE * sizeof *consts);
    consts[HTH_NORM_QUANTIZE_WIDE] = is_wide(n, kind);
    hth_push_norm_quantize push = {(uint32_t)n, (uint32_t)kind % 2, 1e-5f, 1.0f / (float)n};
    shaders_run run = {.id = HTH_SHADER_norm_quantize, .consts = consts, .push = &push};
    uint32_t n_row = r->n_tok > r->grid ? r->n_tok : r->grid;
    fill_step(r);
    fill(kind, x, n_row * n);
    proof_fill_f32(&numbers, PROOF_PLAIN, weight, n);
    proof_fill_f32(&numbers, PROOF_PLAIN, bias, n);
    clear(&want), clear(&got);
    expect_norms(consts, r, &push);
    run.bind[0] = (shaders_binding){step, sizeof step};
    run.bind[1] = (shaders_binding){x, n_row * n * sizeof *x};
    run.bind[2] = (shaders_binding){weight, n * sizeof *weight};
    run.bind[3] = (shaders_binding){bias, n * sizeof *bias};
    bind_outputs(&run, 4, r->grid * n);
    run.grid[0] = hth_vector_groups((uint32_t)n, consts[HTH_NORM_QUANTIZE_LOCAL]), run.grid[1] = r->grid,
    run.grid[2] = 1;
    if (shaders_do(d, &run)) compare("norm_quantize", consts, n, r, kind);
}

/* Each set of constants with every length and every kind of numbers, each number of tokens on the way. */
static void norms_are_rounded_on(hth_device *d)
{
    /* Chunks that hold all lengths, some of them, and few values. */
    static const uint32_t sets[][HTH_NORM_QUANTIZE_CHUNK + 1] = {
        {HTH_KIND_RMS, 32, 1, 0, 64, 5120},     {HTH_KIND_RMS, 256, 0, 0, 128, 2048},
        {HTH_KIND_RMS, 0, 1, 1, 192, 3072},     {HTH_KIND_LAYER, 32, 1, 1, 64, 1024},
        {HTH_KIND_LAYER, 256, 1, 0, 256, 4096}, {HTH_KIND_LAYER, 0, 1, 0, 128, 2048},
        {HTH_KIND_NONE, 32, 1, 1, 128, 0},      {HTH_KIND_NONE, 256, 0, 0, 64, 0},
        {HTH_KIND_NONE, 0, 1, 1, 64, 0},        {HTH_KIND_RMS_BIAS, 32, 1, 1, 64, 2048},
        {HTH_KIND_RMS_BIAS, 256, 1, 0, 128, 4096},
    };
    uint32_t turn = 0;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t i = 0; i < N_LENGTH; i++)
            for (int kind = 0; kind < N_KIND; kind++)
                try_norm_round(d, sets[s], lengths_of(sets[s][HTH_NORM_QUANTIZE_BLOCK])[i],
                               &row_counts[turn++ % N_ROW_COUNT], kind);
}

TEST(norms_and_their_rounding_are_the_cpus) { on_each_device(norms_are_rounded_on); }

/* ---- what is added to a row ------------------------------------------------------------------------ */

static void try_norm_add(hth_device *d, const uint32_t set[HTH_NORM_ADD_WIDE], size_t n, const rows *r,
                         int kind)
{
    const uint32_t consts[5] = {set[0], set[1], set[2], is_wide(n, kind)};
    static float y[MAX_VALUE];
    float v[MAX_N];
    hth_push_norm_quantize push = {(uint32_t)n, (uint32_t)kind % 2, 1e-6f, 1.0f / (float)n};
    fill_step(r);
    proof_fill_f32(&numbers, PROOF_PLAIN, x, r->grid * n);
    fill(kind, y, r->grid * n);
    proof_fill_f32(&numbers, PROOF_PLAIN, weight, n);
    proof_fill_f32(&numbers, PROOF_PLAIN, bias, n);
    clear(&want), clear(&got);
    memcpy(want.y, x, r->grid * n * sizeof *x);
    memcpy(got.y, x, r->grid * n * sizeof *x);
    for (size_t t = 0; t < min(r->n_tok, r->grid); t++) {
        norm_row(consts[HTH_NORM_ADD_KIND], y + t * n, n, push.has_bias, push.eps, v);
        kernels.add(want.y + t * n, v, n, want.y + t * n);
    }
    shaders_run run = {.id = HTH_SHADER_norm_add,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {got.y, r->grid * n * sizeof *x},
                                {y, r->grid * n * sizeof *y},
                                {weight, n * sizeof *weight},
                                {bias, n * sizeof *bias}},
                       .grid = {hth_vector_groups((uint32_t)n, consts[HTH_NORM_ADD_LOCAL]), r->grid, 1}};
    if (shaders_do(d, &run)) compare("norm_add", consts, n, r, kind);
}

static void norms_are_added_on(hth_device *d)
{
    static const uint32_t sets[][5] = {
        {HTH_KIND_NONE, 64, 0}, {HTH_KIND_RMS, 128, 6144}, {HTH_KIND_LAYER, 64, 1024}, {HTH_KIND_RMS_BIAS, 64, 1024}};
    uint32_t turn = 0;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t i = 0; i < N_LENGTH; i++)
            for (int kind = 0; kind < PROOF_N_KIND; kind++)
                try_norm_add(d, sets[s], lengths_of(0)[i], &row_counts[turn++ % N_ROW_COUNT], kind);
}

TEST(norms_are_added_as_on_the_cpu) { on_each_device(norms_are_added_on); }

/* ---- activations ----------------------------------------------------------------------------------- */

static float scores[MAX_TOK * (MAX_N + 3)], thresholds[MAX_N];

/* What forward/ffn.c leaves out. */
static void zero_inactive(const uint32_t *consts, const float *score, float threshold, const float *half,
                          size_t n, float *v)
{
    float reached[MAX_N];
    kernels.activate[consts[HTH_ACT_QUANTIZE_KIND]](NULL, half, n, reached);
    for (size_t i = 0; i < n; i++) {
        if (consts[HTH_ACT_QUANTIZE_SELECT] == HTH_SELECT_PREDICTOR && score[i] < threshold) v[i] = 0.0f;
        if (consts[HTH_ACT_QUANTIZE_SELECT] == HTH_SELECT_THRESHOLD && __builtin_fabsf(reached[i]) < thresholds[i])
            v[i] = 0.0f;
    }
}

/* Limits both halves as hth_fusion.limit says. */
static void limit_halves(float *row, size_t n, bool gated, float limit)
{
    for (size_t i = 0; i < (gated ? 2 * n : n); i++) {
        if (row[i] > limit) row[i] = limit;
        if (row[i] < -limit && !(gated && i < n)) row[i] = -limit;
    }
}

static void try_activate(hth_device *d, const uint32_t *set, size_t n, const rows *r, int kind)
{
    uint32_t consts[HTH_ACT_QUANTIZE_WIDE + 1] = {0};
    memcpy(consts, set, HTH_ACT_QUANTIZE_WIDE * sizeof *consts);
    consts[HTH_ACT_QUANTIZE_WIDE] = is_wide(n, kind);
    float v[MAX_N];
    bool gated = consts[HTH_ACT_QUANTIZE_GATED];
    size_t stride = gated ? 2 * n : n;
    hth_push_act_quantize push = {(uint32_t)n, (uint32_t)n + 3, 0.125f,
                                  kind % 2 && !set[HTH_ACT_QUANTIZE_SELECT] ? 0.75f : 0.0f};
    fill_step(r);
    fill(kind, x, r->grid * stride);
    fill(kind, scores, r->grid * (n + 3));
    fill(kind, thresholds, n);
    clear(&want), clear(&got);
    for (size_t t = 0; t < min(r->n_tok, r->grid); t++) {
        float row[2 * MAX_N];
        memcpy(row, x + t * stride, stride * sizeof *row);
        if (push.limit > 0.0f) limit_halves(row, n, gated, push.limit);
        kernels.activate[consts[HTH_ACT_QUANTIZE_KIND]](gated ? row : NULL, gated ? row + n : row, n, v);
        zero_inactive(consts, scores + t * (n + 3), push.min_score, row, n, v);
        expect_row(v, t, n, consts[HTH_ACT_QUANTIZE_STORE], consts[HTH_ACT_QUANTIZE_BLOCK]);
    }
    shaders_run run = {.id = HTH_SHADER_act_quantize,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {x, r->grid * stride * sizeof *x},
                                {scores, r->grid * (n + 3) * sizeof *scores},
                                {thresholds, n * sizeof *thresholds}},
                       .grid = {hth_vector_groups((uint32_t)n, consts[HTH_ACT_QUANTIZE_LOCAL]), r->grid, 1}};
    bind_outputs(&run, 4, r->grid * n);
    if (shaders_do(d, &run)) compare("act_quantize", consts, n, r, kind);
}

static void activations_are_rounded_on(hth_device *d)
{
    static const uint32_t sets[][HTH_ACT_QUANTIZE_SELECT + 1] = {
        {HTH_ACTIVATION_SILU, 1, 0, 1, 64, HTH_SELECT_THRESHOLD},
        {HTH_ACTIVATION_SILU, 1, 32, 0, 256, HTH_SELECT_PREDICTOR},
        {HTH_ACTIVATION_SILU, 0, 0, 1, 192},
        {HTH_ACTIVATION_GELU, 1, 256, 1, 128},
        {HTH_ACTIVATION_GELU, 0, 0, 1, 64, HTH_SELECT_THRESHOLD},
        {HTH_ACTIVATION_RELU, 1, 32, 1, 320, HTH_SELECT_PREDICTOR},
        {HTH_ACTIVATION_RELU, 0, 256, 1, 512},
        {HTH_ACTIVATION_RELU2, 1, 0, 1, 64},
        {HTH_ACTIVATION_RELU2, 0, 32, 1, 64},
        {HTH_ACTIVATION_DRELU, 1, 32, 1, 128},
        {HTH_ACTIVATION_SWIGLU_OAI, 1, 32, 1, 128},
        {HTH_ACTIVATION_SWIGLU_OAI, 1, 256, 0, 64},
    };
    uint32_t turn = 0;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t i = 0; i < N_LENGTH; i++)
            for (int kind = 0; kind < N_KIND; kind++)
                try_activate(d, sets[s], lengths_of(sets[s][HTH_ACT_QUANTIZE_BLOCK])[i],
                             &row_counts[turn++ % N_ROW_COUNT], kind);
}

TEST(activations_and_their_rounding_are_the_cpus) { on_each_device(activations_are_rounded_on); }

/* What forward/ffn.c would not compute of a neuron: by the predictor, then by its first half. */
static bool is_ruled_out(const uint32_t *consts, float score, float min_score, float half, float threshold)
{
    float reached;
    if (consts[HTH_ACTIVE_MASK_SELECT] == HTH_SELECT_PREDICTOR && score < min_score) return true;
    if (!consts[HTH_ACTIVE_MASK_HALF]) return false;
    if (consts[HTH_ACTIVE_MASK_SELECT] != HTH_SELECT_THRESHOLD) return half < 0x1p-149f;
    kernels.activate[consts[HTH_ACTIVE_MASK_KIND]](NULL, &half, 1, &reached);
    return __builtin_fabsf(reached) < threshold;
}

/* The mask of n neurons that the rows of the step want, and a word behind it that is not written. */
static void try_mark(hth_device *d, const uint32_t *consts, size_t n, size_t n_tok, int kind)
{
    const rows r = {.n_tok = (uint32_t)n_tok, .grid = (uint32_t)n_tok};
    const size_t stride = 2 * n + 1, n_word = (n + 31) / 32 + 1;
    const hth_push_active_mask push = {(uint32_t)n, (uint32_t)stride, (uint32_t)n + 3, 0.125f};
    uint32_t mask[MAX_N / 32 + 2], expected[MAX_N / 32 + 2] = {0};
    fill_step(&r);
    fill(kind, x, n_tok * stride);
    fill(kind, scores, n_tok * (n + 3));
    fill(kind, thresholds, n);
    memset(&expected[n_word - 1], SHADERS_POISON, sizeof *expected);
    for (size_t i = 0; i < n_tok * n; i++) {
        size_t t = i / n, k = i % n;
        bool out = is_ruled_out(consts, scores[t * (n + 3) + k], push.min_score, x[t * stride + k], thresholds[k]);
        expected[k / 32] |= (uint32_t)!out << k % 32;
    }
    shaders_run run = {.id = HTH_SHADER_active_mask,
                        .consts = consts,
                        .push = &push,
                        .bind = {{step, sizeof step},
                                 {x, n_tok * stride * sizeof *x},
                                 {scores, n_tok * (n + 3) * sizeof *scores},
                                 {thresholds, n * sizeof *thresholds},
                                 {mask, n_word * sizeof *mask}},
                        .grid = {((uint32_t)n + consts[HTH_ACTIVE_MASK_LOCAL] - 1) / consts[HTH_ACTIVE_MASK_LOCAL], 1, 1}};
    if (!shaders_do(d, &run)) return;
    for (size_t i = 0; i < n_word; i++)
        if (mask[i] != expected[i])
            test_fail(
                __FILE__, __LINE__,
                "activation %u, select %u, half %u, %zu neurons, %zu tokens, %s: word %zu: %08x, not %08x",
                consts[0], consts[1], consts[2], n, n_tok, name_of(kind), i, mask[i], expected[i]);
}

static void neurons_are_marked_on(hth_device *d)
{
    static const uint32_t sets[][HTH_ACTIVE_MASK_LOCAL + 1] = {
        {HTH_ACTIVATION_RELU, HTH_SELECT_ALL, 1, 64},
        {HTH_ACTIVATION_DRELU, HTH_SELECT_PREDICTOR, 0, 32},
        {HTH_ACTIVATION_RELU2, HTH_SELECT_PREDICTOR, 1, 256},
        {HTH_ACTIVATION_SILU, HTH_SELECT_THRESHOLD, 1, 64},
        {HTH_ACTIVATION_GELU, HTH_SELECT_PREDICTOR, 0, 64},
        {HTH_ACTIVATION_DRELU, HTH_SELECT_THRESHOLD, 1, 96},
    };
    static const size_t sizes[] = {1, 31, 32, 33, 64, 97, 500};
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int kind = 0; kind < N_KIND; kind++)
                try_mark(d, sets[s], sizes[i], 1 + (s + i + (size_t)kind) % 3, kind);
}

TEST(the_active_mask_has_the_neurons_that_the_cpu_selects) { on_each_device(neurons_are_marked_on); }

/* Every exponent, a few mantissas of each, both signs: where a function changes its form, and its ends. */
static void sweep(float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = hth_float_of((uint32_t)(i * (0x100000000u / n)) + (uint32_t)i % 3);
}

static void functions_are_swept_on(hth_device *d)
{
    static const uint32_t sets[][HTH_ACT_QUANTIZE_WIDE + 1] = {{HTH_ACTIVATION_SILU, 0, 0, 1, 192, 0, 1},
                                                               {HTH_ACTIVATION_GELU, 0, 0, 1, 64}};
    const rows r = {MAX_TOK, MAX_TOK, MAX_TOK};
    hth_push_act_quantize push = {MAX_N, MAX_N, 0.0f, 0.0f};
    fill_step(&r);
    sweep(x, MAX_VALUE);
    for (size_t s = 0; s < 2; s++) {
        clear(&want), clear(&got);
        kernels.activate[sets[s][0]](NULL, x, MAX_VALUE, want.y);
        shaders_run run = {.id = HTH_SHADER_act_quantize,
                           .consts = sets[s],
                           .push = &push,
                           .bind = {{step, sizeof step},
                                    {x, MAX_VALUE * sizeof *x},
                                    {scores, sizeof scores},
                                    {thresholds, sizeof thresholds}},
                           .grid = {hth_vector_groups(MAX_N, sets[s][HTH_ACT_QUANTIZE_LOCAL]), MAX_TOK, 1}};
        bind_outputs(&run, 4, MAX_VALUE);
        if (shaders_do(d, &run)) compare("act_quantize", sets[s], MAX_N, &r, PROOF_BITS);
    }
}

TEST(functions_are_the_cpus_over_all_exponents) { on_each_device(functions_are_swept_on); }

/* ---- caps ------------------------------------------------------------------------------------------ */

static void try_cap(hth_device *d, size_t n, const rows *r, int kind)
{
    static const uint32_t consts[5] = {128};
    const hth_push_soft_cap push = {(uint32_t)n, 30.0f, 1.0f / 30.0f};
    fill_step(r);
    clear(&want), clear(&got);
    if (kind == KIND_BOUNDS) sweep(want.y, r->grid * n);
    else fill(kind, want.y, r->grid * n);
    memcpy(got.y, want.y, r->grid * n * sizeof *got.y);
    size_t n_value = min(r->n_want, r->grid) * n;
    kernels.soft_cap(want.y, push.cap, push.inverse, n_value, want.y);
    shaders_run run = {.id = HTH_SHADER_soft_cap,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step}, {got.y, r->grid * n * sizeof *got.y}},
                       .grid = {hth_vector_groups((uint32_t)n, consts[HTH_SOFT_CAP_LOCAL]), r->grid, 1}};
    if (shaders_do(d, &run)) compare("soft_cap", consts, n, r, kind);
}

static void caps_are_the_cpus_on(hth_device *d)
{
    uint32_t turn = 0;
    for (size_t i = 0; i < N_LENGTH; i++)
        for (int kind = 0; kind < N_KIND; kind++)
            try_cap(d, lengths_of(0)[i], &row_counts[turn++ % N_ROW_COUNT], kind);
}

TEST(soft_caps_are_the_cpus) { on_each_device(caps_are_the_cpus_on); }

/* ---- how rows are divided -------------------------------------------------------------------------- */

TEST(rows_are_divided_as_the_device_allows)
{
    static const uint32_t lengths_of_rows[] = {64, 768, 2048, 4096, 5120, 8192, 12288, 16384, 65536};
    static const uint32_t limits[][2] = {
        {128, 16384}, {256, 32768}, {512, 65536}, {1024, 49152}}; /* invocations, bytes */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (size_t k = 0; k < sizeof lengths_of_rows / sizeof *lengths_of_rows; k++) {
            const hth_device_info info = {.max_workgroup_size = limits[i][0],
                                          .max_shared_memory = limits[i][1]};
            uint32_t n = lengths_of_rows[k];
            for (uint32_t kind = HTH_KIND_RMS; kind <= HTH_KIND_LAYER; kind++) {
                hth_vector_split normed = hth_rec_vector_split(&info, n, kind);
                CHECK(normed.local <= info.max_workgroup_size && normed.local % 64 == 0 && normed.wide);
                CHECK(hth_norm_shared_bytes(kind, normed.local, normed.chunk) <= info.max_shared_memory);
                CHECK(normed.chunk >= n || normed.chunk == HTH_NORM_SMALL_CHUNK);
                CHECK_INT(normed.chunk % (HTH_NORM_LOADS * normed.local), 0);
                CHECK_INT(normed.n_group, hth_vector_groups(n, normed.local));
            }
            hth_vector_split plain = hth_rec_vector_split(&info, n, HTH_KIND_NONE);
            CHECK(plain.local == 64 && plain.chunk == 0 && plain.wide);
            CHECK_INT(plain.n_group, (n + 255) / 256);
        }
    const hth_device_info gpu = {.max_workgroup_size = 1024, .max_shared_memory = 49152};
    CHECK_INT(hth_rec_vector_split(&gpu, 4096, HTH_KIND_RMS).local, 256);
    CHECK_INT(hth_rec_vector_split(&gpu, 4096, HTH_KIND_RMS).chunk, 4096);
    CHECK(!hth_rec_vector_split(&gpu, 4098, HTH_KIND_NONE).wide);
    CHECK_INT(hth_rec_vector_split(&gpu, 5120, HTH_KIND_RMS).local, 320);
    CHECK_INT(hth_rec_vector_split(&gpu, 8192, HTH_KIND_RMS).chunk, 8192);
    CHECK_INT(hth_rec_vector_split(&gpu, 16384, HTH_KIND_LAYER).chunk, HTH_NORM_SMALL_CHUNK);
}
