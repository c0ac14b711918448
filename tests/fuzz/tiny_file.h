/* The tiny model of targets whose files belong to a model (edited_file.h). */
#ifndef HEARTH_TESTS_FUZZ_TINY_FILE_H
#define HEARTH_TESTS_FUZZ_TINY_FILE_H

#include "fuzz/edited_file.h"
#include "model/model.h"
#include "support/models/tiny_model.h"

typedef struct tiny_file {
    gguf_bytes bytes;
    hth_gguf *file;
    hth_model *model;
    uint64_t hash;
} tiny_file;

/* Opened once. */
static inline const tiny_file *tiny_file_open(void)
{
    static tiny_file t;
    if (t.model) return &t;
    tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    t.bytes = tiny_take(&m);
    expect(hth_gguf_open_memory(t.bytes.data, t.bytes.n, "tiny.gguf", &t.file, NULL) == HEARTH_OK);
    expect(hth_model_open(t.file, &(hth_model_overrides){0}, &t.model, NULL) == HEARTH_OK);
    expect(hth_model_hash(t.file, &t.hash, NULL) == HEARTH_OK);
    return &t;
}

/* The head of a sidecar of the model. */
static inline void tiny_file_begin(const tiny_file *t, tiny_model *m, const char *architecture)
{
    enum { U64 = 10 };
    *m = (tiny_model){0};
    tiny_set_text(m, "general.architecture", architecture);
    tiny_set_u32(m, "hearth.sidecar.version", 1);
    tiny_set(m, "hearth.model.hash", U64, t->hash, 8);
}

#endif
