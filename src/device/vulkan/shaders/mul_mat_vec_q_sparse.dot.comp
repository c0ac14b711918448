#version 450
/* y = active rows, quantised, times activations, by integer dot products. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SPARSE 7
#define DOT
#include "mul_mat_vec_q.glsl"
