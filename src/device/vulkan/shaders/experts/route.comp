#version 450
/* The choice of a token's experts and their weights (forward/gpu/shader_params.h: route), as forward/router.c makes it. A
 * workgroup has a token. An expert is chosen if fewer than n_used others are before it. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint SCORE = 1;
layout(constant_id = 1) const uint N = 8; /* experts */
layout(local_size_x_id = 2) in;
layout(constant_id = 3) const uint PLACES = 0;
layout(binding = 0) buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Logits { float logits[]; };
layout(binding = 2) readonly buffer SelectBias { float select_bias[]; };
layout(binding = 3) readonly buffer ExpertScale { float expert_scale[]; };
layout(binding = 4) writeonly buffer Pairs { uint pairs[]; };
layout(binding = 5) writeonly buffer Reads { uint reads[]; };
layout(push_constant) uniform Push
{
    uint n_used, n_group, n_group_used, has_select_bias, has_expert_scale, normalises;
    float scale;
    uint x_stride, x_at, y_stride, y_at;
    uint given_at, slots_at, spares_at, reads_at;
};

/* hth_router_score; CONSTANT: HTH_ROUTE_CONSTANT */
const uint CONSTANT = 0, SOFTMAX = 1, SIGMOID = 2, SOFTMAX_CHOSEN = 3, SQRT_SOFTPLUS = 4;
const uint MAX_USED = 256, MAX_GROUP = 64, N_WORD = (N + 31) / 32; /* HTH_ROUTE_MAX_* */
const uint LANES = gl_WorkGroupSize.x;
const uint READS_GRID_WORDS = 4, READS_JOBS = 12, READS_HEAD = 16; /* HTH_READS_* */

shared float scores[N + MAX_USED]; /* of all experts, then weights of the chosen ones */
shared int keys[N], group_keys[MAX_GROUP];
shared uint ids[MAX_USED], marks[N_WORD];
shared float parts[LANES], chains[8];
shared uint is_broken;

uint lane() { return gl_LocalInvocationID.x; }

/* Numbers that ascend as floats do; both zeros are equal. */
int key_of(float x)
{
    int bits = floatBitsToInt(x);
    return bits < 0 ? -(bits & 0x7fffffff) : bits;
}

bool is_finite(float x) { return (floatBitsToUint(x) & MAGNITUDE) < INFINITE; }

/* The float nearest to the root of x, which is 0 or normal: the integer root of 48 bits. */
float root(float x)
{
    uint bits = floatBitsToUint(x);
    if (bits == 0) return 0.0;
    int exponent = int(bits >> 23) - 127;
    uint m = (bits & 0x7fffffu) | 0x800000u;
    if ((exponent & 1) != 0) m <<= 1, exponent--;
    uint high = m >> 9, low = m << 23, square_high, square_low;
    precise float near = (float(m) * rsqrt(float(m))) * uintBitsToFloat(0x453504f3u); /* 2^11.5 */
    uint r = uint(near) + 8;
    for (;; r--) {
        umulExtended(r, r, square_high, square_low);
        if (square_high < high || (square_high == high && square_low <= low)) break;
    }
    uint rest = low - square_low; /* at most 2 r */
    if (rest > r) r++;
    return uintBitsToFloat((uint(exponent / 2 + 127) << 23) + (r - 0x800000u));
}

/* The largest of n scores from `at` on. */
float most_of(uint at, uint n)
{
    float most = scores[at];
    for (uint i = lane(); i < n; i += LANES) most = larger_of(most, scores[at + i]);
    parts[lane()] = most;
    barrier();
    for (uint half_of = LANES / 2; half_of > 0; half_of /= 2) {
        if (lane() < half_of) parts[lane()] = larger_of(parts[lane()], parts[lane() + half_of]);
        barrier();
    }
    return parts[0];
}

float sum_of(uint at, uint n)
{
    precise float sum = 0.0;
    for (uint i = lane(); lane() < 8 && i < n; i += 8) {
        precise float next = sum + scores[at + i];
        sum = next;
    }
    if (lane() < 8) chains[lane()] = sum;
    barrier();
    precise float all = ((chains[0] + chains[1]) + (chains[2] + chains[3])) +
                        ((chains[4] + chains[5]) + (chains[6] + chains[7]));
    return all;
}

void scale_by(uint at, uint n, float factor)
{
    for (uint i = lane(); i < n; i += LANES) {
        precise float scaled = scores[at + i] * factor;
        scores[at + i] = scaled;
    }
    barrier();
}

void softmax(uint at, uint n)
{
    float most = most_of(at, n);
    for (uint i = lane(); i < n; i += LANES) {
        precise float below = scores[at + i] - most;
        scores[at + i] = exp_by_rule(below);
    }
    barrier();
    scale_by(at, n, rcp(sum_of(at, n)));
}

/* ---- scores ------------------------------------------------------------------------------------------ */

/* Makes scores of the logits; false: one of these is not finite. */
bool load_scores(uint from)
{
    if (lane() == 0) is_broken = 0;
    barrier();
    for (uint i = lane(); i < N; i += LANES) {
        float x = SCORE == CONSTANT ? 1.0 : logits[from + i];
        if (!is_finite(x)) is_broken = 1;
        scores[i] = SCORE == SIGMOID ? sigmoid(x) : SCORE == SQRT_SOFTPLUS ? root(softplus(x)) : x;
    }
    barrier();
    return is_broken == 0;
}

