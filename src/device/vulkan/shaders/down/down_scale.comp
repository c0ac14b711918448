#version 450
/* The scale of a cluster of hidden values of a token. */
#extension GL_GOOGLE_include_directive : require
#include "down_scale.glsl"
