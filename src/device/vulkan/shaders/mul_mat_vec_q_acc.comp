#version 450
/* y = y + quantised rows times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define ONTO
#include "mul_mat_vec_q.glsl"
