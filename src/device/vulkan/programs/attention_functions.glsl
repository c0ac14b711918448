/* exp, rcp, rsqrt and tanh of docs/arithmetic.md 3, in their bits: each operation rounded on its own,
 * constants as bits. Floats that may be NaN are compared as integers. */

const float MAGIC = 12582912.0; /* 1.5 2^23 */
const uint INFINITE = 0x7f800000u, MAGNITUDE = 0x7fffffffu;

/* x > limit, for a limit above 0; false for NaN. */
bool is_above(float x, float limit)
{
    return floatBitsToInt(x) > floatBitsToInt(limit) && floatBitsToInt(x) <= int(INFINITE);
}

float rcp(float x)
{
    precise float r = uintBitsToFloat(0x7ef311c7u - floatBitsToUint(x));
    for (int i = 0; i < 4; i++) r = r * (2.0 - x * r);
    return r;
}

float rsqrt(float x)
{
    precise float h = 0.5 * x;
    precise float r = intBitsToFloat(0x5f375a86 - (floatBitsToInt(x) >> 1));
    for (int i = 0; i < 4; i++) r = r * (1.5 - h * (r * r));
    return r;
}

float exp_by_rule(float x)
{
    bool gone = is_above(uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u), 87.0);
    float a = is_above(x, 88.0) ? 88.0 : x;
    precise float s = a * uintBitsToFloat(0x3fb8aa3bu) + MAGIC;
    precise float n = s - MAGIC;
    precise float r = (a - n * uintBitsToFloat(0x3f318000u)) - n * uintBitsToFloat(0xb95e8083u);
    precise float p = uintBitsToFloat(0x39506967u);
    p = p * r + uintBitsToFloat(0x3ab743ceu);
    p = p * r + uintBitsToFloat(0x3c088908u);
    p = p * r + uintBitsToFloat(0x3d2aa9c1u);
    p = p * r + uintBitsToFloat(0x3e2aaaaau);
    p = p * r + uintBitsToFloat(0x3f000000u);
    precise float y = (p * (r * r) + r) + 1.0;
    precise float result = y * uintBitsToFloat((floatBitsToUint(s) - 0x4b400000u + 127u) << 23);
    return gone ? 0.0 : result;
}

float tanh_by_rule(float x)
{
    uint sign = floatBitsToUint(x) & ~MAGNITUDE;
    float a = uintBitsToFloat(floatBitsToUint(x) & MAGNITUDE);
    float e = is_above(a, 20.0) ? 20.0 : a;
    precise float twice = e + e;
    precise float above_one = exp_by_rule(twice) + 1.0;
    precise float large = 1.0 - 2.0 * rcp(above_one);
    precise float s = x * x;
    precise float p = uintBitsToFloat(0xbbbaf0eau);
    p = p * s + uintBitsToFloat(0x3ca9134eu);
    p = p * s + uintBitsToFloat(0xbd5c1e2du);
    p = p * s + uintBitsToFloat(0x3e088393u);
    p = p * s + uintBitsToFloat(0xbeaaaa99u);
    precise float small = (p * s) * x + x;
    bool is_small = floatBitsToUint(a) < floatBitsToUint(0.625);
    return is_small ? small : uintBitsToFloat(floatBitsToUint(large) | sign);
}
