/* Plans a packed file, tensor by tensor, and writes it. hearth pack and tests call it; pack_tensor.c converts
 * the bytes of a tensor. */
#include "convert/pack.h"

#include "base/alloc.h"
#include "base/log.h"
#include "convert/pack_tensor.h"
#include "kernels/vector/math.h"
#include "model/model.h"
#include "sparse/neuron_order.h"
#include "sparse/profile.h"
#include "sparse/sidecar.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of tensors that packing adds to a layer: an order, three tensors of a predictor, thresholds, a
 * gate that was fused with up, checksums and scales. */
enum { ADDED_PER_LAYER = 8 };

typedef struct packing {
    const hth_pack_options *options;
    hth_pack_result *result;
    hth_gguf *in;
    hth_model *model;
    hth_sidecar predictors, thresholds;
    hth_profile *profile;
    hth_ftype_model mix_model;
    int32_t **orders;          /* [n_layer] of [d_ff], or NULL: order unchanged */
    int32_t **original_orders; /* [n_layer] index of each neuron in the original file, or NULL: as orders */
    uint32_t *n_bundle_neuron; /* [n_layer] neurons of a bundle in files for storage; 0: experts */
    bool mixture;              /* a mixture of experts, whose matrices keep their rows */
    uint32_t *gate_up_swapped; /* [n_layer] 1: gate and up are swapped, compared with the original file */
    hth_pack_tensor *tensors;
    hth_arena arena; /* holds the arrays above */
    size_t n_tensor, capacity;
    hth_packer packer;
    uint64_t total, done;
} packing;

/* ---- the order of neurons ---------------------------------------------------------------------- */

typedef struct order_job {
    packing *w;
    int32_t *scratch; /* [n_thread][d_ff] scratch memory */
    double *runs;     /* [n_layer][2] before, after */
} order_job;

static hth_act_stats firings_of(const packing *w, uint32_t i)
{
    const hth_profile_layer *l = &w->profile->layers[i];
    return (hth_act_stats){l->d_ff, l->n_fired, l->coact_bits, w->profile->n_word};
}

static void order_layer(void *arg, size_t i, uint32_t i_thread)
{
    const order_job *job = arg;
    packing *w = job->w;
    hth_act_stats f = firings_of(w, (uint32_t)i);
    hth_order_neurons(&f, w->orders[i], job->scratch + (size_t)i_thread * w->model->hparams.d_ff);
    job->runs[2 * i] = hth_order_mean_run(&f, NULL);
    job->runs[2 * i + 1] = hth_order_mean_run(&f, w->orders[i]);
}

static hearth_status order_neurons(packing *w, hearth_error *err)
{
    const hth_hparams *h = &w->model->hparams;
    order_job job = {.w = w};
    hearth_status st = HEARTH_OK;
    if (!w->profile) return st;
    job.scratch = hth_alloc(hth_pool_n_thread(w->packer.pool), h->d_ff * sizeof *job.scratch);
    job.runs = hth_alloc(h->n_layer, 2 * sizeof *job.runs);
    bool ok = job.scratch && job.runs;
    for (uint32_t i = 0; ok && i < h->n_layer; i++)
        ok = (w->orders[i] =
                  hth_arena_alloc(&w->arena, w->model->layers[i].ffn.d_ff, sizeof **w->orders, 64)) != NULL;
    if (!ok)
        st = hth_fail_memory(err, (size_t)h->n_layer * h->d_ff * sizeof **w->orders, "the order of neurons");
    if (st == HEARTH_OK) hth_pool_run(w->packer.pool, order_layer, &job, h->n_layer);
    for (uint32_t i = 0; st == HEARTH_OK && i < h->n_layer; i++) {
        w->result->mean_run_before += job.runs[2 * i] / h->n_layer;
        w->result->mean_run_after += job.runs[2 * i + 1] / h->n_layer;
    }
    hth_free(job.scratch);
    hth_free(job.runs);
    return st;
}

