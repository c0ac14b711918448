/* The functions of vector_tmpl.h with AVX2. */
#define LEVEL avx2
#include "kernels/vector/vector_tmpl.h"
