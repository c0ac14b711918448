/* The small vocabulary that a case changes, and what opening it must give. Used by tests/text and tests/chat. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_VOCAB_CASE_H
#define HEARTH_TESTS_SUPPORT_MODELS_VOCAB_CASE_H

#include "support/models/vocab_file.h"
#include "support/test.h"

/* Defined by the test: makes f, and opens it where all cases want it open. Called before each case and by vocab_again.
 * False: the case is skipped or has failed. */
bool vocab_begin(void);
void vocab_again(void);

/* Freed after each case and by vocab_again. */
extern vocab_file f;
extern hth_gguf *file;
extern hth_tokenizer *tok;
extern char warnings[4000]; /* of opening it, a line each */
void vocab_keep_warning(void *user, hearth_log_level level, const char *line);

/* Opens f; false after a failed check. */
bool vocab_open(void);
/* Opening f, which stays open, gives a warning that contains the text. */
void vocab_expect_warning(const char *text);
/* Opening f fails with a message that contains both texts. Then as vocab_again. */
void vocab_expect_refused(hearth_status status, const char *text, const char *other);

/* Opens the file again and tokenizes n bytes, with every allocation failing once: each is an error and keeps no memory.
 * At least so many of opening and of tokenizing fail. */
void vocab_fail_allocations(const char *text, size_t n, int n_open, int n_tokenize);

/* Tokenizes a mebibyte of each of n units repeated, in an opened f. Quadratic time would exceed the limit of a test. */
void vocab_expect_proportion(const char *const *units, size_t n);

/* The ids of a text, and how many of its bytes are not in the vocabulary. */
void vocab_expect_ids(const char *text, size_t n_text, unsigned flags, size_t n_lost, const int32_t *ids, size_t n,
                      int line);
#define IDS(TEXT, FLAGS, ...)                                                                                \
    do {                                                                                                     \
        const int32_t ids_[] = {__VA_ARGS__};                                                                \
        vocab_expect_ids(TEXT, sizeof(TEXT) - 1, FLAGS, 0, ids_, sizeof ids_ / sizeof *ids_, __LINE__);      \
    } while (0)

#endif
