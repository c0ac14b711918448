/* 64-bit integers as two words, low first: no device has to have more. */

uvec2 add_int64(uvec2 a, uvec2 b)
{
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 negative(uvec2 a) { return add_int64(~a, uvec2(1, 0)); }

/* For n from 0 to 63. */
uvec2 shifted_left(uvec2 a, uint n)
{
    if (n >= 32) return uvec2(0, a.x << (n - 32));
    return n == 0 ? a : uvec2(a.x << n, a.y << n | a.x >> (32 - n));
}

uvec2 int64_of(uint word) { return uvec2(word, int(word) < 0 ? ~0u : 0u); }

/* A sum of coefficients with the scale 2^k as Q31.32; undefined without a scale. */
uvec2 fixed_of_sum(uint sum, float scale)
{
    return shifted_left(int64_of(sum), (32 + 127 - (floatBitsToUint(scale) >> 23)) & 63);
}
