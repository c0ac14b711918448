/* The hash by which profiles, predictors and thresholds identify their model: fast for any size of the file, and
 * different for other weights. */
#include "base/hash.h"
#include "model/model.h"

enum { SAMPLE_SIZE = 4096 };

static hearth_status add_bytes(const hth_gguf *file, const hth_gguf_tensor *t, uint64_t from,
                               uint8_t *scratch, uint64_t *hash, hearth_error *err)
{
    size_t n = t->size - from < SAMPLE_SIZE ? (size_t)(t->size - from) : SAMPLE_SIZE;
    hearth_status st = hth_gguf_read(file, t, from, n, scratch, err);
    if (st == HEARTH_OK) *hash = hth_hash_more(*hash, scratch, n);
    return st;
}

hearth_status hth_model_hash(const hth_gguf *file, uint64_t *hash, hearth_error *err)
{
    uint8_t *scratch = hth_alloc(1, SAMPLE_SIZE);
    hearth_status st = scratch ? HEARTH_OK : hth_fail_memory(err, SAMPLE_SIZE, "the hash of a model");
    *hash = 0;
    for (size_t i = 0; st == HEARTH_OK && i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        uint64_t shape[] = {(uint64_t)t->type, t->dim[0], t->dim[1], t->dim[2], t->dim[3]};
        *hash = hth_hash_more(hth_hash_more(*hash, t->name.bytes, t->name.n), shape, sizeof shape);
        if (t->size == 0) continue;
        st = add_bytes(file, t, 0, scratch, hash, err);
        if (st == HEARTH_OK && t->size > SAMPLE_SIZE)
            st = add_bytes(file, t, t->size - SAMPLE_SIZE, scratch, hash, err);
    }
    hth_free(scratch);
    return st;
}
