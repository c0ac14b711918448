/* Reads hyper-parameters from the metadata. Every value is checked against its range before it is used as a size.
 * Limits are in one table of constants below. Keys and defaults: the format's documentation, as llama.cpp reads
 * them. */
#include "base/log.h"
#include "kernels/vector/math.h"
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
        char shown[80], list[300];
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
    hearth_status st = HEARTH_OK;
    e->score = rule->score, e->normalise = rule->normalise, e->scale = 1.0f;
    if (rule->reads_normalise)
        st = hth_gguf_get_bool(r->file, key_of(r, "expert_weights_norm"), &e->normalise, &found, r->err);
    if (st == HEARTH_OK && rule->reads_scale) st = read_float(r, "expert_weights_scale", 0.0, 1e6, &scale, NULL);
    if (scale != 0.0) e->scale = (float)scale; /* 0: converters of models without the factor write it */
    if (st != HEARTH_OK || !rule->reads_score) return st;
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

/* An integer key that may be absent or 0. */
static hearth_status read_count(reader *r, const char *name, uint64_t max, uint32_t *value)
{
    uint64_t v = 0;
    hearth_status st = hth_gguf_get_uint(r->file, key_of(r, name), 0, max, &v, NULL, r->err);
    *value = (uint32_t)v;
    return st;
}

/* Width of the shared expert; n_ff: feed_forward_length, or 0. */
static hearth_status read_shared_width(reader *r, hth_shared_rule rule, uint32_t n_ff, hth_expert_sizes *e)
{
    uint32_t length = 0, count = 1;
    hearth_status st = HEARTH_OK;
    if (rule != HTH_SHARED_COUNT) st = read_count(r, "expert_shared_feed_forward_length", HTH_MAX_D_FF, &length);
    if (st != HEARTH_OK) return st;
    if (rule == HTH_SHARED_COUNT || rule == HTH_SHARED_LENGTH_COUNT)
        st = read_count(r, "expert_shared_count", HTH_MAX_D_FF, &count);
    if (rule == HTH_SHARED_OR_DENSE && length == 0) length = n_ff;
    if (rule == HTH_SHARED_OR_EXPERT && length == 0) length = e->d_ff;
    if ((rule == HTH_SHARED_COUNT || rule == HTH_SHARED_LENGTH_COUNT) && length == 0) length = e->d_ff;
    if (st != HEARTH_OK || (uint64_t)length * count <= HTH_MAX_D_FF) {
        e->d_ff_shared = length * count;
        return st;
    }
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %u: with experts of %u neurons the shared one has more than %d",
                    hth_gguf_path(r->file), r->key, count, length, HTH_MAX_D_FF);
}

/* Width of an expert. */
static hearth_status read_expert_width(reader *r, hth_expert_width rule, uint32_t n_ff, hth_expert_sizes *e)
{
    hearth_status st = HEARTH_OK;
    e->d_ff = n_ff;
    if (rule != HTH_WIDTH_DENSE) st = read_count(r, "expert_feed_forward_length", HTH_MAX_D_FF, &e->d_ff);
    else key_of(r, "feed_forward_length");
    if (e->d_ff == 0 && rule == HTH_WIDTH_KEY_OR_SHARE) e->d_ff = n_ff / e->n_used;
    return st == HEARTH_OK && e->d_ff == 0 ? missing(r) : st;
}

static hearth_status read_experts(reader *r, hth_hparams *h, const hth_layer_sizes *sizes)
{
    const hth_expert_rule *rule = &h->arch->experts;
    hth_expert_sizes *e = &h->experts;
    uint64_t n = 0;
    hearth_status st = hth_gguf_get_uint(r->file, key_of(r, "expert_count"), 0, HTH_MAX_EXPERT, &n, NULL, r->err);
    if (st != HEARTH_OK || rule->ignored) return st;
    if (n == 0 && rule->required) return missing(r);
    if (n == 0) return HEARTH_OK;
    if (rule->score == 0)
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %llu, but architecture %s has no experts here",
                        hth_gguf_path(r->file), r->key, (unsigned long long)n, r->arch);
    e->n_expert = (uint32_t)n;
    if ((st = read_size(r, "expert_used_count", 1, n < MAX_USED ? n : MAX_USED, &e->n_used)) != HEARTH_OK) return st;
    if ((st = read_weight_rule(r, rule, e)) != HEARTH_OK) return st;
    if ((st = read_groups(r, e)) != HEARTH_OK) return st;
    if ((st = read_expert_width(r, rule->width, sizes[0].d_ff, e)) != HEARTH_OK) return st;
    if (rule->shared != HTH_SHARED_NONE) st = read_shared_width(r, rule->shared, sizes[0].d_ff, e);
    e->step = 1;
    if (st == HEARTH_OK && rule->reads_leading) st = read_count(r, "leading_dense_block_count", HTH_MAX_LAYER, &e->n_leading);
    if (st == HEARTH_OK && rule->reads_step) st = read_size(r, "interleave_moe_layer_step", 1, HTH_MAX_LAYER, &e->step);
    return st;
}

