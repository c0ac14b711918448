/* SentencePiece Unigram: of all ways to write a text as pieces, the one with the highest sum of scores (Viterbi).
 * Called by tokenize.c for every raw fragment. The fragment is normalised first: the model's map of characters,
 * spaces as U+2581, one before the first word if the vocabulary requires it.
 *
 * The text is processed in runs. A run ends where no piece found so far reaches past: the best way goes through that
 * place, so the ids are those of the whole text. Sums of scores are exact (float scores in doubles), so where a run
 * begins has no effect. */
#include "text/internal.h"

#include "text/utf8.h"
#include "text/vocab_index.h"

#include <string.h>

/* ---- normalisation ---------------------------------------------------------------------------------- */

static hearth_status append_text(hth_tokenize_scratch *work, const char *bytes, size_t n, hearth_error *err)
{
    void *text = work->text;
    hearth_status status = hth_text_grow(&text, &work->text_capacity, work->n_text + n, 1, err);
    if (status != HEARTH_OK) return status;
    work->text = text;
    memcpy(work->text + work->n_text, bytes, n);
    work->n_text += n;
    return HEARTH_OK;
}

typedef struct spaces {
    bool in_word, any_word;
} spaces;

/* Appends normalised bytes with escaped spaces. */
static hearth_status put_escaped(const hth_tokenizer *tok, hth_tokenize_scratch *work, spaces *s,
                                 hth_str bytes, hearth_error *err)
{
    static const char space[] = "\xE2\x96\x81";
    hearth_status status = HEARTH_OK;
    for (size_t i = 0, n; i < bytes.n && status == HEARTH_OK; i += n) {
        const char *end = memchr(bytes.bytes + i, ' ', bytes.n - i);
        n = end ? (size_t)(end - bytes.bytes) - i : bytes.n - i;
        if (n == 0) { /* a space */
            n = 1;
            s->in_word = false;
            if (!tok->merges_spaces) status = append_text(work, space, 3, err);
            continue;
        }
        const bool first = !s->any_word, begins = !s->in_word;
        s->in_word = s->any_word = true;
        if (first ? tok->add_space_prefix : begins && tok->merges_spaces) status = append_text(work, space, 3, err);
        if (status == HEARTH_OK) status = append_text(work, bytes.bytes + i, n, err);
    }
    return status;
}

static hearth_status normalise(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                               size_t n, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    spaces s = {0};
    work->n_text = 0;
    for (size_t i = 0, used; i < n && status == HEARTH_OK; i += used) {
        hth_str bytes;
        uint32_t cp;
        used = hth_charsmap_find(&tok->charsmap, text + i, n - i, &bytes);
        if (used == 0) {
            used = hth_text_utf8_decode(text + i, n - i, &cp);
            bytes = used > 0 ? (hth_str){text + i, used} : (hth_str){"\xEF\xBF\xBD", 3}; /* U+FFFD */
            if (used == 0) used = 1;
        }
        status = put_escaped(tok, work, &s, bytes, err);
    }
    return status;
}

/* ---- output -------------------------------------------------------------------------------------------- */

static hearth_status emit_unknown(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *bytes,
                                  size_t n, hth_ids *ids, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    if (tok->has_all_bytes) {
        for (size_t i = 0; i < n && status == HEARTH_OK; i++)
            status = hth_ids_push(ids, tok->byte_id[(unsigned char)bytes[i]], err);
        return status;
    }
    work->n_unencodable += n;
    if (work->after_unknown) return HEARTH_OK; /* neighbours are one token */
    work->after_unknown = true;
    return hth_ids_push(ids, tok->unknown, err);
}

