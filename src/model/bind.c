/* Binds tensors by name: finds every tensor that the architecture needs, checks its type and shape against the
 * hyper-parameters, and lists the destinations of its weights. Optional tensors that are absent stay NULL or
 * empty. */
#include "base/checked_math.h"
#include "base/log.h"
#include "kernels/vector/math.h"
#include "model/model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_VOCAB = 4194304,
    MAX_POSITION = 16777216,
    BINDINGS_PER_LAYER = 40,
    BINDINGS_BESIDES = 8,
};

typedef struct binder {
    hth_model *model;
    hearth_error *err;
    char name[64];
} binder;

static const hth_gguf_tensor *find(binder *b, const char *name)
{
    snprintf(b->name, sizeof b->name, "%s", name);
    return hth_gguf_find_tensor(b->model->file, b->name);
}

static const hth_gguf_tensor *find_in_layer(binder *b, uint32_t i_layer, const char *name)
{
    snprintf(b->name, sizeof b->name, "blk.%u.%s", i_layer, name);
    return hth_gguf_find_tensor(b->model->file, b->name);
}

static hearth_status missing(binder *b)
{
    return hth_fail(b->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' is missing (needed by architecture %s)",
                    hth_gguf_path(b->model->file), b->name, b->model->hparams.arch->name);
}

static void note_used(hth_model *m, const hth_gguf_tensor *t)
{
    bool *used = &m->used[t - hth_gguf_tensor_at(m->file, 0)];
    m->n_tensor += !*used;
    *used = true;
}

static void remember(binder *b, hth_binding binding)
{
    hth_model *m = b->model;
    assert(m->n_binding < (size_t)m->hparams.n_layer * BINDINGS_PER_LAYER + BINDINGS_BESIDES);
    m->bindings[m->n_binding++] = binding;
    m->weight_size += binding.size;
    note_used(m, binding.tensor);
}

static hearth_status check_type(binder *b, const hth_gguf_tensor *t)
{
    const hth_type_info *info = hth_type_find(t->type);
    if (info && info->supported) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: tensor '%s' (info at byte %llu) has type %s; supported: %s",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    info ? info->name : "unknown", hth_type_supported_list());
}

static hearth_status wrong_slices(binder *b, const hth_gguf_tensor *t, uint64_t n_col, uint64_t n_row, uint64_t n_slice)
{
    char slices[32] = "";
    if (n_slice > 1) snprintf(slices, sizeof slices, ", %llu", (unsigned long long)n_slice);
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is [%llu, %llu, %llu, %llu], but the metadata ask "
                    "for [%llu, %llu%s]",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    (unsigned long long)t->dim[0], (unsigned long long)t->dim[1],
                    (unsigned long long)t->dim[2], (unsigned long long)t->dim[3], (unsigned long long)n_col,
                    (unsigned long long)n_row, slices);
}

static hearth_status wrong_shape(binder *b, const hth_gguf_tensor *t, uint64_t n_col, uint64_t n_row)
{
    return wrong_slices(b, t, n_col, n_row, 1);
}

/* Several matrices of n_col columns whose rows are consecutive in one tensor. */
typedef struct part {
    size_t n_row;
    hth_matrix *matrix;
} part;

static hearth_status bind_parts(binder *b, const hth_gguf_tensor *t, size_t n_col, const part *parts,
                                size_t n_part)
{
    if (!t) return missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    uint64_t n_row = 0, at = 0;
    for (size_t i = 0; i < n_part; i++) n_row += parts[i].n_row;
    if (t->dim[0] != n_col || t->dim[1] != n_row || t->dim[2] != 1 || t->dim[3] != 1)
        return wrong_shape(b, t, n_col, n_row);
    size_t row_size = hth_type_row_size(t->type, n_col);
    for (size_t i = 0; i < n_part; i++) {
        uint64_t size = row_size * parts[i].n_row; /* inside the tensor: cannot overflow */
        *parts[i].matrix =
            (hth_matrix){.type = t->type, .n_row = parts[i].n_row, .n_col = n_col, .row_size = row_size};
        remember(b, (hth_binding){.tensor = t, .matrix = parts[i].matrix, .offset = at, .size = size});
        at += size;
    }
    return HEARTH_OK;
}

/* A matrix of n_row rows of n_col weights. */
static hearth_status bind_matrix(binder *b, const hth_gguf_tensor *t, size_t n_row, size_t n_col,
                                 hth_matrix *m)
{
    return bind_parts(b, t, n_col, &(part){n_row, m}, 1);
}

/* The matrices [n_row][n_col] of n_slice experts, one after another. */
static hearth_status bind_slices(binder *b, const hth_gguf_tensor *t, size_t n_slice, size_t n_row, size_t n_col,
                                 hth_matrix *m)
{
    if (!t) return missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    if (t->dim[0] != n_col || t->dim[1] != n_row || t->dim[2] != n_slice || t->dim[3] != 1)
        return wrong_slices(b, t, n_col, n_row, n_slice);
    size_t row_size = hth_type_row_size(t->type, n_col);
    *m = (hth_matrix){.type = t->type, .n_row = n_slice * n_row, .n_col = n_col, .row_size = row_size, .n_slice = n_slice};
    remember(b, (hth_binding){.tensor = t, .matrix = m, .size = row_size * m->n_row});
    return HEARTH_OK;
}

