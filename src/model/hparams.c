/* Reads hyper-parameters from the metadata. Every value is checked against its range before it is used as a size.
 * Limits are in one table of constants below. Keys and defaults: the format's documentation, as llama.cpp reads
 * them. */
#include "base/log.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* 2 to 10 times above every known model. */
enum {
    MAX_HEAD = 4096,
    MAX_USED = HTH_MAX_CHAINS - 1, /* sums of the chosen experts and the shared one must fit */
    MAX_D_MODEL = 262144,
    MAX_D_HEAD = 65536,
    MAX_CONTEXT = 16777216,
};

/* No model shrinks its context a thousandfold: smaller factors come from damaged files. */
static const double MIN_ROPE_FACTOR = 1e-3;
/* Published caps are 30 and 50. A tiny one would make every score equal. */
static const double MIN_CAP = 1e-3;
/* Published values are 1e-5 and 1e-6. */
static const double LARGE_EPSILON = 1e-2;

typedef struct reader {
    const hth_gguf *file;
    const char *arch;
    char key[160];
    hearth_error *err;
} reader;

static const char *key_of(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->key;
}

static hearth_status missing(reader *r)
{
    char why[120];
    snprintf(why, sizeof why, "architecture %s", r->arch);
    return hth_gguf_missing(r->file, r->key, why, r->err);
}

/* Reads an integer key. It is required if *value is 0 on entry. */
static hearth_status read_size(reader *r, const char *name, uint64_t min, uint64_t max, uint32_t *value)
{
    uint64_t v = *value;
    bool found;
    hearth_status st = hth_gguf_get_uint(r->file, key_of(r, name), min, max, &v, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found && *value == 0) return missing(r);
    *value = (uint32_t)v;
    return HEARTH_OK;
}

static hearth_status read_float(reader *r, const char *name, double min, double max, double *value,
                                bool *found)
{
    return hth_gguf_get_float(r->file, key_of(r, name), min, max, value, found, r->err);
}

/* Reads a count that may be one number or an array with an entry per layer. */
static hearth_status read_per_layer(reader *r, const char *name, uint64_t max, uint32_t n_layer,
                                    uint32_t *values, bool *found)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, key_of(r, name));
    *found = v != NULL;
    if (!v) return HEARTH_OK;
    if (v->type != HTH_GGUF_ARRAY) {
        uint64_t one = 0;
        hearth_status st = hth_gguf_get_uint(r->file, r->key, 1, max, &one, NULL, r->err);
        for (uint32_t i = 0; i < n_layer; i++) values[i] = (uint32_t)one;
        return st;
    }
    if ((v->element_type != HTH_GGUF_I32 && v->element_type != HTH_GGUF_U32) || v->n_element != n_layer)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: expected an array of %u 32-bit integers, one for each layer",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, n_layer);
    for (uint32_t i = 0; i < n_layer; i++) {
        int64_t one = v->element_type == HTH_GGUF_I32 ? hth_gguf_element_int(v, i)
                                                      : (int64_t)hth_gguf_element_uint(v, i);
        if (one < 1 || (uint64_t)one > max)
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: entry %u is %lld, allowed are 1 to %llu", hth_gguf_path(r->file),
                            r->key, (unsigned long long)v->offset, i, (long long)one,
                            (unsigned long long)max);
        values[i] = (uint32_t)one;
    }
    return HEARTH_OK;
}

/* ---- groups of parameters ---------------------------------------------------- */

