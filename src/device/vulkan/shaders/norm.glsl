/* Norms of docs/arithmetic.md 4. Each workgroup finds the sums of its token's row, so that as many as the row has
 * elements for can normalise them. The shader declares KIND, CHUNK, WIDE, Push, the buffers weight, weights_4, bias and
 * biases_4, and for its row taken(i), input i, 0 beyond the end, and taken_4(i), inputs i to i + 3 at once, where WIDE;
 * vectors.glsl is included before. */
const uint KIND_NONE = 0, KIND_LAYER = 2, KIND_RMS_BIAS = 3; /* HTH_KIND_* */
const bool IS_BIASED = KIND == KIND_LAYER || KIND == KIND_RMS_BIAS;
const uint LOADS = 4;                     /* of an invocation in a round; CHUNK is whole rounds */

/* Words of a chain: its values of CHUNK, and as many more as keep values that a subgroup reads or writes at the same
 * time in different banks. */
const uint CHAIN = CHUNK / 8 + 4;

shared float row[8 * CHAIN]; /* CHUNK values of the row, those of a chain of sum8 side by side */
shared float chains[8];

uint place_of(uint i) { return i % 8 * CHAIN + i / 8; }

void hold_4(uint i, vec4 v)
{
    row[place_of(i)] = v.x;
    row[place_of(i + 1)] = v.y;
    row[place_of(i + 2)] = v.z;
    row[place_of(i + 3)] = v.w;
}

/* Values [first, first + count) of the row. The loads of a round come before the first use, and none is conditional,
 * lest it is moved behind the condition: beyond the last value it is loaded again, to where nothing is read. */
void load_row(uint first, uint count)
{
    if (WIDE == 0) {
        for (uint i = lane(); i < count; i += LANES) row[place_of(i)] = taken(first + i);
        return;
    }
    for (uint round = 0; round < CHUNK; round += LOADS * WG_ELEMENTS) {
        vec4 next[LOADS];
        uint i = round + 4 * lane();
        for (uint k = 0; k < LOADS; k++) next[k] = taken_4(first + min(i + k * WG_ELEMENTS, count - 4));
        for (uint k = 0; k < LOADS; k++) hold_4(i + k * WG_ELEMENTS, next[k]);
    }
}

/* Adds the values of a chain from `at` on, or their squared distances from mean, to p. Loads run ahead of the
 * additions, which depend on each other. */
float add_chain(float p, uint at, uint count, bool squares, float mean)
{
    const uint AHEAD = 32;
    precise float total = p;
    uint i = 0;
    for (; i + AHEAD <= count; i += AHEAD) {
        float next[AHEAD];
        for (uint k = 0; k < AHEAD; k++) next[k] = row[at + i + k];
        for (uint k = 0; k < AHEAD; k++) {
            precise float above = next[k] - mean;
            precise float square = above * above;
            precise float sum = total + (squares ? square : next[k]);
            total = sum;
        }
    }
    for (; i < count; i++) {
        precise float above = row[at + i] - mean;
        precise float square = above * above;
        precise float sum = total + (squares ? square : row[at + i]);
        total = sum;
    }
    return total;
}

float tree_of_chains(float p)
{
    if (lane() < 8) chains[lane()] = p;
    barrier();
    precise float sum = ((chains[0] + chains[1]) + (chains[2] + chains[3])) +
                        ((chains[4] + chains[5]) + (chains[6] + chains[7]));
    return sum;
}

/* Weights and biases of this invocation's elements: loaded before the row, so that the sums hide their latency, and
 * kept in shared memory, lest the load is moved to the use. */
struct affine { vec4 weight, bias; };
const uint N_BIAS = IS_BIASED ? LANES : 1;
shared vec4 kept_weights[LANES], kept_biases[N_BIAS];

void keep(affine own)
{
    kept_weights[lane()] = own.weight;
    if (IS_BIASED) kept_biases[lane()] = own.bias;
}

affine load_affine()
{
    uint i = min(first_element(), (n - 1) / 4 * 4);
    uvec4 at = min(uvec4(i, i + 1, i + 2, i + 3), uvec4(n - 1));
    affine a = affine(vec4(0.0), vec4(0.0));
    if (WIDE != 0) a.weight = weights_4[i / 4];
    else a.weight = vec4(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
    if (!IS_BIASED || has_bias == 0) return a;
    if (WIDE != 0) a.bias = biases_4[i / 4];
    else a.bias = vec4(bias[at.x], bias[at.y], bias[at.z], bias[at.w]);
    return a;
}

/* Of the row, and `own` kept. */
float sum_of_row(affine own)
{
    float p = 0.0;
    for (uint first = 0; first < n; first += CHUNK) {
        uint count = min(n - first, CHUNK);
        load_row(first, count);
        keep(own);
        barrier();
        if (lane() < 8) p = add_chain(p, lane() * CHAIN, (count + 7 - lane()) / 8, false, 0.0);
        barrier();
    }
    return tree_of_chains(p);
}

/* is_loaded: after sum_of_row. */
float sum_of_squares(float mean, bool is_loaded, affine own)
{
    float p = 0.0;
    for (uint first = 0; first < n; first += CHUNK) {
        uint count = min(n - first, CHUNK);
        if (!is_loaded || n > CHUNK) load_row(first, count);
        if (!is_loaded) keep(own);
        barrier();
        if (lane() < 8) p = add_chain(p, lane() * CHAIN, (count + 7 - lane()) / 8, true, mean);
        barrier();
    }
    return tree_of_chains(p);
}

/* Inputs i to i + 3. */
vec4 any_4(uint i) { return WIDE != 0 ? taken_4(i) : vec4(taken(i), taken(i + 1), taken(i + 2), taken(i + 3)); }

/* This invocation's elements of the row: (x - mean) factor weight + bias. */
vec4 normed_4()
{
    uint i = min(first_element(), (n - 1) / 4 * 4);
    affine own = load_affine();
    precise float mean = 0.0;
    if (KIND == KIND_LAYER) mean = sum_of_row(own) * inv_n;
    precise float variance = sum_of_squares(mean, KIND == KIND_LAYER, own) * inv_n + eps;
    float factor = rsqrt(variance);
    vec4 x = n <= CHUNK ? vec4(row[place_of(i)], row[place_of(i + 1)], row[place_of(i + 2)], row[place_of(i + 3)])
                        : any_4(i);
    precise vec4 y = ((x - vec4(mean)) * vec4(factor)) * kept_weights[lane()];
    if (IS_BIASED && has_bias != 0) y = y + kept_biases[lane()];
    return y;
}
