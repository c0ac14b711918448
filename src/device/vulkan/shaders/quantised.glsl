/* What programs over quantised rows are called with (forward/gpu/shader_params.h: mul_mat_vec_q; weight_layout.h: how the rows lie), and
 * how their weights are read. One text for all types: what differs is constant.
 * ONTO: y is added to. SPARSE, SLICED: rows.glsl. */

layout(constant_id = 5) const uint BLOCK = 32; /* hth_quant_desc, member by member */
layout(constant_id = 6) const uint LOW_BITS = 4;
layout(constant_id = 7) const uint HIGH_BITS = 0;
layout(constant_id = 8) const uint OFFSET = 8;
layout(constant_id = 9) const uint TABLE = 0;
layout(constant_id = 10) const uint PART = 0;
layout(constant_id = 11) const uint MINIMA = 0;
layout(constant_id = 12) const uint SCALE = 0;

layout(binding = 1) readonly buffer Planes { uint planes[]; };
layout(binding = 1) readonly buffer Pieces { uvec4 pieces[]; }; /* the same */
layout(binding = 2) readonly buffer Q { uvec4 q[]; };
layout(binding = 3) readonly buffer D { float d[]; };
layout(binding = 4) readonly buffer Sum { int sum[]; };
layout(binding = 5) readonly buffer Bias { float bias[]; };
#ifdef ONTO
layout(binding = 6) buffer Y { float y[]; };
#else
layout(binding = 6) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push
{
    uint n_row, n_block, y_stride, y_first, has_bias;
    uint at_high, at_scale, at_part, at_least, at_minimum;
#ifdef SPARSE
    uint row_first, mask_first;
#endif
#ifdef SLICED
    uint row_first, slice_rows, slice_step, slice_first, n_used, x_by_pair, y_pair, weighs, n_slot, slot_first, slots_at;
#endif
};

#include "rows.glsl"
#include "f16.glsl"
#include "quant_format.glsl"

/* Number of the inputs' block around block b: of 32 inputs where the weights' are of 16. */
uint input_at(uint token, uint b)
{
    uint at = token * n_block + b;
    return BLOCK == 16 ? at / 2 : at;
}

/* Rounded to nearest even. Blocks of 256 pass 2^24, where the driver's conversion is not to be trusted:
 * two exact halves and one sum. */
float to_float(int i)
{
    precise float whole = float(i & ~4095) + float(i & 4095);
    return BLOCK == 32 ? float(i) : whole;
}

/* Sixteen k of block first + j of a row, one of n_group that lie side by side. */
uvec4 sixteen_of(uint row, uint first, uint j, uint n_group, uint k)
{
    uvec4 low = pieces[(row * n_block + first) * LOW_PIECES + k / PARTS_OF_PIECE * n_group + j];
    uvec4 high = uvec4(0);
    if (HIGH_BITS > 0) high = high_of(row, first, j, n_group, k);
    return weights_of(low, high, k);
}
