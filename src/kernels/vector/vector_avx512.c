/* The functions of vector_tmpl.h with AVX-512. */
#define LEVEL avx512
#include "kernels/vector/vector_tmpl.h"
