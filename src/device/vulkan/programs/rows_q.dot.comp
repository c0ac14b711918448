#version 450
/* y = quantised rows times activations, by integer dot products. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define DOT
#include "rows_q.glsl"
