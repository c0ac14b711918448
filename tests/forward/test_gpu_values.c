/* Norms of groups, products of values and copies have the bits of the CPU's kernels on every device, in place and beside
 * other values of a row, which stay as they were; tokens that do not count are not written. */
#include "forward/gpu/shader_params.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, MAX_TOK = 4, MAX_STRIDE = 1200, N_VALUE = (MAX_TOK + 1) * MAX_STRIDE };

/* Rows of three values, the expected result, and what the device wrote. */
typedef struct scene {
    hth_device *device;
    const char *name;
    hth_kernels k;
    test_random r;
    uint32_t n_tok, step[HTH_STEP_ROWS];
    float a[N_VALUE], b[N_VALUE], y[N_VALUE], expected[N_VALUE], vector[MAX_STRIDE], bias[MAX_STRIDE];
} scene;

static void on_each(void (*fn)(scene *))
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        static scene s;
        s = (scene){.name = devices[i], .k = proof_kernels(HTH_CPU_GENERIC), .r = proof_random()};
        s.device = shaders_open(devices[i]);
        if (!s.device) continue;
        fn(&s);
        shaders_close(s.device);
    }
}

static void fill(scene *s, proof_kind kind)
{
    s->n_tok = 1 + test_random_below(&s->r, MAX_TOK);
    s->step[HTH_STEP_N_TOK] = s->n_tok;
    proof_fill_f32(&s->r, kind, s->a, N_VALUE);
    proof_fill_f32(&s->r, kind, s->b, N_VALUE);
    proof_fill_f32(&s->r, PROOF_PLAIN, s->vector, MAX_STRIDE);
    proof_fill_f32(&s->r, PROOF_PLAIN, s->bias, MAX_STRIDE);
    memset(s->expected, SHADERS_POISON, sizeof s->expected);
}

static hth_rows_at rows_of(scene *s, uint32_t n)
{
    uint32_t at = test_random_below(&s->r, 5);
    return (hth_rows_at){n + at + test_random_below(&s->r, 5), at};
}

static void run_and_check(scene *s, hth_shader_id id, const uint32_t *consts, const void *push,
                          const void *const bind[4], uint32_t n_group, const char *what)
{
    shaders_run run = {.id = id, .consts = consts, .push = push, .grid = {n_group, MAX_TOK + 1, 1}};
    run.bind[0] = (shaders_binding){s->step, sizeof s->step};
    for (int i = 0; i < 4 && bind[i]; i++)
        run.bind[i + 1] =
            (shaders_binding){(void *)(uintptr_t)bind[i],
                              bind[i] == s->vector || bind[i] == s->bias ? sizeof s->vector : sizeof s->a};
    if (!shaders_do(s->device, &run)) return;
    size_t i = proof_differ_f32(s->y, s->expected, N_VALUE);
    if (i < N_VALUE)
        test_fail(__FILE__, __LINE__, "%s, %s: y[%zu] is %a, not %a", s->name, what, i, (double)s->y[i],
                  (double)s->expected[i]);
}

static void norms(scene *s)
{
    static const uint32_t widths[] = {1, 7, 8, 64, 100, 256};
    for (uint32_t i = 0; i < 24; i++) {
        bool layer = i % 2, own = i / 2 % 2, has_bias = i / 4 % 2;
        uint32_t width = widths[i % 6], n_group = 1 + test_random_below(&s->r, 4);
        fill(s, i < 18 ? PROOF_PLAIN : (proof_kind)(i % PROOF_N_KIND));
        hth_push_norm_groups push = {width,
                                     own,
                                     has_bias,
                                     1e-6f,
                                     1.0f / (float)width,
                                     rows_of(s, n_group * width),
                                     rows_of(s, n_group * width)};
        for (uint32_t t = 0; t < s->n_tok; t++)
            for (uint32_t g = 0; g < n_group; g++) {
                const float *x = s->a + t * push.x.stride + push.x.at + g * width,
                            *w = s->vector + (own ? g * width : 0);
                float *y = s->expected + t * push.y.stride + push.y.at + g * width;
                if (layer) s->k.layer_norm(x, w, has_bias ? s->bias : NULL, width, push.inv_n, push.eps, y);
                else s->k.rms_norm(x, w, width, push.inv_n, push.eps, y);
                if (!layer && has_bias) s->k.add(y, s->bias, width, y);
            }
        run_and_check(s, HTH_SHADER_norm_groups,
                      (const uint32_t[]){layer ? HTH_KIND_LAYER : HTH_KIND_RMS, 64}, &push,
                      (const void *const[]){s->a, s->vector, s->bias, s->y}, n_group,
                      layer ? "layer norm" : "RMS norm");
    }
}
TEST(norms_of_groups_have_the_bits_of_the_cpu) { on_each(norms); }

