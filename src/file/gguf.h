/* Reads GGUF files, versions 2 and 3, of one part or several. No byte of a file is trusted: the whole directory
 * (counts, lengths, types, offsets, overlaps) is checked before any of it is returned, and tensor data are inside
 * their file. A parsed file is immutable and may be read by several threads. */
#ifndef HTH_FILE_GGUF_H
#define HTH_FILE_GGUF_H

#include "base/status.h"
#include "file/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct hth_gguf hth_gguf;

/* The numbers are those of the format. */
typedef enum hth_gguf_type {
    HTH_GGUF_U8 = 0,
    HTH_GGUF_I8 = 1,
    HTH_GGUF_U16 = 2,
    HTH_GGUF_I16 = 3,
    HTH_GGUF_U32 = 4,
    HTH_GGUF_I32 = 5,
    HTH_GGUF_F32 = 6,
    HTH_GGUF_BOOL = 7,
    HTH_GGUF_TEXT = 8,
    HTH_GGUF_ARRAY = 9,
    HTH_GGUF_U64 = 10,
    HTH_GGUF_I64 = 11,
    HTH_GGUF_F64 = 12,
} hth_gguf_type;

/* Bytes from the file: not terminated in general, any byte may occur. Strings returned by this reader are also
 * followed by a NUL byte, for messages. */
typedef struct hth_str {
    const char *bytes;
    size_t n;
} hth_str;

static inline bool hth_str_eq(hth_str text, const char *name)
{
    return text.n == strlen(name) && memcmp(text.bytes, name, text.n) == 0;
}

static inline bool hth_str_begins(hth_str text, const char *part)
{
    size_t n = strlen(part);
    return text.n >= n && memcmp(text.bytes, part, n) == 0;
}

static inline bool hth_str_ends(hth_str text, const char *part)
{
    size_t n = strlen(part);
    return text.n >= n && memcmp(text.bytes + text.n - n, part, n) == 0;
}

static inline bool hth_str_has(hth_str text, hth_str part)
{
    if (part.n == 0) return true;
    for (size_t i = 0; i + part.n <= text.n; i++)
        if (text.bytes[i] == *part.bytes && memcmp(text.bytes + i, part.bytes, part.n) == 0) return true;
    return false;
}

static inline bool hth_str_contains(hth_str text, const char *part)
{
    return hth_str_has(text, (hth_str){part, strlen(part)});
}

