/* Binds tensors by name: finds every tensor that the architecture needs, checks its type and shape against the
 * hyper-parameters, and lists the destinations of its weights. Optional tensors that are absent stay NULL or empty. */
#include "base/log.h"
#include "kernels/vector/math.h"
#include "model/bind_int.h"
#include "model/program.h"

#include <hearth/embed.h>
#include <stdio.h>
#include <string.h>

enum { MAX_VOCAB = 4194304, MAX_POSITION = 16777216 };

/* ---- the parts of a model ------------------------------------------------------ */

/* The embedding determines the size of the vocabulary. The metadata must not state more tokens. */
static hearth_status bind_embedding(hth_binder *b)
{
    hth_model *m = b->model;
    const hth_gguf_tensor *t = hth_bind_find(b, "token_embd.weight");
    if (!t) return hth_bind_missing(b);
    if (t->dim[1] < 1 || t->dim[1] > MAX_VOCAB)
        return hth_bind_wrong_shape(b, t, m->hparams.d_model, MAX_VOCAB);
    m->hparams.n_vocab = (uint32_t)t->dim[1];
    hearth_status st = hth_bind_matrix(b, t, m->hparams.n_vocab, m->hparams.d_model, &m->token_embd);
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
static hearth_status bind_positions(hth_binder *b)
{
    hth_model *m = b->model;
    hth_hparams *h = &m->hparams;
    uint32_t offset = h->arch->position_offset;
    if (!h->arch->learned_positions) return HEARTH_OK;
    const hth_gguf_tensor *t = hth_bind_find(b, "position_embd.weight");
    if (!t && h->arch->positions_optional) return HEARTH_OK;
    if (!t) return hth_bind_missing(b);
    if (t->dim[1] <= offset || t->dim[1] > MAX_POSITION)
        return hth_bind_wrong_shape(b, t, h->d_model, h->n_ctx_train + (uint64_t)offset);
    h->n_position = (uint32_t)t->dim[1] - offset;
    if (h->n_ctx_train > h->n_position) h->n_ctx_train = h->n_position;
    return hth_bind_matrix(b, t, t->dim[1], h->d_model, &m->position_embd);
}

/* The divisors of the rotation angles. */
static hearth_status bind_rope_factors(hth_binder *b)
{
    hth_model *m = b->model;
    const hth_hparams *h = &m->hparams;
    if (h->arch->factors == HTH_FACTORS_BY_CONTEXT) {
        if (h->rope.scaling != HTH_SCALING_LONGROPE && !hth_bind_find(b, "rope_factors_long.weight") &&
            !hth_bind_find(b, "rope_factors_short.weight"))
            return HEARTH_OK;
        hearth_status st =
            hth_bind_divisors(b, hth_bind_find(b, "rope_factors_short.weight"), &m->rope_factors);
        if (st != HEARTH_OK) return st;
        return hth_bind_divisors(b, hth_bind_find(b, "rope_factors_long.weight"), &m->rope_factors_long);
    }
    const hth_gguf_tensor *t = hth_bind_find(b, "rope_freqs.weight");
    if (t && h->rope.n_rot == 0) hth_bind_note_used(m, t);
    if (h->rope.n_rot == 0) return HEARTH_OK;
    return t && h->arch->factors == HTH_FACTORS_ONE ? hth_bind_divisors(b, t, &m->rope_factors) : HEARTH_OK;
}

static hearth_status bind_head(hth_binder *b)
{
    hth_model *m = b->model;
    size_t d_model = m->hparams.d_model;
    const char *norm = m->hparams.arch->output_norm ? m->hparams.arch->output_norm : "output_norm";
    hearth_status st = hth_bind_outer_norm(b, norm, &m->output_norm);
    if (st != HEARTH_OK) return st;
    const hth_gguf_tensor *t = hth_bind_find(b, "output.weight");
    m->tied = t == NULL;
    if (t) st = hth_bind_matrix(b, t, m->hparams.n_vocab, d_model, &m->output);
    t = hth_bind_is_ignored(m->hparams.arch, "output.bias") ? NULL : hth_bind_find(b, "output.bias");
    return st == HEARTH_OK && t ? hth_bind_vector(b, t, m->hparams.n_vocab, &m->output_bias) : st;
}

/* The head of a reranker. The softmax of a single class would be 1 for all texts: such a head is left alone. */
static hearth_status bind_rank_head(hth_binder *b)
{
    hth_model *m = b->model;
    char key[80];
    const hth_gguf_tensor *t = m->hparams.arch->ranks ? hth_bind_find(b, "cls.output.weight") : NULL;
    if (!t) return HEARTH_OK;
    snprintf(key, sizeof key, "%s.classifier.output_labels", m->hparams.architecture);
    const hth_gguf_value *labels = hth_gguf_find(m->file, key);
    uint64_t n_class = labels && labels->type == HTH_GGUF_ARRAY ? labels->n_element : t->dim[1];
    if (n_class < 2) return HEARTH_OK;
    if (n_class > MAX_VOCAB) return hth_bind_wrong_shape(b, t, m->hparams.d_model, n_class);
    m->n_class = (uint32_t)n_class;
    return hth_bind_vectors(b, t, m->hparams.d_model, n_class, &m->rank_head);
}

/* Queries, keys and values, in three tensors or in one. The same holds for their biases. */
static hearth_status bind_qkv(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    l->attn.q_has_gate = h->arch->attn_gate == HTH_ATTN_GATE_IN_Q;
    size_t d = h->d_model, n_q = (size_t)l->attn.n_head * l->attn.d_head * (l->attn.q_has_gate ? 2 : 1),
           n_kv = (size_t)l->attn.n_head_kv * l->attn.d_head,
           n_v = l->attn.d_value > 0 ? (size_t)l->attn.n_head_kv * l->attn.d_value : n_kv;
    bool biased = h->arch->biases != HTH_BIAS_OPTIONAL;
    const struct {
        const char *name;
        hth_bind_part part;
        const float **bias;
    } all[] = {{"attn_q", {n_q, &l->attn.q}, &l->attn.q_bias},
               {"attn_k", {n_kv, &l->attn.k}, &l->attn.k_bias},
               {"attn_v", {n_v, &l->attn.v}, &l->attn.v_bias}};
    const hth_gguf_tensor *joined = hth_bind_find_in_layer(b, i, "attn_qkv.weight");
    const hth_gguf_tensor *apart = hth_bind_find_in_layer(b, i, "attn_q.weight");
    hearth_status st = HEARTH_OK;
    if (!joined && !apart)
        return hth_fail(
            b->err, HEARTH_ERROR_FORMAT,
            "%s: tensor '%s' is missing, and so is 'blk.%u.attn_qkv.weight' (one is needed by architecture "
            "%s)",
            hth_gguf_path(b->model->file), b->name, b->first_block + i, h->arch->name);
    bool shares = l->attn.kv_layer != i;
    l->attn.values_are_keys =
        h->arch->values_are_keys && !shares && apart && !hth_bind_find_in_layer(b, i, "attn_v.weight");
    int n_part = shares ? 1 : l->attn.values_are_keys ? 2 : 3;
    for (int k = 0; apart && st == HEARTH_OK && k < n_part; k++)
        st = hth_bind_linear(b, i, all[k].name, biased, all[k].part.n_row, d, all[k].part.matrix, all[k].bias);
    if (apart) return st;
    hth_bind_find_in_layer(b, i, "attn_qkv.weight"); /* sets the name for messages */
    st = hth_bind_parts(b, joined, d, (hth_bind_part[]){all[0].part, all[1].part, all[2].part}, 3);
    bool ignored = hth_bind_is_ignored(h->arch, "attn_qkv.bias");
    const hth_gguf_tensor *bias = ignored ? NULL : hth_bind_find_in_layer(b, i, "attn_qkv.bias");
    if (bias && st == HEARTH_OK)
        return hth_bind_bias_parts(b, bias, (size_t[]){n_q, n_kv, n_v},
                                   (const float **[]){all[0].bias, all[1].bias, all[2].bias}, 3);
    for (int k = 0; st == HEARTH_OK && k < 3; k++)
        st = hth_bind_bias(b, i, all[k].name, biased, all[k].part.n_row, all[k].bias);
    return st;
}

/* In parallel, mixer and network share one norm unless the mixer has its own. */
static hearth_status bind_mixer_norm(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_arch *a = b->model->hparams.arch;
    if (a->no_pre_norms) return HEARTH_OK;
    bool shares = b->model->hparams.parallel && a->parallel != HTH_PARALLEL_BY_KEY;
    hearth_status st = hth_bind_norm(b, i, "attn_norm", shares ? &l->ffn_norm : &l->mixer_norm);
    if (st != HEARTH_OK || !shares || !hth_bind_find_in_layer(b, i, "attn_norm_2.weight")) return st;
    return hth_bind_norm(b, i, "attn_norm_2", &l->mixer_norm);
}

/* The norm of queries or keys of n_head heads. */
static hearth_status bind_qk_norm(hth_binder *b, uint32_t i, const char *name, uint32_t n_head,
                                  hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = b->model->layers[i].attn.d_head, n = h->arch->qk_norm == HTH_QK_NORM_ALL ? n_head * d : d;
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    if (h->arch->qk_norm_plain) {
        bool normed = b->model->layers[i].attn.rotates && h->experts.n_expert != 128;
        norm->weight = normed ? b->model->ones : NULL;
        return HEARTH_OK;
    }
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, weight);
    if (h->arch->qk_norm == HTH_QK_NORM_FACTOR) {
        norm->weight = b->model->ones;
        return norm == &b->model->layers[i].attn.q_norm ? hth_bind_vectors(b, t, 1, n_head, &norm->weight) : HEARTH_OK;
    }
    if (h->arch->qk_norm == HTH_QK_NORM_NONE || (!t && h->arch->qk_norm_optional)) return HEARTH_OK;
    return hth_bind_vectors(b, t, n, h->arch->qk_norm == HTH_QK_NORM_EACH ? n_head : 1, &norm->weight);
}

