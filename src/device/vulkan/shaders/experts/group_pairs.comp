#version 450
/* Groups of pairs of one expert (forward/gpu/shader_params.h: group_pairs). An invocation makes those of one expert:
 * all read the pairs together, so that their order is that of the tokens. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint N = 8;     /* experts, and one */
layout(constant_id = 1) const uint PAIRS = 8; /* of a group, at most */
layout(local_size_x_id = 2) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Pairs { uint pairs[]; };
layout(binding = 2) writeonly buffer Groups { uint groups[]; };
layout(push_constant) uniform Push { uint n_used, slots_at; };

const uint LANES = gl_WorkGroupSize.x, HEAD = 4, WORDS = 2 + 2 * PAIRS; /* HTH_GROUPS_HEAD, hth_group_words */

shared uint n_of[N];                       /* pairs of each expert */
shared uint some_ids[LANES], some_weights[LANES];

uint lane() { return gl_LocalInvocationID.x; }
uint word_of(uint i) { return i / n_used * 2 * n_used + i % n_used; }
/* Experts without a slot are one, the last. */
uint expert_of(uint i)
{
    uint expert = pairs[word_of(i)];
    return slots_at > 0 && step_words[slots_at + expert] == NO_SLOT ? N - 1 : expert;
}

void count(uint n_pair)
{
    for (uint i = lane(); i < N; i += LANES) n_of[i] = 0;
    barrier();
    for (uint i = lane(); i < n_pair; i += LANES) atomicAdd(n_of[expert_of(i)], 1);
    barrier();
}

/* The groups of the experts before `end`. */
uint n_group_before(uint end)
{
    uint n = 0;
    for (uint e = 0; e < end; e++) n += (n_of[e] + PAIRS - 1) / PAIRS;
    return n;
}

/* Pair i, with its weight, is the next of the expert whose groups begin at `at`, and which has n so far. */
void put(uint at, uint n, uint i, uint weight)
{
    uint to = at + n / PAIRS * WORDS + 2 + n % PAIRS;
    groups[to] = i;
    groups[to + PAIRS] = weight;
}

void put_heads(uint expert, uint at)
{
    for (uint n = 0; n < n_of[expert]; n += PAIRS, at += WORDS) {
        groups[at] = expert;
        groups[at + 1] = min(PAIRS, n_of[expert] - n);
    }
}

void main()
{
    const uint n_pair = step_words[STEP_N_TOK] * n_used, expert = gl_GlobalInvocationID.x;
    count(n_pair);
    uint at = HEAD + n_group_before(min(expert, N)) * WORDS, n = 0;
    if (expert == 0) groups[0] = n_group_before(N);
    if (expert < N) put_heads(expert, at);
    for (uint first = 0; first < n_pair; first += LANES) {
        uint i = min(first + lane(), n_pair - 1);
        some_ids[lane()] = expert_of(i);
        some_weights[lane()] = pairs[word_of(i) + n_used];
        barrier();
        for (uint k = 0; k < min(LANES, n_pair - first); k++)
            if (some_ids[k] == expert) put(at, n++, first + k, some_weights[k]);
        barrier();
    }
}
