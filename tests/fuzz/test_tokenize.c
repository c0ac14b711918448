/* The fuzz target of the tokenizer over seeded strings: it aborts on a fault. */
#include "fuzz_tokenize.c"

#include "support/models/corpus.h"

TEST(seeds_of_the_corpus_pass_the_target)
{
    test_keeps_memory(); /* the vocabularies of the target */
    CHECK(corpus_replay("tokenize", LLVMFuzzerTestOneInput) >= 10);
}

TEST(seeded_strings_pass_the_tokenizer_target)
{
    static const char likely[] = "ab< \xC3\xA9\xE4\xB8\xAD\xFF\xE2\x96\x81s>/";
    test_keeps_memory();
    test_random r = {77};
    uint8_t data[80];
    for (int i = 0; i < 20000; i++) {
        size_t n = 1 + test_random_below(&r, sizeof data - 1);
        for (size_t k = 0; k < n; k++) data[k] = i % 4 == 0 || k == 0 ? (uint8_t)test_random_next(&r)
                                           : (uint8_t)likely[test_random_below(&r, sizeof likely - 1)];
        CHECK_INT(LLVMFuzzerTestOneInput(data, n), 0);
    }
}
