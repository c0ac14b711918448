#version 450
/* y = y + rows of floats times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define ONTO
#include "mul_mat_vec_f.glsl"
