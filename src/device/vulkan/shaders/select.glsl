/* Activation functions, and the comparisons of selectors (forward/gpu/shader_params.h: HTH_SELECT_*). The shader
 * declares KIND; functions.glsl is included before. */
const uint PREDICTOR = 1, THRESHOLD = 2; /* HTH_SELECT_* */
const uint SILU = 0, GELU = 1, RELU = 2, RELU2 = 3, DRELU = 4; /* hth_activation */

float activation(float x)
{
    switch (KIND) {
    case SILU: return silu(x);
    case GELU: return gelu(x);
    case RELU2: return relu2(x);
    default: return relu(x);
    }
}

/* x < limit, false for NaN: floats that may be NaN are compared as integers. */
bool is_below(float x, float limit)
{
    int a = floatBitsToInt(x), b = floatBitsToInt(limit);
    bool is_nan = (a & 0x7fffffff) > 0x7f800000 || (b & 0x7fffffff) > 0x7f800000;
    /* Maps magnitudes with a sign to ascending numbers; both zeros are equal. */
    int p = a < 0 ? -(a & 0x7fffffff) : a, r = b < 0 ? -(b & 0x7fffffff) : b;
    return !is_nan && p < r;
}
