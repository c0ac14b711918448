/* The fuzz target of traces of experts over its corpus and seeded edits of a valid file; it aborts on a fault. */
#include "fuzz_trace.c"
#include "fuzz/edited_replay.h"

TEST(the_corpus_and_edits_of_traces_pass_the_trace_target)
{
    test_keeps_memory(); /* the valid file */
    CHECK(corpus_replay("trace", LLVMFuzzerTestOneInput) >= 3);
    replay_edits(LLVMFuzzerTestOneInput, 0, 700, test_is_long() ? 200000 : 10000);
}