/* Computes the original indices of neurons if the source is a packed file. */
static hearth_status compose_orders(packing *w, uint32_t i, hearth_error *err)
{
    const hth_layer *l = &w->model->layers[i];
    if (!l->ffn.order) return HEARTH_OK;
    int32_t *before = hth_alloc(l->ffn.d_ff, sizeof *before),
            *now = hth_arena_alloc(&w->arena, l->ffn.d_ff, sizeof *now, 64);
    hearth_status st = before && now
                           ? hth_order_read(w->in, l->ffn.order, l->ffn.d_ff, before, err)
                           : hth_fail_memory(err, l->ffn.d_ff * sizeof *now, "the order of neurons");
    for (uint32_t r = 0; st == HEARTH_OK && r < l->ffn.d_ff; r++)
        now[r] = before[w->orders[i] ? w->orders[i][r] : (int32_t)r];
    hth_free(before);
    w->original_orders[i] = now;
    return st;
}

/* ---- the half that is computed first -------------------------------------------------------------- */

/* dReLU treats both halves alike. The gate is computed first and excludes neurons, so the half that is above
 * zero less often becomes the gate. Not with thresholds, which belong to the present gate. */
static bool should_swap_gate_up(const packing *w, uint32_t i)
{
    return w->profile && w->model->hparams.activation == HTH_ACTIVATION_DRELU && !w->thresholds.file &&
           !w->model->has_thresholds && w->profile->layers[i].up_fired < w->profile->layers[i].gate_fired;
}

static void choose_halves(packing *w)
{
    for (uint32_t i = 0; i < w->model->hparams.n_layer; i++) {
        w->result->n_swapped += should_swap_gate_up(w, i);
        w->gate_up_swapped[i] = w->model->layers[i].ffn.gate_up_swapped != should_swap_gate_up(w, i);
    }
}

static const char *const halves[] = {"ffn_gate.", "ffn_up."};

/* Sets the name of a half. rest: the part after the half's name, "weight" or "bias". */
static void name_half(const packing *w, hth_pack_tensor *p, uint32_t i, int half, const char *rest)
{
    int place = should_swap_gate_up(w, i) ? 1 - half : half;
    snprintf(p->name, sizeof p->name, "blk.%u.%s%s", i, halves[place], rest);
}

/* ---- types --------------------------------------------------------------------------------------- */

/* Whether rows of neurons can be packed to a type, and computed in it. */
static bool can_be(const packing *w, hth_type type, uint64_t n_col)
{
    return w->packer.k.pack[type] && hth_axpy_limit(type) > 0 &&
           n_col % hth_type_find((uint32_t)type)->n_weight == 0;
}

/* The type in which a matrix is written whose rows stay rows. */
static hth_type type_for(const packing *w, const hth_gguf_tensor *t)
{
    if (!w->options->ftype || !hth_ftype_is_matrix(t->name, t->n_dim)) return t->type;
    return hth_ftype_type(w->options->ftype, &w->mix_model, t->name, t->dim[0], NULL);
}

/* The type in which down is written, whose rows have d_model weights after the transposition. */
static hth_type type_for_neurons(const packing *w, const hth_gguf_tensor *t)
{
    uint64_t d = w->model->hparams.d_model;
    hth_type type =
        w->options->ftype ? hth_ftype_type(w->options->ftype, &w->mix_model, t->name, d, NULL) : t->type;
    return can_be(w, type, d) ? type : can_be(w, HTH_TYPE_Q8_0, d) ? HTH_TYPE_Q8_0 : HTH_TYPE_F16;
}

/* ---- the plan -------------------------------------------------------------------------------------- */

static hth_pack_tensor *add(packing *w, const hth_gguf *file, const hth_gguf_tensor *t)
{
    assert(w->n_tensor < w->capacity);
    hth_pack_tensor *p = &w->tensors[w->n_tensor++];
    *p = (hth_pack_tensor){.file = file, .from = t, .type = t->type, .n_dim = t->n_dim, .n_col = t->dim[0]};
    snprintf(p->name, sizeof p->name, "%s", t->name.bytes);
    memcpy(p->dim, t->dim, sizeof p->dim);
    p->n_row = t->dim[1] * t->dim[2] * t->dim[3];
    return p;
}

