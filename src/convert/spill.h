/* Byte streams that may be too large for memory: held in memory if they fit, else in an unnamed file, which
 * disappears when the process ends. */
#ifndef HTH_CONVERT_SPILL_H
#define HTH_CONVERT_SPILL_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hth_spill hth_spill;

/* Opens n_stream streams of stream_size bytes each. More than `memory` bytes in all go to a file in the folder
 * of `beside`. IO, MEMORY. */
hearth_status hth_spill_open(uint32_t n_stream, uint64_t stream_size, uint64_t memory, const char *beside,
                             hth_spill **out, hearth_error *err);
void hth_spill_close(hth_spill *s);
/* Writes or reads size bytes of a stream from byte `at` on. */
hearth_status hth_spill_put(hth_spill *s, uint32_t i_stream, uint64_t at, const void *bytes, size_t size,
                            hearth_error *err);
hearth_status hth_spill_get(const hth_spill *s, uint32_t i_stream, uint64_t at, void *bytes, size_t size,
                            hearth_error *err);

#endif
