/* The tokens of a vocabulary as a trie over their bytes: made once for a model, immutable, shared by all constraints
 * and threads. Padding is not in it; neither are ends of generation. A control token is its name between two
 * bytes that no text has, so that grammars which name it allow it, and others do not. */
#ifndef HTH_CONSTRAIN_TOKEN_TRIE_H
#define HTH_CONSTRAIN_TOKEN_TRIE_H

#include "base/alloc.h"
#include "text/tokenizer.h"

#define HTH_MARK_OPEN '\xFF'
#define HTH_MARK_CLOSE '\xFE'

/* Plain tokens consist of whole characters, at most so many, that JSON strings contain as they are: no control
 * characters, quotes or backslashes. They are most of a vocabulary, and in a string all are possible. */
enum { HTH_TRIE_MAX_PLAIN = 32 };

/* In the order of the bytes, children after their parent. Node 0 is the root. */
typedef struct hth_trie_node {
    uint32_t after; /* the first node that is not below this one */
    uint32_t first; /* ids[first] to ids[(this + 1)->first - 1] end here */
    uint16_t depth; /* bytes from the root */
    uint8_t byte;
} hth_trie_node;

typedef struct hth_trie {
    hth_trie_node *node; /* [n_node + 1] */
    uint32_t n_node;
    int32_t *ids; /* sorted by their bytes */
    uint32_t n;
} hth_trie;

/* Tokens of more bytes are few. */
enum { HTH_TRIE_SHORT = 32 };

typedef struct hth_token_trie {
    int32_t n_vocab; /* vocabulary size of the model */
    size_t n_word;   /* 64-bit words of a set of tokens */
    hth_str *piece;  /* [n_vocab] bytes of each token; n 0: none */
    hth_trie all, rest,
        longer;           /* all tokens; those that are not plain; those of more than HTH_TRIE_SHORT bytes */
    uint64_t *longer_set; /* [n_word] the same */
    uint64_t *plain; /* [HTH_TRIE_MAX_PLAIN + 1][n_word] the plain tokens of at most so many characters */
    uint64_t *eog;   /* [n_word] ends of generation */
    bool has_eog;
    uint32_t depth; /* bytes of the longest token */
    size_t size;    /* bytes that all of it takes */
    hth_arena arena;
} hth_token_trie;

/* n_vocab: rows of the model; ids past the vocabulary have no text. The tokenizer must outlive the trie. MEMORY. */
hearth_status hth_token_trie_open(const hth_tokenizer *tokenizer, int32_t n_vocab, hth_token_trie **out,
                                  hearth_error *err);
/* The same of any pieces, for tests and measurements. Pieces of no bytes are ends of generation. They must outlive the
 * trie. */
hearth_status hth_token_trie_open_pieces(const hth_str *pieces, int32_t n_vocab, hth_token_trie **out,
                                         hearth_error *err);
void hth_token_trie_close(hth_token_trie *trie);

static inline bool hth_token_set_has(const uint64_t *set, int32_t id)
{
    return set[id >> 6] >> (id & 63) & 1;
}
static inline const uint64_t *hth_token_trie_plain(const hth_token_trie *t, uint32_t n_char)
{
    return t->plain + n_char * t->n_word;
}
static inline void hth_token_set_add(uint64_t *set, int32_t id) { set[id >> 6] |= UINT64_C(1) << (id & 63); }

#endif
