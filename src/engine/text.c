/* Implements text and sampling of hearth.h: thin wrappers over text/ and sample/. */
#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/in_use.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/struct_size.h"
#include "sample/sampler.h"

#include <string.h>

/* ---- tokens ------------------------------------------------------------------------ */

hearth_status hth_engine_need_tokenizer(const hearth_model *m, hearth_error *err)
{
    if (m->tokenizer) return HEARTH_OK;
    if (err) *err = m->tokenizer_error;
    return m->tokenizer_error.status;
}

hearth_status hearth_tokenize(const hearth_model *m, const char *text, size_t n, unsigned flags,
                              int32_t **ids, size_t *n_ids, hearth_error *err)
{
    HTH_FP_SCOPE;
    enum { ALL = HEARTH_ADD_SPECIAL | HEARTH_PARSE_SPECIAL };
    if (!ids || !n_ids) return hth_fail_null(err, ids ? "n_ids" : "ids");
    *ids = NULL;
    *n_ids = 0;
    if (!m) return hth_fail_null(err, "model");
    if (!text && n > 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "text is NULL, but n is %zu", n);
    if (flags & ~(unsigned)ALL)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "flags is %#x; the bits %#x exist", flags, ALL);
    hearth_status st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    hth_ids list = {0};
    size_t n_lost = 0;
    st = hth_tokenize(m->tokenizer, text ? text : "", n, flags, &list, &n_lost, err);
    if (st != HEARTH_OK) {
        hth_ids_free(&list);
        return st;
    }
    if (n_lost > 0) hth_log(HEARTH_LOG_WARN, "%zu bytes of the text are not in the vocabulary", n_lost);
    *ids = list.id;
    *n_ids = list.n;
    return HEARTH_OK;
}

void hearth_free(void *memory) { hth_free(memory); }

int32_t hearth_token_bos(const hearth_model *m)
{
    return m && m->tokenizer ? hth_tokenizer_bos(m->tokenizer) : -1;
}
int32_t hearth_token_eos(const hearth_model *m)
{
    return m && m->tokenizer ? hth_tokenizer_eos(m->tokenizer) : -1;
}

bool hearth_token_is_eog(const hearth_model *m, int32_t id)
{
    return m && m->tokenizer && id >= 0 && id < hth_tokenizer_n_vocab(m->tokenizer) &&
           hth_tokenizer_is_eog(m->tokenizer, id);
}

int32_t hearth_token_find(const hearth_model *m, const char *text, size_t n)
{
    return m && m->tokenizer && text ? hth_tokenizer_find(m->tokenizer, text, n) : -1;
}

int32_t hearth_token_special(const hearth_model *m, hearth_special_token kind)
{
    bool exists = (unsigned)kind < HTH_N_SPECIAL;
    return m && m->tokenizer && exists ? hth_tokenizer_special(m->tokenizer, kind) : -1;
}

/* Not all kinds of tokenizers read them. */
static float score_of(const hearth_model *m, int32_t id)
{
    const hth_gguf_value *v = hth_gguf_find(m->file, "tokenizer.ggml.scores");
    bool has_scores = v && v->type == HTH_GGUF_ARRAY && (uint64_t)id < v->n_element &&
                      (v->element_type == HTH_GGUF_F32 || v->element_type == HTH_GGUF_I32);
    return has_scores ? (float)hth_gguf_element_float(v, (uint64_t)id) : 0.0f;
}

static void describe_token(const hearth_model *m, int32_t id, hearth_token_info *info)
{
    const hth_tokenizer *tok = m->tokenizer;
    hth_str text = hth_tokenizer_entry(tok, id);
    info->text = text.bytes, info->n_text = text.n;
    info->bytes = hth_token_piece(tok, id, true, &info->n_bytes);
    info->score = score_of(m, id);
    info->attributes = 1u << (hth_tokenizer_kind(tok, id) - HTH_TOKEN_NORMAL);
    if (hth_tokenizer_is_eog(tok, id)) info->attributes |= HEARTH_TOKEN_END;
}
_Static_assert(HEARTH_TOKEN_BYTE == 1 << (HTH_TOKEN_BYTE - HTH_TOKEN_NORMAL), "attributes are the kinds of the format");

