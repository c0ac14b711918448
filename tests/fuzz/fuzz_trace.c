/* A fuzz target for traces of experts: a file (edited_file.h), read without a model. One that opens agrees with itself, so
 * that what is asked of it is in range. Built with libFuzzer by the preset `fuzz`; test_trace.c replays seeds and
 * mutations. */
#include "base/alloc.h"
#include "fuzz/edited_file.h"
#include "sparse/expert_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOK = 24, N_LAYER = 3, N_EXPERT = 8, N_USED = 3 };

/* Experts of three layers, of which the first one has none. */
static gguf_bytes make_trace(void)
{
    static uint16_t chosen[N_TOK][N_USED];
    hth_expert_trace_layer layers[N_LAYER] = {{0}, {N_EXPERT, N_USED, chosen[0]}, {N_EXPERT, N_USED, chosen[0]}};
    const hth_expert_trace t = {
        .model_hash = 7, .text_hash = 12345, .n_tok = N_TOK, .n_ctx = 8, .settings = "kv f16", .n_layer = N_LAYER, .layers = layers};
    char path[60];
    for (uint32_t i = 0; i < N_TOK; i++)
        for (uint32_t k = 0; k < N_USED; k++) chosen[i][k] = (uint16_t)(2 * k + i % (N_EXPERT - 2 * (N_USED - 1)));
    snprintf(path, sizeof path, "/tmp/hearth-fuzz-%d.trace", (int)getpid());
    expect(hth_expert_trace_write(&t, path, NULL) == HEARTH_OK);
    return take_file(path);
}

static void check(const hth_expert_trace *t)
{
    static hth_expert_counts by_layer[HTH_MAX_LAYER];
    hth_expert_counts all;
    expect(t->n_tok > 0 && t->n_layer > 0 && t->n_layer <= HTH_MAX_LAYER);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        hth_expert_habits h;
        if (t->layers[i].n_used == 0) continue;
        expect(hth_expert_trace_habits(t, i, &h, NULL) == HEARTH_OK);
        expect(h.cover_10 <= h.cover_20 && h.cover_20 <= h.cover_40 && h.cover_40 <= 1.0 && h.sticky <= 1.0);
    }
    expect(hth_expert_trace_replay(t, 0.4, by_layer, &all, NULL) == HEARTH_OK && all.n_hit <= all.n_pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gguf_bytes valid;
    char path[40];
    hth_expert_trace *t;
    hearth_error why = {0};
    if (!valid.data) valid = make_trace();
    gguf_bytes b = edited_file(&valid, data, size);
    int fd = memory_file(&b, path);
    uint64_t held = hth_alloc_in_use();
    hearth_status st = hth_expert_trace_open(path, NULL, &t, &why);
    expect((st == HEARTH_OK) == (t != NULL) && (t || why.message[0]));
    expect(size > 0 || t); /* the file that is edited */
    if (t) check(t);
    hth_expert_trace_close(t);
    expect(hth_alloc_in_use() == held);
    close(fd);
    gguf_free(&b);
    return 0;
}
