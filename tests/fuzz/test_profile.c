/* The fuzz target of profiles over its corpus and seeded edits of a valid file; it aborts on a fault. */
#include "fuzz_profile.c"
#include "fuzz/edited_replay.h"

TEST(the_corpus_and_edits_of_profiles_pass_the_profile_target)
{
    test_keeps_memory(); /* the model */
    CHECK(corpus_replay("profile", LLVMFuzzerTestOneInput) >= 3);
    replay_edits(LLVMFuzzerTestOneInput, 0, 3000, test_is_long() ? 200000 : 10000);
}
