/* The file of golden/rank: scores of a reranker against double precision, and the same bits on every level, in every
 * division into steps, mapped or read. */
#include "support/models/golden.h"
#include "support/test.h"

enum { N_CLASS = 2, MAX_ID = 64 };

typedef struct setting {
    const char *cpu;
    bool mmap;
    uint32_t n_batch, n_thread;
} setting;

/* The classes of the first 1, 2, ... ids, each a text: probabilities[g->n][N_CLASS]. */
static void rank_all(const golden *g, hearth_kv_type kv, const setting *s, float *probabilities)
{
    hearth_embed_text texts[MAX_ID];
    CLOSED(hearth_model) *model = OPENED(
        hearth_model, g->model, &(hearth_model_options){.cpu = s->cpu, .mmap = s->mmap, .n_thread = 2});
    const hearth_embedder_options o = {
        .n_ctx = MAX_ID, .kv = kv, .n_batch = s->n_batch, .n_thread = s->n_thread};
    CLOSED(hearth_embedder) *e = OPENED(hearth_embedder, model, &o);
    for (size_t i = 0; i < g->n; i++) texts[i] = (hearth_embed_text){.tokens = g->ids, .n_token = i + 1};
    CHECK_INT(hearth_embedder_pooling(e), HEARTH_POOLING_RANK);
    if (CHECK_INT(hearth_embedder_n_dim(e), N_CLASS))
        CHECK_OK(hearth_embed(e, texts, g->n, probabilities, err));
}

static void check_scores(hearth_kv_type kv, double bound)
{
    static const setting all[] = {
        {NULL, false, 64, 1}, {NULL, true, 7, 2}, {"generic", false, 256, 2}, {NULL, false, 1, 1}};
    CLEANUP(golden_close) golden g;
    float first[MAX_ID * N_CLASS], other[MAX_ID * N_CLASS];
    if (!golden_open(&g, "golden/rank/qwen3.gguf", "golden/rank/qwen3.ids", "golden/rank/qwen3.f32")) return;
    if (!CHECK(g.n <= MAX_ID) || !CHECK_INT(g.n_truth, g.n * N_CLASS)) return;
    rank_all(&g, kv, &all[0], first);
    for (size_t i = 0; i < g.n_truth; i++)
        if (!(fabs((double)first[i] - (double)g.truth[i]) <= bound))
            test_fail(__FILE__, __LINE__, "%zu: %g, and %g is expected", i, (double)first[i],
                      (double)g.truth[i]);
    for (size_t k = 1; k < sizeof all / sizeof *all; k++) {
        rank_all(&g, kv, &all[k], other);
        CHECK_BYTES(other, first, g.n_truth * sizeof *first);
    }
}

TEST(scores_are_right_and_the_same_everywhere_with_f32_kv) { check_scores(HEARTH_KV_F32, 2e-5); }
TEST(scores_are_close_and_the_same_everywhere_with_f16_kv) { check_scores(HEARTH_KV_F16, 5e-3); }
