/* Builds the trie of a vocabulary: sorts the tokens by their bytes, then adds them one after the other. */
#include "constrain/token_trie.h"

#include "text/utf8.h"

#include <string.h>

/* Merge sort by bytes, then by id: as fast for every vocabulary. */
static void sort_ids(const hth_str *piece, int32_t *ids, int32_t *scratch, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n,
                   end = middle + width < n ? middle + width : n;
            size_t a = from, b = middle;
            for (size_t k = from; k < end; k++) {
                bool left = b == end || (a < middle && hth_str_compare(piece[ids[a]], piece[ids[b]]) <= 0);
                scratch[k] = left ? ids[a++] : ids[b++];
            }
        }
        memcpy(ids, scratch, n * sizeof *ids);
    }
}

static size_t shared_bytes(hth_str a, hth_str b)
{
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.bytes[i] == b.bytes[i]) i++;
    return i;
}

static uint32_t count_nodes(const hth_str *piece, const int32_t *ids, size_t n)
{
    size_t count = 1;
    hth_str before = {"", 0};
    for (size_t i = 0; i < n; i++) {
        count += piece[ids[i]].n - shared_bytes(before, piece[ids[i]]);
        before = piece[ids[i]];
    }
    return (uint32_t)count;
}

/* open: the nodes on the way to the last token, by depth. */
static void fill_nodes(hth_trie *t, const hth_str *piece, uint32_t *open)
{
    uint32_t n = 0, depth = 0;
    hth_str before = {"", 0};
    open[0] = n;
    t->node[n++] = (hth_trie_node){.first = 0};
    for (uint32_t i = 0; i < t->n; i++) {
        hth_str p = piece[t->ids[i]];
        uint32_t keep = (uint32_t)shared_bytes(before, p);
        for (; depth > keep; depth--) t->node[open[depth]].after = n;
        for (; depth < p.n; n++) {
            t->node[n] =
                (hth_trie_node){.first = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)p.bytes[depth]};
            open[++depth] = n;
        }
        before = p;
    }
    for (; depth > 0; depth--) t->node[open[depth]].after = n;
    t->node[0].after = n;
    t->node[n] = (hth_trie_node){.after = n, .first = t->n};
}

/* Builds the trie of the ids in t->ids, which are sorted by their pieces. */
static bool build(hth_token_trie *trie, hth_trie *t, uint32_t *open)
{
    t->n_node = count_nodes(trie->piece, t->ids, t->n);
    t->node = hth_arena_alloc(&trie->arena, (size_t)t->n_node + 1, sizeof *t->node, 64);
    if (!t->node) return false;
    fill_nodes(t, trie->piece, open);
    return true;
}

/* Characters of a plain token; 0: it is none. */
static uint32_t plain_chars(hth_str p)
{
    uint32_t n = 0, c;
    for (size_t at = 0, length; at < p.n; at += length, n++) {
        length = hth_text_utf8_decode(p.bytes + at, p.n - at, &c);
        if (length == 0 || c < 0x20 || c == 0x7F || c == '"' || c == '\\') return 0;
    }
    return n <= HTH_TRIE_MAX_PLAIN ? n : 0;
}

/* Divides the sorted ids of `all` into plain ones and the rest; lists long ones. */
static void divide(hth_token_trie *trie)
{
    for (uint32_t i = 0; i < trie->all.n; i++) {
        int32_t id = trie->all.ids[i];
        uint32_t n = plain_chars(trie->piece[id]);
        if (trie->piece[id].n > HTH_TRIE_SHORT) {
            trie->longer.ids[trie->longer.n++] = id;
            hth_token_set_add(trie->longer_set, id);
        }
        if (n > 0) hth_token_set_add(trie->plain + n * trie->n_word, id);
        else trie->rest.ids[trie->rest.n++] = id;
    }
    for (size_t i = trie->n_word; i < (HTH_TRIE_MAX_PLAIN + 1) * trie->n_word; i++)
        trie->plain[i] |= trie->plain[i - trie->n_word];
}

/* A control token: bytes that no text has stand around its name. */
static hth_str mark_of(hth_arena *arena, hth_str name)
{
    char *bytes = name.n > 0 ? hth_arena_alloc(arena, name.n + 2, 1, 1) : NULL;
    if (!bytes) return (hth_str){"", 0};
    bytes[0] = HTH_MARK_OPEN;
    memcpy(bytes + 1, name.bytes, name.n);
    bytes[name.n + 1] = HTH_MARK_CLOSE;
    return (hth_str){bytes, name.n + 2};
}

