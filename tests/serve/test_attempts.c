/* Wrong keys of an address: how many are taken in how long, and who has to wait. */
#include "serve/http/attempts.h"
#include "support/test.h"

static const uint64_t second = 1000000000;
static attempts a;

static unsigned note(uint8_t host, unsigned i_key, double at)
{
    const uint8_t address[ATTEMPTS_ADDRESS] = {10, 0, 0, host};
    return attempts_note(&a, address, i_key, (uint64_t)((1e6 + at) * (double)second));
}

TEST(five_wrong_keys_a_minute_are_taken)
{
    a = (attempts){0};
    for (int i = 0; i < 5; i++) CHECK_INT(note(1, 0, i), 0);
    CHECK_INT(note(1, 0, 10), 50);
    CHECK_INT(note(1, 3, 59.5), 1); /* a right one: the answer does not tell */
    CHECK_INT(note(2, 0, 59.5), 0);
    CHECK_INT(note(1, 3, 60), 0);
    for (int i = 0; i < 5; i++) CHECK_INT(note(1, 0, 61), 0);
    CHECK_INT(note(1, 0, 61), 59);
    CHECK_INT(note(1, 3, 61), 0); /* it was right from here before */
    CHECK_INT(note(1, 4, 61), 59);
    CHECK_INT(note(2, 3, 61), 0);
}

TEST(the_address_that_came_longest_ago_is_forgotten)
{
    a = (attempts){0};
    for (int i = 0; i < 6; i++) (void)note(0, 0, 0);
    for (unsigned i = 1; i < ATTEMPTS_ADDRESSES; i++) CHECK_INT(note((uint8_t)i, 1, 1), 0);
    CHECK_INT(note(0, 1, 2), 58);
    const uint8_t new_one[ATTEMPTS_ADDRESS] = {10, 1};
    CHECK_INT(attempts_note(&a, new_one, 0, (uint64_t)1000003 * second), 0); /* in the place of 10.0.0.1 */
    CHECK_INT(note(0, 1, 4), 56);
    CHECK_INT(note(1, 0, 4), 0);
}
