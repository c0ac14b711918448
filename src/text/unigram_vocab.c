/* Unigram: what encoding needs beside the vocabulary. Called once by hth_tokenizer_open. */
#include "text/internal.h"

/* How far the score of a character without a piece is below that of the worst piece, as in SentencePiece. */
static const double unknown_penalty = 10.0;

static hearth_status set_unknown_score(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    bool any = false;
    float lowest = 0.0f;
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        const hth_text_token *t = &tok->token[i];
        if (t->kind != HTH_TOKEN_NORMAL || (any && t->score >= lowest)) continue;
        lowest = t->score;
        any = true;
    }
    if (!any)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tokenizer.ggml.token_type: no token has type 1, a piece of text",
                        hth_gguf_path(file));
    tok->unknown_score = (double)lowest - unknown_penalty;
    return HEARTH_OK;
}

hearth_status hth_text_read_unigram(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    hearth_status status = set_unknown_score(tok, file, err);
    if (status == HEARTH_OK && tok->unknown < 0)
        status = hth_fail(
            err, HEARTH_ERROR_FORMAT,
            "%s: tokenizer.ggml.unknown_token_id states no token; the tokenizer of kind \"t5\" needs one",
            hth_gguf_path(file));
    if (status == HEARTH_OK)
        status = hth_gguf_get_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &tok->merges_spaces, NULL,
                                   err);
    return status == HEARTH_OK ? hth_charsmap_read(&tok->charsmap, file, err) : status;
}