/* Slopes by which scores fall with distance (Press et al. 2022): for n heads, n a power of two, 2^(-b (i + 1) / n),
 * where b is the largest exponent; further heads lie between the first ones. */
static hearth_status make_slopes(hth_binder *b, hth_attention *a)
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

static hearth_status bind_attention(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t n_q = (size_t)l->attn.n_head * l->attn.d_head;
    hearth_status st;
    if ((st = bind_qkv(b, i, l)) != HEARTH_OK ||
        (st = bind_qk_norm(b, i, "attn_q_norm", l->attn.n_head, &l->attn.q_norm)) != HEARTH_OK ||
        (l->attn.kv_layer == i &&
         (st = bind_qk_norm(b, i, "attn_k_norm", l->attn.n_head_kv, &l->attn.k_norm)) != HEARTH_OK))
        return st;
    if (h->arch->attn_gate != HTH_ATTN_GATE_NONE && !l->attn.q_has_gate) {
        const hth_gguf_tensor *gate = hth_bind_find_in_layer(b, i, "attn_gate.weight");
        bool by_head = h->arch->attn_gate == HTH_ATTN_GATE_HEAD ||
                       (h->arch->attn_gate == HTH_ATTN_GATE_BY_SHAPE && gate && gate->dim[1] != n_q);
        st = hth_bind_matrix(b, gate, by_head ? l->attn.n_head : n_q, h->d_model, &l->attn.gate);
        if (st != HEARTH_OK) return st;
    }
    bool has_sinks = !h->arch->attn_sinks_optional || hth_bind_find_in_layer(b, i, "attn_sinks.weight");
    if (h->arch->attn_sinks && has_sinks) {
        st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_sinks.weight"), l->attn.n_head,
                             &l->attn.sinks);
        if (st != HEARTH_OK) return st;
    }
    bool biased = h->arch->biases == HTH_BIAS_ALL;
    if (l->attn.d_value > 0) n_q = (size_t)l->attn.n_head * l->attn.d_value;
    st = hth_bind_linear(b, i, "attn_output", biased, h->d_model, n_q, &l->attn.o, &l->attn.o_bias);
    return st == HEARTH_OK ? make_slopes(b, &l->attn) : st;
}

