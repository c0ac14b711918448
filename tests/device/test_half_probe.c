/* What a device made of all halves: the numbers that are right, and each kind of error that drivers make. */
#include "base/bits.h"
#include "device/device_int.h"
#include "support/test.h"

static float *right(void)
{
    float *y = malloc(2 * HTH_N_HALF * sizeof *y);
    for (uint32_t h = 0; y && h < HTH_N_HALF; h++) {
        y[h] = hth_f16_to_f32((uint16_t)h);
        y[HTH_N_HALF + h] = y[h] * (float)(1 + (h / 2 & 7));
    }
    return y;
}

TEST(right_conversions_are_exact)
{
    FREED float *y = right();
    CHECK(hth_vk_halves_are_exact(y));
    y[0x7e00] = hth_float_of(0xffc12345u); /* any NaN */
    CHECK(hth_vk_halves_are_exact(y));
}

/* In conversions alone, and in products alone. */
TEST(a_half_that_is_converted_wrongly_is_found)
{
    static const struct {
        uint32_t half, bits;
    } wrong[] = {
        {0x0001, 0x00000000},                       /* the smallest subnormal, lost */
        {0x83ff, 0x80000000},                       /* the largest one, with its sign */
        {0x8000, 0x00000000},                       /* the sign of zero */
        {0x7c00, 0x47800000}, {0xfc00, 0xffc00000}, /* infinities: 65536, NaN */
        {0x7e00, 0x7f800000},                       /* NaN: infinity */
        {0x3c01, 0x3f800000},                       /* the last bit */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (uint32_t first = 0; first <= HTH_N_HALF; first += HTH_N_HALF) {
            FREED float *y = right();
            y[first + wrong[i].half] = hth_float_of(wrong[i].bits);
            CHECK(!hth_vk_halves_are_exact(y));
        }
}
