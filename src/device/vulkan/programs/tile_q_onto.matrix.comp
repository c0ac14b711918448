#version 450
/* y = y + quantised rows times activations, by matrix units. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define ONTO
#define MATRIX
#include "rows_q.glsl"
