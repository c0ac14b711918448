/* One model in five dresses: every one of them is the same model to the bit. */
#include "support/models/golden.h"
#include "support/test.h"

static const char *const dresses[] = {
    "tiny.gguf",           "tiny-v2.gguf",        "tiny-00001-of-00003.gguf", "tiny-00002-of-00003.gguf",
    "tiny-00003-of-00003.gguf", "tiny-meta.gguf", "tiny-nested.gguf",
};

TEST(dresses_of_one_model_give_the_same_bits)
{
    FREED float *first = NULL;
    for (size_t i = 0; i < sizeof dresses / sizeof *dresses; i++) {
        char path[80];
        CLEANUP(golden_close) golden g;
        snprintf(path, sizeof path, "golden/files/%s", dresses[i]);
        if (golden_open(&g, path, "golden/files/tiny.ids", "golden/files/tiny.f32")) {
            float *logits = golden_logits(&g, HEARTH_KV_F32);
            if (logits && !first) {
                double error = engine_max_error(logits, g.truth, g.n_truth);
                printf("     tiny: %.2e\n", error);
                CHECK(error <= 2e-5);
                first = logits;
            } else if (CHECK(logits != NULL)) {
                CHECK_BYTES(logits, first, g.n_truth * sizeof *logits);
                free(logits);
            }
            if (first) golden_same_everywhere(&g, HEARTH_KV_F32, first);
        }
    }
}