/* Reports an error for files that belong to a model, which their architecture name identifies (docs/sparsity.md). */
static hearth_status check_not_sidecar(reader *r, hth_str name)
{
    static const struct {
        const char *name, *what, *says;
    } kinds[] = {
        {"hearth.profile", "a profile", "it says how the neurons of a model fired; name the model itself"},
        {"hearth.predictors", "predictors", "name the model itself, and these with --predictors"},
        {"hearth.thresholds", "thresholds", "name the model itself, and these with --thresholds"},
        {"hearth.placement", "a placement", "name the model itself, and this with --placement"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (hth_str_eq(name, kinds[i].name))
            return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                            "%s: %s, not a model (general.architecture at %llu is %s): %s",
                            hth_gguf_path(r->file), kinds[i].what,
                            (unsigned long long)hth_gguf_find(r->file, "general.architecture")->offset,
                            kinds[i].name, kinds[i].says);
    return HEARTH_OK;
}

static hearth_status find_arch(reader *r, hth_hparams *h)
{
    hth_str name = {0};
    bool found;
    hearth_status st = hth_gguf_get_text(r->file, "general.architecture", &name, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found) return hth_gguf_missing(r->file, "general.architecture", "every model", r->err);
    if ((st = check_not_sidecar(r, name)) != HEARTH_OK) return st;
    h->arch = hth_arch_find(name);
    if (!h->arch) {
        char shown[80], list[200];
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: architecture '%s' is not supported; supported: %s", hth_gguf_path(r->file),
                        hth_escape(shown, sizeof shown, name.bytes, name.n),
                        hth_arch_list(list, sizeof list));
    }
    r->arch = h->arch->name;
    if (!hth_gguf_is_powerinfer(r->file) || h->arch->in_powerinfer) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: a PowerInfer file (magic PWRI) of architecture %s; such files hold llama, bamboo, "
                    "falcon or opt",
                    hth_gguf_path(r->file), r->arch);
}

/* ---- experts ------------------------------------------------------------------- */

/* How weights are made of scores. */
static hearth_status read_weight_rule(reader *r, const hth_expert_rule *rule, hth_expert_sizes *e)
{
    double scale = 1.0;
    uint64_t score = rule->score;
    bool found;
    e->score = rule->score, e->normalise = rule->normalise, e->scale = 1.0f;
    if (!rule->reads_keys) return HEARTH_OK;
    hearth_status st = hth_gguf_get_bool(r->file, key_of(r, "expert_weights_norm"), &e->normalise, &found, r->err);
    if (st == HEARTH_OK) st = read_float(r, "expert_weights_scale", 0.0, 1e6, &scale, NULL);
    if (st != HEARTH_OK) return st;
    if (scale != 0.0) e->scale = (float)scale; /* 0: converters of models without the factor write it */
    st = hth_gguf_get_uint(r->file, key_of(r, "expert_gating_func"), 0, UINT32_MAX, &score, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (score == 0) score = rule->score;
    if (!found && rule->routes_layer_input)
        hth_log(HEARTH_LOG_WARN, "%s: %s is missing: sigmoid is taken", hth_gguf_path(r->file), r->key);
    if (score >= HTH_N_SCORE)
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: %s is %llu; supported: 1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)",
                        hth_gguf_path(r->file), r->key, (unsigned long long)score);
    e->score = (hth_router_score)score;
    return HEARTH_OK;
}

static hearth_status read_groups(reader *r, hth_expert_sizes *e)
{
    e->n_group = e->n_group_used = 1;
    if (!hth_gguf_find(r->file, key_of(r, "expert_group_count"))) return HEARTH_OK;
    hearth_status st = read_size(r, "expert_group_count", 0, e->n_expert, &e->n_group);
    if (st != HEARTH_OK || e->n_group <= 1) {
        e->n_group = 1;
        return st;
    }
    if ((st = read_size(r, "expert_group_used_count", 1, e->n_group, &e->n_group_used)) != HEARTH_OK) return st;
    uint32_t n = e->n_expert / e->n_group;
    if (e->n_expert % e->n_group == 0 && n >= 2 && n * e->n_group_used >= e->n_used) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %u experts in %s.expert_group_count %u groups, of which %u are used, do not give %u experts",
                    hth_gguf_path(r->file), e->n_expert, r->arch, e->n_group, e->n_group_used, e->n_used);
}

/* Widths of an expert and of the shared one; n_ff: feed_forward_length, or 0. */
static hearth_status read_expert_widths(reader *r, const hth_expert_rule *rule, uint32_t n_ff, hth_expert_sizes *e)
{
    e->d_ff = rule->d_ff_from_dense ? n_ff / (rule->d_ff_per_used ? e->n_used : 1) : 0;
    if (rule->reads_keys || !rule->d_ff_from_dense) {
        hearth_status st = read_size(r, "expert_feed_forward_length", 1, HTH_MAX_D_FF, &e->d_ff);
        if (st != HEARTH_OK) return st;
    } else if (e->d_ff == 0) {
        key_of(r, "feed_forward_length");
        return missing(r);
    }
    if (!rule->shared) return HEARTH_OK;
    e->d_ff_shared = n_ff;
    return read_size(r, "expert_shared_feed_forward_length", 1, HTH_MAX_D_FF, &e->d_ff_shared);
}