/* n_row vectors of n floats, of any float type. */
static hearth_status check_vectors(binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row)
{
    if (!t) return missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    if (hth_type_find(t->type)->quantised)
        return hth_fail(
            b->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: tensor '%s' (info at byte %llu) has type %s; norms and biases are F32, F16 or BF16",
            hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
            hth_type_find(t->type)->name);
    bool fits = t->dim[0] == n && t->dim[1] == n_row && t->dim[2] == 1 && t->dim[3] == 1;
    return fits ? HEARTH_OK : wrong_shape(b, t, n, n_row);
}

static hearth_status check_vector(binder *b, const hth_gguf_tensor *t, size_t n) { return check_vectors(b, t, n, 1); }

static hearth_status bind_vectors(binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row, const float **vectors)
{
    hearth_status st = check_vectors(b, t, n, n_row);
    if (st == HEARTH_OK) remember(b, (hth_binding){.tensor = t, .vector = vectors, .n = n * n_row, .size = t->size});
    return st;
}

static hearth_status bind_vector(binder *b, const hth_gguf_tensor *t, size_t n, const float **vector)
{
    return bind_vectors(b, t, n, 1, vector);
}

/* Biases of several matrices, consecutive in one tensor. NULL: none. */
static hearth_status bind_bias_parts(binder *b, const hth_gguf_tensor *t, const size_t *n,
                                     const float **vectors[], size_t n_part)
{
    size_t all = 0;
    for (size_t i = 0; i < n_part; i++) all += n[i];
    hearth_status st = t ? check_vector(b, t, all) : HEARTH_OK;
    if (!t || st != HEARTH_OK) return st;
    uint64_t at = 0, size = t->size / all; /* of one value: no float type has blocks */
    for (size_t i = 0; i < n_part; at += n[i] * size, i++)
        remember(
            b, (hth_binding){.tensor = t, .vector = vectors[i], .n = n[i], .offset = at, .size = n[i] * size});
    return HEARTH_OK;
}

static hearth_status bind_divisors(binder *b, const hth_gguf_tensor *t, const float **vector)
{
    size_t n = b->model->hparams.rope.n_rot / 2;
    hearth_status st = check_vector(b, t, n);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){.tensor = t, .vector = vector, .n = n, .size = t->size, .must_be_nonzero = true});
    return st;
}

/* Whether a name ends with one of those that the architecture ignores. */
static bool is_ignored(const hth_arch *arch, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = arch->ignored; at && *at; at = strchr(at, ' ') + 1) {
        size_t n_suffix = (size_t)(strchr(at, ' ') - at);
        if (n >= n_suffix && memcmp(name + n - n_suffix, at, n_suffix) == 0) return true;
    }
    return false;
}

/* The bias of matrix `name` of a layer, which the architecture may require. */
static hearth_status bind_bias(binder *b, uint32_t i_layer, const char *name, bool needed, size_t n,
                               const float **vector)
{
    char full[48];
    snprintf(full, sizeof full, "%s.bias", name);
    if (is_ignored(b->model->hparams.arch, full)) return HEARTH_OK;
    const hth_gguf_tensor *t = find_in_layer(b, i_layer, full);
    return t || needed ? bind_vector(b, t, n, vector) : HEARTH_OK;
}

/* ---- norms --------------------------------------------------------------------------- */

static bool norms_have_bias(const hth_arch *a)
{
    return a->norm_params == HTH_PARAMS_BY_KIND ? a->norm == HTH_NORM_LAYER : a->norm_params == HTH_PARAMS_BOTH;
}

/* The norm of a block of a layer by name, of d_model values. Some names have no suffix. */
static hearth_status bind_norm(binder *b, uint32_t i_layer, const char *name, hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    if (h->arch->norm_params == HTH_PARAMS_NONE) {
        norm->weight = b->model->ones;
        return HEARTH_OK;
    }
    const hth_gguf_tensor *bare = find_in_layer(b, i_layer, name), *t = find_in_layer(b, i_layer, weight);
    hearth_status st = bind_vector(b, t ? t : bare, h->d_model, &norm->weight);
    if (st != HEARTH_OK || !norms_have_bias(h->arch)) return st;
    return bind_bias(b, i_layer, name, true, h->d_model, &norm->bias);
}

/* The norm of queries or keys of n_head heads. */
static hearth_status bind_qk_norm(binder *b, uint32_t i, const char *name, uint32_t n_head, hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_head, n = h->arch->qk_norm == HTH_QK_NORM_ALL ? n_head * d : d;
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    const hth_gguf_tensor *t = find_in_layer(b, i, weight);
    if (h->arch->qk_norm == HTH_QK_NORM_NONE || (!t && h->arch->qk_norm_optional)) return HEARTH_OK;
    return bind_vectors(b, t, n, h->arch->qk_norm == HTH_QK_NORM_EACH ? n_head : 1, &norm->weight);
}