/* Puts rows, or values of a vector, in the order of the layer's neurons. */
static void put_in_order(packing *w, hth_pack_tensor *p, uint32_t i_layer)
{
    p->order = w->orders[i_layer];
    if (p->n_dim == 1) p->n_row = p->dim[0], p->n_col = 1;
}

/* Whether the model uses the tensor. Then its shape and type were checked. */
static bool is_bound(const packing *w, const hth_gguf_tensor *t)
{
    for (size_t i = 0; i < w->model->n_binding; i++)
        if (w->model->bindings[i].tensor == t) return true;
    return false;
}

/* Parses "blk.3.ffn_up.weight": the layer, and the rest. False: a tensor of no layer. */
static bool in_layer(const hth_gguf_tensor *t, uint32_t *i_layer, const char **rest)
{
    int n = 0;
    if (sscanf(t->name.bytes, "blk.%u.%n", i_layer, &n) != 1 || n == 0) return false;
    *rest = t->name.bytes + n;
    return true;
}

static bool is_any(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

/* Splits a tensor that holds gate and up. */
static void add_parts(packing *w, const hth_gguf_tensor *t, uint32_t i)
{
    for (int part = 0; part < 2; part++) {
        hth_pack_tensor *p = add(w, w->in, t);
        name_half(w, p, i, part, "weight");
        p->n_row /= 2;
        p->dim[1] = p->n_row;
        p->first_row = part ? p->n_row : 0;
        p->type = type_for(w, t);
        p->order = w->orders[i];
    }
}

static void plan_tensor(packing *w, const hth_gguf_tensor *t)
{
    static const char *const by_neuron[] = {"ffn_gate.weight",  "ffn_up.weight",     "ffn_gate.bias",
                                            "ffn_up.bias",      "fc2.weight",        "fc2.bias",
                                            "ffn_floor.weight", "ffn_down_t.weight", NULL};
    static const char *const of_predictors[] = {"fc1.weight", "fc2.weight", "fc2.bias", NULL};
    uint32_t i = 0;
    const char *rest = "";
    bool layered = in_layer(t, &i, &rest) && i < w->model->hparams.n_layer;
    if (layered && w->model->layers[i].ffn.order == t) return; /* a new one is written */
    if (layered && w->predictors.file && is_any(rest, of_predictors)) return;
    if (layered && w->thresholds.file && strcmp(rest, "ffn_floor.weight") == 0) return;
    if (!is_bound(w, t)) { /* copied unchanged, unless its name is written again */
        if (!layered || strncmp(rest, "ffn_down_t.", 11) != 0) add(w, w->in, t);
        return;
    }
    if (!layered) {
        add(w, w->in, t)->type = type_for(w, t);
        return;
    }
    const hth_layer *l = &w->model->layers[i];
    if (strcmp(rest, "ffn_up.weight") == 0 && t->dim[1] == 2 * (uint64_t)l->ffn.d_ff) {
        add_parts(w, t, i);
        return;
    }
    hth_pack_tensor *p = add(w, w->in, t);
    if (is_any(rest, by_neuron)) put_in_order(w, p, i);
    for (int half = 0; half < 2; half++) {
        size_t n = strlen(halves[half]);
        if (strncmp(rest, halves[half], n) == 0) name_half(w, p, i, half, rest + n);
    }
    if (strcmp(rest, "ffn_down.weight") == 0 && !w->mixture) {
        p->transposed = true;
        p->order = w->orders[i];
        p->type = type_for_neurons(w, t);
        p->n_row = p->dim[1] = t->dim[0], p->n_col = p->dim[0] = t->dim[1];
        snprintf(p->name, sizeof p->name, "blk.%u.ffn_down_t.weight", i);
    } else if (strcmp(rest, "ffn_down.bias") == 0 && !w->mixture) {
        snprintf(p->name, sizeof p->name, "blk.%u.ffn_down_t.bias", i);
    } else if (strncmp(rest, "fc", 2) != 0) {
        p->type = type_for(w, t);
    }
}

static void plan_sidecar(packing *w, const hth_sidecar *s)
{
    for (size_t k = 0; s->file && k < hth_gguf_n_tensor(s->file); k++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(s->file, k);
        uint32_t i;
        const char *rest;
        hth_pack_tensor *p = add(w, s->file, t);
        if (in_layer(t, &i, &rest) && strcmp(rest, "fc1.weight") != 0) put_in_order(w, p, i);
    }
}

static void plan_orders(packing *w)
{
    for (uint32_t i = 0; i < w->model->hparams.n_layer; i++) {
        const int32_t *original_orders = w->original_orders[i] ? w->original_orders[i] : w->orders[i];
        if (!original_orders) continue;
        assert(w->n_tensor < w->capacity);
        hth_pack_tensor *p = &w->tensors[w->n_tensor++];
        uint64_t d_ff = w->model->layers[i].ffn.d_ff;
        *p = (hth_pack_tensor){.type = HTH_TYPE_I32,
                               .n_dim = 1,
                               .dim = {d_ff, 1, 1, 1},
                               .n_row = d_ff,
                               .n_col = 1,
                               .data = original_orders};
        snprintf(p->name, sizeof p->name, "blk.%u.ffn_order", i);
    }
}

/* ---- files for storage ------------------------------------------------------------------------------ */

/* A matrix of a layer by the name that it will have. */
static hth_pack_tensor *find_planned(packing *w, uint32_t i_layer, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", i_layer, rest);
    for (size_t k = 0; k < w->n_tensor; k++)
        if (strcmp(w->tensors[k].name, name) == 0) return &w->tensors[k];
    return NULL;
}

static uint64_t n_unit_of(const hth_pack_tensor *p) { return (p->n_row + p->unit_row - 1) / p->unit_row; }

/* Adds a tensor whose values become known while the others are written. */
static void add_values(packing *w, uint32_t i_layer, const char *rest, hth_type type, uint64_t n_col,
                       uint64_t n_row, const void *data)
{
    assert(w->n_tensor < w->capacity);
    hth_pack_tensor *p = &w->tensors[w->n_tensor++];
    *p = (hth_pack_tensor){.type = type,
                           .n_dim = n_row > 1 ? 2 : 1,
                           .dim = {n_col, n_row, 1, 1},
                           .n_col = n_col,
                           .n_row = n_row,
                           .data = data};
    snprintf(p->name, sizeof p->name, "blk.%u.%s", i_layer, rest);
}

static hearth_status plan_layer_for_storage(packing *w, uint32_t i, hearth_error *err)
{
    static const char *const dense[] = {"ffn_gate", "ffn_up", "ffn_down_t", NULL}, *const experts[] = {
                                                                                       "ffn_gate_exps",
                                                                                       "ffn_gate_up_exps",
                                                                                       "ffn_up_exps",
                                                                                       "ffn_down_exps", NULL};
    const hth_layer *l = &w->model->layers[i];
    const char *const *names = hth_has_experts(l->network) ? experts : dense;
    hth_pack_tensor *all[HTH_CHECKED_MATRICES] = {NULL};
    uint64_t n = 0, n_unit = 0, n_neuron = 0, n_cluster = hth_n_cluster(l->ffn.d_ff);
    if (w->mixture != hth_has_experts(l->network)) return HEARTH_OK; /* it stays in memory */
    for (int k = 0; names[k]; k++)
        if ((all[n] = find_planned(w, i, names[k])) != NULL) n++;
    if (!w->mixture) {
        const hth_pack_tensor *up = find_planned(w, i, "ffn_up"), *down = all[n - 1];
        bool in_order = hth_type_act_block(down->type) == 0;
        n_neuron = w->options->n_bundle_neuron;
        if (n_neuron == 0 || in_order)
            n_neuron = 1u << hth_bundle_shift(hth_pack_tensor_size(up) / up->n_row, in_order);
        w->n_bundle_neuron[i] = (uint32_t)n_neuron;
    }
    for (uint64_t k = 0; k < n; k++) {
        all[k]->unit_row = w->mixture ? all[k]->n_row / l->experts.router.n_expert : n_neuron;
        n_unit += n_unit_of(all[k]);
    }
    if (!w->mixture) n_unit++; /* the checksum of the scales */
    uint64_t *checksums = hth_arena_alloc(&w->arena, (size_t)n_unit, sizeof *checksums, 64);
    float *scales = hth_arena_alloc(&w->arena, (size_t)n_cluster, sizeof *scales, 64);
    if (!checksums || !scales) return hth_fail_memory(err, (size_t)n_unit * sizeof *checksums, "checksums");
    add_values(w, i, "ffn_checksum", HTH_TYPE_I32, 2, n_unit, checksums);
    for (uint64_t k = 0; k < n; checksums += n_unit_of(all[k]), k++) all[k]->checksums = checksums;
    if (w->mixture) return HEARTH_OK;
    all[n - 1]->scales = scales;
    add_values(w, i, "ffn_down_t.scales", HTH_TYPE_F32, n_cluster, 1, scales);
    return HEARTH_OK;
}

static void write_storage(packing *w)
{
    hth_gguf_writer *out = w->packer.out;
    if (!w->options->for_storage) return;
    hth_gguf_writer_uint(out, "general.alignment", HTH_GGUF_U32, HTH_STORAGE_ALIGNMENT);
    hth_gguf_writer_uint(out, HTH_KEY_STORAGE_VERSION, HTH_GGUF_U32, HTH_STORAGE_VERSION);
    hth_gguf_writer_array(out, HTH_KEY_STORAGE_NEURONS, HTH_GGUF_U32, w->n_bundle_neuron,
                          w->model->hparams.n_layer);
}

/* Whether a tensor of the source comes from an earlier packing for storage. It is not copied: packing for storage
 * computes it again. */
static bool is_of_storage(const hth_gguf_tensor *t)
{
    uint32_t i;
    const char *rest;
    return in_layer(t, &i, &rest) &&
           (strcmp(rest, "ffn_checksum") == 0 || strcmp(rest, "ffn_down_t.scales") == 0);
}

static hearth_status plan(packing *w, hearth_error *err)
{
    size_t n = hth_gguf_n_tensor(w->in) + (size_t)w->model->hparams.n_layer * ADDED_PER_LAYER;
    w->tensors = hth_arena_alloc(&w->arena, n, sizeof *w->tensors, 64);
    w->capacity = n;
    if (!w->tensors) return hth_fail_memory(err, n * sizeof *w->tensors, "the plan of a file");
    for (size_t k = 0; k < hth_gguf_n_tensor(w->in); k++)
        if (!is_of_storage(hth_gguf_tensor_at(w->in, k))) plan_tensor(w, hth_gguf_tensor_at(w->in, k));
    plan_sidecar(w, &w->predictors);
    plan_sidecar(w, &w->thresholds);
    plan_orders(w);
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; i < w->model->hparams.n_layer && w->options->for_storage && st == HEARTH_OK; i++)
        st = plan_layer_for_storage(w, i, err);
    if (st != HEARTH_OK) return st;
    for (size_t k = 0; k < w->n_tensor; k++) {
        const hth_pack_tensor *p = &w->tensors[k];
        w->total += hth_pack_tensor_size(p);
        bool quantised = p->from && hth_type_find((uint32_t)p->from->type)->quantised;
        w->result->requantised |= quantised && (p->transposed || p->type != p->from->type);
        w->result->retyped |= quantised && !p->transposed && p->type != p->from->type;
        if (!p->from || (p->type == p->from->type && !p->transposed)) continue;
        if (!hth_type_find((uint32_t)p->from->type)->supported)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                            "%s: tensor '%s' has type %s, from which pack cannot start", hth_gguf_path(w->in),
                            p->name, hth_type_find((uint32_t)p->from->type)->name);
        bool needs_matrix =
            w->options->ftype && hth_ftype_needs_imatrix(w->options->ftype, p->from->name, p->type);
        if (!w->packer.k.pack[p->type] || needs_matrix)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "pack to %s: this type %s",
                            hth_type_find((uint32_t)p->type)->name,
                            needs_matrix || w->packer.k.pack_by[p->type]
                                ? "needs an importance matrix: hearth quantize takes one"
                                : "is read, not written");
    }
    return HEARTH_OK;
}