static hearth_status read_experts(reader *r, hth_hparams *h, const hth_layer_sizes *sizes)
{
    const hth_expert_rule *rule = &h->arch->experts;
    hth_expert_sizes *e = &h->experts;
    uint64_t n = 0;
    hearth_status st = hth_gguf_get_uint(r->file, key_of(r, "expert_count"), 0, HTH_MAX_EXPERT, &n, NULL, r->err);
    if (st != HEARTH_OK) return st;
    if (n == 0 && rule->required) return missing(r);
    if (n == 0) return HEARTH_OK;
    if (rule->score == 0)
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %llu, but architecture %s has no experts here",
                        hth_gguf_path(r->file), r->key, (unsigned long long)n, r->arch);
    e->n_expert = (uint32_t)n;
    if ((st = read_size(r, "expert_used_count", 1, n < MAX_USED ? n : MAX_USED, &e->n_used)) != HEARTH_OK) return st;
    if ((st = read_weight_rule(r, rule, e)) != HEARTH_OK) return st;
    if ((st = read_groups(r, e)) != HEARTH_OK) return st;
    return read_expert_widths(r, rule, sizes[0].d_ff, e);
}

/* Which layers have experts: all of a model that has some. */
static void place_experts(hth_hparams *h, hth_layer_sizes *sizes)
{
    h->d_ff = 0;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        sizes[i].has_experts = h->experts.n_expert > 0;
        if (sizes[i].has_experts) sizes[i].d_ff = 0;
        if (sizes[i].d_ff > h->d_ff) h->d_ff = sizes[i].d_ff;
    }
}

/* ---- sizes of layers ------------------------------------------------------------- */

/* Heads and FFN widths, which may differ per layer. */
static hearth_status read_layer_sizes(reader *r, hth_arena *arena, hth_hparams *h, hth_layer_sizes **out)
{
    uint32_t n = h->n_layer;
    uint32_t *values = hth_arena_alloc(arena, n, 3 * sizeof *values, 4);
    hth_layer_sizes *sizes = hth_arena_alloc(arena, n, sizeof *sizes, 4);
    if (!values || !sizes) return hth_fail_memory(r->err, n * sizeof *sizes, "layer sizes");
    uint32_t *head = values, *kv = values + n, *ff = values + 2 * n;
    bool found;
    hearth_status st = read_per_layer(r, "attention.head_count", MAX_HEAD, n, head, &found);
    if (st != HEARTH_OK) return st;
    if (!found) return missing(r);
    memcpy(kv, head, n * sizeof *kv);
    st = read_per_layer(r, "attention.head_count_kv", MAX_HEAD, n, kv, &found);
    if (st != HEARTH_OK) return st;
    st = read_per_layer(r, "feed_forward_length", HTH_MAX_D_FF, n, ff, &found);
    if (st != HEARTH_OK) return st;
    if (!found && !h->arch->experts.required) return missing(r);
    if (!found) memset(ff, 0, n * sizeof *ff);
    for (uint32_t i = 0; i < n; i++) {
        if (head[i] % kv[i] != 0)
            return hth_fail(
                r->err, HEARTH_ERROR_FORMAT,
                "%s: layer %u has %u heads, but %s.attention.head_count_kv is %u, which does not divide it",
                hth_gguf_path(r->file), i, head[i], r->arch, kv[i]);
        sizes[i] = (hth_layer_sizes){.n_head = head[i], .n_head_kv = kv[i], .d_ff = ff[i]};
        if (head[i] > h->n_head) h->n_head = head[i];
        if (kv[i] > h->n_head_kv) h->n_head_kv = kv[i];
        if (ff[i] > h->d_ff) h->d_ff = ff[i];
    }
    *out = sizes;
    return HEARTH_OK;
}