static hearth_status bind_mixer(hth_binder *b, uint32_t i, const hth_layer_sizes *sizes, hth_layer *l)
{
    bool recurrent = sizes->recurrent;
    const hth_arch *a = b->model->hparams.arch;
    bool attends = !recurrent || a->recurrent.parallel_mixer;
    hearth_status st = bind_mixer_norm(b, i, l);
    l->attn.has_temperature = a->temperature != HTH_TEMPERATURE_UNROTATED || !l->attn.rotates;
    if (st == HEARTH_OK && a->compressed) st = hth_bind_compressed(b, i, sizes->block, l);
    else if (st == HEARTH_OK && attends) st = a->latent ? hth_bind_latent(b, i, l) : bind_attention(b, i, l);
    if (st == HEARTH_OK && recurrent) st = hth_bind_recurrent(b, i, attends ? &l->parallel_mixer : &l->mixer, l);
    if (st != HEARTH_OK || !a->post_norms) return st;
    l->mixer_post_norm.eps = l->ffn_post_norm.eps = (float)a->post_norm_eps;
    return hth_bind_norm(b, i, a->mixer_post_norm ? a->mixer_post_norm : "post_attention_norm", &l->mixer_post_norm);
}

/* ---- the whole model ------------------------------------------------------------ */

hearth_status hth_bind_allocate(hth_binder *b)
{
    hth_model *m = b->model;
    size_t n = (size_t)m->hparams.n_layer * HTH_BINDINGS_PER_LAYER + HTH_BINDINGS_BESIDES;
    m->layers = hth_arena_alloc(&m->arena, m->hparams.n_layer, sizeof *m->layers, 64);
    m->bindings = hth_arena_alloc(&m->arena, n, sizeof *m->bindings, 16);
    m->used = hth_arena_alloc(&m->arena, hth_gguf_n_tensor(m->file) + 1, sizeof *m->used, 1);
    const hth_hparams *h = &m->hparams;
    const uint32_t widths[] = {h->d_model, h->n_stream * h->d_model, h->d_head, h->d_head_window, h->recurrent.d_state,
                               h->recurrent.dt_rank};
    uint32_t n_one = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) n_one = widths[i] > n_one ? widths[i] : n_one;
    m->ones = hth_arena_alloc(&m->arena, n_one, sizeof *m->ones, 64);
    for (uint32_t i = 0; m->ones && i < n_one; i++) m->ones[i] = 1.0f;
    b->d_head = h->d_head;
    if (h->d_head_window > h->d_head) m->hparams.d_head = h->d_head_window;
    if (m->layers && m->bindings && m->used && m->ones) return HEARTH_OK;
    return hth_fail_memory(b->err, n * sizeof *m->bindings, "the layers of a model");
}