/* ---- the header --------------------------------------------------------------------------------------- */

/* Writes the metadata that a PowerInfer file implies. */
static void write_meaning(packing *w)
{
    const hth_hparams *h = &w->model->hparams;
    const char *name = h->arch->norm == HTH_NORM_RMS ? "rms_epsilon" : "epsilon";
    char key[80];
    if (!hth_gguf_is_powerinfer(w->in)) return;
    snprintf(key, sizeof key, "%s.attention.layer_norm_%s", h->architecture, name);
    hth_gguf_writer_float(w->packer.out, key, HTH_GGUF_F32, (double)h->norm_eps);
    const char *activation = hth_activation_name(h->activation);
    hth_gguf_writer_text(w->packer.out, "hearth.ffn.activation", activation, strlen(activation));
}

/* Writes an array with one float per layer. */
static hearth_status write_layers(packing *w, const char *key, float (*of)(const packing *, uint32_t),
                                  hearth_error *err)
{
    uint32_t n = w->model->hparams.n_layer;
    float *values = hth_alloc(n, sizeof *values);
    if (!values) return hth_fail_memory(err, n * sizeof *values, "values of layers");
    for (uint32_t i = 0; i < n; i++) values[i] = of(w, i);
    hth_gguf_writer_array(w->packer.out, key, HTH_GGUF_F32, values, n);
    hth_free(values);
    return HEARTH_OK;
}