/* A matrix of a layer and its bias. */
static hearth_status bind_linear(binder *b, uint32_t i_layer, const char *name, bool needs_bias, size_t n_row,
                                 size_t n_col, hth_matrix *m, const float **bias)
{
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    hearth_status st = bind_matrix(b, find_in_layer(b, i_layer, weight), n_row, n_col, m);
    return st != HEARTH_OK ? st : bind_bias(b, i_layer, name, needs_bias, n_row, bias);
}

/* ---- the parts of a model ------------------------------------------------------ */

/* The embedding determines the size of the vocabulary. The metadata must not state more tokens. */
static hearth_status bind_embedding(binder *b)
{
    hth_model *m = b->model;
    const hth_gguf_tensor *t = find(b, "token_embd.weight");
    if (!t) return missing(b);
    if (t->dim[1] < 1 || t->dim[1] > MAX_VOCAB) return wrong_shape(b, t, m->hparams.d_model, MAX_VOCAB);
    m->hparams.n_vocab = (uint32_t)t->dim[1];
    hearth_status st = bind_matrix(b, t, m->hparams.n_vocab, m->hparams.d_model, &m->token_embd);
    if (st != HEARTH_OK) return st;

    const hth_gguf_value *tokens = hth_gguf_find(m->file, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != HTH_GGUF_ARRAY) return HEARTH_OK;
    if (tokens->n_element > m->hparams.n_vocab)
        return hth_fail(
            b->err, HEARTH_ERROR_FORMAT,
            "%s: tokenizer.ggml.tokens at %llu holds %llu tokens, but token_embd.weight has %u rows",
            hth_gguf_path(m->file), (unsigned long long)tokens->offset, (unsigned long long)tokens->n_element,
            m->hparams.n_vocab);
    if (tokens->n_element < m->hparams.n_vocab)
        hth_log(HEARTH_LOG_WARN, "%s: %u embedding rows for %llu tokens: the rest is padding",
                hth_gguf_path(m->file), m->hparams.n_vocab, (unsigned long long)tokens->n_element);
    return HEARTH_OK;
}

/* One row per position, the first ones unused. They bound the context. */
static hearth_status bind_positions(binder *b)
{
    hth_model *m = b->model;
    hth_hparams *h = &m->hparams;
    uint32_t offset = h->arch->position_offset;
    if (!h->arch->learned_positions) return HEARTH_OK;
    const hth_gguf_tensor *t = find(b, "position_embd.weight");
    if (!t) return missing(b);
    if (t->dim[1] <= offset || t->dim[1] > MAX_POSITION)
        return wrong_shape(b, t, h->d_model, h->n_ctx_train + (uint64_t)offset);
    h->n_position = (uint32_t)t->dim[1] - offset;
    if (h->n_ctx_train > h->n_position) h->n_ctx_train = h->n_position;
    return bind_matrix(b, t, t->dim[1], h->d_model, &m->position_embd);
}

/* The divisors of the rotation angles. */
static hearth_status bind_rope_factors(binder *b)
{
    hth_model *m = b->model;
    const hth_hparams *h = &m->hparams;
    if (h->arch->factors == HTH_FACTORS_BY_CONTEXT) {
        if (h->rope.scaling != HTH_SCALING_LONGROPE && !find(b, "rope_factors_long.weight") &&
            !find(b, "rope_factors_short.weight"))
            return HEARTH_OK;
        hearth_status st = bind_divisors(b, find(b, "rope_factors_short.weight"), &m->rope_factors);
        if (st != HEARTH_OK) return st;
        return bind_divisors(b, find(b, "rope_factors_long.weight"), &m->rope_factors_long);
    }
    const hth_gguf_tensor *t = find(b, "rope_freqs.weight");
    if (t && h->rope.n_rot == 0) note_used(m, t);
    if (h->rope.n_rot == 0) return HEARTH_OK;
    return t && h->arch->factors == HTH_FACTORS_ONE ? bind_divisors(b, t, &m->rope_factors) : HEARTH_OK;
}

/* A norm outside layers. */
static hearth_status bind_outer_norm(binder *b, const char *name, hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    char full[48];
    norm->weight = b->model->ones;
    if (h->arch->norm_params == HTH_PARAMS_NONE) return HEARTH_OK;
    snprintf(full, sizeof full, "%s.weight", name);
    hearth_status st = bind_vector(b, find(b, full), h->d_model, &norm->weight);
    if (st != HEARTH_OK || !norms_have_bias(h->arch)) return st;
    snprintf(full, sizeof full, "%s.bias", name);
    return bind_vector(b, find(b, full), h->d_model, &norm->bias);
}

static hearth_status bind_head(binder *b)
{
    hth_model *m = b->model;
    size_t d_model = m->hparams.d_model;
    hearth_status st = bind_outer_norm(b, "output_norm", &m->output_norm);
    if (st != HEARTH_OK) return st;
    const hth_gguf_tensor *t = find(b, "output.weight");
    m->tied = t == NULL;
    if (t) st = bind_matrix(b, t, m->hparams.n_vocab, d_model, &m->output);
    t = is_ignored(m->hparams.arch, "output.bias") ? NULL : find(b, "output.bias");
    return st == HEARTH_OK && t ? bind_vector(b, t, m->hparams.n_vocab, &m->output_bias) : st;
}

