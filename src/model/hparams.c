/* Reads hyper-parameters from the metadata. Every value is checked against its range before it is used as a size
 * (limits: hparams_int.h). Keys and defaults: the format's documentation, as llama.cpp reads them; which keys an
 * architecture has: arch.c. */
#include "model/hparams_int.h"

#include "base/log.h"
#include "kernels/vector/math.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Published caps are 30 and 50. A tiny one would make every score equal. */
static const double MIN_CAP = 1e-3;
/* Published values are 1e-5 and 1e-6. */
static const double LARGE_EPSILON = 1e-2;

const char *hth_hparams_key(hth_hparams_reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->key;
}

hearth_status hth_hparams_missing(hth_hparams_reader *r)
{
    char why[120];
    snprintf(why, sizeof why, "architecture %s", r->arch);
    return hth_gguf_missing(r->file, r->key, why, r->err);
}

void hth_hparams_warn(const hth_hparams_reader *r, const char *format, ...)
{
    char text[400];
    va_list list;
    if (r->of_mtp) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    hth_log(HEARTH_LOG_WARN, "%s", text);
}

hearth_status hth_hparams_size(hth_hparams_reader *r, const char *name, uint64_t min, uint64_t max,
                               uint32_t *value)
{
    uint64_t v = *value;
    bool found;
    hearth_status st = hth_gguf_get_uint(r->file, hth_hparams_key(r, name), min, max, &v, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found && v == 0) return hth_hparams_missing(r);
    if (v < min || v > max)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: there is no %s, and its default is %llu, allowed are %llu to %llu",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v, (unsigned long long)min,
                        (unsigned long long)max);
    *value = (uint32_t)v;
    return HEARTH_OK;
}

hearth_status hth_hparams_float(hth_hparams_reader *r, const char *name, double min, double max,
                                double *value, bool *found)
{
    return hth_gguf_get_float(r->file, hth_hparams_key(r, name), min, max, value, found, r->err);
}

hearth_status hth_hparams_count(hth_hparams_reader *r, const char *name, uint64_t max, uint32_t *value)
{
    uint64_t v = 0;
    hearth_status st = hth_gguf_get_uint(r->file, hth_hparams_key(r, name), 0, max, &v, NULL, r->err);
    *value = (uint32_t)v;
    return st;
}

/* Arrays may have entries for blocks behind the layers. */
static bool has_entry_per_layer(const hth_hparams_reader *r, const hth_gguf_value *v, uint32_t n_layer)
{
    return v->n_element == n_layer || v->n_element == r->n_block ||
           (r->of_mtp && v->n_element + 1 == n_layer);
}

/* A block without an entry has the last value of the layers that is not 0, as a recurrent layer has no heads. Where
 * they differ, its tensors tell whether that is right. */
static void guess_for_block(hth_hparams_reader *r, uint32_t n_entry, uint32_t *values)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < n_entry; i++) {
        if (values[i] != 0 && value != 0 && values[i] != value)
            snprintf(r->lacking, sizeof r->lacking, "%s", r->key);
        if (values[i] != 0) value = values[i];
    }
    values[n_entry] = value;
}

hearth_status hth_hparams_check_flags(hth_hparams_reader *r, const hth_gguf_value *v, uint32_t n_layer)
{
    bool flags = v->element_type == HTH_GGUF_BOOL || hth_gguf_is_integer(v->element_type);
    if (flags && has_entry_per_layer(r, v, n_layer)) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s at %llu: expected an array of %u booleans or integers, one for each layer",
                    hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, n_layer);
}

/* Reads a count that may be one number or an array with an entry per layer. */
static hearth_status read_per_layer(hth_hparams_reader *r, const char *name, uint32_t min, uint64_t max,
                                    uint32_t n_layer, uint32_t *values, bool *found)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, name));
    *found = v != NULL;
    if (!v) return HEARTH_OK;
    if (v->type != HTH_GGUF_ARRAY) {
        uint64_t one = 0;
        hearth_status st = hth_gguf_get_uint(r->file, r->key, min, max, &one, NULL, r->err);
        for (uint32_t i = 0; i < n_layer; i++) values[i] = (uint32_t)one;
        return st;
    }
    bool counts = v->element_type == HTH_GGUF_I32 || v->element_type == HTH_GGUF_U32;
    if (!counts || !has_entry_per_layer(r, v, n_layer))
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: expected an array of %u 32-bit integers, one for each layer",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, n_layer);
    uint32_t n_entry = hth_hparams_n_entry(v, n_layer);
    for (uint32_t i = 0; i < n_entry; i++) {
        int64_t one = v->element_type == HTH_GGUF_I32 ? hth_gguf_element_int(v, i)
                                                      : (int64_t)hth_gguf_element_uint(v, i);
        if (one < min || (uint64_t)one > max)
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: entry %u is %lld, allowed are %u to %llu",
                            hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, i, (long long)one,
                            min, (unsigned long long)max);
        values[i] = (uint32_t)one;
    }
    if (n_entry < n_layer) guess_for_block(r, n_entry, values);
    return HEARTH_OK;
}

