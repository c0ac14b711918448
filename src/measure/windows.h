/* A text cut into windows of n_ctx tokens, as llama-perplexity cuts it: one after another, the
 * first token of each replaced by BOS where the vocabulary has one, an incomplete last one dropped.
 * What looks at a model over a text goes through these: no state passes between them. */
#ifndef HTH_MEASURE_WINDOWS_H
#define HTH_MEASURE_WINDOWS_H

#include <hearth/hearth.h>

typedef struct hth_windows {
    int32_t *ids; /* of the whole text, with BOS in front */
    size_t n_id;
    size_t n_ctx, n_window;
    int32_t bos; /* -1: none */
} hth_windows;

/* Tokens of a window where nobody says how many: 512, or as many as the model was trained for. */
uint32_t hth_windows_default(const hearth_model *model);

/* One trailing newline of text[n] is dropped. ARGUMENT when the text is shorter than a window. */
hearth_status hth_windows_open(hth_windows *w, const hearth_model *model, const char *text, size_t n,
                               size_t n_ctx, hearth_error *err);
void hth_windows_close(hth_windows *w);

/* The n_ctx ids of window i, valid until the next call. */
const int32_t *hth_windows_at(hth_windows *w, size_t i);

#endif
