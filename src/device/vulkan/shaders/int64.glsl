/* 64-bit integers as two words, low first: no device has to have more. */

uvec2 add_int64(uvec2 a, uvec2 b)
{
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 negative(uvec2 a) { return add_int64(~a, uvec2(1, 0)); }

uvec2 int64_of(uint word) { return uvec2(word, int(word) < 0 ? ~0u : 0u); }
