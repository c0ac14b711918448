#version 450
/* y = quantised rows times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "mul_mat_vec_q.glsl"