/* Queries, keys and values, in three tensors or in one. The same holds for their biases. */
static hearth_status bind_qkv(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_model, n_q = (size_t)l->attn.n_head * h->d_head, n_kv = (size_t)l->attn.n_head_kv * h->d_head;
    bool biased = h->arch->biases != HTH_BIAS_OPTIONAL;
    const hth_gguf_tensor *joined = find_in_layer(b, i, "attn_qkv.weight");
    hearth_status st;
    const hth_gguf_tensor *apart = find_in_layer(b, i, "attn_q.weight");
    if (!joined && !apart)
        return hth_fail(
            b->err, HEARTH_ERROR_FORMAT,
            "%s: tensor '%s' is missing, and so is 'blk.%u.attn_qkv.weight' (one is needed by architecture "
            "%s)",
            hth_gguf_path(b->model->file), b->name, i, h->arch->name);
    if (apart) {
        if ((st = bind_linear(b, i, "attn_q", biased, n_q, d, &l->attn.q, &l->attn.q_bias)) != HEARTH_OK ||
            (st = bind_linear(b, i, "attn_k", biased, n_kv, d, &l->attn.k, &l->attn.k_bias)) != HEARTH_OK)
            return st;
        return bind_linear(b, i, "attn_v", biased, n_kv, d, &l->attn.v, &l->attn.v_bias);
    }
    const part parts[] = {{n_q, &l->attn.q}, {n_kv, &l->attn.k}, {n_kv, &l->attn.v}};
    find_in_layer(b, i, "attn_qkv.weight"); /* sets the name for messages */
    if ((st = bind_parts(b, joined, d, parts, 3)) != HEARTH_OK) return st;
    const hth_gguf_tensor *bias = find_in_layer(b, i, "attn_qkv.bias");
    if (bias)
        return bind_bias_parts(b, bias, (size_t[]){n_q, n_kv, n_kv},
                               (const float **[]){&l->attn.q_bias, &l->attn.k_bias, &l->attn.v_bias}, 3);
    if ((st = bind_bias(b, i, "attn_q", biased, n_q, &l->attn.q_bias)) != HEARTH_OK ||
        (st = bind_bias(b, i, "attn_k", biased, n_kv, &l->attn.k_bias)) != HEARTH_OK)
        return st;
    return bind_bias(b, i, "attn_v", biased, n_kv, &l->attn.v_bias);
}

/* In parallel, mixer and network share one norm unless the mixer has its own. */
static hearth_status bind_mixer_norm(binder *b, uint32_t i, hth_layer *l)
{
    const hth_arch *a = b->model->hparams.arch;
    if (a->no_pre_norms) return HEARTH_OK;
    bool shares = b->model->hparams.parallel && a->parallel != HTH_PARALLEL_BY_KEY;
    hearth_status st = bind_norm(b, i, "attn_norm", shares ? &l->ffn_norm : &l->mixer_norm);
    if (st != HEARTH_OK || !shares || !find_in_layer(b, i, "attn_norm_2.weight")) return st;
    return bind_norm(b, i, "attn_norm_2", &l->mixer_norm);
}

static hearth_status bind_attention(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t n_q = (size_t)l->attn.n_head * h->d_head;
    hearth_status st;
    if ((st = bind_mixer_norm(b, i, l)) != HEARTH_OK || (st = bind_qkv(b, i, l)) != HEARTH_OK ||
        (st = bind_qk_norm(b, i, "attn_q_norm", l->attn.n_head, &l->attn.q_norm)) != HEARTH_OK ||
        (st = bind_qk_norm(b, i, "attn_k_norm", l->attn.n_head_kv, &l->attn.k_norm)) != HEARTH_OK)
        return st;
    if (h->arch->attn_gate != HTH_ATTN_GATE_NONE) {
        size_t n_gate = h->arch->attn_gate == HTH_ATTN_GATE_HEAD ? l->attn.n_head : n_q;
        st = bind_matrix(b, find_in_layer(b, i, "attn_gate.weight"), n_gate, h->d_model, &l->attn.gate);
        if (st != HEARTH_OK) return st;
    }
    if (h->arch->attn_sinks) {
        st = bind_vector(b, find_in_layer(b, i, "attn_sinks.weight"), l->attn.n_head, &l->attn.sinks);
        if (st != HEARTH_OK) return st;
    }
    bool biased = h->arch->biases == HTH_BIAS_ALL;
    st = bind_linear(b, i, "attn_output", biased, h->d_model, n_q, &l->attn.o, &l->attn.o_bias);
    if (st != HEARTH_OK || !h->arch->post_norms) return st;
    l->mixer_post_norm.eps = l->ffn_post_norm.eps = (float)h->arch->post_norm_eps;
    return bind_norm(b, i, "post_attention_norm", &l->mixer_post_norm);
}

/* A router means that a layer has experts, which contradicts the metadata. */
static hearth_status check_router(binder *b, uint32_t i_layer)
{
    const hth_gguf_tensor *t = find_in_layer(b, i_layer, "ffn_gate_inp.weight");
    if (!t) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is there, but %s.expert_count is 0 or missing",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    b->model->hparams.arch->name);
}

