/* The fuzz target of saved sessions over its corpus and seeded edits of a valid file; it aborts on a fault. */
#include "fuzz_session.c"
#include "fuzz/edited_replay.h"

TEST(the_corpus_and_edits_of_saved_sessions_pass_the_session_target)
{
    test_keeps_memory(); /* the model */
    CHECK(corpus_replay("session", LLVMFuzzerTestOneInput) >= 3);
    replay_edits(LLVMFuzzerTestOneInput, 1, 200, test_is_long() ? 200000 : 10000);
}