/* ---- groups of parameters ---------------------------------------------------- */

/* Reports an error for files that belong to a model, by what they say that they are (docs/sparsity.md). */
static hearth_status check_is_model(hth_hparams_reader *r)
{
    static const char architecture[] = "general.architecture", type[] = "general.type";
    static const struct {
        const char *key, *value, *what, *says;
    } kinds[] = {
        {architecture, "hearth.profile", "a profile", "it says how the neurons of a model fired; name the model itself"},
        {architecture, "hearth.trace", "a trace of experts", "it says which experts a model chose; name the model itself"},
        {architecture, "hearth.predictors", "predictors", "name the model itself, and these with hearth_model_options.predictors"},
        {architecture, "hearth.thresholds", "thresholds", "name the model itself, and these with hearth_model_options.thresholds"},
        {architecture, "hearth.placement", "a placement", "name the model itself, and this with gpu.placement"},
        {type, "mmproj", "a projector of images or sound (mmproj)", "name the language model that it belongs to"},
        {architecture, "clip", "a projector of images or sound (mmproj)", "name the language model that it belongs to"},
        {type, "adapter", "an adapter (LoRA)", "merge it into its model, and name that"},
        {architecture, "controlvector", "a control vector", "name the model that it was made for"},
        {type, "imatrix", "an importance matrix", "name the model itself; hearth quantize takes this file"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hth_str value = {0};
        bool found;
        hearth_status st = hth_gguf_get_text(r->file, kinds[i].key, &value, &found, r->err);
        if (st != HEARTH_OK) return st;
        if (found && hth_str_eq(value, kinds[i].value))
            return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s, not a model (%s at %llu is %s): %s",
                            hth_gguf_path(r->file), kinds[i].what, kinds[i].key,
                            (unsigned long long)hth_gguf_find(r->file, kinds[i].key)->offset, kinds[i].value, kinds[i].says);
    }
    if (hth_gguf_n_tensor(r->file) > 0 || r->may_lack_tensors) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: a vocabulary, not a model: the file has no tensors; name a file with weights",
                    hth_gguf_path(r->file));
}

/* Copies what the architecture alone decides, so that those who compute do not read its rules. */
static void copy_rules(hth_hparams *h)
{
    const hth_arch *a = h->arch;
    h->parallel_mixer = a->recurrent.parallel_mixer;
    h->dense_residual = a->experts.dense_residual;
    h->dense_residual_scale = a->experts.dense_residual_scale;
    h->experts_read_before = a->experts.reads_stream_before;
    h->adds_embedding = a->adds_embedding;
    h->no_pre_norms = a->no_pre_norms;
    h->norm_bias = a->norm_params == HTH_PARAMS_BOTH;
    h->post_norm_eps = a->post_norm_eps;
    h->qk_norm = a->qk_norm;
    h->qk_norm_after = a->qk_norm_after;
    h->norms_values = a->norms_values;
    h->attn_gate = a->attn_gate;
    h->gate_softplus = a->gate_softplus;
    h->position_offset = a->position_offset;
}

static hearth_status find_arch(hth_hparams_reader *r, hth_hparams *h)
{
    hth_str name = {0};
    bool found;
    hearth_status st = check_is_model(r);
    if (st == HEARTH_OK) st = hth_gguf_get_text(r->file, "general.architecture", &name, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found) return hth_gguf_missing(r->file, "general.architecture", "every model", r->err);
    h->arch = hth_arch_find(name);
    if (!h->arch) {
        char shown[80], list[300];
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: architecture '%s' is not supported; supported: %s", hth_gguf_path(r->file),
                        hth_escape(shown, sizeof shown, name.bytes, name.n),
                        hth_arch_list(list, sizeof list));
    }
    r->arch = h->architecture = h->arch->name;
    copy_rules(h);
    if (!hth_gguf_is_powerinfer(r->file) || h->arch->in_powerinfer) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: a PowerInfer file (magic PWRI) of architecture %s; such files hold llama, bamboo, "
                    "falcon or opt",
                    hth_gguf_path(r->file), r->arch);
}