static float threshold_of(const packing *w, uint32_t i)
{
    return w->model->layers[i].ffn.predictor.threshold;
}
static float sidecar_threshold_of(const packing *w, uint32_t i) { return w->predictors.thresholds[i]; }

/* Activity of the neurons of a layer in the order of the packed file, in shares; returns their number. */
static size_t shares_of(const packing *w, uint32_t i_layer, float *shares)
{
    const hth_profile_layer *p = &w->profile->layers[i_layer];
    const int32_t *order = w->orders[i_layer];
    size_t n = 0;
    for (uint32_t first = 0; first < p->d_ff; first += HTH_ACT_FREQ_BLOCK) {
        uint32_t k = p->d_ff - first < HTH_ACT_FREQ_BLOCK ? p->d_ff - first : HTH_ACT_FREQ_BLOCK;
        uint64_t fired = 0;
        for (uint32_t j = first; j < first + k; j++) fired += p->n_fired[order ? (uint32_t)order[j] : j];
        shares[n++] = (float)((double)fired / ((double)w->profile->n_done * k));
    }
    return n;
}

static hearth_status write_shares(packing *w, hearth_error *err)
{
    size_t n = 0, max = 0;
    for (uint32_t i = 0; i < w->model->hparams.n_layer; i++)
        max += w->model->layers[i].ffn.d_ff / HTH_ACT_FREQ_BLOCK + 1;
    float *shares = hth_alloc(max, sizeof *shares);
    if (!shares) return hth_fail_memory(err, max * sizeof *shares, "shares of neurons that fire");
    for (uint32_t i = 0; i < w->model->hparams.n_layer; i++) n += shares_of(w, i, shares + n);
    hth_gguf_writer_array(w->packer.out, HTH_KEY_ACT_FREQ, HTH_GGUF_F32, shares, n);
    hth_free(shares);
    return HEARTH_OK;
}