static bool take_memory(hth_token_trie *t, int32_t n_vocab)
{
    const size_t n = (size_t)n_vocab;
    hth_arena *a = &t->arena;
    t->n_vocab = n_vocab;
    t->n_word = (n + 63) / 64;
    t->piece = hth_arena_alloc(a, n, sizeof *t->piece, 16);
    t->all.ids = hth_arena_alloc(a, n, sizeof *t->all.ids, 16);
    t->longer.ids = hth_arena_alloc(a, n, sizeof *t->longer.ids, 16);
    t->longer_set = hth_arena_alloc(a, t->n_word, sizeof *t->longer_set, 16);
    t->rest.ids = hth_arena_alloc(a, n, sizeof *t->rest.ids, 16);
    t->plain = hth_arena_alloc(a, (HTH_TRIE_MAX_PLAIN + 1) * t->n_word, sizeof *t->plain, 16);
    t->eog = hth_arena_alloc(a, t->n_word, sizeof *t->eog, 16);
    return !a->failed;
}

/* Tokens of bytes that no text has must not spell marks; no grammar allows them. */
static bool is_possible(hth_str piece)
{
    bool is_mark = piece.n > 2 && piece.bytes[0] == HTH_MARK_OPEN && piece.bytes[piece.n - 1] == HTH_MARK_CLOSE;
    return is_mark ||
           (!memchr(piece.bytes, HTH_MARK_OPEN, piece.n) && !memchr(piece.bytes, HTH_MARK_CLOSE, piece.n));
}

/* The pieces and ends of generation are set. */
static bool finish(hth_token_trie *t)
{
    for (int32_t id = 0; id < t->n_vocab; id++) {
        if (t->piece[id].n > 0 && !is_possible(t->piece[id])) t->piece[id].n = 0;
        if (t->piece[id].n > 0) t->all.ids[t->all.n++] = id;
        if (t->piece[id].n > t->depth) t->depth = (uint32_t)t->piece[id].n;
        t->has_eog |= hth_token_set_has(t->eog, id);
    }
    uint32_t *open = hth_alloc((size_t)t->depth + 1, sizeof *open);
    int32_t *scratch = hth_alloc(t->all.n, sizeof *scratch);
    bool ok = open && scratch;
    if (ok) {
        sort_ids(t->piece, t->all.ids, scratch, t->all.n);
        divide(t);
        ok = build(t, &t->all, open) && build(t, &t->rest, open) && build(t, &t->longer, open);
    }
    hth_free(open);
    hth_free(scratch);
    t->size = sizeof *t + t->arena.used;
    return ok;
}

static hearth_status fail(hth_token_trie *t, int32_t n_vocab, hearth_error *err)
{
    hth_token_trie_close(t);
    return hth_fail_memory(err, (size_t)n_vocab * 64, "a trie of the vocabulary");
}

hearth_status hth_token_trie_open(const hth_tokenizer *tokenizer, int32_t n_vocab, hth_token_trie **out,
                                  hearth_error *err)
{
    hth_token_trie *t = *out = hth_alloc(1, sizeof *t);
    int32_t n_token = hth_tokenizer_n_vocab(tokenizer);
    bool ok = t && take_memory(t, n_vocab);
    for (int32_t id = 0; ok && id < n_vocab && id < n_token; id++) {
        if (hth_tokenizer_is_eog(tokenizer, id)) hth_token_set_add(t->eog, id);
        else if (hth_tokenizer_kind(tokenizer, id) == HTH_TOKEN_CONTROL)
            t->piece[id] = mark_of(&t->arena, hth_tokenizer_entry(tokenizer, id));
        else t->piece[id].bytes = hth_token_piece(tokenizer, id, false, &t->piece[id].n);
    }
    if (ok && finish(t)) return HEARTH_OK;
    *out = NULL;
    return fail(t, n_vocab, err);
}

hearth_status hth_token_trie_open_pieces(const hth_str *pieces, int32_t n_vocab, hth_token_trie **out,
                                         hearth_error *err)
{
    hth_token_trie *t = *out = hth_alloc(1, sizeof *t);
    bool ok = t && take_memory(t, n_vocab);
    for (int32_t id = 0; ok && id < n_vocab; id++) {
        t->piece[id] = pieces[id];
        if (pieces[id].n == 0) hth_token_set_add(t->eog, id);
    }
    if (ok && finish(t)) return HEARTH_OK;
    *out = NULL;
    return fail(t, n_vocab, err);
}

void hth_token_trie_close(hth_token_trie *trie)
{
    if (!trie) return;
    hth_arena_free(&trie->arena);
    hth_free(trie);
}
