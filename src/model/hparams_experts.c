/* Hyper-parameters of mixtures of experts. Which keys are read, and what their absence means, is data of the
 * architecture (hth_expert_rule). */
#include "base/log.h"
#include "model/hparams_int.h"

/* Values of expert_gating_func. */
static const char *const score_names[HTH_N_SCORE] = {"that of the architecture", "softmax", "sigmoid",
                                                     "softmax of the chosen", "the root of softplus"};

/* An unknown value is refused wherever the key is. Where the architecture does not read it, a known value changes
 * nothing, as in llama.cpp. n_expert 0: the model is dense. */
static hearth_status read_score(hth_hparams_reader *r, const hth_expert_rule *rule, uint64_t n_expert,
                                hth_expert_sizes *e)
{
    uint64_t stated = 0;
    bool found;
    const char *key = hth_hparams_key(r, "expert_gating_func"), *path = hth_gguf_path(r->file);
    hearth_status st = hth_gguf_get_uint(r->file, key, 0, UINT32_MAX, &stated, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (stated >= HTH_N_SCORE)
        return hth_fail(
            r->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: %s at %llu is %llu; supported: 1 (softmax), 2 (sigmoid), 3 (softmax of the chosen), 4 "
            "(the root of softplus)",
            path, key, (unsigned long long)hth_gguf_find(r->file, key)->offset, (unsigned long long)stated);
    e->score = rule->reads_score && stated > 0 ? (hth_router_score)stated : rule->score;
    if (n_expert == 0) return HEARTH_OK;
    if (!found && rule->routes_layer_input)
        hth_hparams_warn(r, "%s: %s is missing: %s is taken", path, key, score_names[rule->score]);
    if (stated > 0 && stated != e->score)
        hth_hparams_warn(r, "%s: %s is %llu (%s), but architecture %s always takes %s", path, key,
                         (unsigned long long)stated, score_names[stated], r->arch, score_names[rule->score]);
    return HEARTH_OK;
}

/* How weights are made of scores. */
static hearth_status read_weight_rule(hth_hparams_reader *r, const hth_expert_rule *rule, hth_expert_sizes *e)
{
    double scale = 1.0;
    hearth_status st = HEARTH_OK;
    e->normalise = rule->normalise, e->scale = 1.0f;
    if (rule->reads_normalise)
        st = hth_gguf_get_bool(r->file, hth_hparams_key(r, "expert_weights_norm"), &e->normalise, NULL,
                               r->err);
    if (st == HEARTH_OK && rule->reads_scale)
        st = hth_hparams_float(r, "expert_weights_scale", 0.0, 1e6, &scale, NULL);
    if (scale != 0.0) e->scale = (float)scale; /* 0: converters of models without the factor write it */
    return st;
}

static hearth_status read_groups(hth_hparams_reader *r, hth_expert_sizes *e)
{
    uint32_t n_used = 0;
    e->n_group = e->n_group_used = 1;
    hearth_status st = hth_hparams_size(r, "expert_group_count", 0, e->n_expert, &e->n_group);
    if (st == HEARTH_OK) st = hth_hparams_count(r, "expert_group_used_count", e->n_expert, &n_used);
    if (st != HEARTH_OK) return st;
    if (e->n_group <= 1) {
        e->n_group = 1;
        if (n_used > 1)
            hth_hparams_warn(r,
                             "%s: %s is %u, but there are no groups (%s.expert_group_count): it is ignored",
                             hth_gguf_path(r->file), r->key, n_used, r->arch);
        return HEARTH_OK;
    }
    e->n_group_used = 0; /* required */
    if ((st = hth_hparams_size(r, "expert_group_used_count", 1, e->n_group, &e->n_group_used)) != HEARTH_OK)
        return st;
    uint32_t n = e->n_expert / e->n_group;
    if (e->n_expert % e->n_group == 0 && n >= 2 && n * e->n_group_used >= e->n_used) return HEARTH_OK;
    return hth_fail(
        r->err, HEARTH_ERROR_FORMAT,
        "%s: %u experts in %s.expert_group_count %u groups, of which %u are used, do not give %u experts",
        hth_gguf_path(r->file), e->n_expert, r->arch, e->n_group, e->n_group_used, e->n_used);
}

/* Width of the shared expert; n_ff: feed_forward_length, or 0. */
static hearth_status read_shared_width(hth_hparams_reader *r, hth_shared_rule rule, uint32_t n_ff,
                                       hth_expert_sizes *e)
{
    uint32_t length = 0, count = 1;
    hearth_status st = HEARTH_OK;
    bool counts =
        rule == HTH_SHARED_COUNT || rule == HTH_SHARED_LENGTH_COUNT || rule == HTH_SHARED_IF_COUNTED;
    uint32_t absent = rule == HTH_SHARED_OR_DENSE ? n_ff : rule == HTH_SHARED_OR_NONE ? 0 : e->d_ff;
    if (rule != HTH_SHARED_COUNT)
        st = hth_hparams_count(r, "expert_shared_feed_forward_length", HTH_MAX_D_FF, &length);
    if (st == HEARTH_OK && counts) st = hth_hparams_count(r, "expert_shared_count", HTH_MAX_D_FF, &count);
    if (rule == HTH_SHARED_IF_COUNTED && length > 0 && count > 0) count = 1;
    if (length == 0) length = absent;
    if (st != HEARTH_OK || (uint64_t)length * count <= HTH_MAX_D_FF) {
        e->d_ff_shared = length * count;
        return st;
    }
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s is %u: with experts of %u neurons the shared one has more than %d",
                    hth_gguf_path(r->file), r->key, count, length, HTH_MAX_D_FF);
}

