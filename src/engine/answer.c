/* Implements answers of hearth.h: tokens to text, with control tokens only where they are marks, then chat/answer.c. */
#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/in_use.h"
#include "engine/chat_int.h"
#include "engine/struct_size.h"

#include <string.h>

struct hearth_answer {
    hth_in_use in_use;
    bool is_finished;
    const hearth_model *model;
    char *tools; /* a copy of the caller's, or NULL */
    hth_answer_options o;
    hth_answer *parts; /* NULL: all is text */
    hth_detok detok;
    int32_t n_vocab;
    char *bytes;
};

/* The tokens at the end of a prompt that are looked at, and the bytes of their text. */
enum { N_LAST = 8, MAX_LAST = 256 };

bool hearth_chat_is_reasoning(const hearth_chat *chat, const int32_t *ids, size_t n_ids)
{
    char text[MAX_LAST];
    size_t n = 0, n_piece;
    const hth_tokenizer *tok = chat ? chat->model->tokenizer : NULL;
    if (!tok || !chat->reasoning || !ids) return false;
    for (size_t i = n_ids > N_LAST ? n_ids - N_LAST : 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= hth_tokenizer_n_vocab(tok)) return false;
        const char *piece = hth_token_piece(tok, ids[i], true, &n_piece);
        if (n_piece > MAX_LAST - n) return false;
        memcpy(text + n, piece, n_piece);
        n += n_piece;
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
    size_t n_open = strlen(chat->reasoning->open);
    return n >= n_open && memcmp(text + n - n_open, chat->reasoning->open, n_open) == 0;
}

static hearth_status open_parts(hearth_answer *a, const hearth_answer_options *o, hearth_error *err)
{
    const hearth_chat *chat = o->chat;
    size_t n_tools = o->tools ? strlen(o->tools) + 1 : 0;
    if (n_tools > 0) {
        if (!(a->tools = hth_alloc(n_tools, 1))) return hth_fail_memory(err, n_tools, "an answer");
        memcpy(a->tools, o->tools, n_tools);
    }
    a->o = (hth_answer_options){
        .tools = a->tools, .fn = o->fn, .user = o->user, .in_reasoning = o->in_reasoning};
    if (!chat) return HEARTH_OK;
    a->o.reasoning = chat->reasoning;
    bool frames_text = chat->calls && *chat->calls->text_open;
    if (o->tools || frames_text) a->o.calls = hth_chat_calls(chat);
    return a->o.calls || a->o.reasoning ? hth_answer_open(&a->o, &a->parts, err) : HEARTH_OK;
}

hearth_answer_options hearth_answer_defaults(void)
{
    return (hearth_answer_options){.size = sizeof(hearth_answer_options)};
}

hearth_status hearth_answer_open(const hearth_model *m, const hearth_answer_options *options,
                                 hearth_answer **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_answer_options o;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!m) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_answer_options, options, &o, err);
    if (st == HEARTH_OK && !o.fn) st = hth_fail_null(err, "hearth_answer_options.fn");
    if (st == HEARTH_OK) st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    hearth_answer *a = hth_alloc(1, sizeof *a);
    size_t size = hth_detok_max_bytes(m->tokenizer);
    if (a) a->model = hth_engine_hold_model(m), a->bytes = hth_alloc(1, size);
    st = a && a->bytes ? open_parts(a, &o, err) : hth_fail_memory(err, size, "an answer");
    if (st != HEARTH_OK) {
        hearth_answer_close(a);
        return st;
    }
    a->n_vocab = (int32_t)hth_engine_hparams(m)->n_vocab;
    hth_detok_init(&a->detok, m->tokenizer, false, o.at_start);
    *out = a;
    return HEARTH_OK;
}

void hearth_answer_close(hearth_answer *a)
{
    if (!a) return;
    hth_answer_close(a->parts);
    hth_engine_release_model(a->model);
    hth_free(a->tools);
    hth_free(a->bytes);
    hth_free(a);
}

static hearth_status give(hearth_answer *a, const char *text, size_t n, hearth_error *err)
{
    if (a->parts) return hth_answer_push(a->parts, text, n, err);
    if (n > 0) {
        HTH_FP_CALLBACK;
        a->o.fn(a->o.user, HEARTH_ANSWER_TEXT, text, n);
    }
    return HEARTH_OK;
}

hearth_status hearth_answer_push(hearth_answer *a, int32_t id, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!a) return hth_fail_null(err, "answer");
    HTH_USE(use, a);
    if (!use) return hth_fail_in_use(err, "answer");
    const hth_tokenizer *tok = a->detok.tok;
    if (a->is_finished) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the answer is finished: no token follows");
    if (id < 0 || id >= a->n_vocab)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %d: the vocabulary has 0 to %d", id,
                        a->n_vocab - 1);
    if (id >= hth_tokenizer_n_vocab(tok)) return HEARTH_OK; /* padding */
    if (!a->parts || hth_tokenizer_kind(tok, id) != HTH_TOKEN_CONTROL)
        return give(a, a->bytes, hth_detok_push(&a->detok, id, a->bytes), err);
    hth_str mark = hth_tokenizer_entry(tok, id);
    if (!hth_answer_is_mark(&a->o, mark)) return HEARTH_OK;
    hearth_status st = give(a, a->bytes, hth_detok_flush(&a->detok, a->bytes), err);
    return st == HEARTH_OK ? give(a, mark.bytes, mark.n, err) : st;
}

hearth_status hearth_answer_finish(hearth_answer *a, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!a) return hth_fail_null(err, "answer");
    HTH_USE(use, a);
    if (!use) return hth_fail_in_use(err, "answer");
    a->is_finished = true;
    hearth_status st = give(a, a->bytes, hth_detok_flush(&a->detok, a->bytes), err);
    return st == HEARTH_OK && a->parts ? hth_answer_finish(a->parts, err) : st;
}
