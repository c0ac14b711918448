/* Few tokens are divided into units of eight query heads of a KV head, many are not: both give the same bits. */
#include "engine/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N = 300, N_HEAD = 11, D_HEAD = 4 }; /* one KV head: units of 8 and 3 heads; two splits */

static gguf_bytes write_model(void)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_u32(&m, "llama.attention.head_count", N_HEAD);
    tiny_set_u32(&m, "llama.attention.head_count_kv", 1);
    tiny_set_u32(&m, "llama.attention.key_length", D_HEAD);
    tiny_set_u32(&m, "llama.attention.value_length", D_HEAD);
    tiny_set_u32(&m, "llama.rope.dimension_count", D_HEAD);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
        tiny_find(&m, name)->dim[1] = N_HEAD * D_HEAD;
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", i);
        tiny_find(&m, name)->dim[1] = D_HEAD;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        tiny_find(&m, name)->dim[1] = D_HEAD;
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", i);
        tiny_find(&m, name)->dim[0] = N_HEAD * D_HEAD;
    }
    return tiny_write(&m);
}

TEST(units_of_heads_change_no_bit)
{
    CLEANUP(gguf_free) gguf_bytes file = write_model();
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    test_random r = {5};
    int32_t ids[N];
    float expected[TINY_VOCAB];
    for (int i = 0; i < N; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    for (uint32_t n_batch = N; model && n_batch > 0; n_batch = n_batch == N ? 7 : n_batch == 7) {
        hearth_session_options o = {.n_ctx = N, .n_batch = n_batch, .n_thread = 3};
        CLOSED(hearth_session) *s = OPENED(hearth_session, model, &o);
        if (!s) return;
        CHECK_OK(hearth_session_eval(s, ids, N, err));
        if (n_batch == N) memcpy(expected, hearth_session_logits(s), sizeof expected);
        else CHECK_BYTES(hearth_session_logits(s), expected, sizeof expected);
    }
}
