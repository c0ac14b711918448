/* Transposed down with float weights: an invocation owns one word of outputs of a cluster of neurons, and
 * adds their contributions in ascending order (forward/gpu/shader_params.h: down_f, down_f_sliced). SLICED:
 * neurons.glsl. */
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"
#include "f16.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint TYPE = 0; /* hth_type: 0 F32, 1 F16, 30 BF16 */

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Rows { uint rows[]; };
layout(binding = 2) readonly buffer Hidden { float hidden[]; };
layout(binding = 3) writeonly buffer Chains { float chains[]; };
layout(push_constant) uniform Push
{
    uint n_neuron, n_out, stride, n_group, first, first_tok;
#ifdef SLICED
    uint n_used;
#endif
};

#include "neurons.glsl"

float half_of(uint word, uint i)
{
    return TYPE == 1 ? widened(word >> 16 * i & 0xffffu) : uintBitsToFloat(word >> 16 * i << 16);
}

/* The file-order word of a row that is stored at index `place` (forward/gpu/weight_layout.h). */
uint word_of(uint place)
{
    uint in_group = place % 32, j = in_group / 4, i = in_group % 4;
    if (place - in_group + 32 > (TYPE == 0 ? n_out : n_out / 2)) return place;
    return place - in_group + (TYPE == 0 ? i / 2 * 16 + 2 * j + i % 2 : 8 * i + j);
}

void main()
{
    const uint column = gl_GlobalInvocationID.x, cluster = gl_WorkGroupID.y;
    const uint i_tok = gl_WorkGroupID.z, t = first_tok + i_tok;
    const uint n_column = TYPE == 0 ? n_out : (n_out + 1) / 2, row_words = (n_column + 3) / 4 * 4;
    if (t >= step_block[STEP_N_TOK] || column >= n_column) return;
    float low = 0.0, high = 0.0;
    choose(t, cluster, CLUSTER);
    for (uint n = first_row; n < end_row; n++) {
        float h = hidden_of(t, n);
        if (is_zero(h)) continue;
        uint word = rows[n * row_words + column];
        precise float product = (TYPE == 0 ? uintBitsToFloat(word) : half_of(word, 0)) * h;
        precise float sum = low + product;
        low = sum;
        if (TYPE == 0) continue;
        precise float second = half_of(word, 1) * h;
        precise float second_sum = high + second;
        high = second_sum;
    }
    uint word = word_of(column), chain = (i_tok * n_group + first / CLUSTER + cluster) * n_out;
    uint at = chain + (TYPE == 0 ? word : 2 * word);
    chains[at] = low;
    if (TYPE != 0 && 2 * word + 1 < n_out) chains[at + 1] = high;
}