/* ---- sizes of layers ------------------------------------------------------------- */

/* Heads and FFN widths, which may differ per layer. */
static hearth_status read_layer_sizes(hth_hparams_reader *r, hth_arena *arena, hth_hparams *h,
                                      hth_layer_sizes **out)
{
    uint32_t n = h->n_layer;
    uint32_t *values = hth_arena_alloc(arena, n, 3 * sizeof *values, 4);
    hth_layer_sizes *sizes = hth_arena_alloc(arena, n, sizeof *sizes, 4);
    if (!values || !sizes) return hth_fail_memory(r->err, n * sizeof *sizes, "layer sizes");
    uint32_t *head = values, *kv = values + n, *ff = values + 2 * n;
    bool found, no_heads = h->arch->recurrent.all, no_ff = h->arch->layers == HTH_LAYERS_MIXER;
    uint32_t min = h->arch->recurrent.without_kv_heads || no_heads ? 0 : 1;
    hearth_status st = HEARTH_OK;
    memset(values, 0, n * 3 * sizeof *values);
    if (!no_heads) {
        st = read_per_layer(r, "attention.head_count", min, HTH_MAX_HEAD, n, head, &found);
        if (st != HEARTH_OK) return st;
        if (!found) return hth_hparams_missing(r);
        memcpy(kv, head, n * sizeof *kv);
        st = read_per_layer(r, "attention.head_count_kv", min, HTH_MAX_HEAD, n, kv, &found);
        if (st != HEARTH_OK) return st;
    }
    if (!no_ff) {
        uint32_t min_ff = h->arch->layers == HTH_LAYERS_EITHER ? 0 : 1;
        st = read_per_layer(r, "feed_forward_length", min_ff, HTH_MAX_D_FF, n, ff, &found);
        if (st != HEARTH_OK) return st;
        if (!found && !h->arch->experts.required) return hth_hparams_missing(r);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (kv[i] > 0 ? head[i] % kv[i] != 0 || head[i] == 0 : min > 0)
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

/* Layers with a window may have heads of another size. */
static hearth_status read_window_head(hth_hparams_reader *r, hth_hparams *h)
{
    uint32_t value = 0, key = 0;
    hearth_status st = hth_hparams_size(r, "attention.key_length_swa", 2, HTH_MAX_D_HEAD, &key);
    if (st == HEARTH_OK)
        value = key, st = hth_hparams_size(r, "attention.value_length_swa", 1, HTH_MAX_D_HEAD, &value);
    if (st != HEARTH_OK) return st;
    if (value != key)
        return hth_fail(
            r->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: %s is %u, but %s.attention.key_length_swa is %u: different lengths are not supported",
            hth_gguf_path(r->file), r->key, value, r->arch, key);
    h->d_head_window = key;
    return HEARTH_OK;
}

static hearth_status read_head_size(hth_hparams_reader *r, hth_hparams *h)
{
    uint32_t key = 0, value = 0;
    if (h->n_head == 0) {
        h->score_width = 1;
        return HEARTH_OK; /* no layer has attention */
    }
    if (h->d_model % h->n_head == 0) key = h->d_model / h->n_head;
    value = key;
    bool stated = hth_gguf_find(r->file, hth_hparams_key(r, "attention.key_length")) != NULL;
    if (!stated && key == 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s.embedding_length %u is no multiple of %u heads, and there is no %s",
                        hth_gguf_path(r->file), r->arch, h->d_model, h->n_head, r->key);
    if (key == 0) key = 1;
    hearth_status st = hth_hparams_size(r, "attention.key_length", 2, HTH_MAX_D_HEAD, &key);
    if (st != HEARTH_OK) return st;
    if (value == 0) value = key;
    st = hth_hparams_size(r, "attention.value_length", 1, HTH_MAX_D_HEAD, &value);
    if (st != HEARTH_OK) return st;
    if (h->arch->narrow_values && value < key) h->d_value = value;
    if (value != key && h->d_value == 0)
        return hth_fail(
            r->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: %s is %u, but %s.attention.key_length is %u: such different lengths are not supported",
            hth_gguf_path(r->file), r->key, value, r->arch, key);
    h->d_head = h->d_head_window = key;
    bool wide = h->arch->wide_scale_layers > 0 && h->n_layer == h->arch->wide_scale_layers;
    h->score_width = wide ? h->d_model / h->n_head : key;
    if (h->score_width > 0) return h->arch->reads_window_head ? read_window_head(r, h) : HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: %s.attention.head_count is %u, but %s.embedding_length is %u, and by their ratio "
                    "models of %u layers scale their scores",
                    hth_gguf_path(r->file), r->arch, h->n_head, r->arch, h->d_model, h->n_layer);
}

/* ---- windows ------------------------------------------------------------------- */

/* A flag per layer, or the period of layers without a window. */
static hearth_status read_window_pattern(hth_hparams_reader *r, const hth_hparams *h, uint32_t size,
                                         hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, "attention.sliding_window_pattern"));
    uint32_t n_layer = h->n_layer;
    uint64_t period = h->arch->swa.period;
    if (v && v->type == HTH_GGUF_ARRAY) {
        hearth_status st = hth_hparams_check_flags(r, v, n_layer);
        uint32_t n_entry = hth_hparams_n_entry(v, n_layer); /* a block without an entry has no window */
        for (uint32_t i = 0; st == HEARTH_OK && i < n_entry; i++)
            sizes[i].window = hth_gguf_element_uint(v, i) ? size : 0;
        return st;
    }
    if (h->arch->swa.flagged) return v ? hth_hparams_check_flags(r, v, n_layer) : hth_hparams_missing(r);
    hearth_status st = hth_gguf_get_uint(r->file, r->key, 0, HTH_MAX_LAYER, &period, NULL, r->err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < n_layer; i++) {
        bool sees_all = period > 0 && i % period == (h->arch->swa.dense_first ? 0 : period - 1);
        sizes[i].window = sees_all || (r->of_mtp && i + 1 == n_layer) ? 0 : size;
    }
    return HEARTH_OK;
}