static hearth_status read_head_size(reader *r, hth_hparams *h, const hth_layer_sizes *sizes)
{
    uint32_t key = 0, value = 0;
    if (h->d_model % sizes[0].n_head == 0) key = h->d_model / sizes[0].n_head;
    value = key;
    bool stated = hth_gguf_find(r->file, key_of(r, "attention.key_length")) != NULL;
    if (!stated && key == 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s.embedding_length %u is no multiple of %u heads, and there is no %s",
                        hth_gguf_path(r->file), r->arch, h->d_model, sizes[0].n_head, r->key);
    if (key == 0) key = 1;
    hearth_status st = read_size(r, "attention.key_length", 2, MAX_D_HEAD, &key);
    if (st != HEARTH_OK) return st;
    if (value == 0) value = key;
    st = read_size(r, "attention.value_length", 1, MAX_D_HEAD, &value);
    if (st != HEARTH_OK) return st;
    if (value != key)
        return hth_fail(
            r->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: %s is %u, but %s.attention.key_length is %u: different lengths are not supported",
            hth_gguf_path(r->file), r->key, value, r->arch, key);
    h->d_head = key;
    bool wide = h->n_layer == h->arch->wide_scale_layers;
    h->score_width = wide ? h->d_model / sizes[0].n_head : key;
    if (h->score_width > 0) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s.attention.head_count is %u, but %s.embedding_length is %u, and by their ratio "
                    "models of %u layers scale their scores",
                    hth_gguf_path(r->file), r->arch, sizes[0].n_head, r->arch, h->d_model, h->n_layer);
}

/* ---- windows ------------------------------------------------------------------- */

/* A flag per layer, or the period of layers without a window. */
static hearth_status read_window_pattern(reader *r, const hth_hparams *h, uint32_t size,
                                         hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, key_of(r, "attention.sliding_window_pattern"));
    uint32_t n_layer = h->n_layer;
    uint64_t period = h->arch->swa.period;
    if (v && v->type == HTH_GGUF_ARRAY) {
        bool counts = v->element_type == HTH_GGUF_BOOL || hth_gguf_is_integer(v->element_type);
        if (!counts || v->n_element != n_layer)
            return hth_fail(
                r->err, HEARTH_ERROR_FORMAT,
                "%s: %s at %llu: expected an array of %u booleans or integers, one for each layer",
                hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, n_layer);
        for (uint32_t i = 0; i < n_layer; i++) sizes[i].window = hth_gguf_element_uint(v, i) ? size : 0;
        return HEARTH_OK;
    }
    hearth_status st = hth_gguf_get_uint(r->file, r->key, 0, HTH_MAX_LAYER, &period, NULL, r->err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < n_layer; i++) {
        bool sees_all = period > 0 && i % period == (h->arch->swa.dense_first ? 0 : period - 1);
        sizes[i].window = sees_all ? 0 : size;
    }
    return HEARTH_OK;
}

static void place_rotation(const hth_hparams *h, hth_layer_sizes *sizes)
{
    bool any_window = false;
    for (uint32_t i = 0; i < h->n_layer; i++) any_window = any_window || sizes[i].window > 0;
    uint32_t step = any_window ? h->arch->unrotated_step : 0;
    for (uint32_t i = 0; i < h->n_layer; i++) sizes[i].rotates = step == 0 || i % step != h->arch->unrotated_phase;
}

static hearth_status read_windows(reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_swa_pattern *rule = &h->arch->swa;
    uint64_t size = rule->size;
    bool found;
    if (!rule->possible) return HEARTH_OK;
    hearth_status st = hth_gguf_get_uint(r->file, key_of(r, "attention.sliding_window"), 0, MAX_CONTEXT,
                                         &size, &found, r->err);
    if (st != HEARTH_OK || size == 0) return st;
    return read_window_pattern(r, h, (uint32_t)size, sizes);
}

static hearth_status read_scaling_type(reader *r, const hth_arch *arch, hth_rope *rope)
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
    hearth_status st = hth_gguf_get_text(r->file, key_of(r, "rope.scaling.type"), &type, &found, r->err);
    if (st != HEARTH_OK) return st;
    rope->scaling = HTH_SCALING_LINEAR;
    if (!found) return HEARTH_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (hth_str_eq(type, kinds[i].name) && (tables || kinds[i].scaling != HTH_SCALING_LONGROPE)) {
            rope->scaling = kinds[i].scaling;
            return HEARTH_OK;
        }
    char shown[80];
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s '%s' is not supported; supported: none, linear, yarn%s", hth_gguf_path(r->file),
                    r->key, hth_escape(shown, sizeof shown, type.bytes, type.n), tables ? ", longrope" : "");
}

