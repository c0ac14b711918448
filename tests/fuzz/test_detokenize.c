/* The fuzz target of the detokenizer over seeded ids: it aborts on a fault. */
#include "fuzz_detokenize.c"

#include "support/models/corpus.h"

TEST(seeds_of_the_corpus_pass_the_target)
{
    test_keeps_memory(); /* the vocabularies of the target */
    CHECK(corpus_replay("detokenize", LLVMFuzzerTestOneInput) >= 5);
}

TEST(seeded_ids_pass_the_detokenizer_target)
{
    test_keeps_memory();
    test_random r = {79};
    uint8_t data[80];
    for (int i = 0; i < 20000; i++) {
        size_t n = 1 + test_random_below(&r, sizeof data - 1);
        for (size_t k = 0; k < n; k++) data[k] = (uint8_t)test_random_next(&r);
        for (size_t k = 1; k + 1 < n; k += 2) data[k] = test_random_below(&r, 4) ? data[k] % 2 : data[k];
        CHECK_INT(LLVMFuzzerTestOneInput(data, n), 0);
    }
}
