#version 450
/* y = y + quantised rows times activations, by matrix units that say where elements lie. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define ONTO
#include "coopmat.glsl"
