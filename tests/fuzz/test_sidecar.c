/* The fuzz target of predictors and thresholds over its corpus and seeded edits of a valid file; it aborts on a fault. */
#include "fuzz_sidecar.c"
#include "fuzz/edited_replay.h"

TEST(the_corpus_and_edits_of_predictors_and_thresholds_pass_the_sidecar_target)
{
    test_keeps_memory(); /* the model */
    CHECK(corpus_replay("sidecar", LLVMFuzzerTestOneInput) >= 3);
    replay_edits(LLVMFuzzerTestOneInput, 1, 1200, test_is_long() ? 200000 : 10000);
}