/* Without experts nothing is used, and nothing is divided into groups. */
static hearth_status check_no_experts(hth_hparams_reader *r)
{
    static const char *const names[] = {"expert_used_count", "expert_group_count"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t n;
        hearth_status st = hth_hparams_count(r, names[i], UINT32_MAX, &n);
        if (st != HEARTH_OK) return st;
        if (n > 0)
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu is %u, but %s.expert_count is 0 or missing",
                            hth_gguf_path(r->file), r->key,
                            (unsigned long long)hth_gguf_find(r->file, r->key)->offset, n, r->arch);
    }
    return HEARTH_OK;
}

/* Width of an expert. */
static hearth_status read_expert_width(hth_hparams_reader *r, hth_expert_width rule, uint32_t n_ff,
                                       hth_expert_sizes *e)
{
    hearth_status st = HEARTH_OK;
    e->d_ff = n_ff;
    if (rule != HTH_WIDTH_DENSE)
        st = hth_hparams_count(r, "expert_feed_forward_length", HTH_MAX_D_FF, &e->d_ff);
    else hth_hparams_key(r, "feed_forward_length");
    if (e->d_ff == 0 && rule == HTH_WIDTH_KEY_OR_SHARE) e->d_ff = n_ff / e->n_used;
    if (e->d_ff == 0 && rule == HTH_WIDTH_KEY_OR_DENSE) e->d_ff = n_ff;
    return st == HEARTH_OK && e->d_ff == 0 ? hth_hparams_missing(r) : st;
}

/* feed_forward_length of the first layer that has a network, or 0. */
static uint32_t first_width(const hth_hparams *h, const hth_layer_sizes *sizes)
{
    uint32_t i = 0;
    while (i + 1 < h->n_layer && sizes[i].d_ff == 0) i++;
    return sizes[i].d_ff;
}

/* Limits of gate and up, one for each layer. */
static hearth_status read_limits(hth_hparams_reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    static const char *const names[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};
    for (int k = 0; k < 2; k++) {
        const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, names[k]));
        bool each = v && v->type == HTH_GGUF_ARRAY;
        double all = 0.0;
        hearth_status st = HEARTH_OK;
        bool numbers = each && (hth_gguf_is_integer(v->element_type) || v->element_type == HTH_GGUF_F32 ||
                                v->element_type == HTH_GGUF_F64);
        if (each && (!numbers || v->n_element + r->of_mtp < h->n_layer))
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: expected an array of %u numbers, one for each layer",
                            hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, h->n_layer);
        if (!each) st = hth_hparams_float(r, names[k], 0.0, 1e6, &all, NULL);
        uint32_t n_entry = each ? hth_hparams_n_entry(v, h->n_layer) : v ? h->n_layer : 0;
        for (uint32_t i = 0; st == HEARTH_OK && i < n_entry; i++) {
            double x = each ? hth_gguf_element_float(v, i) : all;
            if (!(x >= 0.0 && x <= 1e6))
                return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                                "%s: %s at %llu is %g for layer %u, allowed are 0 (none) to 1e+06",
                                hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, x, i);
            if (k == 0) sizes[i].limit = (float)x;
            sizes[i].shared_limit = (float)x;
        }
        if (st != HEARTH_OK) return st;
    }
    return HEARTH_OK;
}

