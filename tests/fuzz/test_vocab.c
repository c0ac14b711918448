/* The fuzz target of vocabularies over seeded orders: it aborts on a fault. */
#include "fuzz_vocab.c"

#include "support/models/corpus.h"

TEST(seeds_of_the_corpus_pass_the_target) { CHECK(corpus_replay("vocab", LLVMFuzzerTestOneInput) >= 12); }

TEST(seeded_vocabularies_pass_the_target)
{
    static const char likely[] = "ab \xC4\xA0\xE2\x96\x81<>s|x";
    test_random r = {78};
    uint8_t data[400];
    const int n_round = test_is_long() ? 100000 : 1500;
    for (int i = 0; i < n_round; i++) {
        size_t n = 2 + test_random_below(&r, sizeof data - 2);
        for (size_t k = 0; k < n; k++)
            data[k] = test_random_below(&r, 3) == 0
                          ? (uint8_t)likely[test_random_below(&r, sizeof likely - 1)]
                          : (uint8_t)test_random_next(&r);
        CHECK_INT(LLVMFuzzerTestOneInput(data, n), 0);
    }
}
