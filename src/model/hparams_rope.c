/* Hyper-parameters of rotation. */
#include "kernels/vector/math.h"
#include "model/hparams_int.h"

#include <stdio.h>

/* No model shrinks its context a thousandfold: smaller factors come from damaged files. */
static const double MIN_ROPE_FACTOR = 1e-3;

static hearth_status read_scaling_type(hth_hparams_reader *r, const hth_arch *arch, hth_rope *rope)
{
    static const struct {
        const char *name;
        hth_rope_scaling scaling;
    } kinds[] = {{"none", HTH_SCALING_NONE},
                 {"linear", HTH_SCALING_LINEAR},
                 {"yarn", HTH_SCALING_YARN},
                 {"longrope", HTH_SCALING_LONGROPE}};
    bool tables = arch->factors == HTH_FACTORS_BY_CONTEXT;
    hth_str type = {0};
    bool found;
    hearth_status st =
        hth_gguf_get_text(r->file, hth_hparams_key(r, "rope.scaling.type"), &type, &found, r->err);
    if (st != HEARTH_OK) return st;
    rope->scaling = HTH_SCALING_LINEAR;
    if (!found) return HEARTH_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (hth_str_eq(type, kinds[i].name) && (tables || kinds[i].scaling != HTH_SCALING_LONGROPE) &&
            !(arch->no_yarn && kinds[i].scaling == HTH_SCALING_YARN)) {
            rope->scaling = kinds[i].scaling;
            return HEARTH_OK;
        }
    char shown[80];
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s '%s' is not supported; supported: none, linear%s%s", hth_gguf_path(r->file), r->key,
                    hth_escape(shown, sizeof shown, type.bytes, type.n), arch->no_yarn ? "" : ", yarn",
                    tables ? ", longrope" : "");
}

/* Sizes of the sections, in pairs. */
static hearth_status read_sections(hth_hparams_reader *r, hth_rope *rope, hth_rope_sections rule)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, "rope.dimension_sections"));
    if (rule == HTH_SECTIONS_NONE || !v) return HEARTH_OK;
    bool fits = v->type == HTH_GGUF_ARRAY && hth_gguf_is_integer(v->element_type) && v->n_element <= 4;
    for (uint64_t i = 0; fits && i < v->n_element; i++) {
        uint64_t n = hth_gguf_element_uint(v, i);
        fits = n <= HTH_MAX_D_HEAD;
        rope->sections[i] = (uint32_t)n;
    }
    if (!fits)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: expected up to 4 integers, at most %d each", hth_gguf_path(r->file),
                        r->key, (unsigned long long)v->offset, HTH_MAX_D_HEAD);
    bool stated = rope->sections[0] > 0 && rope->sections[1] > 0;
    if (rule == HTH_SECTIONS_DECIDE && stated) rope->kind = HTH_ROPE_NEOX;
    rope->section_rule = rule != HTH_SECTIONS_DECIDE ? rule
                         : stated                    ? HTH_SECTIONS_BLOCKS
                                                     : HTH_SECTIONS_NONE;
    return HEARTH_OK;
}

/* NTK-aware scaling: base alpha^(d / (d - 2)). */
static hearth_status read_alpha(hth_hparams_reader *r, uint32_t d_head, hth_rope *rope)
{
    double alpha = 0.0;
    hearth_status st = hth_hparams_float(r, "rope.scaling.alpha", 0.0, 1e6, &alpha, NULL);
    if (st != HEARTH_OK || alpha == 0.0 || d_head <= 2) return st;
    rope->base *= hth_pow_d(alpha, d_head / (d_head - 2.0));
    if (rope->base >= 1.001 && rope->base <= 1e12) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %g and makes a rotation base of %g, allowed are 1.001 to 1e+12",
                    hth_gguf_path(r->file), r->key, alpha, rope->base);
}

/* Dimensions that rotate in layers with a window: by default all if these heads have a size of their own, else as many as
 * in other layers. */