/* A flag for each layer, or one for all. */
static hearth_status read_rope_pattern(hth_hparams_reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, "attention.rope_pattern"));
    uint64_t all = 0;
    if (!h->arch->reads_rope_pattern || !v) return HEARTH_OK;
    bool each = v->type == HTH_GGUF_ARRAY;
    hearth_status st = each ? hth_hparams_check_flags(r, v, h->n_layer)
                            : hth_gguf_get_uint(r->file, r->key, 0, 1, &all, NULL, r->err);
    uint32_t n_entry = each ? hth_hparams_n_entry(v, h->n_layer) : h->n_layer;
    for (uint32_t i = 0; st == HEARTH_OK && i < n_entry; i++)
        sizes[i].rotates = sizes[i].rotates && (each ? hth_gguf_element_uint(v, i) : all);
    return st;
}

static void place_rotation(const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_arch *a = h->arch;
    bool any_window = false;
    for (uint32_t i = 0; i < h->n_layer; i++)
        any_window = any_window || sizes[i].window > 0 || sizes[i].chunk > 0;
    uint32_t step = a->no_rope_layer_by_window && !any_window ? 0 : a->no_rope_layer_step;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        bool hidden = a->rotates_windows_only && (any_window || a->swa.required) && sizes[i].window == 0 &&
                      !(a->leading_rotate && i < h->experts.n_leading);
        sizes[i].rotates = h->rope.n_rot > 0 && !hidden && (step == 0 || i % step != a->no_rope_layer_phase);
    }
}

/* Windows that are chunks. Their size is the architecture's; a window of 0 in the file means none. */
static hearth_status read_chunks(hth_hparams_reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    uint64_t stated = h->arch->swa.chunk;
    hearth_status st = hth_gguf_get_uint(r->file, hth_hparams_key(r, "attention.sliding_window"), 0,
                                         HTH_MAX_CONTEXT, &stated, NULL, r->err);
    if (st != HEARTH_OK || stated == 0) return st;
    st = read_window_pattern(r, h, h->arch->swa.chunk, sizes);
    for (uint32_t i = 0; i < h->n_layer; i++) sizes[i].chunk = sizes[i].window, sizes[i].window = 0;
    return st;
}

