/* The functions of vector_tmpl.h on AArch64. */
#define LEVEL neon
#include "kernels/vector/vector_tmpl.h"
