#version 450
/* Transposed down of chosen experts, quantised. */
#extension GL_GOOGLE_include_directive : require
#define SLICED 5
#include "down_q.glsl"
