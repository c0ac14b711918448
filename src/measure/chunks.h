/* A text cut into windows of n_ctx tokens, as llama-perplexity cuts it: one after another, the
 * first token of each replaced by BOS where the vocabulary has one, an incomplete last one dropped.
 * What looks at a model over a text goes through these: no state passes between them. */
#ifndef HTH_MEASURE_WINDOWS_H
#define HTH_MEASURE_WINDOWS_H

#include <hearth/hearth.h>

typedef struct hth_chunks {
    int32_t *ids; /* of the whole text, with BOS in front */
    size_t n_id;
    size_t n_ctx, n_window;
    int32_t bos; /* -1: none */
} hth_chunks;

/* Tokens of a window where nobody says how many: 512, or as many as the model was trained for. */
uint32_t hth_chunks_default(const hearth_model *model);

/* One trailing newline of text[n] is dropped. ARGUMENT when the text is shorter than a window. */
hearth_status hth_chunks_open(hth_chunks *w, const hearth_model *model, const char *text, size_t n,
                               size_t n_ctx, hearth_error *err);
void hth_chunks_close(hth_chunks *w);

/* The n_ctx ids of window i, valid until the next call. */
const int32_t *hth_chunks_at(hth_chunks *w, size_t i);

#endif
