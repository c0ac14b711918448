/* Opens files for reads that bypass the page cache (O_DIRECT). */
#ifndef HTH_STORE_DIRECT_IO_H
#define HTH_STORE_DIRECT_IO_H

#include <stdint.h>

/* Alignments of direct reads are at most this. */
enum { HTH_DIRECT_MAX_ALIGN = 4096 };

/* Opens the file of fd again, the same one even if its path names another by now. *align: of offsets, sizes and
 * addresses, as the file system asks (Linux 6.1), else HTH_DIRECT_MAX_ALIGN. Below 0: the file system refuses. */
int hth_direct_open(int fd, uint32_t *align);

#endif
