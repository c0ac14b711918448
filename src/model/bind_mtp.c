/* Binds the first block behind the layers, which predicts a token further, as a model of one layer. The engine
 * opens it for drafts, once the weights of the layers are loaded. */
#include "model/bind_int.h"
#include "model/program.h"

#include <stdio.h>

/* Packed files say of their layers which neurons lie together, not of further blocks. */
bool hth_model_has_mtp(const hth_model *m)
{
    char name[48];
    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", m->hparams.n_layer);
    return m->hparams.arch->predicts && m->hparams.n_block > m->hparams.n_layer &&
           hth_gguf_find_tensor(m->file, name) && !hth_gguf_find(m->file, HTH_KEY_STORAGE_VERSION);
}

/* Takes the tensors and hyperparameters that the block shares with the model, unless the file has its own. */
static void share(hth_model *m, const hth_model *of)
{
    m->token_embd = of->token_embd, m->embedding_norm = of->embedding_norm;
    m->output = of->tied ? of->token_embd : of->output;
    m->output_norm = of->output_norm, m->output_bias = of->output_bias;
    m->rope_factors = of->rope_factors, m->rope_factors_long = of->rope_factors_long;
    m->hparams.n_vocab = of->hparams.n_vocab, m->hparams.parallel = of->hparams.parallel;
    m->hparams.activation = of->hparams.activation, m->hparams.needs_gate = of->hparams.needs_gate;
    m->hparams.other_activation = of->hparams.other_activation;
}

static hearth_status bind_own(hth_binder *b, const char *name, hth_matrix *m)
{
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, 0, name);
    return t ? hth_bind_matrix(b, t, b->model->hparams.n_vocab, b->model->hparams.d_model, m) : HEARTH_OK;
}

static hearth_status bind_ends(hth_binder *b)
{
    hth_model *m = b->model;
    hth_mtp_input *in = &m->mtp;
    size_t d = m->hparams.d_model;
    hearth_status st = hth_bind_norm(b, 0, "nextn.enorm", &in->embedding_norm);
    if (st == HEARTH_OK) st = hth_bind_norm(b, 0, "nextn.hnorm", &in->hidden_norm);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, 0, "nextn.eh_proj.weight"), d, 2 * d, &in->proj);
    if (st == HEARTH_OK) st = bind_own(b, "nextn.embed_tokens.weight", &m->token_embd);
    if (st == HEARTH_OK) st = bind_own(b, "nextn.shared_head_head.weight", &m->output);
    if (st != HEARTH_OK || !hth_bind_find_in_layer(b, 0, "nextn.shared_head_norm.weight")) return st;
    return hth_bind_norm(b, 0, "nextn.shared_head_norm", &m->output_norm);
}

/* Adds to an error that an array by layer has no entry for the block: its tensors may not fit because a value was
 * guessed. */
static hearth_status add_lacking(const char *lacking, hearth_error *err)
{
    if (!err || !lacking[0]) return err ? err->status : HEARTH_ERROR_FORMAT;
    const hearth_error why = *err;
    return hth_fail(err, why.status, "%.350s; %s has no entry for this block", why.message, lacking);
}

hearth_status hth_model_open_mtp(const hth_model *of, hth_model **out, hearth_error *err)
{
    *out = NULL;
    hth_model *m = hth_alloc(1, sizeof *m);
    if (!m) return hth_fail_memory(err, sizeof *m, "a model");
    m->file = of->file;
    hth_binder b = {.model = m, .err = err, .first_block = of->hparams.n_layer};
    hth_layer_sizes *size = NULL;
    char lacking[HTH_HPARAMS_KEY];
    hearth_status st = hth_model_read_mtp_hparams(of->file, &m->arena, &m->hparams, &size, lacking, err);
    if (st == HEARTH_OK) share(m, of);
    if (st == HEARTH_OK) st = hth_bind_allocate(&b);
    if (st == HEARTH_OK && (st = hth_bind_layer(&b, 0, size)) == HEARTH_ERROR_FORMAT)
        st = add_lacking(lacking, err);
    b.layer = m->hparams.n_layer;
    if (st == HEARTH_OK) st = bind_ends(&b);
    if (st == HEARTH_OK) st = hth_program_build(m, err);
    if (st == HEARTH_OK) *out = m;
    else hth_model_close(m);
    return st;
}
