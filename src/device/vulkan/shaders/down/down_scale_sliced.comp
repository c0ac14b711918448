#version 450
/* The scale of a cluster of weighted hidden values of a pair. */
#extension GL_GOOGLE_include_directive : require
#define SLICED 4
#include "down_scale.glsl"
