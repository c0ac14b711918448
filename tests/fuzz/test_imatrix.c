/* Runs the fuzz target of importance matrices over its seeds and over seeded mutations of them, without a fuzzer. */
#include "base/alloc.h"
#include "support/models/corpus.h"
#include "support/test.h"

#include "fuzz/fuzz_imatrix.c"

static uint32_t n_mutation;

/* Flips bits, sets words to values at the ends of their range, and cuts. */
static int mutate(const uint8_t *data, size_t size)
{
    static const uint32_t words[] = {0, 1, 2, 255, 65536, INT32_MAX, 0x80000000u, UINT32_MAX, 0x7f800000u, 0x7fc00000u};
    uint64_t held = hth_alloc_in_use();
    test_random r = {size};
    LLVMFuzzerTestOneInput(data, size);
    for (uint32_t i = 0; i < 2000 && size > 8; i++, n_mutation++) {
        FREED uint8_t *copy = malloc(size);
        size_t n = test_random_below(&r, 8) ? size : 1 + test_random_below(&r, (uint32_t)size);
        memcpy(copy, data, size);
        for (uint32_t k = test_random_below(&r, 4); k > 0; k--)
            copy[test_random_below(&r, (uint32_t)size)] ^= (uint8_t)(1u << test_random_below(&r, 8));
        if (test_random_below(&r, 2)) memcpy(copy + test_random_below(&r, (uint32_t)size - 4), &words[test_random_below(&r, 10)], 4);
        uint8_t *exact = malloc(n);
        memcpy(exact, copy, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
    return 0;
}

TEST(seeds_and_mutations_of_imatrices_do_no_harm)
{
    CHECK(corpus_replay("imatrix", mutate) >= 5);
    printf("     %u mutations\n", n_mutation);
}
