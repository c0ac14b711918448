/* Seeded inputs of a target of edited files (edited_file.h), without a fuzzer: a few edits of the valid file each, most of
 * them of its directory, with values at the ends of ranges. */
#ifndef HEARTH_TESTS_FUZZ_EDITED_REPLAY_H
#define HEARTH_TESTS_FUZZ_EDITED_REPLAY_H

#include "fuzz/edited_file.h"
#include "support/models/corpus.h"
#include "support/test.h"

/* head: bytes before those of edited_file.h, which are drawn. */
static inline void replay_edits(int (*target)(const uint8_t *data, size_t n), size_t n_head, size_t n_directory, uint32_t n_input)
{
    enum { MAX_EDIT = 4 };
    static const uint32_t values[] = {0,   1,   2,     3,     4,         7,           8,         9,          31,         32,        33,
                                      63,  64,  65,    255,   256,       65535,       65536,     INT32_MAX,  0x80000000u, UINT32_MAX, 267,
                                      266, 268, 40000, 1 << 20, 0x7f800000u, 0x7fc00000u, 0xff800000u, 0x3f800000u};
    test_random r = {20261129};
    printf("     %u inputs, seed %llu\n", n_input, (unsigned long long)r.state);
    for (uint32_t i = 0; i < n_input; i++) {
        size_t n_edit = 1 + test_random_below(&r, MAX_EDIT), n = n_head + 1 + n_edit * EDIT_SIZE;
        FREED uint8_t *input = malloc(n);
        for (size_t k = 0; k < n_head; k++) input[k] = (uint8_t)test_random_below(&r, 256);
        input[n_head] = 0;
        for (uint8_t *e = input + n_head + 1; e < input + n; e += EDIT_SIZE) {
            uint32_t at = test_random_below(&r, test_random_below(&r, 4) ? (uint32_t)n_directory : 1 << 24);
            uint32_t value = test_random_below(&r, 4) ? values[test_random_below(&r, sizeof values / sizeof *values)]
                                                      : (uint32_t)test_random_next(&r);
            e[0] = (uint8_t)test_random_below(&r, N_EDIT);
            e[1] = (uint8_t)at, e[2] = (uint8_t)(at >> 8), e[3] = (uint8_t)(at >> 16);
            memcpy(e + 4, &value, sizeof value);
        }
        CHECK_INT(target(input, n), 0);
    }
}

#endif