hearth_status hth_hparams_read_experts(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_expert_rule *rule = &h->arch->experts;
    hth_expert_sizes *e = &h->experts;
    uint64_t n = 0;
    hearth_status st =
        hth_gguf_get_uint(r->file, hth_hparams_key(r, "expert_count"), 0, HTH_MAX_EXPERT, &n, NULL, r->err);
    if (st != HEARTH_OK) return st;
    if (n == 0 && rule->required) return hth_hparams_missing(r);
    if (n > 0 && rule->score == 0 && !rule->ignored)
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: %s is %llu, but architecture %s has no experts here", hth_gguf_path(r->file),
                        r->key, (unsigned long long)n, r->arch);
    if (rule->ignored) n = 0;
    if ((st = read_score(r, rule, n, e)) != HEARTH_OK) return st;
    if (n == 0) return rule->ignored ? HEARTH_OK : check_no_experts(r);
    e->n_expert = (uint32_t)n;
    if ((st = hth_hparams_size(r, "expert_used_count", 1, n < HTH_MAX_USED_EXPERT ? n : HTH_MAX_USED_EXPERT,
                               &e->n_used)) != HEARTH_OK)
        return st;
    if ((st = read_weight_rule(r, rule, e)) != HEARTH_OK) return st;
    if ((st = read_groups(r, e)) != HEARTH_OK) return st;
    uint32_t n_ff = first_width(h, sizes);
    if ((st = read_expert_width(r, rule->width, n_ff, e)) != HEARTH_OK) return st;
    if (rule->shared != HTH_SHARED_NONE) st = read_shared_width(r, rule->shared, n_ff, e);
    e->shared_weight = 1.0f;
    if (rule->shared_mean && e->d_ff_shared > 0) e->shared_weight = 0.5f, e->scale *= 0.5f;
    e->step = 1;
    if (st == HEARTH_OK && rule->reads_leading)
        st = hth_hparams_count(r, "leading_dense_block_count", h->n_layer, &e->n_leading);
    if (st == HEARTH_OK && rule->reads_step)
        st = hth_hparams_size(r, "interleave_moe_layer_step", 1, HTH_MAX_LAYER, &e->step);
    if (st == HEARTH_OK && rule->reads_hashed)
        st = hth_hparams_count(r, "hash_layer_count", h->n_layer, &e->n_hashed);
    if (st == HEARTH_OK && rule->reads_limits) st = read_limits(r, h, sizes);
    return st;
}

/* Which layers have experts. The others need the width of a dense network. */
hearth_status hth_hparams_place_experts(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_expert_sizes *e = &h->experts;
    bool stated = hth_gguf_find(r->file, hth_hparams_key(r, "feed_forward_length")) != NULL;
    h->d_ff = 0;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        sizes[i].has_experts =
            e->n_expert > 0 && i >= e->n_leading && (i + 1) % e->step == 0 && !sizes[i].no_network;
        if (sizes[i].has_experts && !h->arch->experts.by_tensors && !h->arch->experts.dense_residual)
            sizes[i].d_ff = 0;
        if (sizes[i].has_experts && h->arch->experts.dense_residual_square) sizes[i].d_ff = h->d_model;
        if (sizes[i].d_ff > h->d_ff) h->d_ff = sizes[i].d_ff;
        if (!stated && !sizes[i].has_experts && h->arch->layers == HTH_LAYERS_FULL)
            return hth_hparams_missing(r);
    }
    return HEARTH_OK;
}
