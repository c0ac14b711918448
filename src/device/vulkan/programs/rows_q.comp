#version 450
/* y = quantised rows times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "rows_q.glsl"
