/* The scale of a cluster of hidden values of a token (forward/gpu/shader_params.h: down_scale, down_scale_sliced;
 * kernels/axpy/axpy.c has the same functions). SLICED: neurons.glsl. */
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Hidden { float hidden[]; };
layout(binding = 2) readonly buffer ScaleMax { float scale_max[]; };
layout(binding = 3) writeonly buffer Scales { float scales[]; };
layout(push_constant) uniform Push
{
    uint n_neuron, stride;
    int safe_exponent;
#ifdef SLICED
    uint n_used;
#endif
};

const uint first = 0;
#include "neurons.glsl"

const uint MAGNITUDES = 0x7fffffffu;
const int NONE = -1000;
shared uint parts[LOCAL]; /* magnitudes, then sums of coefficients */
shared int k;

int exponent(float x) { return int(floatBitsToUint(x) >> 23) - 127; }

float power_of_two(int e) { return uintBitsToFloat(uint(e + 127) << 23); }

int largest_exponent(float h_max, float d_max)
{
    precise float product = h_max * d_max;
    int largest = ((floatBitsToUint(product) & 0x7fffffu) > 0x7ffc00u ? 13 : 14) - exponent(product);
    return exponent(product) == 128 ? NONE : min(largest, min(126 - exponent(h_max), 32));
}

uint coefficient(float h, float d_max)
{
    precise float scaled = uintBitsToFloat(floatBitsToUint(h) & MAGNITUDES) * power_of_two(k);
    precise float by_scale = scaled * d_max;
    return uint(by_scale) + (h != 0.0 ? 1 : 0);
}

void main()
{
    const uint t = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x, cluster = gl_WorkGroupID.x;
    if (t >= step_block[STEP_N_TOK]) return;
    choose(t, cluster, CLUSTER);
    const uint count = end_row - first_row;
    const float bound = count > 0 ? scale_max[first_row / CLUSTER] : 0.0;
    const float d_max = uintBitsToFloat(floatBitsToUint(bound) & MAGNITUDES);
    uint largest = 0, sum = 0;
    for (uint i = lane; i < count; i += LOCAL)
        largest = max(largest, floatBitsToUint(hidden_of(t, first_row + i)) & MAGNITUDES);
    parts[lane] = largest; /* magnitudes compare as integers, NaN as the largest */
    barrier();
    if (lane == 0) {
        for (uint i = 1; i < LOCAL; i++) largest = max(largest, parts[i]);
        k = largest_exponent(uintBitsToFloat(largest), d_max);
    }
    barrier();
    const int below = k < -100 ? 0 : safe_exponent - k;
    if (below > 0) {
        for (uint i = lane; i < count; i += LOCAL) sum += coefficient(hidden_of(t, first_row + i), d_max);
        parts[lane] = sum;
    }
    barrier();
    if (lane > 0) return;
    if (below > 0)
        for (uint i = 1; i < LOCAL; i++) sum += parts[i];
    bool fits = below <= 0 || (below < 32 && sum <= CLUSTER * 32767u >> below);
    scales[t * gl_NumWorkGroups.x + cluster] = k >= -100 && fits ? power_of_two(k) : 0.0;
}
