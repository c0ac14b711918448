/* Quantised weights out of their planes (forward/gpu/weight_layout.h), for mul_mat_vec_q and down_q. The program declares the constants of
 * the form, n_block, the places of the planes, planes[] and pieces[]; f16.glsl is included before.
 *
 * Weights are taken by sixteens ("parts"), four words of four bytes. */
const uint N_PART = BLOCK / 16, HIGH_PIECES = BLOCK * HIGH_BITS / 128;
const uint LOW_PIECES = BLOCK == 16 ? 1 : BLOCK * LOW_BITS / 128; /* two blocks of 16 share one */
const uint PARTS_OF_PIECE = BLOCK == 16 ? 1 : 8 / LOW_BITS; /* of its block */
const uint SUB_SHIFT = PART == 32 ? 1 : 0; /* parts of a sub-block, as a power of two */
const uint N_SUB = N_PART >> SUB_SHIFT;
const uint BYTES = 0x01010101u;

shared uint values[16];

/* Magnitudes and signs of IQ3 and IQ2; IQ1. */
int grid_value(uint i)
{
    const int iq3[8] = int[](4, 12, 20, 28, 36, 44, 52, 62), iq2[4] = int[](8, 25, 43, 0);
    const int iq1[8] = int[](-7, 1, 9, 0, -9, -1, 7, 0);
    if (TABLE == 6) return iq1[i & 7];
    int value = TABLE == 3 ? iq3[i & 7] : TABLE == 4 ? int(2 * (i & 7) + 1) : iq2[i & 3];
    return (i & (TABLE == 5 ? 4 : 8)) == 0 ? value : -value;
}

void fill_values(uint lane, uint n_lane)
{
    const int iq4[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    const int mxfp4[16] = int[](0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); /* twice */
    for (uint i = lane; i < 16; i += n_lane)
        values[i] = uint(TABLE == 1 ? iq4[i] : TABLE == 2 ? mxfp4[i] : grid_value(i)) & 0xffu;
    barrier();
}

/* Four words of weights, behind the table where there is one, before the offset is taken off. */
uvec4 weights_of(uvec4 low, uvec4 high, uint part)
{
    uvec4 w = low;
    if (LOW_BITS < 8) w = w >> (part * LOW_BITS % 8) & BYTES * ((1u << LOW_BITS) - 1);
    if (HIGH_BITS > 0) {
        uvec4 top = BLOCK == 32 ? high >> (4 * part + uvec4(0, 1, 2, 3)) : high >> (part * HIGH_BITS % 8);
        w |= (top & BYTES * ((1u << HIGH_BITS) - 1)) << LOW_BITS;
    }
    if (TABLE == 0) return w;
    [[unroll]] for (uint i = 0; i < 4; i++)
        w[i] = values[w[i] & 15] | values[w[i] >> 8 & 15] << 8 | values[w[i] >> 16 & 15] << 16 |
               values[w[i] >> 24] << 24;
    return w;
}

/* The high bits of the parts from `part` on, which are those of one piece of low bits; of block `first` + j of a row, one
 * of n_group that lie side by side. */
uvec4 high_of(uint row, uint first, uint j, uint n_group, uint part)
{
    uint at = row * n_block + first;
    if (BLOCK == 32) return uvec4(planes[at_high + at + j]);
    return pieces[at_high / 4 + at * HIGH_PIECES + part * HIGH_BITS / 8 * n_group + j];
}

/* Byte `part` (of a sub-block) of block number `at`, in the plane from word `plane` on. */
int sub_byte(uint plane, uint at, uint part)
{
    uint i = part >> SUB_SHIFT;
    return bitfieldExtract(int(planes[plane + at * (N_SUB / 4) + i / 4]), int(8 * (i % 4)), 8);
}

/* Half b of the row, in the plane from word `plane` on. */
float half_at(uint plane, uint row, uint b)
{
    return widened(planes[plane + row * ((n_block + 1) / 2) + b / 2] >> 16 * (b & 1) & 0xffffu);
}

float scale_at(uint row, uint b)
{
    if (SCALE == 0) return half_at(at_scale, row, b);
    if (SCALE > 1) {
        precise float scale = half_at(at_scale, row, b) * (SCALE == 2 ? 0.25 : 0.125); /* exact */
        return scale;
    }
    uint e = planes[at_scale + row * ((n_block + 3) / 4) + b / 4] >> 8 * (b & 3) & 0xffu;
    uint bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
    return uintBitsToFloat(e == 255 ? 0x7fc00000u : bits);
}
