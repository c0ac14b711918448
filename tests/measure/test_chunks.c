/* Chunks of a text: each begins with the token that the vocabulary begins texts with, or with the text itself. */
#include "measure/chunks.h"
#include "support/test.h"

/* The ids of each chunk but the first are those of the whole text, where no BOS replaces them. */
static void check_chunks(const char *path, int32_t bos)
{
    enum { N_CTX = 8 };
    static const char text[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *model_path = test_data(path);
    CLOSED(hearth_model) *model = model_path ? OPENED(hearth_model, model_path, NULL) : NULL;
    CLEANUP(hth_chunks_close) hth_chunks chunks = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    if (!model) return;
    CHECK_OK(hearth_tokenize(model, text, strlen(text), HEARTH_ADD_SPECIAL, &ids, &n, err));
    CHECK_OK(hth_chunks_open(&chunks, model, text, strlen(text), N_CTX, err));
    CHECK_INT(chunks.n_chunk, 3);
    for (size_t i = 0; i < chunks.n_chunk; i++) {
        const int32_t *chunk = hth_chunks_at(&chunks, i);
        CHECK_INT(chunk[0], bos >= 0 ? bos : ids[i * N_CTX]);
        CHECK_BYTES(chunk + 1, ids + i * N_CTX + 1, (N_CTX - 1) * sizeof *ids);
    }
    hearth_free(ids);
}

TEST(bos_begins_chunks_where_it_begins_texts) { check_chunks("golden/arch/llama-gqa.gguf", 1); }

TEST(text_begins_chunks_where_no_bos_is_added) { check_chunks("golden/arch/qwen2.gguf", -1); }
