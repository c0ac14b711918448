/* A fuzz target for importance matrices, in GGUF or in the older format. One that opens has weights for every matrix,
 * all of them above zero, and merges with itself. Built with libFuzzer by the preset `fuzz`; test_imatrix.c replays
 * seeds and mutations. */
#include "file/imatrix.h"
#include "support/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_weights(const hth_imatrix_entry *e)
{
    size_t n_col = e->n_value / e->n_count;
    FREED float *w = malloc(n_col * sizeof *w);
    for (uint32_t i = 0; i < e->n_count; i++) {
        hth_imatrix_weights(e, i, e->n_count, w);
        for (size_t c = 0; c < n_col; c++)
            if (!(w[c] > 0.0f && w[c] <= (float)n_col * 1.01f)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hth_imatrix *m = NULL, *sum = NULL;
    hearth_error why = {0};
    if (size == 0) return 0;
    if (hth_imatrix_open_memory(data, size, "fuzz.imatrix", &m, &why) != HEARTH_OK) {
        if (m || !why.message[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < m->n_entry; i++) {
        check_weights(&m->entries[i]);
        if (hth_imatrix_find(m, m->entries[i].name) != &m->entries[i]) abort();
    }
    if (hth_imatrix_new(7, &sum, &why) != HEARTH_OK) abort();
    for (int i = 0; i < 2; i++)
        if (hth_imatrix_merge(sum, m, "fuzz.imatrix", &why) != HEARTH_OK) abort();
    if (sum->n_entry != m->n_entry) abort();
    hth_imatrix_close(sum);
    hth_imatrix_close(m);
    return 0;
}
