#version 450
/* y = rows of chosen slices, quantised, times activations, by matrix units. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SLICED 7
#define MATRIX
#include "mul_mat_vec_q.glsl"
