#version 450
/* y = active rows, quantised, times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SPARSE 7
#include "mul_mat_vec_q.glsl"
