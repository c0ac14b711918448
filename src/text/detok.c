/* Tokens to bytes, one at a time. Called for every generated token. Allocates nothing. Only an incomplete UTF-8
 * tail is held back, so ill-formed output is passed on unchanged and never accumulates. */
#include "text/internal.h"

#include "text/utf8.h"

#include <string.h>

const char *hth_token_piece(const hth_tokenizer *tok, int32_t id, bool show_special, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= tok->n_vocab) return "";
    const hth_text_token *t = &tok->token[id];
    bool special = t->kind == HTH_TOKEN_CONTROL || t->kind == HTH_TOKEN_UNKNOWN;
    if (special && !show_special) return "";
    *n = t->n_chunk;
    return t->piece;
}

void hth_detok_init(hth_detok *d, const hth_tokenizer *tok, bool show_special, bool at_start)
{
    *d = (hth_detok){
        .tok = tok, .show_special = show_special, .strip_space = at_start && tok->drops_space};
}

size_t hth_detok_max_bytes(const hth_tokenizer *tok)
{
    return tok->longest_piece + sizeof((hth_detok *)0)->pending;
}

/* The space that was inserted before the text is part of its first word. The leading space of a special token is
 * its own. */
static bool may_begin_with_prefix(const hth_tokenizer *tok, int32_t id)
{
    uint8_t kind = tok->token[id].kind;
    return kind == HTH_TOKEN_NORMAL || kind == HTH_TOKEN_UNUSED || kind == HTH_TOKEN_BYTE;
}

size_t hth_detok_push(hth_detok *d, int32_t id, char *out)
{
    size_t n_chunk;
    const char *piece = hth_token_piece(d->tok, id, d->show_special, &n_chunk);
    if (n_chunk == 0) return 0;
    if (d->strip_space && piece[0] == ' ' && may_begin_with_prefix(d->tok, id)) {
        piece++;
        n_chunk--;
    }
    d->strip_space = false;

    memcpy(out, d->pending, d->n_pending);
    memcpy(out + d->n_pending, piece, n_chunk);
    size_t n = d->n_pending + n_chunk, n_tail = hth_text_utf8_tail(out, n);
    memcpy(d->pending, out + n - n_tail, n_tail);
    d->n_pending = n_tail;
    return n - n_tail;
}

size_t hth_detok_flush(hth_detok *d, char *out)
{
    size_t n = d->n_pending;
    memcpy(out, d->pending, n);
    d->n_pending = 0;
    return n;
}
