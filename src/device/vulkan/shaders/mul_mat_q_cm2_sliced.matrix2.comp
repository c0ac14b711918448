#version 450
/* y = rows of chosen slices, quantised, times activations, by matrix units that say where elements lie. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#define SLICED 7
#include "coopmat.glsl"