static hearth_status read_window_rotation(hth_hparams_reader *r, hth_hparams *h)
{
    hth_rope *rope = &h->rope;
    if (h->arch->reads_window_head) rope->window_n_rot = h->d_head_window;
    hearth_status st = hth_hparams_size(r, "rope.dimension_count_swa", 2, h->d_head_window, &rope->window_n_rot);
    if (st != HEARTH_OK || rope->window_n_rot % 2 == 0) return st;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s (default: %s) is %u, expected an even number", hth_gguf_path(r->file), r->key,
                    h->arch->reads_window_head ? "attention.key_length_swa" : "rope.dimension_count",
                    rope->window_n_rot);
}

/* YaRN's bounds of turns. */
static hearth_status read_betas(hth_hparams_reader *r, const hth_arch *a, hth_rope *rope)
{
    rope->beta_fast = a->yarn_beta_fast != 0.0 ? a->yarn_beta_fast : 32.0, rope->beta_slow = 1.0;
    if (!a->reads_yarn_betas) return HEARTH_OK;
    hearth_status st = hth_hparams_float(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &rope->beta_fast, NULL);
    return st == HEARTH_OK ? hth_hparams_float(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &rope->beta_slow, NULL) : st;
}

/* The share of YaRN is 1, or 0 of other scalings; a negative one is not stated. */
static hearth_status check_share(hth_hparams_reader *r, const hth_rope *rope)
{
    double share = -1.0, own = rope->scaling == HTH_SCALING_YARN ? 1.0 : 0.0;
    hearth_status st = hth_hparams_float(r, "rope.scaling.yarn_ext_factor", -1e3, 1e3, &share, NULL);
    if (st != HEARTH_OK || share < 0.0 || share == own) return st;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %g, supported is %g with this scaling",
                    hth_gguf_path(r->file), r->key, share, own);
}

static double yarn_size(double log_factor, double multiplier) { return 1.0 + 0.1 * multiplier * log_factor; }

/* YaRN enlarges rotated vectors with the logarithm of the factor. A multiplier of that logarithm moves the growth from
 * the vectors to the scores. */
static hearth_status read_magnitude(hth_hparams_reader *r, hth_hparams *h)
{
    const hth_arch *a = h->arch;
    hth_rope *rope = &h->rope;
    double multiplier = 0.0, log_factor = rope->factor > 1.0 ? hth_log_d(rope->factor) : 0.0;
    hearth_status st = HEARTH_OK;
    if (a->reads_yarn_log) st = hth_hparams_float(r, "rope.scaling.yarn_log_multiplier", 0.0, 1e3, &multiplier, NULL);
    if (st != HEARTH_OK) return st;
    if (rope->scaling != HTH_SCALING_YARN) {
        if (!a->latent || rope->factor == 1.0) return HEARTH_OK;
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: %s.rope.scaling.factor is %g, but latent attention is scaled by yarn only",
                        hth_gguf_path(r->file), r->arch, rope->factor);
    }
    if (a->yarn_log_of_scores) multiplier /= 0.1;
    if (a->compressed) rope->magnitude = 1.0;
    if (a->compressed) return HEARTH_OK;
    double own = a->yarn_log_apart && multiplier != 0.0 ? multiplier : 1.0;
    rope->magnitude *= yarn_size(log_factor, own) / yarn_size(log_factor, multiplier);
    if (a->yarn_log_of_scores) h->score_factor = rope->magnitude * yarn_size(log_factor, multiplier);
    return HEARTH_OK;
}

