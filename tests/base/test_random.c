/* base/random.h: the numbers of splitmix64 are part of what a seed promises. */
#include "base/random.h"
#include "support/test.h"

/* Numbers published with other implementations. */
TEST(random_numbers_are_the_published_ones)
{
    static const uint64_t published[] = {
        UINT64_C(6457827717110365317),  UINT64_C(3203168211198807973),  UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431),  UINT64_C(16408922859458223821),
    };
    uint64_t state = 1234567;
    for (int i = 0; i < 5; i++) CHECK(hth_random_next(&state) == published[i]);
}