/* Layers beyond those of the metadata: block_count is probably wrong. */
static hearth_status check_block_count(hth_binder *b)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, h->n_block, "attn_norm.weight");
    if (!t) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is there, but %s.block_count is %u",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    h->arch->name, h->n_block);
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

/* Blocks behind the layers predict further tokens. */
static bool is_of_later_block(const hth_hparams *h, const char *name)
{
    unsigned i = 0;
    return sscanf(name, "blk.%u.", &i) == 1 && i >= h->n_layer && i < h->n_block;
}

static bool is_harmless(const hth_hparams *h, hth_str name)
{
    char text[64];
    size_t n = sizeof rotation_table - 1;
    snprintf(text, sizeof text, "%.*s", (int)(name.n < sizeof text ? name.n : 0), name.bytes);
    if (hth_bind_is_ignored(h->arch, text) || is_of_later_block(h, text)) return true;
    if (name.n > n && memcmp(name.bytes + name.n - n, rotation_table, n) == 0) return true;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        n = strlen(harmless[i].prefix);
        if (name.n >= n && memcmp(name.bytes, harmless[i].prefix, n) == 0) return true;
    }
    return false;
}

/* A tensor that is not read would be missing from the computation, because the file's author had a use for it. */
static hearth_status check_unused(hth_binder *b, bool allowed)
{
    const hth_model *m = b->model;
    const hth_gguf_tensor *first = NULL;
    size_t n = 0;
    char name[80];
    for (size_t i = 0; m->n_tensor < hth_gguf_n_tensor(m->file) && i < hth_gguf_n_tensor(m->file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(m->file, i);
        if (m->used[i] || is_harmless(&m->hparams, t->name)) continue;
        if (n++ == 0) first = t;
    }
    if (n == 0) return HEARTH_OK;
    hth_escape(name, sizeof name, first->name.bytes, first->name.n);
    if (!allowed)
        return hth_fail(
            b->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: tensor '%s' (info at byte %llu) is not used by architecture %s (%zu such tensors): "
            "without it results would be wrong; hearth_model_options.allow_unused goes on all the same",
            hth_gguf_part_path(m->file, first->i_part), name, (unsigned long long)first->info_at,
            m->hparams.architecture, n);
    hth_log(HEARTH_LOG_WARN,
            "%s: %zu of %zu tensors are not used by architecture %s, among them '%s': results may be wrong",
            hth_gguf_path(m->file), n, hth_gguf_n_tensor(m->file), m->hparams.architecture, name);
    return HEARTH_OK;
}

static hearth_status decide_parallel(hth_binder *b)
{
    hth_hparams *h = &b->model->hparams;
    char key[80];
    snprintf(key, sizeof key, "%s.use_parallel_residual", h->arch->name);
    h->parallel =
        h->arch->parallel == HTH_PARALLEL_ALWAYS ||
        (h->arch->parallel == HTH_PARALLEL_BY_TENSORS && !hth_bind_find_in_layer(b, 0, "ffn_norm.weight"));
    if (h->arch->parallel != HTH_PARALLEL_BY_KEY) return HEARTH_OK;
    bool found;
    hearth_status st = hth_gguf_get_bool(b->model->file, key, &h->parallel, &found, b->err);
    if (st != HEARTH_OK || found) return st;
    char why[80];
    snprintf(why, sizeof why, "architecture %s", h->arch->name);
    return hth_gguf_missing(b->model->file, key, why, b->err);
}

/* The layers behind n_layer_kv read the cache of the last one before it of their kind. */
static hearth_status choose_cache(hth_binder *b, uint32_t i)
{
    const hth_hparams *h = &b->model->hparams;
    hth_attention *a = &b->model->layers[i].attn;
    uint32_t back = a->window > 0 ? 2 : 1;
    a->kv_layer = i;
    if (i < h->n_layer_kv) return HEARTH_OK;
    a->kv_layer = h->n_layer_kv - (back < h->n_layer_kv ? back : h->n_layer_kv);
    const hth_attention *from = &b->model->layers[a->kv_layer].attn;
    if (from->window == a->window && from->n_head_kv == a->n_head_kv && from->d_head == a->d_head) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: by %s.attention.shared_kv_layers, layer %u reads keys and values of layer %u, whose window or "
                    "heads differ",
                    hth_gguf_path(b->model->file), h->arch->name, i, a->kv_layer);
}

