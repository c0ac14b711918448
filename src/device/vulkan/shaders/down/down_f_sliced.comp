#version 450
/* Transposed down of chosen experts with float weights. */
#extension GL_GOOGLE_include_directive : require
#define SLICED 4
#include "down_f.glsl"
