#version 450
/* y = quantised rows times activations, by integer dot products. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define DOT
#include "mul_mat_vec_q.glsl"