static hearth_selector selector_for(const packing *w)
{
    if (w->predictors.file) return HEARTH_SELECTOR_PREDICTOR;
    if (w->thresholds.file) return HEARTH_SELECTOR_THRESHOLD;
    if (w->model->selector != HEARTH_SELECTOR_AUTO) return w->model->selector;
    return hth_activation_is_sparse(w->model->hparams.activation) ? HEARTH_SELECTOR_GATE
                                                                  : HEARTH_SELECTOR_DENSE;
}

static hearth_status write_sparsity(packing *w, hearth_error *err)
{
    hth_gguf_writer *out = w->packer.out;
    hearth_status st = HEARTH_OK;
    w->result->selector = hth_selector_name(selector_for(w));
    hth_gguf_writer_uint(out, "hearth.pack.version", HTH_GGUF_U32, HTH_PACK_VERSION);
    hth_gguf_writer_text(out, "hearth.selector", w->result->selector, strlen(w->result->selector));
    if (w->predictors.file || w->model->has_predictors) {
        bool residual = w->predictors.file ? w->predictors.from_residual : w->model->predicts_from_residual;
        hth_gguf_writer_text(out, "hearth.predictor.input", residual ? "residual" : "normed",
                             residual ? 8 : 6);
        st = write_layers(w, "hearth.predictor.threshold",
                          w->predictors.file ? sidecar_threshold_of : threshold_of, err);
    }
    if (w->result->n_swapped)
        hth_gguf_writer_array(out, HTH_KEY_GATE_UP_SWAPPED, HTH_GGUF_U32, w->gate_up_swapped,
                              w->model->hparams.n_layer);
    if (st == HEARTH_OK && w->profile) st = write_shares(w, err);
    return st;
}

