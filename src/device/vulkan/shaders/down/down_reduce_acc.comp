#version 450
/* Sums of down, added to y. */
#extension GL_GOOGLE_include_directive : require
#define ONTO
#include "down_reduce.glsl"