static hearth_status read_windows(hth_hparams_reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_swa_pattern *rule = &h->arch->swa;
    uint64_t size = rule->size;
    bool found;
    if (!rule->possible || (rule->n_layer > 0 && h->n_layer != rule->n_layer)) return HEARTH_OK;
    if (rule->chunk > 0) return read_chunks(r, h, sizes);
    hearth_status st = hth_gguf_get_uint(r->file, hth_hparams_key(r, "attention.sliding_window"),
                                         rule->required, HTH_MAX_CONTEXT, &size, &found, r->err);
    if (st == HEARTH_OK && !found && rule->required) return hth_hparams_missing(r);
    if (st != HEARTH_OK || size == 0) return st;
    return read_window_pattern(r, h, (uint32_t)size, sizes);
}

static hearth_status read_activation(hth_hparams_reader *r, hth_hparams *h)
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

static hearth_status read_epsilon(hth_hparams_reader *r, hth_hparams *h)
{
    bool found, bare = hth_gguf_is_powerinfer(r->file) && h->arch->norm_eps != 0.0;
    double eps = bare ? 0.0 : h->arch->norm_eps; /* PowerInfer never reads the key where it is not needed */
    static const char rms[] = "attention.layer_norm_rms_epsilon", layer[] = "attention.layer_norm_epsilon";
    hearth_status st = HEARTH_OK;
    h->norm = h->arch->norm;
    if (h->arch->rms_if_stated) st = hth_hparams_float(r, rms, 0.0, 1.0, &eps, NULL);
    if (h->arch->rms_if_stated && eps != 0.0) h->norm = HTH_NORM_RMS;
    if (st == HEARTH_OK)
        st = hth_hparams_float(r, h->norm == HTH_NORM_RMS ? rms : layer, 0.0, 1.0, &eps, &found);
    if (st == HEARTH_OK && !found && h->arch->reads_either_eps)
        st = hth_hparams_float(r, "attention.layer_norm_epsilon", 0.0, 1.0, &eps, &found);
    if (st != HEARTH_OK) return st;
    if (!found && eps == 0.0 && !bare) return hth_hparams_missing(r);
    if ((eps == 0.0 && !bare) || eps > LARGE_EPSILON)
        hth_hparams_warn(r, "%s: %s is %g", hth_gguf_path(r->file), r->key, eps);
    h->norm_eps = (float)eps;
    return HEARTH_OK;
}

/* x becomes cap tanh(x / cap); 0: none. */
static hearth_status read_cap(hth_hparams_reader *r, const char *name, double by_default, float *cap)
{
    double x = by_default;
    hearth_status st = hth_hparams_float(r, name, 0.0, 1e6, &x, NULL);
    if (st != HEARTH_OK) return st;
    if (x != 0.0 && x < MIN_CAP)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %g, allowed are 0 (none) and %g to 1e+06",
                        hth_gguf_path(r->file), r->key, x, MIN_CAP);
    *cap = (float)x;
    return HEARTH_OK;
}

static hearth_status read_caps(hth_hparams_reader *r, hth_hparams *h)
{
    const hth_arch *f = h->arch;
    hearth_status st = HEARTH_OK;
    if (f->reads_attn_softcap) st = read_cap(r, "attn_logit_softcapping", f->attn_softcap, &h->attn_softcap);
    if (st != HEARTH_OK) return st;
    return f->reads_logit_softcap
               ? read_cap(r, "final_logit_softcapping", f->logit_softcap, &h->logit_softcap)
               : HEARTH_OK;
}

/* A factor that a key may state; 0: the default, or 1. */
static hearth_status read_factor(hth_hparams_reader *r, const char *name, double by_default, float *factor)
{
    double x = 0.0;
    hearth_status st = hth_hparams_float(r, name, 0.0, 1e6, &x, NULL);
    if (x == 0.0) x = by_default != 0.0 ? by_default : 1.0;
    *factor = (float)x;
    return st;
}