/* The gate of a layer. Either all layers have one or none. */
static hearth_status bind_gate(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    bool first_has = b->model->layers[0].ffn.gate.n_row > 0;
    const hth_gguf_tensor *t = find_in_layer(b, i, "ffn_gate.weight");
    if (t && i > 0 && !first_has) {
        find_in_layer(b, 0, "ffn_gate.weight");
        return missing(b);
    }
    if (t) return bind_linear(b, i, "ffn_gate", false, l->ffn.d_ff, h->d_model, &l->ffn.gate, &l->ffn.gate_bias);
    return h->needs_gate || (i > 0 && first_has) ? missing(b) : HEARTH_OK;
}

/* Gate and up, in two tensors or in one. */
static hearth_status bind_gate_up(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    if (h->arch->fused_gate_up && !find_in_layer(b, i, "ffn_gate.weight")) {
        const part parts[] = {{l->ffn.d_ff, &l->ffn.gate}, {l->ffn.d_ff, &l->ffn.up}};
        hearth_status st = bind_parts(b, find_in_layer(b, i, "ffn_up.weight"), h->d_model, parts, 2);
        if (st != HEARTH_OK) return st;
        return bind_bias_parts(b, find_in_layer(b, i, "ffn_up.bias"), (size_t[]){l->ffn.d_ff, l->ffn.d_ff},
                               (const float **[]){&l->ffn.gate_bias, &l->ffn.up_bias}, 2);
    }
    hearth_status st = bind_gate(b, i, l);
    bool biased = h->arch->biases == HTH_BIAS_ALL;
    return st != HEARTH_OK ? st
                           : bind_linear(b, i, "ffn_up", biased, l->ffn.d_ff, h->d_model, &l->ffn.up, &l->ffn.up_bias);
}

/* True if layer 0 has a tensor. Then all layers must have it. */
static bool first_has(binder *b, const char *name) { return find_in_layer(b, 0, name) != NULL; }

/* Down: rows of outputs or, as in PowerInfer's and packed files, transposed (rows of neurons). */
static hearth_status bind_down(binder *b, uint32_t i, hth_layer *l)
{
    hth_model *m = b->model;
    size_t d = m->hparams.d_model;
    bool biased = m->hparams.arch->biases == HTH_BIAS_ALL;
    if (i == 0)
        m->down_transposed = hth_gguf_is_powerinfer(m->file) ||
                        (!first_has(b, "ffn_down.weight") && first_has(b, "ffn_down_t.weight"));
    if (!m->down_transposed) return bind_linear(b, i, "ffn_down", biased, d, l->ffn.d_ff, &l->ffn.down, &l->ffn.down_bias);
    hth_transposed_down *down = &l->ffn.down_t;
    down->n_summed = hth_n_cluster(l->ffn.d_ff);
    down->scale_max = hth_arena_alloc(&m->arena, down->n_summed, sizeof *down->scale_max, 16);
    if (!down->scale_max) return hth_fail_memory(b->err, down->n_summed * sizeof *down->scale_max, "bounds of neurons");
    hearth_status st = bind_matrix(b, find_in_layer(b, i, "ffn_down_t.weight"), l->ffn.d_ff, d, &down->rows);
    if (st == HEARTH_OK && hth_type_act_block(down->rows.type) == 0 && down->n_summed > HTH_MAX_CHAINS)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tensor '%s' is %s of %u neurons; of more than %d, a transposed down must be quantised",
                        hth_gguf_path(m->file), b->name, hth_type_find(down->rows.type)->name, l->ffn.d_ff,
                        HTH_MAX_CHAINS * HTH_CLUSTER_NEURONS);
    return st != HEARTH_OK ? st : bind_bias(b, i, "ffn_down_t", biased, d, &l->ffn.down_bias);
}

/* The file determines the rank, layer by layer. */
static hearth_status bind_predictor(binder *b, uint32_t i, hth_layer *l)
{
    hth_model *m = b->model;
    hth_predictor *p = &l->ffn.predictor;
    if (i == 0) m->has_predictors = hth_gguf_is_powerinfer(m->file) || first_has(b, "fc1.weight");
    if (!m->has_predictors) return HEARTH_OK;
    const hth_gguf_tensor *in = find_in_layer(b, i, "fc1.weight");
    if (!in) return missing(b);
    if (in->dim[1] < 1 || in->dim[1] > HTH_MAX_RANK)
        return wrong_shape(b, in, m->hparams.d_model, HTH_MAX_RANK);
    hearth_status st = bind_matrix(b, in, in->dim[1], m->hparams.d_model, &p->in);
    if (st == HEARTH_OK)
        st = bind_matrix(b, find_in_layer(b, i, "fc2.weight"), l->ffn.d_ff, p->in.n_row, &p->out);
    if (p->in.n_row > m->hparams.rank) m->hparams.rank = (uint32_t)p->in.n_row;
    return st != HEARTH_OK ? st : bind_bias(b, i, "fc2", false, l->ffn.d_ff, &p->bias);
}

