/* Constraints over bytes alone: a vocabulary whose tokens are the 256 bytes and an end, and texts that a constraint
 * must take or refuse. */
#ifndef HEARTH_TESTS_SUPPORT_TEXTS_H
#define HEARTH_TESTS_SUPPORT_TEXTS_H

#include "constrain/constraint.h"

/* Ids 0 to 255 are the bytes; 256 is the end of generation. Freed with hth_token_trie_close. */
hth_token_trie *texts_bytes_trie(void);

/* How far a constraint follows a text: its bytes, or fewer; *end: what then holds. */
size_t texts_follow(const hth_token_trie *trie, const hearth_constraint_options *options, const char *text,
                    size_t n, hearth_constraint_end *end);

/* Texts that are complete, and texts that are not, or are not possible; NULL ends a list. */
typedef struct texts_case {
    const char *source;
    const char *takes[12], *refuses[16];
} texts_case;
/* Each text is followed byte by byte; the masks of all places on the way say the same as the bytes. */
void texts_check(hearth_constraint_kind kind, const texts_case *c, const char *file, int line);
#define CHECK_TEXTS(KIND, ...) texts_check(KIND, &(const texts_case){__VA_ARGS__}, __FILE__, __LINE__)

/* The error of a source that must be refused contains each of the words (separated by '|'). */
void texts_check_refused(hearth_constraint_kind kind, const char *source, hearth_status status,
                         const char *words, const char *file, int line);
#define CHECK_REFUSED(KIND, SOURCE, STATUS, WORDS)                                                           \
    texts_check_refused(KIND, SOURCE, STATUS, WORDS, __FILE__, __LINE__)

#endif