static hearth_status read_rope(reader *r, hth_hparams *h)
{
    hth_rope *rope = &h->rope;
    *rope = (hth_rope){.kind = h->arch->rope,
                       .n_rot = h->d_head,
                       .base = 10000.0,
                       .window_base = h->arch->window_rope_base,
                       .attn_factor = 1.0};
    if (rope->kind == HTH_ROPE_NONE) {
        rope->n_rot = 0;
        return HEARTH_OK;
    }
    hearth_status st = read_size(r, "rope.dimension_count", 2, h->d_head, &rope->n_rot);
    if (st != HEARTH_OK) return st;
    if (rope->n_rot % 2 != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s (default: attention.key_length) is %u, expected an even number",
                        hth_gguf_path(r->file), r->key, rope->n_rot);
    /* Above 1: YaRN divides by its logarithm. */
    if ((st = read_float(r, "rope.freq_base", 1.001, 1e12, &rope->base, NULL)) != HEARTH_OK) return st;
    if (h->arch->swa.possible) {
        st = read_float(r, "rope.freq_base_swa", 1.001, 1e12, &rope->window_base, NULL);
        if (st != HEARTH_OK) return st;
    }
    if ((st = read_scaling_type(r, h->arch, rope)) != HEARTH_OK) return st;
    bool found;
    if ((st = read_float(r, "rope.scaling.factor", 0.0, 1e6, &rope->factor, &found)) != HEARTH_OK) return st;
    if (!found && (st = read_float(r, "rope.scale_linear", 0.0, 1e6, &rope->factor, NULL)) != HEARTH_OK)
        return st;
    if (rope->factor != 0.0 && rope->factor < MIN_ROPE_FACTOR)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %g, allowed are 0 (none) and %g to 1e+06",
                        hth_gguf_path(r->file), r->key, rope->factor, MIN_ROPE_FACTOR);
    bool scales = rope->scaling == HTH_SCALING_LINEAR || rope->scaling == HTH_SCALING_YARN;
    if (rope->factor == 0.0 || !scales) rope->factor = 1.0;
    uint32_t original = h->n_ctx_train;
    if ((st = read_size(r, "rope.scaling.original_context_length", 1, MAX_CONTEXT, &original)) != HEARTH_OK)
        return st;
    rope->n_ctx_original = original;
    return read_float(r, "rope.scaling.attn_factor", 1e-3, 1e3, &rope->attn_factor, NULL);
}

static hearth_status read_activation(reader *r, hth_hparams *h)
{
    static const char key[] = "hearth.ffn.activation";
    hth_str name = {0};
    bool found;
    hearth_status st = hth_gguf_get_text(r->file, key, &name, &found, r->err);
    h->activation = hth_gguf_is_powerinfer(r->file) ? h->arch->relu_form : h->arch->activation;
    h->needs_gate = h->arch->gated;
    if (st != HEARTH_OK || !found || hth_activation_by_name(name, &h->activation, &h->needs_gate)) return st;
    char shown[80];
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s '%s' is not known; known: " HTH_ACTIVATION_NAMES, hth_gguf_path(r->file), key,
                    hth_escape(shown, sizeof shown, name.bytes, name.n));
}

static hearth_status read_epsilon(reader *r, hth_hparams *h)
{
    bool found, bare = hth_gguf_is_powerinfer(r->file) && h->arch->norm_eps != 0.0;
    double eps = bare ? 0.0 : h->arch->norm_eps; /* PowerInfer never reads the key where it is not needed */
    const char *name =
        h->arch->norm == HTH_NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    hearth_status st = read_float(r, name, 0.0, 1.0, &eps, &found);
    if (st != HEARTH_OK) return st;
    if (!found && eps == 0.0 && !bare) return missing(r);
    if ((eps == 0.0 && !bare) || eps > LARGE_EPSILON)
        hth_log(HEARTH_LOG_WARN, "%s: %s is %g", hth_gguf_path(r->file), r->key, eps);
    h->norm_eps = (float)eps;
    return HEARTH_OK;
}