static hearth_status bind_floor(binder *b, uint32_t i, hth_layer *l)
{
    if (i == 0) b->model->has_thresholds = first_has(b, "ffn_floor.weight");
    if (!b->model->has_thresholds) return HEARTH_OK;
    hearth_status st = bind_vector(b, find_in_layer(b, i, "ffn_floor.weight"), l->ffn.d_ff, &l->ffn.thresholds);
    if (st == HEARTH_OK) b->model->bindings[b->model->n_binding - 1].must_be_nonneg = true;
    return st;
}

/* The original index of each neuron before packing. No computation uses it, but it must be a permutation
 * (check_order in engine/load.c). */
static hearth_status bind_order(binder *b, uint32_t i, hth_layer *l)
{
    const hth_gguf_tensor *t = find_in_layer(b, i, "ffn_order");
    if (!t) return HEARTH_OK;
    if (t->type != HTH_TYPE_I32)
        return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' (info at byte %llu) has type %s, expected I32",
                        hth_gguf_part_path(b->model->file, t->i_part), b->name,
                        (unsigned long long)t->info_at, hth_type_find((uint32_t)t->type)->name);
    if (t->dim[0] != l->ffn.d_ff || t->dim[1] != 1 || t->dim[2] != 1 || t->dim[3] != 1)
        return wrong_shape(b, t, l->ffn.d_ff, 1);
    l->ffn.order = t;
    note_used(b->model, t);
    return HEARTH_OK;
}

/* ---- experts ------------------------------------------------------------------------ */

static hearth_status bind_router(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_expert_sizes *e = &h->experts;
    hth_router *r = &l->experts.router;
    *r = (hth_router){.n_expert = e->n_expert,
                      .n_used = e->n_used,
                      .n_group = e->n_group,
                      .n_group_used = e->n_group_used,
                      .score = e->score,
                      .normalise = e->normalise,
                      .scale = e->scale,
                      .reads_layer_input = h->arch->experts.routes_layer_input};
    hearth_status st =
        bind_vectors(b, find_in_layer(b, i, "ffn_gate_inp.weight"), h->d_model, e->n_expert, &r->weight);
    if (st == HEARTH_OK) st = bind_bias(b, i, "ffn_gate_inp", h->arch->experts.biased, e->n_expert, &r->bias);
    if (st != HEARTH_OK || !h->arch->experts.select_bias) return st;
    const hth_gguf_tensor *bare = find_in_layer(b, i, "exp_probs_b"); /* some converters write it without a suffix */
    if (bare) return bind_vector(b, bare, e->n_expert, &r->select_bias);
    return bind_bias(b, i, "exp_probs_b", false, e->n_expert, &r->select_bias);
}

/* One of the three matrices of all experts, and its bias. */
static hearth_status bind_expert_matrix(binder *b, uint32_t i, const char *name, size_t n_row, size_t n_col,
                                        hth_matrix *m, const float **bias)
{
    const hth_hparams *h = &b->model->hparams;
    char full[48];
    snprintf(full, sizeof full, "%s.weight", name);
    hearth_status st = bind_slices(b, find_in_layer(b, i, full), h->experts.n_expert, n_row, n_col, m);
    if (st != HEARTH_OK || !h->arch->experts.biased) return st;
    snprintf(full, sizeof full, "%s.bias", name);
    return bind_vectors(b, find_in_layer(b, i, full), n_row, h->experts.n_expert, bias);
}

/* Gate and up, in two tensors or in one. Slices of the joined one are halves of experts. */
static hearth_status bind_expert_halves(binder *b, uint32_t i, hth_experts *e)
{
    size_t d = b->model->hparams.d_model, f = e->d_ff, n = b->model->hparams.experts.n_expert;
    const hth_gguf_tensor *joined = find_in_layer(b, i, "ffn_gate_up_exps.weight");
    if (joined) {
        hearth_status st = bind_slices(b, joined, n, 2 * f, d, &e->gate);
        e->gate.n_slice = 2 * n;
        return st;
    }
    hearth_status st = bind_expert_matrix(b, i, "ffn_gate_exps", f, d, &e->gate, &e->gate_bias);
    return st != HEARTH_OK ? st : bind_expert_matrix(b, i, "ffn_up_exps", f, d, &e->up, &e->up_bias);
}

static hearth_status bind_shared_expert(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_model, f = h->experts.d_ff_shared;
    hth_ffn *shared = &l->experts.shared;
    hearth_status st;
    if (f == 0) return HEARTH_OK;
    shared->d_ff = (uint32_t)f;
    if ((st = bind_matrix(b, find_in_layer(b, i, "ffn_gate_shexp.weight"), f, d, &shared->gate)) != HEARTH_OK ||
        (st = bind_matrix(b, find_in_layer(b, i, "ffn_up_shexp.weight"), f, d, &shared->up)) != HEARTH_OK ||
        (st = bind_matrix(b, find_in_layer(b, i, "ffn_down_shexp.weight"), d, f, &shared->down)) != HEARTH_OK)
        return st;
    if (!h->arch->experts.shared_gated) return HEARTH_OK;
    return bind_vector(b, find_in_layer(b, i, "ffn_gate_inp_shexp.weight"), d, &l->experts.shared_gate);
}

