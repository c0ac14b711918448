/* One line of the table of perplexities in tests/data/README.md, and how it is checked. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_PERPLEXITY_H
#define HEARTH_TESTS_SUPPORT_MODELS_PERPLEXITY_H

#include "file/types.h"

#include <stdint.h>

#define STORYTELLER "models/storyteller-drelu/storyteller-drelu-f32.gguf"
#define STORIES260K "models/stories260K/stories260K-f32.gguf"
#define BABYLLAMA "models/babyllama-tok361/babyllama-tok361-f32.gguf"

#define STORIES "text/stories.txt"
#define ENGLISH "text/english.txt"

typedef struct perplexity_line {
    const char *text;
    uint32_t n_ctx;
    uint64_t most_chunks; /* measured; 0: all of the text */
    uint64_t n_token, n_chunk, n_scored;
    double perplexity, tolerance; /* absolute */
} perplexity_line;

/* A model of the test data, with F32 KV. */
void perplexity_check(const char *model, const perplexity_line *line);
/* babyllama quantised to type, its tied embedding kept in Q8_0. */
void perplexity_check_quantised(hth_type type, const perplexity_line *line);

#endif