hearth_status hearth_model_get_token(const hearth_model *m, int32_t id, hearth_token_info *info)
{
    hearth_token_info all = {.text = "", .bytes = "", .attributes = HEARTH_TOKEN_PADDING};
    if (!m || !hth_engine_can_write_result(&hth_size_of_hearth_token_info, info)) return HEARTH_ERROR_ARGUMENT;
    hearth_status st = hth_engine_need_tokenizer(m, NULL);
    if (st == HEARTH_OK && (id < 0 || (uint32_t)id >= hth_engine_hparams(m)->n_vocab)) st = HEARTH_ERROR_ARGUMENT;
    if (st != HEARTH_OK) all = (hearth_token_info){0};
    else if (id < hth_tokenizer_n_vocab(m->tokenizer)) describe_token(m, id, &all);
    hth_engine_write_result(&hth_size_of_hearth_token_info, &all, info);
    return st;
}

/* ---- streaming detokenizer ------------------------------------------------------------ */

struct hearth_detokenizer {
    hth_in_use in_use;
    const hearth_model *model;
    hth_detok detok;
    int32_t n_vocab; /* the model's n_vocab; ids past the tokens of the vocabulary are padding */
    char *bytes;
};

hearth_status hearth_detokenizer_open(const hearth_model *m, bool at_start, bool show_special,
                                  hearth_detokenizer **out, hearth_error *err)
{
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!m) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    hearth_detokenizer *d = hth_alloc(1, sizeof *d);
    size_t size = hth_detok_max_bytes(m->tokenizer);
    if (d) d->bytes = hth_alloc(1, size);
    if (!d || !d->bytes) {
        hth_free(d);
        return hth_fail_memory(err, size, "a detokenizer");
    }
    d->model = hth_engine_hold_model(m);
    d->n_vocab = (int32_t)hth_engine_hparams(m)->n_vocab;
    hth_detok_init(&d->detok, m->tokenizer, show_special, at_start);
    *out = d;
    return HEARTH_OK;
}

void hearth_detokenizer_close(hearth_detokenizer *d)
{
    if (!d) return;
    hth_engine_release_model(d->model);
    hth_free(d->bytes);
    hth_free(d);
}

hearth_status hearth_detokenizer_push(hearth_detokenizer *d, int32_t id, const char **text, size_t *n,
                                  hearth_error *err)
{
    if (!text || !n) return hth_fail_null(err, text ? "n" : "text");
    *text = "", *n = 0;
    if (!d) return hth_fail_null(err, "detokenizer");
    HTH_USE(use, d);
    if (!use) return hth_fail_in_use(err, "detokenizer");
    if (id < 0 || id >= d->n_vocab)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %d: the vocabulary has 0 to %d", id,
                        d->n_vocab - 1);
    bool padding = id >= hth_tokenizer_n_vocab(d->detok.tok);
    *n = padding ? 0 : hth_detok_push(&d->detok, id, d->bytes);
    *text = d->bytes;
    return HEARTH_OK;
}

void hearth_detokenizer_flush(hearth_detokenizer *d, const char **text, size_t *n)
{
    if (!text || !n) return;
    *text = "", *n = 0;
    if (!d) return;
    HTH_USE(use, d);
    if (!use) return;
    *n = hth_detok_flush(&d->detok, d->bytes);
    *text = d->bytes;
}

/* ---- sampling ---------------------------------------------------------------------------- */

hearth_status hearth_sampler_open(const hearth_model *m, const hearth_sampler_options *options,
                                  hearth_sampler **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_sampler_options o;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!m) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_sampler_options, options, &o, err);
    if (st == HEARTH_OK && hth_engine_hparams(m)->n_vocab == 0) st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    st = hth_sampler_open((int32_t)hth_engine_hparams(m)->n_vocab, &o, out, err);
    if (st != HEARTH_OK || o.dry_multiplier == 0.0f) return st;
    st = hth_engine_need_tokenizer(m, err);
    if (st == HEARTH_OK) st = hth_engine_use_dry(m, &o, *out, err);
    if (st == HEARTH_OK) return st;
    hearth_sampler_close(*out);
    *out = NULL;
    return st;
}