/* Appends the ids of the best way to the end of a run of n bytes. Nodes on the way get the length of the next piece. */
static hearth_status emit_best_path(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *run,
                                    size_t n, hth_ids *ids, hearth_error *err)
{
    hth_text_node *node = work->node;
    uint32_t next = 0;
    for (size_t at = n; at > 0;) {
        const uint32_t length = node[at].n;
        node[at].n = next;
        next = length;
        at -= length;
    }
    node[0].n = next;
    hearth_status status = HEARTH_OK;
    for (size_t at = 0; at < n && status == HEARTH_OK;) {
        const size_t length = node[at].n;
        const int32_t id = node[at + length].id;
        if (id < 0) {
            status = emit_unknown(tok, work, run + at, length, ids, err);
        } else {
            work->after_unknown = false;
            status = hth_ids_push(ids, id, err);
        }
        at += length;
    }
    work->n_node = 0;
    return status;
}

/* ---- the best way ------------------------------------------------------------------------------------------ */

/* Ensures that nodes up to `last` exist. */
static hearth_status add_nodes(hth_tokenize_scratch *work, size_t last, hearth_error *err)
{
    void *nodes = work->node;
    hearth_status status = hth_text_grow(&nodes, &work->node_capacity, last + 1, sizeof *work->node, err);
    if (status != HEARTH_OK) return status;
    work->node = nodes;
    for (; work->n_node <= last; work->n_node++) work->node[work->n_node] = (hth_text_node){0};
    return HEARTH_OK;
}

/* A piece of n bytes from a place on. Among equal sums the piece that begins first stays. */
static hearth_status add_piece(hth_tokenize_scratch *work, size_t at, size_t n, int32_t id, double score,
                               hearth_error *err)
{
    hearth_status status = add_nodes(work, at + n, err);
    if (status != HEARTH_OK) return status;
    hth_text_node *to = &work->node[at + n];
    const double sum = work->node[at].score + score;
    if (to->n == 0 || sum > to->score) *to = (hth_text_node){sum, (uint32_t)n, id};
    return HEARTH_OK;
}

/* Adds all pieces that begin at a place of the run, and the character as unknown if it is no piece itself. */
static hearth_status add_pieces(const hth_tokenizer *tok, hth_tokenize_scratch *work, size_t at,
                                const char *bytes, size_t n, size_t n_char, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    bool is_piece = false;
    hth_prefix_iter iter;
    bool on = hth_prefix_iter_begin(&iter, &tok->words, (unsigned char)bytes[0]);
    while (on && status == HEARTH_OK) {
        const int32_t id = hth_prefix_iter_token(&iter, &tok->words, tok->token);
        if (id >= 0) {
            const bool is_user = tok->token[id].kind == HTH_TOKEN_USER;
            is_piece |= iter.depth == n_char;
            status = add_piece(work, at, iter.depth, id, is_user ? 0.0 : (double)tok->token[id].score, err);
        }
        on = iter.depth < n &&
             hth_prefix_iter_next(&iter, &tok->words, tok->token, (unsigned char)bytes[iter.depth]);
    }
    if (status == HEARTH_OK && !is_piece) status = add_piece(work, at, n_char, -1, tok->unknown_score, err);
    return status;
}

hearth_status hth_text_unigram_encode(const hth_tokenizer *tok, hth_tokenize_scratch *work, const char *text,
                                      size_t n, hth_ids *ids, hearth_error *err)
{
    hearth_status status = normalise(tok, work, text, n, err);
    size_t begin = 0, at = 0;
    work->n_node = 0;
    work->after_unknown = false;
    while (status == HEARTH_OK && at < work->n_text) {
        uint32_t cp;
        const char *bytes = work->text + at;
        const size_t left = work->n_text - at, n_char = hth_text_utf8_decode(bytes, left, &cp);
        const size_t used = n_char > 0 ? n_char : 1;
        if (work->n_node == 0) status = add_nodes(work, 0, err);
        if (status == HEARTH_OK) status = add_pieces(tok, work, at - begin, bytes, left, used, err);
        at += used;
        if (status != HEARTH_OK || at - begin + 1 < work->n_node) continue;
        status = emit_best_path(tok, work, work->text + begin, at - begin, ids, err);
        begin = at;
    }
    return status;
}