static hearth_status read_scales(hth_hparams_reader *r, hth_hparams *h)
{
    const hth_arch *a = h->arch;
    double depth = hth_sqrt_d((double)h->n_layer);
    hearth_status st = HEARTH_OK;
    h->embedding_scale = h->residual_scale = h->logit_scale = 1.0f;
    if (a->scaled_embedding) h->embedding_scale = (float)hth_sqrt_d((double)h->d_model);
    if (a->reads_scales || a->embedding_scale != 0.0)
        st = read_factor(r, "embedding_scale", a->embedding_scale, &h->embedding_scale);
    if (st != HEARTH_OK) return st;
    if (a->reads_scales) {
        st = read_factor(r, "residual_scale", a->residual_scale_depth / depth, &h->residual_scale);
        if (st != HEARTH_OK) return st;
    }
    if (!a->multiplies_logits && !a->divides_logits) return HEARTH_OK;
    double usual = a->logit_scale != 0.0 ? a->logit_scale : a->logit_scale_width / h->d_model;
    st = read_factor(r, "logit_scale", usual, &h->logit_scale);
    if (a->divides_logits) h->logit_scale = (float)(1.0 / (double)h->logit_scale);
    return st;
}

static hearth_status read_temperature(hth_hparams_reader *r, hth_hparams *h)
{
    bool unrotated = h->arch->temperature == HTH_TEMPERATURE_UNROTATED;
    double x = unrotated ? 0.1 : 0.0;
    hearth_status st = HEARTH_OK;
    if (h->arch->temperature == HTH_TEMPERATURE_NONE) return HEARTH_OK;
    st = hth_hparams_float(r, "attention.temperature_scale", 0.0, 1e3, &x, NULL);
    h->temperature_scale = (float)x, h->temperature_length = h->rope.n_ctx_original;
    if (unrotated) h->temperature_length = 8192, h->temperature_offset = 1;
    if (st != HEARTH_OK || x == 0.0 || unrotated || h->arch->temperature == HTH_TEMPERATURE_BY_ORIGINAL)
        return st;
    h->temperature_length = 0;
    return hth_hparams_size(r, "attention.temperature_length", 1, HTH_MAX_CONTEXT, &h->temperature_length);
}

/* An indexer chooses the keys that a token attends to, or blocks of them. In contexts that it keeps whole, it changes
 * nothing. */
static hearth_status read_indexer(hth_hparams_reader *r, hth_hparams *h)
{
    uint32_t n_block = 0, size = 1;
    if (!h->arch->indexer || (h->arch->compressed && h->compressed.n_tok[0] == 0)) return HEARTH_OK;
    if (h->arch->compressed) size = h->compressed.n_tok[0];
    hearth_status st = hth_hparams_size(r, "attention.indexer.block_size", 0, HTH_MAX_CONTEXT, &size);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "attention.indexer.top_k", 1, HTH_MAX_CONTEXT, &n_block);
    uint64_t n = (uint64_t)n_block * (size > 0 ? size : 1);
    h->n_position = n < HTH_MAX_CONTEXT ? (uint32_t)n : HTH_MAX_CONTEXT;
    if (st != HEARTH_OK || h->n_ctx_train <= h->n_position) return st;
    hth_hparams_warn(r,
                     "%s: %s limits contexts to %u positions: choosing keys in longer ones is not supported",
                     hth_gguf_path(r->file), r->key, h->n_position);
    h->n_ctx_train = h->n_position;
    return HEARTH_OK;
}

/* Reads the factors of scores, and the limit of queries, keys and values. */
static hearth_status read_attention(hth_hparams_reader *r, hth_hparams *h)
{
    const hth_arch *a = h->arch;
    double x = 0.0, alibi = a->alibi_layers > 0 && a->alibi_layers != h->n_layer ? 0.0 : a->alibi;
    hearth_status st = HEARTH_OK;
    h->score_scale =
        (float)(1.0 / (a->score_by_width ? (double)h->score_width : hth_sqrt_d((double)h->score_width)));
    if (h->score_factor != 0.0)
        h->score_scale = (float)(h->score_factor * h->score_factor / hth_sqrt_d((double)h->score_width));
    if (a->score_scale != 0.0) h->score_scale = (float)a->score_scale;
    if (a->reads_score_scale &&
        (st = hth_hparams_float(r, "attention.scale", 0.0, 1e6, &x, NULL)) != HEARTH_OK)
        return st;
    if (x != 0.0) h->score_scale = (float)x;
    x = a->output_scale;
    if (x != 0.0 && (st = hth_hparams_float(r, "attention.output_scale", 1e-6, 1e6, &x, NULL)) != HEARTH_OK)
        return st;
    if (x != 0.0) h->score_scale = (float)x;
    if (a->reads_alibi &&
        (st = hth_hparams_float(r, "attention.max_alibi_bias", 0.0, 1e3, &alibi, NULL)) != HEARTH_OK)
        return st;
    h->alibi = (float)alibi, x = 0.0;
    if (a->reads_value_scale &&
        (st = hth_hparams_float(r, "attention.value_scale", 0.0, 1e6, &x, NULL)) != HEARTH_OK)
        return st;
    h->value_scale = (float)x, x = 0.0;
    if (a->clamps_qkv) st = hth_hparams_float(r, "attention.clamp_kqv", 0.0, 1e6, &x, NULL);
    h->qkv_limit = (float)x;
    if (st == HEARTH_OK) st = read_temperature(r, h);
    return st == HEARTH_OK ? read_indexer(r, h) : st;
}

