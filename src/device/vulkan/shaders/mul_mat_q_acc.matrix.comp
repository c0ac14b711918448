#version 450
/* y = y + quantised rows times activations, by matrix units. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define ONTO
#define MATRIX
#include "mul_mat_vec_q.glsl"