static hearth_status bind_layer_embeddings(hth_binder *b)
{
    hth_model *m = b->model;
    size_t d = m->hparams.d_layer_embd, n = d * m->hparams.n_layer;
    if (d == 0) return HEARTH_OK;
    hearth_status st = hth_bind_matrix(b, hth_bind_find(b, "per_layer_token_embd.weight"), m->hparams.n_vocab,
                                       n, &m->layer_embd);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find(b, "per_layer_model_proj.weight"), n, m->hparams.d_model, &m->layer_proj);
    if (st != HEARTH_OK) return st;
    return hth_bind_vector(b, hth_bind_find(b, "per_layer_proj_norm.weight"), d, &m->layer_proj_norm);
}

/* Binds the tensors that apply after the network: the layer's embedding, and a scale. */
static hearth_status bind_end_of_layer(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    size_t d = h->d_layer_embd;
    hth_layer_embedding *e = &l->embedding;
    hearth_status st = HEARTH_OK;
    if (d > 0 && ((st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "inp_gate.weight"), d, h->d_model,
                                        &e->gate)) != HEARTH_OK ||
                  (st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "proj.weight"), h->d_model, d,
                                        &e->proj)) != HEARTH_OK ||
                  (st = hth_bind_norm(b, i, "post_norm", &e->norm)) != HEARTH_OK))
        return st;
    const hth_gguf_tensor *scale = hth_bind_find_in_layer(b, i, "layer_output_scale.weight");
    if (h->arch->adds_embedding) return hth_bind_vector(b, scale, 1, &l->embedding_scale);
    return h->arch->layer_scale && scale ? hth_bind_vector(b, scale, 1, &l->output_scale) : HEARTH_OK;
}

/* Whether a layer with experts has a dense network too, of an architecture that may have both. */
static bool has_dense(hth_binder *b, uint32_t i, const hth_expert_rule *rule)
{
    if (!rule->dense_residual_optional) return true;
    return hth_bind_find_in_layer(b, i, "ffn_gate.weight") || hth_bind_find_in_layer(b, i, "ffn_up.weight") ||
           hth_bind_find_in_layer(b, i, "ffn_down.weight");
}

