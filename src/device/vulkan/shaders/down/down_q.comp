#version 450
/* Transposed down, quantised. */
#extension GL_GOOGLE_include_directive : require
#include "down_q.glsl"
