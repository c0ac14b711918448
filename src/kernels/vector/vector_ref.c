/* The functions of vector_tmpl.h in C: the definition. */
#define LEVEL ref
#include "kernels/vector/vector_tmpl.h"