hearth_status hth_bind_layer(hth_binder *b, uint32_t i, const hth_layer_sizes *sizes)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_expert_rule *rule = &h->arch->experts;
    hth_layer *l = &b->model->layers[i];
    hearth_status st;
    b->layer = i;
    l->attn.n_head = sizes->n_head, l->attn.n_head_kv = sizes->n_head_kv;
    l->ffn.d_ff = sizes->d_ff, l->attn.window = sizes->window, l->attn.rotates = sizes->rotates;
    l->attn.chunk = sizes->chunk, l->attn.d_value = h->d_value;
    bool routed =
        sizes->has_experts && (!rule->by_tensors || hth_bind_find_in_layer(b, i, "ffn_gate_inp.weight"));
    l->network = !routed                                       ? HTH_NETWORK_DENSE
                 : rule->dense_residual && has_dense(b, i, rule) ? HTH_NETWORK_BOTH
                                                               : HTH_NETWORK_EXPERTS;
    if (l->network == HTH_NETWORK_EXPERTS) l->ffn.d_ff = 0;
    l->attn.d_head = l->attn.window > 0 ? h->d_head_window : b->d_head;
    if ((st = choose_cache(b, i)) != HEARTH_OK) return st;
    l->parallel_mixer = HTH_MIXER_NONE;
    if (sizes->no_mixer) l->mixer = HTH_MIXER_NONE;
    else if ((st = bind_mixer(b, i, sizes, l)) != HEARTH_OK) return st;
    if (sizes->no_network) l->network = HTH_NETWORK_NONE;
    else if ((st = hth_bind_ffn(b, i, l)) != HEARTH_OK) return st;
    if (h->n_stream > 0 && (st = hth_bind_connections(b, i, l)) != HEARTH_OK) return st;
    if ((st = bind_end_of_layer(b, i, l)) != HEARTH_OK) return st;
    l->experts.limit = sizes->limit, l->experts.shared_limit = sizes->shared_limit;
    return HEARTH_OK;
}

static hearth_status bind_all(hth_binder *b, const hth_layer_sizes *sizes)
{
    hth_model *m = b->model;
    hearth_status st;
    b->layer = m->hparams.n_layer;
    if ((st = hth_bind_allocate(b)) != HEARTH_OK) return st;
    if ((st = check_block_count(b)) != HEARTH_OK) return st;
    if ((st = decide_parallel(b)) != HEARTH_OK) return st;
    if ((st = bind_embedding(b)) != HEARTH_OK) return st;
    if (m->hparams.arch->embedding_norm == HTH_EMBEDDING_NORM_PLAIN) m->embedding_norm.weight = m->ones;
    if (m->hparams.arch->embedding_norm == HTH_EMBEDDING_NORM &&
        (st = hth_bind_outer_norm(b, "token_embd_norm", &m->embedding_norm)) != HEARTH_OK)
        return st;
    if ((st = bind_positions(b)) != HEARTH_OK) return st;
    if ((st = bind_rope_factors(b)) != HEARTH_OK) return st;
    if ((st = bind_layer_embeddings(b)) != HEARTH_OK) return st;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if ((st = hth_bind_layer(b, i, &sizes[i])) != HEARTH_OK) return st;
    b->layer = m->hparams.n_layer;
    if (m->hparams.n_stream > 0 && (st = hth_bind_output_connection(b)) != HEARTH_OK) return st;
    st = bind_head(b);
    return st == HEARTH_OK ? bind_rank_head(b) : st;
}

hearth_status hth_model_open(const hth_gguf *file, const hth_model_overrides *overrides, hth_model **out,
                             hearth_error *err)
{
    *out = NULL;
    hth_model *m = hth_alloc(1, sizeof *m);
    if (!m) return hth_fail_memory(err, sizeof *m, "a model");
    m->file = file;
    hth_binder b = {.model = m, .err = err};
    hth_layer_sizes *sizes = NULL;
    hearth_status st = hth_model_read_hparams(file, overrides, &m->arena, &m->hparams, &sizes, err);
    if (st == HEARTH_OK) st = hth_model_check_metadata(file, err);
    if (st == HEARTH_OK) st = bind_all(&b, sizes);
    if (st == HEARTH_OK) st = hth_model_read_sparsity(m, err);
    if (st == HEARTH_OK) st = check_unused(&b, overrides->allow_unused);
    if (st == HEARTH_OK) st = hth_program_build(m, err);
    if (st != HEARTH_OK) {
        hth_model_close(m);
        return st;
    }
    *out = m;
    return HEARTH_OK;
}

bool hth_model_is_reranker(const hth_model *model)
{
    char key[80];
    hearth_error ignored;
    uint64_t pooling = 0;
    snprintf(key, sizeof key, "%s.pooling_type", model->hparams.architecture);
    (void)hth_gguf_get_uint(model->file, key, 0, HEARTH_POOLING_RANK, &pooling, NULL, &ignored);
    return model->n_class > 0 && pooling == HEARTH_POOLING_RANK;
}

void hth_model_close(hth_model *model)
{
    if (!model) return;
    hth_arena_free(&model->arena);
    hth_free(model);
}