static void products(scene *s)
{
    for (uint32_t i = 0; i < 30; i++) {
        hth_mul_form form = (hth_mul_form)(i % 5);
        uint32_t by_head = i / 5 % 2 ? 1 + test_random_below(&s->r, 20) : 0,
                 n_head = 1 + test_random_below(&s->r, 40), n = n_head * (by_head ? by_head : 1),
                 n_a = n_head;
        fill(s, i < 20 ? PROOF_PLAIN : (proof_kind)(i % PROOF_N_KIND));
        hth_push_mul_values push = {n, by_head, rows_of(s, n_a), rows_of(s, n), rows_of(s, n)};
        for (uint32_t t = 0; t < s->n_tok; t++) {
            const float *a = s->a + t * push.a.stride + push.a.at, *b = s->b + t * push.b.stride + push.b.at;
            float f[MAX_STRIDE], *y = s->expected + t * push.y.stride + push.y.at;
            memcpy(f, a, n_a * sizeof *f);
            if (form == HTH_MUL_SIGMOID) s->k.sigmoid(f, n_a, f);
            if (form == HTH_MUL_SOFTPLUS) s->k.softplus(f, n_a, f);
            if (form == HTH_MUL_SILU) s->k.activate[HTH_ACTIVATION_SILU](NULL, a, n_a, f);
            if (form == HTH_MUL_GELU) s->k.activate[HTH_ACTIVATION_GELU](NULL, a, n_a, f);
            for (uint32_t k = 0; k < n; k++) y[k] = f[by_head ? k / by_head : k] * b[k];
        }
        run_and_check(s, HTH_SHADER_mul_values, (const uint32_t[]){(uint32_t)form, 64}, &push,
                      (const void *const[]){s->a, s->b, s->y, NULL}, hth_vector_groups(n, 64), "product");
    }
}
TEST(products_of_values_have_the_bits_of_the_cpu) { on_each(products); }

static void copies(scene *s)
{
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t count = 1 + test_random_below(&s->r, 8), n = 1 + test_random_below(&s->r, 90),
                 step = n + i % 3;
        fill(s, PROOF_PLAIN);
        hth_push_copy_values push = {.count = count,
                                     .n = n,
                                     .has_by = i % 2,
                                     .factor = i % 4 ? 1.0f : 0.7f,
                                     .x_step = step,
                                     .y_step = n + i % 2};
        push.x = rows_of(s, count * step), push.y = rows_of(s, count * (n + 1));
        for (uint32_t t = 0; t < s->n_tok; t++)
            for (uint32_t c = 0; c < count; c++)
                s->k.scale(s->a + t * push.x.stride + push.x.at + c * push.x_step,
                           push.has_by ? s->vector[0] : push.factor, n,
                           s->expected + t * push.y.stride + push.y.at + c * push.y_step);
        run_and_check(s, HTH_SHADER_copy_values, (const uint32_t[]){64}, &push,
                      (const void *const[]){s->a, s->vector, s->y, NULL}, hth_vector_groups(count * n, 64),
                      "copy");
    }
}
TEST(stretches_of_values_are_copied_and_scaled) { on_each(copies); }