static hearth_status bind_experts(binder *b, uint32_t i, hth_layer *l)
{
    size_t d = b->model->hparams.d_model, f = b->model->hparams.experts.d_ff;
    hth_experts *e = &l->experts;
    hearth_status st;
    e->d_ff = (uint32_t)f;
    if ((st = bind_router(b, i, l)) != HEARTH_OK ||
        (st = bind_expert_halves(b, i, e)) != HEARTH_OK ||
        (st = bind_expert_matrix(b, i, "ffn_down_exps", d, f, &e->down, &e->down_bias)) != HEARTH_OK)
        return st;
    return bind_shared_expert(b, i, l);
}

static hearth_status bind_ffn(binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const char *norm = h->arch->ffn_norm ? h->arch->ffn_norm : "ffn_norm";
    bool has_norm = !h->arch->no_pre_norms && (!h->parallel || h->arch->parallel == HTH_PARALLEL_BY_KEY);
    hearth_status st = has_norm ? bind_norm(b, i, norm, &l->ffn_norm) : HEARTH_OK;
    if (st != HEARTH_OK) return st;
    if (l->network == HTH_NETWORK_EXPERTS) {
        if ((st = bind_experts(b, i, l)) != HEARTH_OK || !h->arch->post_norms) return st;
        return bind_norm(b, i, "post_ffw_norm", &l->ffn_post_norm);
    }
    if (!h->arch->experts.ignored && (st = check_router(b, i)) != HEARTH_OK) return st;
    if ((st = bind_gate_up(b, i, l)) != HEARTH_OK) return st;
    if ((st = bind_down(b, i, l)) != HEARTH_OK || (st = bind_predictor(b, i, l)) != HEARTH_OK ||
        (st = bind_floor(b, i, l)) != HEARTH_OK || (st = bind_order(b, i, l)) != HEARTH_OK)
        return st;
    return h->arch->post_norms ? bind_norm(b, i, "post_ffw_norm", &l->ffn_post_norm) : HEARTH_OK;
}

/* ---- the whole model ------------------------------------------------------------ */

static hearth_status allocate(binder *b)
{
    hth_model *m = b->model;
    size_t n = (size_t)m->hparams.n_layer * BINDINGS_PER_LAYER + BINDINGS_BESIDES;
    m->layers = hth_arena_alloc(&m->arena, m->hparams.n_layer, sizeof *m->layers, 64);
    m->bindings = hth_arena_alloc(&m->arena, n, sizeof *m->bindings, 16);
    m->used = hth_arena_alloc(&m->arena, hth_gguf_n_tensor(m->file) + 1, sizeof *m->used, 1);
    m->ones = hth_arena_alloc(&m->arena, m->hparams.d_model, sizeof *m->ones, 64);
    for (uint32_t i = 0; m->ones && i < m->hparams.d_model; i++) m->ones[i] = 1.0f;
    if (m->layers && m->bindings && m->used && m->ones) return HEARTH_OK;
    return hth_fail_memory(b->err, n * sizeof *m->bindings, "the layers of a model");
}

/* Layers beyond those of the metadata: block_count is probably wrong. */
static hearth_status check_block_count(binder *b)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_gguf_tensor *t = find_in_layer(b, h->n_layer, "attn_norm.weight");
    if (!t) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is there, but %s.block_count is %u",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    h->arch->name, h->n_layer);
}

/* Prefixes of tensor names that supported files may contain although no logit depends on them. */
static const struct {
    const char *prefix, *why;
} harmless[] = {
    {"v.", "the image encoder, which some files bundle"},
    {"mm.", "the projector of images, likewise"},
    {"cls.", "a classifier in place of the output matrix"},
    {"dense_2.", "a projection of embeddings behind the last layer"},
    {"dense_3.", "the same"},
};

/* Suffix of tensor names: rotation tables from old converters, which are computed instead. */
static const char rotation_table[] = ".attn_rot_embd.weight";

static bool is_harmless(const hth_arch *arch, hth_str name)
{
    char text[64];
    size_t n = sizeof rotation_table - 1;
    snprintf(text, sizeof text, "%.*s", (int)(name.n < sizeof text ? name.n : 0), name.bytes);
    if (is_ignored(arch, text)) return true;
    if (name.n > n && memcmp(name.bytes + name.n - n, rotation_table, n) == 0) return true;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        n = strlen(harmless[i].prefix);
        if (name.n >= n && memcmp(name.bytes, harmless[i].prefix, n) == 0) return true;
    }
    return false;
}

