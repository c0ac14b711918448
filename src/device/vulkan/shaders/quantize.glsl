/* 8-bit quantisation by rule R1 (docs/arithmetic.md 2), a stretch of values at a time. The shader declares BLOCK,
 * and the buffers q (words), d (bits of floats) and sum. */
const uint STRETCH = 2048;                  /* HTH_QUANT_WG_ELEMENTS */
const uint WIDTH = BLOCK == 256 ? 256 : 32; /* of a block */
const uint PART = BLOCK == 256 ? 16 : 32;   /* that has a sum */

shared float value[STRETCH];
shared uint largest_4[STRETCH / 4], largest_32[STRETCH / 32]; /* magnitudes of 4 and of 32 values */
shared int sum_4[STRETCH / 4];

uint magnitude_at(uint i) { return floatBitsToUint(value[i]) & MAGNITUDE; }

void find_largest(uint n)
{
    for (uint i = gl_LocalInvocationID.x; i < n / 4; i += gl_WorkGroupSize.x)
        largest_4[i] = max(max(magnitude_at(4 * i), magnitude_at(4 * i + 1)),
                           max(magnitude_at(4 * i + 2), magnitude_at(4 * i + 3)));
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < n / 32; i += gl_WorkGroupSize.x) {
        uint most = largest_4[8 * i];
        for (uint k = 1; k < 8; k++) most = max(most, largest_4[8 * i + k]);
        largest_32[i] = most;
    }
    barrier();
}

uint largest_of(uint block)
{
    uint most = largest_32[block * (WIDTH / 32)];
    for (uint k = 1; k < WIDTH / 32; k++) most = max(most, largest_32[block * (WIDTH / 32) + k]);
    return most;
}

int rounded(float x, float scale)
{
    precise float shifted = x * scale + MAGIC;
    return floatBitsToInt(shifted) - 0x4b400000;
}

/* Word i of the quants; also its block's scale, once. */
void round_4(uint at, uint i)
{
    uint block = i / (WIDTH / 4), largest = largest_of(block);
    bool tiny = largest < 0x21800000u, broken = largest > 0x5d800000u; /* 2^-60, 2^60 */
    float amax = tiny || broken ? 1.0 : uintBitsToFloat(largest);
    precise float scale = 127.0 * rcp(amax);
    precise float step = amax * uintBitsToFloat(0x3c010204u);
    uint word = 0;
    int total = 0;
    for (uint k = 0; k < 4; k++) {
        int integer = tiny || broken ? 0 : rounded(value[4 * i + k], scale);
        word |= uint(integer & 255) << 8 * k;
        total += integer;
    }
    q[at / 4 + i] = word;
    sum_4[i] = total;
    if (i % (WIDTH / 4) == 0)
        d[at / WIDTH + block] = tiny ? 0u : broken ? 0x7fc00000u : floatBitsToUint(step);
}

/* The first n of value, whole blocks, which other invocations may just have written; at: index of the first among
 * all quantised values. */
void round_stretch(uint at, uint n)
{
    barrier();
    find_largest(n);
    for (uint i = gl_LocalInvocationID.x; i < n / 4; i += gl_WorkGroupSize.x) round_4(at, i);
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < n / PART; i += gl_WorkGroupSize.x) {
        int total = 0;
        for (uint k = 0; k < PART / 4; k++) total += sum_4[i * (PART / 4) + k];
        sum[at / PART + i] = total;
    }
}
