#version 450
/* y = active rows of floats times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SPARSE 5
#include "mul_mat_vec_f.glsl"
