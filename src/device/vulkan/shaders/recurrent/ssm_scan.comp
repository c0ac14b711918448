#version 450
/* Selective state spaces (forward/gpu/shader_params.h: ssm_scan). An invocation has four channels of a part, and goes
 * through their states for some tokens at a time, so that it reads and writes a state once for these. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "chains.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint BY_CHANNEL = 0;
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Delta { float delta[]; };
layout(binding = 3) readonly buffer Rates { float rates[]; };
layout(binding = 4) readonly buffer B { float b[]; };
layout(binding = 5) readonly buffer C { float c[]; };
layout(binding = 6) buffer States { vec4 states[]; };
layout(binding = 7) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n_part, size, n_state, n_shared, d_at, runs_at, first_tok, n_tok;
    uint x_stride, x_at, delta_stride, delta_at, b_stride, b_at, c_stride, c_at, y_stride, y_at;
};
#include "runs.glsl"

const uint TOKENS = 4, LOADS = 4;

uint n_quad() { return (size + 3) / 4; }
uint part() { return gl_GlobalInvocationID.x / n_quad(); }
uint first_channel() { return gl_GlobalInvocationID.x % n_quad() * 4; }
uint n_channel() { return min(size - first_channel(), 4); }

/* A part's values, or those of its channels; beyond these zeros. */
vec4 x_of(uint t)
{
    vec4 all = vec4(0.0);
    for (uint i = 0; i < n_channel(); i++) all[i] = x[t * x_stride + x_at + part() * size + first_channel() + i];
    return all;
}

vec4 delta_of(uint t)
{
    vec4 all = vec4(delta[t * delta_stride + delta_at + part()]);
    for (uint i = 0; i < 4 && BY_CHANNEL != 0; i++)
        all[i] = i < n_channel() ? delta[t * delta_stride + delta_at + first_channel() + i] : 0.0;
    return all;
}

vec4 rates_from(uint at)
{
    vec4 all = vec4(rates[at + part()]);
    for (uint i = 0; i < 4 && BY_CHANNEL != 0; i++) all[i] = i < n_channel() ? rates[at + first_channel() + i] : 0.0;
    return all;
}

vec4 decay_of(vec4 delta_of_token, vec4 rate)
{
    precise vec4 exponent = delta_of_token * rate;
    if (BY_CHANNEL == 0) return vec4(exp_by_rule(exponent.x));
    return vec4(exp_by_rule(exponent.x), exp_by_rule(exponent.y), exp_by_rule(exponent.z), exp_by_rule(exponent.w));
}

vec4 product(vec4 a, vec4 factor)
{
    precise vec4 y_of = a * factor;
    return y_of;
}

/* Tokens [t, t + n) of a run, n up to TOKENS, from the states at quad `from` on to those at `to`; has_state: else from
 * zeros. */
void scan(uint t, uint n, bool has_state, uint from, uint to)
{
    const uint group = part() / n_shared * n_state;
    vec4 u[TOKENS], steps[TOKENS], decays[TOKENS], sums[TOKENS];
    for (uint i = 0; i < n; i++) {
        steps[i] = delta_of(t + i), sums[i] = vec4(0.0);
        u[i] = product(steps[i], x_of(t + i));
        if (BY_CHANNEL == 0) decays[i] = decay_of(steps[i], rates_from(0));
    }
    for (uint first = 0; first < n_state; first += LOADS) {
        vec4 h[LOADS];
        for (uint i = 0; i < LOADS; i++) {
            h[i] = vec4(0.0);
            if (has_state && first + i < n_state) h[i] = states[from + (first + i) * n_quad()];
        }
        for (uint i = 0; i < LOADS && first + i < n_state; i++) {
            const uint k = first + i;
            for (uint j = 0; j < n; j++) {
                vec4 decay = BY_CHANNEL != 0 ? decay_of(steps[j], rates_from(k * size)) : decays[j];
                h[i] = plus(product(h[i], decay), vec4(b[(t + j) * b_stride + b_at + group + k]), u[j]);
                sums[j] = plus(sums[j], h[i], vec4(c[(t + j) * c_stride + c_at + group + k]));
            }
            states[to + k * n_quad()] = h[i];
        }
    }
    for (uint j = 0; j < n; j++) {
        vec4 all = plus(sums[j], rates_from(d_at), x_of(t + j));
        for (uint i = 0; i < n_channel(); i++)
            y[(t + j) * y_stride + y_at + part() * size + first_channel() + i] = all[i];
    }
}

void main()
{
    if (gl_WorkGroupID.y >= step_words[STEP_N_RUN] || part() >= n_part) return;
    const uint run = run_word(RUN_FIRST), begin = max(run, first_tok);
    const uint end = min(run + run_word(RUN_N_TOK), first_tok + n_tok);
    const uint page = n_part * n_state * n_quad(), own = part() * n_state * n_quad() + first_channel() / 4;
    const uint to = run_word(RUN_STEP_TO) * page + own;
    for (uint t = begin; t < end; t += TOKENS) {
        const bool has_state = t > run || run_word(RUN_POSITION) > 0;
        const uint from = t > run ? to : run_word(RUN_STEP_FROM) * page + own;
        scan(t, min(end - t, TOKENS), has_state, from, to);
    }
}
