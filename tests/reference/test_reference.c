/* Families without golden files: gemma3 and phi3 against the double-precision pass
 * of reference.py, whose models and logits lie in tests/reference/data. */
#include "support/models/golden.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

static void path_of(char *path, size_t size, const char *name, const char *kind)
{
    snprintf(path, size, "%s/tests/reference/data/%s.%s", HEARTH_SOURCE_DIR, name, kind);
}

static void check_truth(const char *model, const char *name)
{
    char model_path[512], ids[512], truth[512];
    path_of(model_path, sizeof model_path, model, "gguf");
    path_of(ids, sizeof ids, name, "ids");
    path_of(truth, sizeof truth, name, "f32");
    golden g = {.model = model_path};
    g.ids = engine_read_ids(ids, &g.n);
    g.truth = engine_read_floats(truth, &g.n_truth);
    if (CHECK(g.ids && g.truth)) {
        float *logits = golden_logits(&g, HEARTH_KV_F32);
        double error = logits ? engine_max_error(logits, g.truth, g.n_truth) : 1.0;
        printf("     %-20s: %.2e\n", name, error);
        if (!(error <= 2e-5)) test_fail(__FILE__, __LINE__, "%s: error %g, allowed 2e-5", name, error);
        if (logits) golden_same_everywhere(&g, HEARTH_KV_F32, logits);
        free(logits);
    }
    golden_close(&g);
}

TEST(gemma3_computes_what_the_paper_says) { check_truth("gemma3", "gemma3"); }
TEST(phi3_computes_what_the_paper_says) { check_truth("phi3", "phi3"); }
TEST(longrope_takes_the_short_factors_up_to_the_original_context)
{
    check_truth("phi3-longrope", "phi3-longrope-short");
}
TEST(longrope_takes_the_long_factors_beyond_it) { check_truth("phi3-longrope", "phi3-longrope-long"); }