static hearth_status write_source(packing *w, hearth_error *err)
{
    uint64_t hash;
    char text[17];
    hearth_status st = hth_model_hash(w->in, &hash, err);
    if (st != HEARTH_OK) return st;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    hth_gguf_writer_text(w->packer.out, "hearth.pack.source", text, 16);
    return HEARTH_OK;
}

static hearth_status write_header(packing *w, hearth_error *err)
{
    for (size_t i = 0; i < hth_gguf_n_value(w->in); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(w->in, i);
        bool again = hth_str_begins(v->key, "hearth.storage.") || hth_str_eq(v->key, "general.alignment");
        if (!again && !hth_str_begins(v->key, "split.") && !hth_str_begins(v->key, "powerinfer."))
            hth_gguf_writer_copy(w->packer.out, v);
    }
    if (w->options->ftype)
        hth_gguf_writer_uint(w->packer.out, "general.file_type", HTH_GGUF_U32, w->options->ftype->file_type);
    hth_gguf_writer_uint(w->packer.out, "general.quantization_version", HTH_GGUF_U32, 2);
    hth_gguf_writer_text(w->packer.out, HTH_KEY_MADE_BY, "pack", 4);
    write_meaning(w);
    write_storage(w);
    hearth_status st = w->mixture ? HEARTH_OK : write_sparsity(w, err);
    if (st == HEARTH_OK) st = write_source(w, err);
    if (st != HEARTH_OK) return st;
    for (size_t k = 0; k < w->n_tensor; k++) hth_pack_declare(&w->packer, &w->tensors[k]);
    return hth_gguf_writer_begin(w->packer.out, err);
}

/* ---- entry point ---------------------------------------------------------------------------------------- */

static hearth_status write_tensors(packing *w, hearth_error *err)
{
    for (size_t k = 0; k < w->n_tensor; k++) {
        hearth_status st = hth_pack_write(&w->packer, &w->tensors[k], err);
        if (st != HEARTH_OK) return st;
        w->done += hth_pack_tensor_size(&w->tensors[k]);
        const hth_pack_options *o = w->options;
        if (o->progress && !o->progress(o->progress_user, w->done, w->total))
            return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
    }
    hth_pack_loss loss = w->packer.loss;
    w->result->out_bytes = w->total;
    w->result->down_rms_error = loss.size > 0.0 ? hth_sqrt_d(loss.error / loss.size) : 0.0;
    return HEARTH_OK;
}