/* By bytes; a beginning comes before the longer text. */
static inline int hth_str_compare(hth_str a, hth_str b)
{
    int order = memcmp(a.bytes, b.bytes, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* One metadata pair. Scalars are in the member of their type. Arrays hold n_element values of element_type (for
 * nested arrays only the raw bytes and the count are stored). */
typedef struct hth_gguf_value {
    hth_str key;
    hth_gguf_type type;
    uint64_t offset; /* offset of the key in the file, for error messages */
    union {
        uint64_t u; /* U8..U64 and BOOL */
        int64_t i;  /* I8..I64 */
        double f;   /* F32, F64 */
        hth_str text;
    } as;
    hth_gguf_type element_type;
    uint64_t n_element;
    const void *elements; /* raw little-endian values, unaligned; for TEXT an hth_str[] */
    hth_str raw;         /* the value's bytes in the file (without the type word), for copying */
} hth_gguf_value;

typedef struct hth_gguf_tensor {
    hth_str name;
    hth_type type;    /* may be unsupported: see hth_type_find */
    uint32_t n_dim;   /* 1..4 */
    uint64_t dim[4];  /* dim[0] is contiguous; unused ones are 1 */
    uint64_t size;    /* bytes */
    uint32_t i_part;  /* 0 for files of one part */
    uint64_t offset;  /* absolute offset of the data in that part's file */
    uint64_t info_at; /* offset of the directory entry in that file, for error messages */
} hth_gguf_tensor;

/* Opens path. If its metadata say that it is split, opens all other parts too (path may be any part). Errors: IO,
 * FORMAT, UNSUPPORTED, MEMORY. */
hearth_status hth_gguf_open(const char *path, hth_gguf **out, hearth_error *err);

/* The same over bytes in memory, which must stay valid. name is used in messages. */
hearth_status hth_gguf_open_memory(const void *data, size_t size, const char *name, hth_gguf **out,
                                   hearth_error *err);
/* The same over n_fd descriptors, one for each part, in any order; the caller's stay open. ARGUMENT: they are not those
 * of all parts of a model, each once. */
hearth_status hth_gguf_open_descriptors(const int *fds, size_t n_fd, const char *name, hth_gguf **out,
                                        hearth_error *err);
void hth_gguf_close(hth_gguf *file);

const char *hth_gguf_path(const hth_gguf *file); /* as given */
/* The part of path that messages print: only its end if path is long, to leave space for the rest of the line. */
const char *hth_gguf_label(const char *path);
const char *hth_gguf_part_path(const hth_gguf *file, uint32_t i_part);
uint32_t hth_gguf_version(const hth_gguf *file);
/* PowerInfer files start with PWRI and are GGUF otherwise, with other semantics (model/arch.h). */
bool hth_gguf_is_powerinfer(const hth_gguf *file);
uint32_t hth_gguf_n_part(const hth_gguf *file);
uint64_t hth_gguf_size(const hth_gguf *file);      /* all parts together */
uint64_t hth_gguf_alignment(const hth_gguf *file); /* alignment of the first part */
uint64_t hth_gguf_trailing(const hth_gguf *file);  /* bytes after the last tensor */

/* Metadata of the first part, in file order. */
size_t hth_gguf_n_value(const hth_gguf *file);
const hth_gguf_value *hth_gguf_value_at(const hth_gguf *file, size_t i);
const hth_gguf_value *hth_gguf_find(const hth_gguf *file, const char *key);
/* gguf_override.c: KEY=TYPE:VALUE replaces or adds a value, TYPE int, float, bool or str. A key that begins with a point
 * stands behind the architecture's name. The value has the type that the file has for its key, else i64, f32, bool or
 * text. Before the first read of metadata; ARGUMENT: it is no such text, or of another kind than the file's value. */
hearth_status hth_gguf_override(hth_gguf *file, const char *text, hearth_error *err);

/* Typed reads. If the key is absent they return HEARTH_OK, leave *value (the default) unchanged and set *found to
 * false (found may be NULL). A value of another kind, or outside [min, max], is a FORMAT error that names file,
 * key and offset. Integers of any width and sign are accepted as integers. */
hearth_status hth_gguf_get_uint(const hth_gguf *file, const char *key, uint64_t min, uint64_t max,
                                uint64_t *value, bool *found, hearth_error *err);
hearth_status hth_gguf_get_float(const hth_gguf *file, const char *key, double min, double max, double *value,
                                 bool *found, hearth_error *err);
hearth_status hth_gguf_get_bool(const hth_gguf *file, const char *key, bool *value, bool *found,
                                hearth_error *err);
hearth_status hth_gguf_get_text(const hth_gguf *file, const char *key, hth_str *value, bool *found,
                                hearth_error *err);
/* An array of element_type. n_expect 0: any length. *value is NULL if the key is absent. */
hearth_status hth_gguf_get_array(const hth_gguf *file, const char *key, hth_gguf_type element_type,
                                 uint64_t n_expect, const hth_gguf_value **value, hearth_error *err);
/* "key K missing (needed by WHY)": the error of a required key. */
hearth_status hth_gguf_missing(const hth_gguf *file, const char *key, const char *why, hearth_error *err);

/* Element i (below n_element) of a numeric or bool array. Numbers of another kind are converted as in C. */
bool hth_gguf_is_integer(hth_gguf_type type); /* U8..U64, I8..I64 */
uint64_t hth_gguf_element_uint(const hth_gguf_value *array, uint64_t i);
int64_t hth_gguf_element_int(const hth_gguf_value *array, uint64_t i);
double hth_gguf_element_float(const hth_gguf_value *array, uint64_t i);

/* Tensors of all parts, in file order. */
size_t hth_gguf_n_tensor(const hth_gguf *file);
const hth_gguf_tensor *hth_gguf_tensor_at(const hth_gguf *file, size_t i);
const hth_gguf_tensor *hth_gguf_find_tensor(const hth_gguf *file, const char *name);

/* Reads size bytes of a tensor, starting at byte `from`, into dst. Safe from several threads. A file that became
 * shorter is an IO error with file and offset. */
hearth_status hth_gguf_read(const hth_gguf *file, const hth_gguf_tensor *tensor, uint64_t from, size_t size,
                            void *dst, hearth_error *err);

/* Drops the file's pages from the page cache, and keeps later reads of hth_gguf_read out of it, because control groups
 * count the page cache as memory of the process. Turns off read-ahead. */
void hth_gguf_read_uncached(hth_gguf *file);
/* The descriptor of a part, which stays the file's; -1 for files opened from memory. */
int hth_gguf_part_fd(const hth_gguf *file, uint32_t i_part);
/* The path of a part to which something wrote since it was opened, or NULL. */
const char *hth_gguf_written_part(const hth_gguf *file);

/* Maps all parts read-only (once). hth_gguf_mapped then returns a pointer to a tensor's bytes. For files opened
 * from memory it always does. */
hearth_status hth_gguf_map(hth_gguf *file, hearth_error *err);
const void *hth_gguf_mapped(const hth_gguf *file, const hth_gguf_tensor *tensor);
/* Whether an address is in a map: the file may become shorter than it. */
bool hth_gguf_is_in_map(const hth_gguf *file, const void *address);
/* IO if a mapped part was found shorter than before (sigbus_guard.h): what was read from the map since then is
 * invalid. */
hearth_status hth_gguf_check_map(const hth_gguf *file, hearth_error *err);

/* The fault that tests give the n-th read from now on (counted from 1); n 0 disables that. */
typedef enum hth_read_fault {
    HTH_READ_FAILS,       /* ENODEV, which is not tried again */
    HTH_READ_FAILS_ONCE,  /* EIO */
    HTH_READ_FAILS_ALWAYS, /* EIO, and so do all reads after it */
    HTH_READ_SHORT,       /* half of the requested bytes are read */
    HTH_READ_INTERRUPTED, /* EINTR, before any byte is read */
} hth_read_fault;
void hth_gguf_fail_read_at(uint64_t n, hth_read_fault fault);
/* Reads since the start of the process, including failed ones. */
uint64_t hth_gguf_n_read(void);

#endif
