#version 450
/* Transposed down with float weights. */
#extension GL_GOOGLE_include_directive : require
#include "down_f.glsl"
