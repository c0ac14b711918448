/* The fuzz target of placements over its corpus and seeded edits of a valid file; it aborts on a fault. */
#include "fuzz_placement.c"
#include "fuzz/edited_replay.h"

TEST(the_corpus_and_edits_of_placements_pass_the_placement_target)
{
    test_keeps_memory(); /* the model */
    CHECK(corpus_replay("placement", LLVMFuzzerTestOneInput) >= 3);
    replay_edits(LLVMFuzzerTestOneInput, 0, 1200, test_is_long() ? 200000 : 10000);
}
