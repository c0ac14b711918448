#version 450
/* y = rows of chosen slices, floats, times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SLICED 5
#include "mul_mat_vec_f.glsl"