/* Layers that read keys and values of earlier ones, and embeddings for each layer. */
static hearth_status read_layer_keys(hth_hparams_reader *r, hth_hparams *h)
{
    uint32_t n_shared = 0;
    hearth_status st = HEARTH_OK;
    if (h->arch->shares_kv)
        st = hth_hparams_count(r, "attention.shared_kv_layers", h->n_layer - 1, &n_shared);
    h->n_layer_kv = h->n_layer - n_shared;
    if (st != HEARTH_OK || !h->arch->layer_embeddings) return st;
    return hth_hparams_count(r, "embedding_length_per_layer_input", HTH_MAX_D_MODEL, &h->d_layer_embd);
}

/* A key with which another computation is meant, unless it has its neutral value. */
static hearth_status refuse_key(hth_hparams_reader *r, const char *name, double neutral)
{
    double x = neutral;
    uint64_t n = 0;
    const hth_gguf_value *v = name ? hth_gguf_find(r->file, hth_hparams_key(r, name)) : NULL;
    if (!v) return HEARTH_OK;
    bool counts = hth_gguf_is_integer(v->type), is = neutral != 0.0;
    hearth_status st = counts ? hth_gguf_get_uint(r->file, r->key, 0, UINT32_MAX, &n, NULL, r->err)
                       : v->type == HTH_GGUF_BOOL
                           ? hth_gguf_get_bool(r->file, r->key, &is, NULL, r->err)
                           : hth_gguf_get_float(r->file, r->key, -1e12, 1e12, &x, NULL, r->err);
    if (counts) x = (double)n;
    if (v->type == HTH_GGUF_BOOL) x = is;
    if (st != HEARTH_OK || x == neutral) return st;
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %g: what it asks for is not supported",
                    hth_gguf_path(r->file), r->key, x);
}

static hearth_status refuse_keys(hth_hparams_reader *r, const hth_hparams *h)
{
    hearth_status st = refuse_key(r, "attention.causal", 1.0);
    if (st == HEARTH_OK && h->arch->swa.possible && h->rope.n_rot > 0 && !h->arch->swa.shares_base &&
        !h->arch->reads_window_head && !h->arch->reads_window_rotation)
        st = refuse_key(r, "rope.dimension_count_swa", h->rope.n_rot);
    for (size_t i = 0; st == HEARTH_OK && i < sizeof h->arch->refused / sizeof *h->arch->refused; i++)
        st = refuse_key(r, h->arch->refused[i].key, h->arch->refused[i].neutral);
    return st;
}

/* Some converters write a meaningless number for "no limit". The context of a session is bounded by memory, not by
 * this. */
static hearth_status read_context(hth_hparams_reader *r, hth_hparams *h)
{
    uint64_t n = 0;
    bool found;
    hearth_status st =
        hth_gguf_get_uint(r->file, hth_hparams_key(r, "context_length"), 1, UINT64_MAX, &n, &found, r->err);
    if (st != HEARTH_OK) return st;
    if (!found) return hth_hparams_missing(r);
    if (n > HTH_MAX_CONTEXT)
        hth_hparams_warn(r, "%s: %s is %llu; %d is taken", hth_gguf_path(r->file), r->key,
                         (unsigned long long)n, HTH_MAX_CONTEXT);
    h->n_ctx_train = n > HTH_MAX_CONTEXT ? HTH_MAX_CONTEXT : (uint32_t)n;
    return HEARTH_OK;
}

