#version 450
/* y = quantised rows times activations, by matrix units that say where elements lie. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "coopmat.glsl"
