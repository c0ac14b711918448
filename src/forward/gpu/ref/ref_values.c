/* Shaders of norms in groups, products of values and copies as C functions (shader_params.h), by the C level of the
 * kernels. They run on the reference device, from any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "kernels/kernels.h"
#include "model/program.h"

#include <string.h>

void hth_ref_norm_groups(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_norm_groups push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++)
        for (size_t i = 0; i < c->grid[0]; i++) {
            const float *x = hth_ref_row(c->bind[1], push.x, t) + i * push.width,
                        *bias = push.has_bias ? c->bind[3] : NULL,
                        *weight = (const float *)c->bind[2] + (push.own ? i * push.width : 0);
            float *y = hth_ref_row(c->bind[4], push.y, t) + i * push.width;
            if (c->consts[HTH_NORM_GROUPS_KIND] == HTH_KIND_LAYER)
                k.layer_norm(x, weight, bias, push.width, push.inv_n, push.eps, y);
            else k.rms_norm(x, weight, push.width, push.inv_n, push.eps, y);
            if (c->consts[HTH_NORM_GROUPS_KIND] != HTH_KIND_LAYER && bias) k.add(y, bias, push.width, y);
        }
}

static void apply(const hth_kernels *k, hth_mul_form form, const float *x, size_t n, float *y)
{
    switch (form) {
    case HTH_MUL_PLAIN: memcpy(y, x, n * sizeof *y); break;
    case HTH_MUL_SIGMOID: k->sigmoid(x, n, y); break;
    case HTH_MUL_SOFTPLUS: k->softplus(x, n, y); break;
    case HTH_MUL_SILU: k->activate[HTH_ACTIVATION_SILU](NULL, x, n, y); break;
    case HTH_MUL_GELU: k->activate[HTH_ACTIVATION_GELU](NULL, x, n, y); break;
    }
}

void hth_ref_mul_values(const hth_dispatch_args *c)
{
    enum { STRETCH = 256 };
    hth_kernels k;
    hth_push_mul_values push;
    float factors[STRETCH];
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    uint32_t width = push.by_head > 0 ? push.by_head : 1, n_a = push.n / width;
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++) {
        const float *a = hth_ref_row(c->bind[1], push.a, t), *b = hth_ref_row(c->bind[2], push.b, t);
        float *y = hth_ref_row(c->bind[3], push.y, t);
        for (uint32_t first = 0; first < n_a; first += STRETCH) {
            uint32_t n = hth_min_u32(n_a - first, STRETCH);
            apply(&k, (hth_mul_form)c->consts[HTH_MUL_VALUES_FORM], a + first, n, factors);
            for (size_t i = 0; i < (size_t)n * width; i++) {
                size_t at = (size_t)first * width + i;
                y[at] = factors[i / width] * b[at];
            }
        }
    }
}

void hth_ref_copy_values(const hth_dispatch_args *c)
{
    hth_push_copy_values push;
    memcpy(&push, c->push, sizeof push);
    float factor = push.has_by ? *(const float *)c->bind[2] : push.factor;
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[1]); t++)
        for (size_t i = 0; i < push.count; i++) {
            const float *x = hth_ref_row(c->bind[1], push.x, t) + i * push.x_step;
            float *y = hth_ref_row(c->bind[3], push.y, t) + i * push.y_step;
            for (size_t k = 0; k < push.n; k++) y[k] = x[k] * factor;
        }
}
