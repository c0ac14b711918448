/* Metadata about active neurons: thresholds of predictors, the selector that the file was made for, layers with
 * swapped gate and up. Called once by bind.c, after all tensors are bound. Keys: docs/sparsity.md; powerinfer.*: as
 * PowerInfer's converters write them. */
#include "model/model.h"

/* An array of one float per layer; *value is NULL if absent. */
static hearth_status read_layers(const hth_model *m, const char *key, double min,
                                 const hth_gguf_value **value, hearth_error *err)
{
    hearth_status st = hth_gguf_get_array(m->file, key, HTH_GGUF_F32, m->hparams.n_layer, value, err);
    if (st != HEARTH_OK || !*value) return st;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        double x = hth_gguf_element_float(*value, i);
        if (x >= min && x <= 3e38) continue;
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: value %u is %g, expected a finite number%s", hth_gguf_path(m->file),
                        key, (unsigned long long)(*value)->offset, i, x, min == 0.0 ? " from 0 on" : "");
    }
    return HEARTH_OK;
}

static hearth_status read_thresholds(hth_model *m, hearth_error *err)
{
    const hth_gguf_value *own;
    double common = 0.0;
    hearth_status st = read_layers(m, "hearth.predictor.threshold", -3e38, &own, err);
    if (st == HEARTH_OK)
        st = hth_gguf_get_float(m->file, "powerinfer.sparse_threshold", -3e38, 3e38, &common, NULL, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < m->hparams.n_layer; i++)
        m->layers[i].ffn.predictor.threshold = own ? (float)hth_gguf_element_float(own, i) : (float)common;
    return st;
}

static hearth_status read_input(hth_model *m, hearth_error *err)
{
    static const char key[] = "hearth.predictor.input";
    hth_str name;
    bool found;
    hearth_status st = hth_gguf_get_text(m->file, key, &name, &found, err);
    m->predicts_from_residual = hth_gguf_is_powerinfer(m->file);
    if (st != HEARTH_OK || !found) return st;
    m->predicts_from_residual = hth_str_eq(name, "residual");
    if (m->predicts_from_residual || hth_str_eq(name, "normed")) return HEARTH_OK;
    char shown[80];
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu is '%s'; known: residual, normed",
                    hth_gguf_path(m->file), key, (unsigned long long)hth_gguf_find(m->file, key)->offset,
                    hth_escape(shown, sizeof shown, name.bytes, name.n));
}

static const char *const selector_names[] = {[HEARTH_SELECTOR_AUTO] = "auto",
                                             [HEARTH_SELECTOR_DENSE] = "dense",
                                             [HEARTH_SELECTOR_GATE] = "gate",
                                             [HEARTH_SELECTOR_PREDICTOR] = "predictor",
                                             [HEARTH_SELECTOR_THRESHOLD] = "threshold"};

bool hth_selector_by_name(hth_str name, hearth_selector *selector)
{
    for (size_t i = 0; i < sizeof selector_names / sizeof *selector_names; i++)
        if (hth_str_eq(name, selector_names[i])) {
            *selector = (hearth_selector)i;
            return true;
        }
    return false;
}

const char *hth_selector_name(hearth_selector selector)
{
    enum { N_SELECTOR = sizeof selector_names / sizeof *selector_names };
    return (unsigned)selector < N_SELECTOR ? selector_names[selector] : "unknown selector";
}

static hearth_status read_selector(hth_model *m, hearth_error *err)
{
    static const char key[] = "hearth.selector";
    hth_str name;
    bool found;
    hearth_status st = hth_gguf_get_text(m->file, key, &name, &found, err);
    m->selector = hth_gguf_is_powerinfer(m->file) ? HEARTH_SELECTOR_PREDICTOR : HEARTH_SELECTOR_AUTO;
    if (st != HEARTH_OK || !found || hth_selector_by_name(name, &m->selector)) return st;
    char shown[80];
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu is '%s'; known: " HTH_SELECTOR_NAMES,
                    hth_gguf_path(m->file), key, (unsigned long long)hth_gguf_find(m->file, key)->offset,
                    hth_escape(shown, sizeof shown, name.bytes, name.n));
}

hearth_status hth_model_check_scales(const hth_model *m, uint32_t i_layer, hearth_error *err)
{
    const hth_transposed_down *down = hth_layer_transposed_down(&m->layers[i_layer]);
    for (size_t i = 0; i < hth_n_cluster(down->rows.n_row); i++)
        if (down->scale_max[i] - down->scale_max[i] != 0.0f)
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: tensor 'blk.%u.ffn_down_%s.weight' holds a scale that is not finite",
                            hth_gguf_path(m->file), i_layer, down == &m->layers[i_layer].ffn.down_t ? "t" : "exps");
    return HEARTH_OK;
}

static hearth_status read_gate_up_swapped(hth_model *m, hearth_error *err)
{
    static const char key[] = HTH_KEY_GATE_UP_SWAPPED;
    const hth_gguf_value *array;
    hearth_status st = hth_gguf_get_array(m->file, key, HTH_GGUF_U32, m->hparams.n_layer, &array, err);
    if (st != HEARTH_OK || !array) return st;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        uint64_t x = hth_gguf_element_uint(array, i);
        if (x > 1)
            return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %u is %llu, expected 0 or 1",
                            hth_gguf_path(m->file), key, (unsigned long long)array->offset, i,
                            (unsigned long long)x);
        m->layers[i].ffn.gate_up_swapped = x == 1;
    }
    return HEARTH_OK;
}

static uint32_t n_act_freq(const hth_layer *l)
{
    return (l->ffn.d_ff + HTH_ACT_FREQ_BLOCK - 1) / HTH_ACT_FREQ_BLOCK;
}

static hearth_status read_act_freq(hth_model *m, hearth_error *err)
{
    static const char key[] = HTH_KEY_ACT_FREQ;
    const hth_gguf_value *array;
    uint64_t n = 0, at = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) n += n_act_freq(&m->layers[i]);
    hearth_status st = hth_gguf_get_array(m->file, key, HTH_GGUF_F32, n, &array, err);
    if (st != HEARTH_OK || !array) return st;
    float *shares = hth_arena_alloc(&m->arena, (size_t)n, sizeof *shares, 16);
    if (!shares) return hth_fail_memory(err, (size_t)n * sizeof *shares, "shares of neurons that fire");
    for (uint64_t i = 0; i < n; i++) {
        double x = hth_gguf_element_float(array, i);
        if (!(x >= 0.0 && x <= 1.0))
            return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %llu is %g, expected 0 to 1",
                            hth_gguf_path(m->file), key, (unsigned long long)array->offset,
                            (unsigned long long)i, x);
        shares[i] = (float)x;
    }
    for (uint32_t i = 0; i < m->hparams.n_layer; at += n_act_freq(&m->layers[i]), i++)
        m->layers[i].ffn.act_freq = shares + at;
    return HEARTH_OK;
}

hearth_status hth_model_read_sparsity(hth_model *m, hearth_error *err)
{
    hearth_status st;
    if ((st = read_thresholds(m, err)) != HEARTH_OK) return st;
    if ((st = read_input(m, err)) != HEARTH_OK) return st;
    if ((st = read_selector(m, err)) != HEARTH_OK) return st;
    if ((st = read_act_freq(m, err)) != HEARTH_OK) return st;
    return read_gate_up_swapped(m, err);
}
