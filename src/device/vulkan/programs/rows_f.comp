#version 450
/* y = rows of floats times activations. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "rows_f.glsl"