hearth_status hth_hparams_read_rope(hth_hparams_reader *r, hth_hparams *h)
{
    hth_rope *rope = &h->rope;
    *rope = (hth_rope){.kind = h->arch->rope,
                       .window_unscaled = h->arch->swa.unscaled,
                       .n_rot = h->d_head,
                       .base = 10000.0,
                       .window_base = h->arch->window_rope_base,
                       .factor = 1.0,
                       .n_ctx_original = h->n_ctx_train,
                       .magnitude = 1.0};
    double factor = 0.0;
    bool found, rotates = true, other_depth = h->arch->rope_layers > 0 && h->n_layer != h->arch->rope_layers;
    hearth_status st = HEARTH_OK;
    if (h->arch->reads_finetuned)
        st = hth_gguf_get_bool(r->file, hth_hparams_key(r, "rope.scaling.finetuned"), &rotates, NULL, r->err);
    if (st != HEARTH_OK) return st;
    if (rope->kind == HTH_ROPE_NONE || !rotates || other_depth || h->d_head == 0) {
        rope->n_rot = 0, rope->kind = HTH_ROPE_NONE;
        return HEARTH_OK;
    }
    rope->window_n_rot = rope->n_rot;
    if (h->arch->fixed_rope) return HEARTH_OK;
    if ((st = hth_hparams_size(r, "rope.dimension_count", 2, h->d_head, &rope->n_rot)) != HEARTH_OK)
        return st;
    if (rope->n_rot % 2 != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s (default: attention.key_length) is %u, expected an even number",
                        hth_gguf_path(r->file), r->key, rope->n_rot);
    if (h->arch->whole_head_rotates) rope->n_rot = h->d_head;
    rope->window_n_rot = rope->n_rot;
    if ((h->arch->reads_window_head || h->arch->reads_window_rotation) &&
        (st = read_window_rotation(r, h)) != HEARTH_OK) return st;
    if ((st = read_sections(r, rope, h->arch->sections)) != HEARTH_OK) return st;
    /* Above 1: YaRN divides by its logarithm. */
    if ((st = hth_hparams_float(r, "rope.freq_base", 1.001, 1e12, &rope->base, NULL)) != HEARTH_OK) return st;
    if (h->arch->compressed) { /* layers with blocks have a base of their own, and are scaled */
        rope->window_base = rope->base, rope->base = 0.0;
        st = hth_hparams_float(r, "attention.compress_rope_freq_base", 1.001, 1e12, &rope->base, &found);
        if (st != HEARTH_OK || !found) return st != HEARTH_OK ? st : hth_hparams_missing(r);
    }
    if (h->arch->reads_rope_alpha && (st = read_alpha(r, h->d_head, rope)) != HEARTH_OK) return st;
    if (h->arch->swa.possible && !h->arch->swa.shares_base) {
        st = hth_hparams_float(r, "rope.freq_base_swa", 1.001, 1e12, &rope->window_base, NULL);
        if (st != HEARTH_OK) return st;
    }
    if ((st = read_scaling_type(r, h->arch, rope)) != HEARTH_OK) return st;
    if ((st = hth_hparams_float(r, "rope.scaling.factor", 0.0, 1e6, &factor, &found)) != HEARTH_OK)
        return st;
    if (!found &&
        (st = hth_hparams_float(r, "rope.scale_linear", 0.0, 1e6, &factor, NULL)) != HEARTH_OK)
        return st;
    if (factor != 0.0 && factor < MIN_ROPE_FACTOR)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %g, allowed are 0 (none) and %g to 1e+06",
                        hth_gguf_path(r->file), r->key, factor, MIN_ROPE_FACTOR);
    bool scales = rope->scaling == HTH_SCALING_LINEAR || rope->scaling == HTH_SCALING_YARN;
    if (factor != 0.0 && scales) rope->factor = factor;
    st = hth_hparams_size(r, "rope.scaling.original_context_length", 1, HTH_MAX_CONTEXT, &rope->n_ctx_original);
    if (st != HEARTH_OK) return st;
    st = hth_hparams_float(r, "rope.scaling.attn_factor", 1e-3, 1e3, &rope->magnitude, NULL);
    if (st == HEARTH_OK) st = read_betas(r, h->arch, rope);
    if (st == HEARTH_OK && h->arch->checks_yarn_share) st = check_share(r, rope);
    return st == HEARTH_OK ? read_magnitude(r, h) : st;
}
