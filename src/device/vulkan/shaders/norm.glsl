/* Norms of docs/arithmetic.md 4 by one workgroup. The shader declares KIND, Push, the buffers weight and bias, a
 * shared array value[STRETCH], and taken(i): input i of its row. */
const uint KIND_NONE = 0, KIND_LAYER = 2; /* HTH_KIND_* */

shared float chains[8];

/* Adds a chain of sum8 to p: value[chain], [chain + 8] and on. Loads run ahead of the additions, which depend on
 * each other. */
float add_chain(float p, uint chain, uint n)
{
    const uint AHEAD = 8;
    precise float total = p;
    uint i = chain;
    for (; i + 8 * AHEAD <= n; i += 8 * AHEAD) {
        float next[AHEAD];
        for (uint k = 0; k < AHEAD; k++) next[k] = value[i + 8 * k];
        for (uint k = 0; k < AHEAD; k++) {
            precise float sum = total + next[k];
            total = sum;
        }
    }
    for (; i < n; i += 8) {
        precise float sum = total + value[i];
        total = sum;
    }
    return total;
}

float tree_of_chains(float p)
{
    if (gl_LocalInvocationID.x < 8) chains[gl_LocalInvocationID.x] = p;
    barrier();
    precise float sum = ((chains[0] + chains[1]) + (chains[2] + chains[3])) +
                        ((chains[4] + chains[5]) + (chains[6] + chains[7]));
    return sum;
}

float squared(uint i, float mean)
{
    precise float above = taken(i) - mean;
    precise float square = above * above;
    return square;
}

float sum_of_row(uint n)
{
    float p = 0.0;
    for (uint first = 0; first < n; first += STRETCH) {
        uint count = min(n - first, STRETCH);
        for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) value[i] = taken(first + i);
        barrier();
        if (gl_LocalInvocationID.x < 8) p = add_chain(p, gl_LocalInvocationID.x, count);
        barrier();
    }
    return tree_of_chains(p);
}

float sum_of_squares(uint n, float mean)
{
    float p = 0.0;
    for (uint first = 0; first < n; first += STRETCH) {
        uint count = min(n - first, STRETCH);
        for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x)
            value[i] = squared(first + i, mean);
        barrier();
        if (gl_LocalInvocationID.x < 8) p = add_chain(p, gl_LocalInvocationID.x, count);
        barrier();
    }
    return tree_of_chains(p);
}

/* Normalisation of a row: (x - mean) factor weight + bias. */
struct norm_of_row { float mean, factor; };

norm_of_row find_norm()
{
    precise float mean = 0.0;
    if (KIND == KIND_LAYER) mean = sum_of_row(n) * inv_n;
    precise float variance = sum_of_squares(n, mean) * inv_n + eps;
    return norm_of_row(mean, rsqrt(variance));
}

float normed(norm_of_row norm, uint i)
{
    precise float y = ((taken(i) - norm.mean) * norm.factor) * weight[i];
    if (KIND == KIND_LAYER && has_bias != 0) y = y + bias[i];
    return y;
}
