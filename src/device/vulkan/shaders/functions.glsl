/* The functions of docs/arithmetic.md 3, bit-exact: each operation rounded separately, constants as bits, no
 * driver functions. Floats that may be NaN are compared as integers. */

const float MAGIC = 12582912.0; /* 1.5 2^23 */
const uint INFINITE = 0x7f800000u, MAGNITUDE = 0x7fffffffu;

/* i, rounded once to nearest even: both halves and the product are exact. */
float float_of(int i)
{
    precise float high = float(i >> 12) * 4096.0;
    precise float sum = high + float(i & 4095);
    return sum;
}

/* x > limit, for a limit above 0. NaN is not. */
bool is_above(float x, float limit)
{
    int bits = floatBitsToInt(x);
    return bits > floatBitsToInt(limit) && bits <= int(INFINITE);
}

/* x <= 0, of which -0 and -infinity are, NaN is not. */
bool is_off(float x)
{
    return floatBitsToInt(x) <= 0 && (floatBitsToUint(x) & MAGNITUDE) <= INFINITE;
}

/* For |x| in 2^-126 to 2^126. */
float rcp(float x)
{
    precise float r = uintBitsToFloat(0x7ef311c7u - floatBitsToUint(x));
    for (int i = 0; i < 4; i++) {
        precise float next = r * (2.0 - x * r);
        r = next;
    }
    return r;
}

/* For normal x > 0. */
float rsqrt(float x)
{
    precise float h = 0.5 * x;
    precise float r = intBitsToFloat(0x5f375a86 - (floatBitsToInt(x) >> 1));
    for (int i = 0; i < 4; i++) {
        precise float next = r * (1.5 - h * (r * r));
        r = next;
    }
    return r;
}

float exp_by_rule(float x)
{
    bool gone = is_above(uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u), 87.0);
    float a = is_above(x, 88.0) ? 88.0 : x;
    precise float s = a * uintBitsToFloat(0x3fb8aa3bu) + MAGIC;
    precise float n = s - MAGIC;
    precise float r = (a - n * uintBitsToFloat(0x3f318000u)) - n * uintBitsToFloat(0xb95e8083u);
    precise float p = uintBitsToFloat(0x39506967u) * r + uintBitsToFloat(0x3ab743ceu);
    p = p * r + uintBitsToFloat(0x3c088908u);
    p = p * r + uintBitsToFloat(0x3d2aa9c1u);
    p = p * r + uintBitsToFloat(0x3e2aaaaau);
    p = p * r + 0.5;
    precise float y = (p * (r * r) + r) + 1.0;
    precise float scaled = y * uintBitsToFloat((floatBitsToUint(s) - 0x4b400000u + 127u) << 23);
    return gone ? 0.0 : scaled;
}

/* exp is held below 2^126 so that the reciprocal is good. */
float sigmoid(float x)
{
    precise float minus = 0.0 - x;
    float m = is_above(minus, 86.0) ? 86.0 : minus;
    precise float sum = 1.0 + exp_by_rule(m);
    return rcp(sum);
}

float silu(float x)
{
    precise float y = x * sigmoid(x);
    return y;
}

/* max(x, 0) + log(1 + e), e = exp(-|x|), as kernels/vector/activate_tmpl.h has it. */
float softplus(float x)
{
    float e = exp_by_rule(uintBitsToFloat(floatBitsToUint(x) | 0x80000000u));
    precise float beyond = uintBitsToFloat(0x40000000u) + e;
    precise float s = e * rcp(beyond);
    precise float q = s * s, twice = s + s;
    precise float p = uintBitsToFloat(0x3d9d89d9u) * q + uintBitsToFloat(0x3dba2e8cu);
    p = p * q + uintBitsToFloat(0x3de38e39u);
    p = p * q + uintBitsToFloat(0x3e124925u);
    p = p * q + uintBitsToFloat(0x3e4ccccdu);
    p = p * q + uintBitsToFloat(0x3eaaaaabu);
    precise float y = (is_off(x) ? 0.0 : x) + (twice * (q * p) + twice);
    return y;
}

/* The tanh form. */
float gelu(float x)
{
    precise float cubic = (uintBitsToFloat(0x3d372713u) * x) * (x * x);
    precise float u = uintBitsToFloat(0x3fcc422au) * (x + cubic);
    precise float y = x * sigmoid(u);
    return y;
}

float relu(float x) { return is_off(x) ? 0.0 : x; }

/* For a limit above 0. NaN passes. */
float at_most(float x, float limit) { return is_above(x, limit) ? limit : x; }
float limited(float x, float limit)
{
    bool is_low = is_above(uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u), limit);
    return is_low ? -limit : at_most(x, limit);
}

/* The halves of SwiGLU as gpt-oss has it. */
float oai_gate(float x)
{
    float g = at_most(x, 7.0);
    precise float scaled = uintBitsToFloat(0x3fd9db23u) * g;
    precise float y = g * sigmoid(scaled);
    return y;
}

float oai_up(float x)
{
    precise float minus = 0.0 - at_most(x, 7.0);
    precise float y = 1.0 - at_most(minus, 7.0);
    return y;
}

float relu2(float x)
{
    precise float y = relu(x) * relu(x);
    return y;
}

float tanh_by_rule(float x)
{
    float a = uintBitsToFloat(floatBitsToUint(x) & MAGNITUDE);
    float e = is_above(a, 20.0) ? 20.0 : a;
    precise float beyond = exp_by_rule(e + e) + 1.0;
    precise float large = 1.0 - 2.0 * rcp(beyond);
    precise float s = x * x;
    precise float p = uintBitsToFloat(0xbbbaf0eau) * s + uintBitsToFloat(0x3ca9134eu);
    p = p * s + uintBitsToFloat(0xbd5c1e2du);
    p = p * s + uintBitsToFloat(0x3e088393u);
    p = p * s + uintBitsToFloat(0xbeaaaa99u);
    precise float small = (p * s) * x + x;
    uint signed_large = floatBitsToUint(large) | (floatBitsToUint(x) & 0x80000000u);
    return floatBitsToUint(a) < floatBitsToUint(0.625) ? small : uintBitsToFloat(signed_large);
}
