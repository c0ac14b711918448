#version 450
/* Sums of down, onto what is there. */
#extension GL_GOOGLE_include_directive : require
#define ONTO
#include "down_reduce.glsl"
