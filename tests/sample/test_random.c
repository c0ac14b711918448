/* sample/random.c: the generator's numbers are part of what a seed promises. */
#include "sample/random.h"
#include "support/test.h"

/* Numbers published with other implementations of xoshiro256++. */
TEST(generator_gives_the_published_numbers)
{
    hth_sample_random r = {{1, 2, 3, 4}};
    static const uint64_t from_1234[] = {
        UINT64_C(41943041),         UINT64_C(58720359),        UINT64_C(3588806011781223),
        UINT64_C(3591011842654386), UINT64_C(9228616714210784205),
    };
    for (int i = 0; i < 5; i++) CHECK(hth_sample_random_next(&r) == from_1234[i]);

    static const uint64_t from_seed_0[] = {
        UINT64_C(5987356902031041503), UINT64_C(7051070477665621255),
        UINT64_C(6633766593972829180), UINT64_C(211316841551650330),
    };
    hth_sample_random_seed(&r, 0);
    for (int i = 0; i < 4; i++) CHECK(hth_sample_random_next(&r) == from_seed_0[i]);
}

TEST(unit_numbers_are_below_one_and_even)
{
    hth_sample_random r;
    hth_sample_random_seed(&r, 7);
    int bucket[16] = {0};
    double low = 1.0, high = 0.0;
    for (int i = 0; i < 160000; i++) {
        double u = hth_sample_random_unit(&r);
        if (u < low) low = u;
        if (u > high) high = u;
        bucket[(int)(u * 16.0) & 15]++;
    }
    CHECK(low >= 0.0 && low < 1e-3);
    CHECK(high < 1.0 && high > 0.999);
    for (int i = 0; i < 16; i++) CHECK(bucket[i] > 9600 && bucket[i] < 10400); /* 4 sigma */
}
