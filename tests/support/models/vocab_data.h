/* The vocabularies that tests/data/vocabularies.py makes, by name, with the checks that tests of vectors share. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_VOCAB_DATA_H
#define HEARTH_TESTS_SUPPORT_MODELS_VOCAB_DATA_H

#include "text/tokenizer.h"

typedef struct vocab_data {
    const char *name;
    hth_gguf *file;
    hth_tokenizer *tok;
    bool drops_space; /* that it put before the text */
} vocab_data;

/* "llama", "gpt-2", "falcon", ...; false, and the case has failed, when it cannot be opened. */
bool vocab_data_open(vocab_data *v, const char *name);
void vocab_data_close(vocab_data *v);

/* A file below tokenizers/ of the test data, freed with free; NULL, and the case has
 * failed, when it is not there. */
char *vocab_data_read(const char *relative, size_t *n);

/* Fails the case, with the place, when the ids are others or bytes are lost; a NULL
 * `lost` allows no loss, else it takes the number. */
bool vocab_check_ids(const vocab_data *v, const char *text, size_t n, unsigned flags, const int32_t *expected,
                     size_t n_expected, size_t *lost, const char *what, int line);
/* Tokens decoded one by one give the text back, and all together the same. */
void vocab_check_round_trip(const vocab_data *v, const char *text, size_t n, const char *what, int line);

#endif
