/* Shared by the files of imatrix*.c. */
#ifndef HTH_FILE_IMATRIX_INT_H
#define HTH_FILE_IMATRIX_INT_H

#include "file/gguf_int.h"
#include "file/imatrix.h"

/* imatrix_dat.c: reads the whole source. */
hearth_status hth_imatrix_read_dat(hth_imatrix *m, const hth_gguf_source *source, hearth_error *err);

#endif