/* A tensor that is not read would be missing from the computation, because the file's author had a use for it. */
static hearth_status check_unused(binder *b, bool allowed)
{
    const hth_model *m = b->model;
    const hth_gguf_tensor *first = NULL;
    size_t n = 0;
    char name[80];
    for (size_t i = 0; m->n_tensor < hth_gguf_n_tensor(m->file) && i < hth_gguf_n_tensor(m->file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(m->file, i);
        if (m->used[i] || is_harmless(m->hparams.arch, t->name)) continue;
        if (n++ == 0) first = t;
    }
    if (n == 0) return HEARTH_OK;
    hth_escape(name, sizeof name, first->name.bytes, first->name.n);
    if (!allowed)
        return hth_fail(
            b->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: tensor '%s' (info at byte %llu) is not used by architecture %s (%zu such tensors): "
            "without it results would be wrong; --allow-unused goes on all the same",
            hth_gguf_part_path(m->file, first->i_part), name, (unsigned long long)first->info_at,
            m->hparams.arch->name, n);
    hth_log(HEARTH_LOG_WARN,
            "%s: %zu of %zu tensors are not used by architecture %s, among them '%s': results may be wrong",
            hth_gguf_path(m->file), n, hth_gguf_n_tensor(m->file), m->hparams.arch->name, name);
    return HEARTH_OK;
}

static hearth_status decide_parallel(binder *b)
{
    hth_hparams *h = &b->model->hparams;
    char key[80];
    snprintf(key, sizeof key, "%s.use_parallel_residual", h->arch->name);
    h->parallel = h->arch->parallel == HTH_PARALLEL_ALWAYS ||
                  (h->arch->parallel == HTH_PARALLEL_BY_TENSORS && !find_in_layer(b, 0, "ffn_norm.weight"));
    if (h->arch->parallel != HTH_PARALLEL_BY_KEY) return HEARTH_OK;
    bool found;
    hearth_status st = hth_gguf_get_bool(b->model->file, key, &h->parallel, &found, b->err);
    if (st != HEARTH_OK || found) return st;
    return hth_gguf_missing(b->model->file, key, "architecture gptneox", b->err);
}

/* Slopes by which scores fall with distance (Press et al. 2022): for n heads, n a power of two, 2^(-b (i + 1) / n),
 * where b is the largest exponent; further heads lie between the first ones. */
static hearth_status make_slopes(binder *b, hth_attention *a)
{
    double largest = (double)b->model->hparams.alibi;
    if (largest == 0.0) return HEARTH_OK;
    float *slopes = hth_arena_alloc(&b->model->arena, a->n_head, sizeof *slopes, 16);
    if (!slopes) return hth_fail_memory(b->err, a->n_head * sizeof *slopes, "slopes of heads");
    uint32_t n = 1;
    while (2 * n <= a->n_head) n *= 2;
    for (uint32_t i = 0; i < a->n_head; i++) {
        double exponent = i < n ? largest * (i + 1) / n : largest / 2 * (2.0 * (i - n) + 1) / n;
        slopes[i] = (float)hth_pow_d(2.0, -exponent);
    }
    a->slopes = slopes;
    return HEARTH_OK;
}

static hearth_status bind_all(binder *b, const hth_layer_sizes *sizes)
{
    hth_model *m = b->model;
    hearth_status st;
    if ((st = allocate(b)) != HEARTH_OK) return st;
    if ((st = check_block_count(b)) != HEARTH_OK) return st;
    if ((st = decide_parallel(b)) != HEARTH_OK) return st;
    if ((st = bind_embedding(b)) != HEARTH_OK) return st;
    if (m->hparams.arch->embedding_norm == HTH_EMBEDDING_NORM_PLAIN) m->embedding_norm.weight = m->ones;
    if (m->hparams.arch->embedding_norm == HTH_EMBEDDING_NORM && (st = bind_outer_norm(b, "token_embd_norm", &m->embedding_norm)) != HEARTH_OK)
        return st;
    if ((st = bind_positions(b)) != HEARTH_OK) return st;
    if ((st = bind_rope_factors(b)) != HEARTH_OK) return st;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        hth_layer *l = &m->layers[i];
        l->attn.n_head = sizes[i].n_head, l->attn.n_head_kv = sizes[i].n_head_kv;
        l->ffn.d_ff = sizes[i].d_ff, l->attn.window = sizes[i].window, l->attn.rotates = sizes[i].rotates;
        l->network = sizes[i].has_experts ? HTH_NETWORK_EXPERTS : HTH_NETWORK_DENSE;
        if ((st = bind_attention(b, i, l)) != HEARTH_OK) return st;
        if ((st = make_slopes(b, &l->attn)) != HEARTH_OK) return st;
        if ((st = bind_ffn(b, i, l)) != HEARTH_OK) return st;
    }
    return bind_head(b);
}

hearth_status hth_model_open(const hth_gguf *file, const hth_model_overrides *overrides, hth_model **out,
                             hearth_error *err)
{
    *out = NULL;
    hth_model *m = hth_alloc(1, sizeof *m);
    if (!m) return hth_fail_memory(err, sizeof *m, "a model");
    m->file = file;
    binder b = {.model = m, .err = err};
    hth_layer_sizes *sizes = NULL;
    hearth_status st = hth_model_read_hparams(file, overrides, &m->arena, &m->hparams, &sizes, err);
    if (st == HEARTH_OK) st = hth_model_check_metadata(file, err);
    if (st == HEARTH_OK) st = bind_all(&b, sizes);
    if (st == HEARTH_OK) st = hth_model_read_sparsity(m, err);
    if (st == HEARTH_OK) st = check_unused(&b, overrides->allow_unused);
    if (st != HEARTH_OK) {
        hth_model_close(m);
        return st;
    }
    *out = m;
    return HEARTH_OK;
}

void hth_model_close(hth_model *model)
{
    if (!model) return;
    hth_arena_free(&model->arena);
    hth_free(model);
}