/* Which layers have experts. */
static void place_experts(hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_expert_sizes *e = &h->experts;
    h->d_ff = 0;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        sizes[i].has_experts = e->n_expert > 0 && i >= e->n_leading && (i + 1) % e->step == 0;
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
        if (h->arch->ff_halved) ff[i] /= 2;
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
    bool wide = h->arch->wide_scale_layers > 0 && h->n_layer == h->arch->wide_scale_layers;
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

/* A flag for each layer, or one for all. */
static hearth_status read_rope_pattern(reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, key_of(r, "attention.rope_pattern"));
    if (!h->arch->reads_rope_pattern || !v || v->type != HTH_GGUF_ARRAY) return HEARTH_OK;
    bool flags = v->element_type == HTH_GGUF_BOOL || hth_gguf_is_integer(v->element_type);
    if (!flags || v->n_element != h->n_layer)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: expected an array of %u booleans or integers, one for each layer",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, h->n_layer);
    for (uint32_t i = 0; i < h->n_layer; i++) sizes[i].rotates = sizes[i].rotates && hth_gguf_element_uint(v, i);
    return HEARTH_OK;
}

static void place_rotation(const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_arch *a = h->arch;
    bool any_window = false;
    for (uint32_t i = 0; i < h->n_layer; i++) any_window = any_window || sizes[i].window > 0;
    uint32_t step = a->unrotated_by_window && !any_window ? 0 : a->unrotated_step;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        bool hidden = a->rotates_windows_only && any_window && sizes[i].window == 0;
        sizes[i].rotates = h->rope.n_rot > 0 && !hidden && (step == 0 || i % step != a->unrotated_phase);
    }
}

static hearth_status read_windows(reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_swa_pattern *rule = &h->arch->swa;
    uint64_t size = rule->size;
    bool found;
    if (!rule->possible || (rule->n_layer > 0 && h->n_layer != rule->n_layer)) return HEARTH_OK;
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

/* Sizes of the sections, in pairs. */
static hearth_status read_sections(reader *r, hth_rope *rope, hth_rope_sections rule)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, key_of(r, "rope.dimension_sections"));
    if (rule == HTH_SECTIONS_NONE || !v) return HEARTH_OK;
    bool fits = v->type == HTH_GGUF_ARRAY && hth_gguf_is_integer(v->element_type) && v->n_element <= 4;
    for (uint64_t i = 0; fits && i < v->n_element; i++) {
        uint64_t n = hth_gguf_element_uint(v, i);
        fits = n <= MAX_D_HEAD;
        rope->sections[i] = (uint32_t)n;
    }
    if (!fits)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: expected up to 4 integers, at most %d each",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, MAX_D_HEAD);
    bool stated = rope->sections[0] > 0 && rope->sections[1] > 0;
    if (rule == HTH_SECTIONS_DECIDE && stated) rope->kind = HTH_ROPE_NEOX;
    rope->section_rule = rule != HTH_SECTIONS_DECIDE ? rule : stated ? HTH_SECTIONS_BLOCKS : HTH_SECTIONS_NONE;
    return HEARTH_OK;
}

/* NTK-aware scaling: base alpha^(d / (d - 2)). */
static hearth_status read_alpha(reader *r, uint32_t d_head, hth_rope *rope)
{
    double alpha = 0.0;
    hearth_status st = read_float(r, "rope.scaling.alpha", 0.0, 1e6, &alpha, NULL);
    if (st == HEARTH_OK && alpha > 0.0 && d_head > 2) rope->base *= hth_pow_d(alpha, d_head / (d_head - 2.0));
    return st;
}