static hearth_status open_inputs(packing *w, const char *in_path, hearth_error *err)
{
    hth_cpu level;
    hearth_status st = hth_cpu_choose(NULL, &level, err);
    if (st != HEARTH_OK) return st;
    hth_kernels_init(&w->packer.k, level);
    if ((st = hth_gguf_open(in_path, &w->in, err)) != HEARTH_OK) return st;
    hth_model_overrides other = {.allow_unused = w->options->allow_unused};
    if ((st = hth_model_open(w->in, &other, &w->model, err)) != HEARTH_OK) return st;
    const hth_pack_options *o = w->options;
    if (o->predictors &&
        (st = hth_sidecar_open(&w->predictors, o->predictors, "predictors", w->model, err)) != HEARTH_OK)
        return st;
    if (o->thresholds &&
        (st = hth_sidecar_open(&w->thresholds, o->thresholds, "thresholds", w->model, err)) != HEARTH_OK)
        return st;
    if (o->profile && (st = hth_profile_open(o->profile, w->model, &w->profile, err)) != HEARTH_OK) return st;
    uint32_t n = w->model->hparams.n_layer;
    w->result->n_layer = n;
    if ((st = hth_ftype_open_model(w->in, &w->mix_model, err)) != HEARTH_OK) return st;
    w->mix_model.pure = o->pure;
    for (size_t i = 0; i < hth_gguf_n_tensor(w->in); i++)
        w->result->in_bytes += hth_gguf_tensor_at(w->in, i)->size;
    w->orders = hth_arena_alloc(&w->arena, n, sizeof *w->orders, 64);
    w->original_orders = hth_arena_alloc(&w->arena, n, sizeof *w->original_orders, 64);
    w->n_bundle_neuron = hth_arena_alloc(&w->arena, n, sizeof *w->n_bundle_neuron, 64);
    w->gate_up_swapped = hth_arena_alloc(&w->arena, n, sizeof *w->gate_up_swapped, 64);
    if (w->arena.failed) return hth_fail_memory(err, n * sizeof *w->orders, "the order of neurons");
    st = hth_pool_open(hth_pool_default_threads(o->n_thread), &w->packer.pool, err);
    if (st == HEARTH_OK) hth_pool_watch(w->packer.pool, o->cancel, NULL);
    return st;
}

static void close_inputs(packing *w)
{
    hth_ftype_close_model(&w->mix_model);
    hth_pool_close(w->packer.pool);
    hth_arena_free(&w->arena);
    hth_profile_close(w->profile);
    hth_sidecar_close(&w->thresholds);
    hth_sidecar_close(&w->predictors);
    hth_model_close(w->model);
    if (w->in) hth_gguf_close(w->in);
}

hearth_status hth_pack(const char *in_path, const char *out_path, const hth_pack_options *options,
                       hth_pack_result *result, hearth_error *err)
{
    packing w = {.options = options, .result = result};
    *result = (hth_pack_result){0};
    hearth_status st = open_inputs(&w, in_path, err);
    bool has_experts = st == HEARTH_OK && w.model->hparams.experts.n_expert > 0;
    w.mixture = options->for_storage && has_experts;
    bool sparse = options->profile || options->predictors || options->thresholds;
    const char *what = has_experts && !sparse ? "hearth pack without for_storage" : "hearth pack";
    if (st == HEARTH_OK && (!w.mixture || sparse)) st = hth_model_check_dense(w.model, what, err);
    if (st == HEARTH_OK) st = order_neurons(&w, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < w.model->hparams.n_layer; i++)
        st = compose_orders(&w, i, err);
    if (st == HEARTH_OK) choose_halves(&w);
    if (st == HEARTH_OK) st = plan(&w, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_open(out_path, &w.packer.out, err);
    if (st == HEARTH_OK) st = write_header(&w, err);
    if (st == HEARTH_OK) st = write_tensors(&w, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(w.packer.out, err);
    if (w.packer.out) hth_gguf_writer_close(w.packer.out);
    close_inputs(&w);
    return st;
}
