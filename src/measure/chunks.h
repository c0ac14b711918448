/* Divides a text into chunks of n_ctx tokens as llama-perplexity does: one after another; BOS replaces the
 * first token of each if the vocabulary begins texts with it; an incomplete last chunk is dropped. All measurements over a
 * text use these chunks. No state passes between them. */
#ifndef HTH_MEASURE_CHUNKS_H
#define HTH_MEASURE_CHUNKS_H

#include <hearth/hearth.h>

typedef struct hth_chunks {
    int32_t *ids; /* ids of the whole text, with BOS first */
    size_t n_id;
    size_t n_ctx, n_chunk;
    int32_t bos; /* the token that begins each chunk; -1: none */
} hth_chunks;

/* Default tokens of a chunk: 512, or the training context of the model if that is smaller. */
uint32_t hth_chunks_default(const hearth_model *model);

/* Drops one trailing newline of text[n]. ARGUMENT: the text is shorter than a chunk. */
hearth_status hth_chunks_open(hth_chunks *w, const hearth_model *model, const char *text, size_t n,
                               size_t n_ctx, hearth_error *err);
void hth_chunks_close(hth_chunks *w);

/* The n_ctx ids of chunk i, valid until the next call. */
const int32_t *hth_chunks_at(hth_chunks *w, size_t i);

#endif
