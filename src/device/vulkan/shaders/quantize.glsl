/* 8-bit quantisation by rule R1 (docs/arithmetic.md 2) of the elements of a workgroup (vectors.glsl). The shader
 * declares BLOCK, and the buffers q (words), d (bits of floats) and sum. */
const uint WIDTH = BLOCK == 256 ? 256 : 32; /* of a block */
const uint PART = BLOCK == 256 ? 16 : 32;   /* that has a sum */

/* Of 4 and of 32 values: their largest magnitude; of 4: the sum of their integers. */
shared uint largest_4[LANES], largest_32[LANES / 8];
shared int sum_4[LANES];

uint magnitude_of(vec4 v)
{
    uvec4 bits = floatBitsToUint(v) & MAGNITUDE;
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

/* The largest magnitude of this invocation's block. */
uint largest_of_block(uint own)
{
    uint most = own;
    largest_4[lane()] = own;
    barrier();
    for (uint k = 0; k < 8; k++) most = max(most, largest_4[lane() / 8 * 8 + k]);
    if (BLOCK != 256) return most;
    if (lane() % 8 == 0) largest_32[lane() / 8] = most;
    barrier();
    for (uint k = 0; k < 8; k++) most = max(most, largest_32[lane() / 64 * 8 + k]);
    return most;
}

ivec4 rounded(vec4 v, float scale)
{
    precise vec4 shifted = v * vec4(scale) + vec4(MAGIC);
    return floatBitsToInt(shifted) - ivec4(0x4b400000);
}

/* Values v of this invocation, among n of its workgroup, whole blocks; at: index of the workgroup's first among all
 * quantised values. */
void quantize_4(uint at, uint n, vec4 v)
{
    uint largest = largest_of_block(magnitude_of(v));
    bool tiny = largest < 0x21800000u, broken = largest > 0x5d800000u; /* 2^-60, 2^60 */
    float amax = tiny || broken ? 1.0 : uintBitsToFloat(largest);
    precise float scale = 127.0 * rcp(amax);
    precise float step = amax * uintBitsToFloat(0x3c010204u);
    ivec4 integers = tiny || broken ? ivec4(0) : rounded(v, scale);
    uvec4 bytes = uvec4(integers) & 255u;
    sum_4[lane()] = integers.x + integers.y + integers.z + integers.w;
    if (4 * lane() < n) {
        q[at / 4 + lane()] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
        if (lane() % (WIDTH / 4) == 0)
            d[at / WIDTH + lane() / (WIDTH / 4)] = tiny ? 0u : broken ? 0x7fc00000u : floatBitsToUint(step);
    }
    barrier();
    if (lane() >= n / PART) return;
    int total = 0;
    for (uint k = 0; k < PART / 4; k++) total += sum_4[lane() * (PART / 4) + k];
    sum[at / PART + lane()] = total;
}
