/* Activation functions, and the numbers of selectors (forward/gpu/shader_params.h: HTH_SELECT_*). The shader
 * declares KIND; functions.glsl is included before. */
const uint PREDICTOR = 1, THRESHOLD = 2; /* HTH_SELECT_* */
const uint SILU = 0, GELU = 1, RELU = 2, RELU2 = 3, DRELU = 4, OAI = 5; /* hth_activation */

float activation(float x)
{
    switch (KIND) {
    case SILU: return silu(x);
    case GELU: return gelu(x);
    case RELU2: return relu2(x);
    case OAI: return oai_gate(x);
    default: return relu(x);
    }
}

float other_half(float up)
{
    switch (KIND) {
    case DRELU: return relu(up);
    case OAI: return oai_up(up);
    default: return up;
    }
}