/* ---- the choice ---------------------------------------------------------------------------------------- */

/* The sum of the two largest scores for the choice of a group. */
float score_of_group(uint first, uint n)
{
    float most = intBitsToFloat(keys[first]), next = intBitsToFloat(keys[first + 1]);
    if (is_below(most, next)) {
        float other = most;
        most = next, next = other;
    }
    for (uint i = 2; i < n; i++) {
        float x = intBitsToFloat(keys[first + i]);
        if (is_below(most, x)) next = most, most = x;
        else if (is_below(next, x)) next = x;
    }
    precise float sum = most + next;
    return sum;
}

/* Whether a group is one of the n_best largest; of equal ones the first. */
bool is_group_among(uint i, uint n_best)
{
    uint n_before = 0;
    for (uint k = 0; k < n_group; k++)
        n_before += uint(group_keys[k] > group_keys[i] || (group_keys[k] == group_keys[i] && k < i));
    return n_before < n_best;
}

/* The same of an expert. */
bool is_among(uint i, uint n_best)
{
    uint n_before = 0;
    int key = keys[i];
    for (uint k = 0; k < N; k++) n_before += uint(keys[k] > key || (keys[k] == key && k < i));
    return n_before < n_best;
}

/* keys: the scores for the choice, as bits until the groups are known. */
void load_keys()
{
    for (uint i = lane(); i < N; i += LANES) {
        precise float x = scores[i];
        if (has_select_bias != 0) x = x + select_bias[i];
        keys[i] = floatBitsToInt(x);
    }
    barrier();
    uint n = N / n_group;
    for (uint g = lane(); n_group > 1 && g < n_group; g += LANES) group_keys[g] = key_of(score_of_group(g * n, n));
    barrier();
    for (uint i = lane(); i < N; i += LANES) {
        bool is_out = n_group > 1 && !is_group_among(i / n, n_group_used);
        keys[i] = key_of(is_out ? uintBitsToFloat(0xff7fffffu) : intBitsToFloat(keys[i]));
    }
    for (uint i = lane(); i < N_WORD; i += LANES) marks[i] = 0;
    barrier();
}

/* The number of chosen experts before expert i. */
uint place_of(uint i)
{
    uint n = bitCount(marks[i / 32] & ((1u << i % 32) - 1));
    for (uint w = 0; w < i / 32; w++) n += bitCount(marks[w]);
    return n;
}

void choose()
{
    load_keys();
    for (uint i = lane(); i < N; i += LANES)
        if (is_among(i, n_used)) atomicOr(marks[i / 32], 1u << i % 32);
    barrier();
    for (uint i = lane(); i < N; i += LANES)
        if ((marks[i / 32] >> i % 32 & 1) != 0) {
            uint place = place_of(i);
            ids[place] = i, scores[N + place] = scores[i];
        }
    barrier();
}

/* ---- weights ------------------------------------------------------------------------------------------- */

/* Their sum is at least 2^-14. */
void normalise()
{
    precise float sum = 0.0;
    for (uint i = 0; i < n_used; i++) {
        precise float next = sum + scores[N + i];
        sum = next;
    }
    barrier();
    scale_by(N, n_used, rcp(larger_of(uintBitsToFloat(0x38800000u), sum)));
}

/* ---- results ------------------------------------------------------------------------------------------- */

void put(uint to, uint i, float weight)
{
    uint id = ids[i];
    precise float scaled = has_expert_scale != 0 ? weight * expert_scale[id] : weight;
    pairs[to + i] = id;
    pairs[to + n_used + i] = floatBitsToUint(scaled);
}

/* Gives spare slots to the experts that have none. */
void place()
{
    uint n = 0;
    for (uint i = 0; i < n_used; i++) {
        uint at = slots_at + ids[i], to = reads_at + READS_HEAD + 2 * n;
        reads[reads_at + READS_HEAD + 2 * n_used + i] = ids[i];
        if (step_words[at] != NO_SLOT) continue;
        uint slot = step_words[spares_at + n++];
        step_words[at] = slot, reads[to] = slot, reads[to + 1] = ids[i];
    }
    for (uint k = 0; k < 3; k++) reads[reads_at + READS_GRID_WORDS * k + 2] = n;
    reads[reads_at + READS_JOBS] = n;
}

/* The weights of the experts that were chosen are scores N and on. */
void route(uint from)
{
    if (!load_scores(from)) {
        for (uint i = lane(); i < n_used; i += LANES) ids[i] = i, scores[N + i] = uintBitsToFloat(0x7fc00000u);
        barrier();
        return;
    }
    if (SCORE == SOFTMAX) softmax(0, N);
    choose();
    if (SCORE == SOFTMAX_CHOSEN) softmax(N, n_used);
    if (normalises != 0) normalise();
    scale_by(N, n_used, scale);
}

void main()
{
    uint t = gl_WorkGroupID.x, to = t * y_stride + y_at;
    if (t >= step_words[STEP_N_TOK]) return;
    route(t * x_stride + x_at);
    for (uint i = lane(); given_at > 0 && i < n_used; i += LANES) ids[i] = step_words[given_at + t * n_used + i];
    barrier();
    for (uint i = lane(); i < n_used; i += LANES) put(to, i, scores[N + i]);
    if (PLACES != 0 && lane() == 0) place();
}
