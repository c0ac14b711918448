#version 450
/* Sums of down. */
#extension GL_GOOGLE_include_directive : require
#include "down_reduce.glsl"