/* x becomes cap tanh(x / cap); 0: none. */
static hearth_status read_cap(reader *r, const char *name, double by_default, float *cap)
{
    double x = by_default;
    hearth_status st = read_float(r, name, 0.0, 1e6, &x, NULL);
    if (st != HEARTH_OK) return st;
    if (x != 0.0 && x < MIN_CAP)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %g, allowed are 0 (none) and %g to 1e+06",
                        hth_gguf_path(r->file), r->key, x, MIN_CAP);
    *cap = (float)x;
    return HEARTH_OK;
}

static hearth_status read_caps(reader *r, hth_hparams *h)
{
    const hth_arch *f = h->arch;
    hearth_status st = HEARTH_OK;
    if (f->reads_attn_softcap) st = read_cap(r, "attn_logit_softcapping", f->attn_softcap, &h->attn_softcap);
    if (st != HEARTH_OK) return st;
    return f->reads_logit_softcap ? read_cap(r, "final_logit_softcapping", f->logit_softcap, &h->logit_softcap)
                                  : HEARTH_OK;
}

/* Some converters write a meaningless number for "no limit". The context of a session is bounded by memory, not by
 * this. */
static hearth_status read_context(reader *r, hth_hparams *h)
{
    uint64_t n = 0;
    bool found;
    hearth_status st =
        hth_gguf_get_uint(r->file, key_of(r, "context_length"), 1, UINT64_MAX, &n, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found) return missing(r);
    if (n > MAX_CONTEXT)
        hth_log(HEARTH_LOG_WARN, "%s: %s is %llu; %d is taken", hth_gguf_path(r->file), r->key,
                (unsigned long long)n, MAX_CONTEXT);
    h->n_ctx_train = n > MAX_CONTEXT ? MAX_CONTEXT : (uint32_t)n;
    return HEARTH_OK;
}

/* Applies the caller's activation instead of the file's. */
static hearth_status override_activation(reader *r, hth_hparams *h, const char *name)
{
    const char *by_file = hth_activation_name(h->activation);
    hth_activation activation = h->activation;
    if (!name) return HEARTH_OK;
    if (!hth_activation_by_name((hth_str){name, strlen(name)}, &activation, &h->needs_gate))
        return hth_fail(r->err, HEARTH_ERROR_ARGUMENT,
                        "activation '%s' is not known; known: " HTH_ACTIVATION_NAMES, name);
    if (activation != h->activation)
        hth_log(HEARTH_LOG_WARN, "%s: activation %s in place of %s, as asked for", hth_gguf_path(r->file),
                name, by_file);
    h->other_activation = activation != h->activation;
    h->activation = activation;
    return HEARTH_OK;
}

hearth_status hth_model_read_hparams(const hth_gguf *file, const hth_model_overrides *overrides, hth_arena *arena,
                                     hth_hparams *h, hth_layer_sizes **per_layer, hearth_error *err)
{
    reader r = {.file = file, .err = err};
    *h = (hth_hparams){0};
    hearth_status st;
    if ((st = find_arch(&r, h)) != HEARTH_OK) return st;
    if ((st = read_size(&r, "block_count", 1, HTH_MAX_LAYER, &h->n_layer)) != HEARTH_OK) return st;
    if ((st = read_context(&r, h)) != HEARTH_OK) return st;
    if ((st = read_size(&r, "embedding_length", 1, MAX_D_MODEL, &h->d_model)) != HEARTH_OK) return st;
    if ((st = read_layer_sizes(&r, arena, h, per_layer)) != HEARTH_OK) return st;
    if ((st = read_experts(&r, h, *per_layer)) != HEARTH_OK) return st;
    place_experts(h, *per_layer);
    if ((st = read_head_size(&r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = read_windows(&r, h, *per_layer)) != HEARTH_OK) return st;
    place_rotation(h, *per_layer);
    if ((st = read_caps(&r, h)) != HEARTH_OK) return st;
    if ((st = read_epsilon(&r, h)) != HEARTH_OK) return st;
    if ((st = read_rope(&r, h)) != HEARTH_OK) return st;
    if ((st = read_activation(&r, h)) != HEARTH_OK) return st;
    return override_activation(&r, h, overrides->activation);
}