static hearth_status read_rope(reader *r, hth_hparams *h)
{
    hth_rope *rope = &h->rope;
    *rope = (hth_rope){.kind = h->arch->rope,
                       .n_rot = h->d_head,
                       .base = 10000.0,
                       .window_base = h->arch->window_rope_base,
                       .attn_factor = 1.0};
    bool rotates = true, other_depth = h->arch->adjacent_layers > 0 && h->n_layer != h->arch->adjacent_layers;
    hearth_status st = HEARTH_OK;
    if (h->arch->reads_finetuned)
        st = hth_gguf_get_bool(r->file, key_of(r, "rope.scaling.finetuned"), &rotates, NULL, r->err);
    if (st != HEARTH_OK) return st;
    if (rope->kind == HTH_ROPE_NONE || !rotates || other_depth) {
        rope->n_rot = 0, rope->kind = HTH_ROPE_NONE;
        return HEARTH_OK;
    }
    rope->factor = 1.0, rope->n_ctx_original = h->n_ctx_train;
    if (h->arch->fixed_rope) return HEARTH_OK;
    rope->factor = 0.0;
    if ((st = read_size(r, "rope.dimension_count", 2, h->d_head, &rope->n_rot)) != HEARTH_OK) return st;
    if (rope->n_rot % 2 != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s (default: attention.key_length) is %u, expected an even number",
                        hth_gguf_path(r->file), r->key, rope->n_rot);
    if ((st = read_sections(r, rope, h->arch->sections)) != HEARTH_OK) return st;
    /* Above 1: YaRN divides by its logarithm. */
    if ((st = read_float(r, "rope.freq_base", 1.001, 1e12, &rope->base, NULL)) != HEARTH_OK) return st;
    if (h->arch->reads_rope_alpha && (st = read_alpha(r, h->d_head, rope)) != HEARTH_OK) return st;
    if (h->arch->swa.possible && !h->arch->swa.shares_base) {
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

/* A factor that a key may state; 0: the default, or 1. */
static hearth_status read_factor(reader *r, const char *name, double by_default, float *factor)
{
    double x = 0.0;
    hearth_status st = read_float(r, name, 0.0, 1e6, &x, NULL);
    if (x == 0.0) x = by_default != 0.0 ? by_default : 1.0;
    *factor = (float)x;
    return st;
}

static hearth_status read_scales(reader *r, hth_hparams *h)
{
    const hth_arch *a = h->arch;
    double depth = hth_sqrt_d((double)h->n_layer);
    hearth_status st = HEARTH_OK;
    h->embedding_scale = h->residual_scale = h->logit_scale = 1.0f;
    if (a->scaled_embedding) h->embedding_scale = (float)hth_sqrt_d((double)h->d_model);
    if (a->reads_scales) {
        st = read_factor(r, "embedding_scale", a->embedding_scale, &h->embedding_scale);
        if (st != HEARTH_OK) return st;
        st = read_factor(r, "residual_scale", a->residual_scale_depth / depth, &h->residual_scale);
        if (st != HEARTH_OK) return st;
    }
    if (!a->multiplies_logits && !a->divides_logits) return HEARTH_OK;
    st = read_factor(r, "logit_scale", a->logit_scale_width / h->d_model, &h->logit_scale);
    if (a->divides_logits) h->logit_scale = (float)(1.0 / (double)h->logit_scale);
    return st;
}

/* What changes scores, and limits queries, keys and values. */
static hearth_status read_attention(reader *r, hth_hparams *h)
{
    const hth_arch *a = h->arch;
    double x = 0.0, alibi = a->alibi_layers > 0 && a->alibi_layers != h->n_layer ? 0.0 : a->alibi;
    hearth_status st = HEARTH_OK;
    h->score_scale = (float)(1.0 / (a->score_by_width ? (double)h->score_width : hth_sqrt_d((double)h->score_width)));
    if (a->reads_score_scale && (st = read_float(r, "attention.scale", 0.0, 1e6, &x, NULL)) != HEARTH_OK) return st;
    if (x != 0.0) h->score_scale = (float)x;
    if (a->reads_alibi && (st = read_float(r, "attention.max_alibi_bias", 0.0, 1e3, &alibi, NULL)) != HEARTH_OK)
        return st;
    h->alibi = (float)alibi, x = 0.0;
    if (a->clamps_qkv) st = read_float(r, "attention.clamp_kqv", 0.0, 1e6, &x, NULL);
    h->qkv_limit = (float)x;
    return st;
}

/* A key with which another computation is meant. 0 and 1 are its neutral values. */
static hearth_status refuse_key(reader *r, const char *name)
{
    double x = 0.0;
    uint64_t n = 0;
    const hth_gguf_value *v = name ? hth_gguf_find(r->file, key_of(r, name)) : NULL;
    if (!v) return HEARTH_OK;
    bool counts = hth_gguf_is_integer(v->type);
    hearth_status st = counts ? hth_gguf_get_uint(r->file, r->key, 0, UINT32_MAX, &n, NULL, r->err)
                              : hth_gguf_get_float(r->file, r->key, -1e12, 1e12, &x, NULL, r->err);
    if (counts) x = (double)n;
    if (st != HEARTH_OK || x == 0.0 || x == 1.0) return st;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %g: what it asks for is not supported",
                    hth_gguf_path(r->file), r->key, x);
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
    if ((st = read_caps(&r, h)) != HEARTH_OK) return st;
    if ((st = read_epsilon(&r, h)) != HEARTH_OK) return st;
    if ((st = read_rope(&r, h)) != HEARTH_OK) return st;
    place_rotation(h, *per_layer);
    if ((st = read_rope_pattern(&r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = read_scales(&r, h)) != HEARTH_OK) return st;
    if ((st = read_attention(&r, h)) != HEARTH_OK) return st;
    if ((st = refuse_key(&r, h->arch->refused_key)) != HEARTH_OK) return st;
    if ((st = read_activation(&r, h)) != HEARTH_OK) return st;
    return override_activation(&r, h, overrides->activation);
}