/* Applies the caller's activation instead of the file's. */
static hearth_status override_activation(hth_hparams_reader *r, hth_hparams *h, const char *name)
{
    const char *by_file = hth_activation_name(h->activation);
    hth_activation activation = h->activation;
    if (!name) return HEARTH_OK;
    if (!hth_activation_by_name((hth_str){name, strlen(name)}, &activation, &h->needs_gate))
        return hth_fail(r->err, HEARTH_ERROR_ARGUMENT,
                        "activation '%s' is not known; known: " HTH_ACTIVATION_NAMES, name);
    if (activation != h->activation)
        hth_hparams_warn(r, "%s: activation %s in place of %s, as asked for", hth_gguf_path(r->file), name,
                         by_file);
    h->other_activation = activation != h->activation;
    h->activation = activation;
    return HEARTH_OK;
}

/* The last nextn_predict_layers blocks predict further tokens. */
static hearth_status read_blocks(hth_hparams_reader *r, hth_hparams *h)
{
    uint32_t n_more = 0;
    hearth_status st = hth_hparams_size(r, "block_count", 1, HTH_MAX_LAYER, &h->n_block);
    if (st == HEARTH_OK) st = hth_hparams_count(r, "nextn_predict_layers", h->n_block - 1, &n_more);
    h->n_layer = h->n_block - n_more + (r->of_mtp && n_more > 0);
    r->n_block = h->n_block;
    return st;
}

static hearth_status read_all(hth_hparams_reader *r, hth_arena *arena, hth_hparams *h,
                              hth_layer_sizes **per_layer)
{
    *h = (hth_hparams){0};
    hearth_status st;
    if ((st = find_arch(r, h)) != HEARTH_OK) return st;
    if ((st = read_blocks(r, h)) != HEARTH_OK) return st;
    if ((st = read_context(r, h)) != HEARTH_OK) return st;
    if ((st = hth_hparams_size(r, "embedding_length", 1, HTH_MAX_D_MODEL, &h->d_model)) != HEARTH_OK)
        return st;
    if ((st = read_layer_sizes(r, arena, h, per_layer)) != HEARTH_OK) return st;
    if ((st = hth_hparams_read_recurrent(r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = hth_hparams_read_experts(r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = hth_hparams_place_experts(r, h, *per_layer)) != HEARTH_OK) return st;
    st = h->arch->latent ? hth_hparams_read_latent(r, h) : read_head_size(r, h);
    if (st == HEARTH_OK && h->arch->compressed) st = hth_hparams_read_compressed(r, h, *per_layer);
    if (st != HEARTH_OK) return st;
    if ((st = read_windows(r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = read_caps(r, h)) != HEARTH_OK) return st;
    if ((st = read_epsilon(r, h)) != HEARTH_OK) return st;
    if ((st = hth_hparams_read_rope(r, h)) != HEARTH_OK) return st;
    place_rotation(h, *per_layer);
    if ((st = read_rope_pattern(r, h, *per_layer)) != HEARTH_OK) return st;
    if ((st = read_scales(r, h)) != HEARTH_OK) return st;
    if ((st = read_attention(r, h)) != HEARTH_OK) return st;
    if ((st = read_layer_keys(r, h)) != HEARTH_OK) return st;
    if ((st = refuse_keys(r, h)) != HEARTH_OK) return st;
    return read_activation(r, h);
}

hearth_status hth_model_read_hparams(const hth_gguf *file, const hth_model_overrides *overrides,
                                     hth_arena *arena, hth_hparams *h, hth_layer_sizes **per_layer,
                                     hearth_error *err)
{
    hth_hparams_reader r = {.file = file, .may_lack_tensors = overrides->may_lack_tensors, .err = err};
    hearth_status st = read_all(&r, arena, h, per_layer);
    return st == HEARTH_OK ? override_activation(&r, h, overrides->activation) : st;
}

hearth_status hth_model_read_mtp_hparams(const hth_gguf *file, hth_arena *arena, hth_hparams *h,
                                         hth_layer_sizes **size, char lacking[HTH_HPARAMS_KEY],
                                         hearth_error *err)
{
    hth_hparams_reader r = {.file = file, .of_mtp = true, .err = err};
    hearth_status st = read_all(&r, arena, h, size);
    memcpy(lacking, r.lacking, sizeof r.lacking);
    if (st != HEARTH_OK) return st;
    hth_layer_sizes *s = *size += h->n_layer - 1;
    s->rotates = h->rope.n_rot > 0;
    h->n_head = s->n_head, h->d_ff = s->d_ff;
    h->n_layer = h->n_layer_kv = 1;
    h->experts.n_leading = 0;
    h->recurrent = (hth_recurrent_sizes){0};
    return HEARTH_OK;
}
