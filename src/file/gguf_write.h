/* Writes GGUF version 3: metadata first, then the tensor directory, then data streamed in the order of the
 * directory. The file gets its name only when hth_gguf_writer_finish has succeeded; before that it is
 * PATH.hearth-part. */
#ifndef HTH_FILE_GGUF_WRITE_H
#define HTH_FILE_GGUF_WRITE_H

#include "file/gguf.h"

typedef struct hth_gguf_writer hth_gguf_writer;

hearth_status hth_gguf_writer_open(const char *path, hth_gguf_writer **out, hearth_error *err);

/* Metadata. A key that is set twice keeps its position and takes the later value. Errors (MEMORY; ARGUMENT for
 * keys, values and shapes that the reader would reject) are stored and returned by hth_gguf_writer_begin.
 * general.alignment, if set, is applied. */
void hth_gguf_writer_uint(hth_gguf_writer *w, const char *key, hth_gguf_type type, uint64_t value);
void hth_gguf_writer_int(hth_gguf_writer *w, const char *key, hth_gguf_type type, int64_t value);
void hth_gguf_writer_float(hth_gguf_writer *w, const char *key, hth_gguf_type type, double value);
void hth_gguf_writer_bool(hth_gguf_writer *w, const char *key, bool value);
void hth_gguf_writer_text(hth_gguf_writer *w, const char *key, const char *text, size_t n);
/* elements: n little-endian values of element_type (not TEXT, not ARRAY). */
void hth_gguf_writer_array(hth_gguf_writer *w, const char *key, hth_gguf_type element_type,
                           const void *elements, uint64_t n);
void hth_gguf_writer_texts(hth_gguf_writer *w, const char *key, const hth_str *texts, uint64_t n);
/* Copies any pair of another file unchanged. */
void hth_gguf_writer_copy(hth_gguf_writer *w, const hth_gguf_value *value);

/* Declares the next tensor. dim[0] must be a multiple of the type's block size. */
void hth_gguf_writer_tensor(hth_gguf_writer *w, const char *name, hth_type type, uint32_t n_dim,
                            const uint64_t dim[]);

/* Writes header, metadata and directory. No metadata or tensors after this. */
hearth_status hth_gguf_writer_begin(hth_gguf_writer *w, hearth_error *err);
/* Appends data of the current tensor, and padding between tensors. The bytes of a tensor may be split over any
 * number of calls; a call must not cross its end. */
hearth_status hth_gguf_writer_data(hth_gguf_writer *w, const void *data, size_t size, hearth_error *err);
/* Flushes, syncs and renames, then syncs the folder (if only that fails, the file exists and is complete).
 * ARGUMENT if data are missing. */
hearth_status hth_gguf_writer_finish(hth_gguf_writer *w, hearth_error *err);
/* Frees w. Removes the unfinished file unless finish has succeeded. */
void hth_gguf_writer_close(hth_gguf_writer *w);

#endif
