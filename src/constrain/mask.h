/* Which tokens can follow in a state of an automaton. */
#ifndef HTH_CONSTRAIN_MASK_H
#define HTH_CONSTRAIN_MASK_H

#include "constrain/automaton.h"
#include "constrain/token_trie.h"

/* Bytes for masks that are kept, at least 8 of them. */
enum { HTH_MASK_BYTES = 4 << 20, HTH_MASK_MIN = 8 };

typedef struct hth_mask {
    uint64_t *tokens;  /* [n_word] */
    uint32_t state, n; /* n: number of tokens in it */
    uint64_t used;     /* when it was asked for; 0: never */
} hth_mask;

typedef struct hth_masks {
    const hth_token_trie *trie;
    hth_mask *mask;
    uint32_t n_mask;
    uint64_t clock;
    uint32_t *way;       /* [depth + 1] states on the way to a node of the trie */
    uint64_t n_computed; /* masks that were computed; tests read it */
    hth_arena arena;
} hth_masks;

hearth_status hth_masks_open(hth_masks *m, const hth_token_trie *trie, hearth_error *err);
void hth_masks_close(hth_masks *m);
/* Forgets all, after the states were renamed. */
void hth_masks_clear(hth_masks *m);
/* The tokens that can follow in a state, with the ends of generation if the text may end. Valid until the next call.
 * NULL: see the error of the automaton. Allocates nothing itself. */
const hth_mask *hth_masks_get(hth_masks *m, hth_automaton *a, uint32_t state);

#endif
