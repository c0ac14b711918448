#version 450
/* y = rows of floats times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "mul_mat_vec_f.glsl"
