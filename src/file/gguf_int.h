/* Shared by the files of the GGUF reader and writer: limits, little-endian words, one part of a file, the cursor.
 * Private to this folder. */
#ifndef HTH_FILE_GGUF_INT_H
#define HTH_FILE_GGUF_INT_H

#include "base/alloc.h"
#include "file/gguf.h"
#include "file/name_index.h"

#include <string.h>
#include <time.h>

/* ---- limits (of this reader; generous against every known model) --------- */

enum {
    HTH_GGUF_VERSION = 3, /* the newest, which is written */
    HTH_GGUF_MAX_PAIR = 65536,
    HTH_GGUF_MAX_KEY = 65535, /* the format's limit */
    HTH_GGUF_MAX_TEXT = 16 << 20,
    HTH_GGUF_MAX_ELEMENT = 1 << 24,
    HTH_GGUF_MAX_DEPTH = 4, /* levels of nested arrays */
    HTH_GGUF_MAX_TENSOR = 1 << 20,
    HTH_GGUF_MAX_NAME = 63, /* ggml rejects 64 */
    HTH_GGUF_MAX_DIM = 4,
    HTH_GGUF_MIN_ALIGNMENT = 8, /* the format's limit */
    HTH_GGUF_MAX_ALIGNMENT = 65536,
    HTH_GGUF_ALIGNMENT = 32, /* default without metadata */
    HTH_GGUF_MAX_PART = 1024,
    HTH_GGUF_MAX_DIRECTORY = 1 << 29, /* bytes before the tensor data: bounds memory */
    HTH_GGUF_HEADER_SIZE = 24,
    HTH_GGUF_MIN_PAIR_SIZE = 13, /* key length, one byte of key, type */
    HTH_GGUF_MIN_INFO_SIZE = 24, /* name length, dimension count, type, offset */
};
#define HTH_GGUF_MAX_DIM_VALUE ((uint64_t)1 << 40)
#define HTH_GGUF_MAX_WEIGHT ((uint64_t)1 << 48)

/* ---- little-endian words -------------------------------------------------- */

static inline uint64_t hth_gguf_load(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline void hth_gguf_store(void *bytes, uint64_t v, size_t size)
{
    unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++) p[i] = (unsigned char)(v >> (8 * i));
}

/* Bytes of one scalar; 0 for strings, arrays and unknown types. */
size_t hth_gguf_scalar_size(hth_gguf_type type);
/* "u32"; "unknown" for a number that is not in the format. */
const char *hth_gguf_type_name(hth_gguf_type type);
/* Value of a scalar from its bytes, by kind. */
bool hth_gguf_is_unsigned(hth_gguf_type type); /* U8..U64 */
bool hth_gguf_is_signed(hth_gguf_type type);   /* I8..I64 */
int64_t hth_gguf_load_signed(const void *bytes, size_t size);
double hth_gguf_load_float(const void *bytes, size_t size);

/* True for a power of two that the format and this reader allow. */
static inline bool hth_gguf_alignment_valid(uint64_t a)
{
    return a >= HTH_GGUF_MIN_ALIGNMENT && a <= HTH_GGUF_MAX_ALIGNMENT && (a & (a - 1)) == 0;
}

/* ---- the bytes of one part: gguf_source.c ---------------------------------- */

typedef struct hth_gguf_source {
    char *path;                 /* or the name of bytes in memory; owned */
    const char *label;          /* path for messages */
    int fd;                     /* -1 for bytes in memory */
    uint64_t size;              /* when it was opened */
    struct timespec written;    /* the last time before that */
    const unsigned char *bytes; /* in memory, or mapped; else NULL */
    bool mapped, uncached;
    int guard; /* index of the map in the SIGBUS guard: sigbus_guard.h */
} hth_gguf_source;

hearth_status hth_gguf_source_open(hth_gguf_source *s, const char *path, hearth_error *err);
hearth_status hth_gguf_source_memory(hth_gguf_source *s, const void *data, size_t size, const char *name,
                                     hearth_error *err);
/* The file of a descriptor, which stays the caller's. ARGUMENT: it is none that can be read as a model. */
hearth_status hth_gguf_source_descriptor(hth_gguf_source *s, int fd, const char *name, hearth_error *err);
void hth_gguf_source_close(hth_gguf_source *s);
/* Whether something wrote to the file since it was opened. */
bool hth_gguf_source_was_written(const hth_gguf_source *s);
/* Reads size bytes from `at`. The caller has checked at + size <= s->size. */
hearth_status hth_gguf_source_read(const hth_gguf_source *s, uint64_t at, size_t size, void *dst,
                                   hearth_error *err);
/* As hth_gguf_read_uncached; the bytes before `end` were read so far. */
void hth_gguf_source_read_uncached(hth_gguf_source *s, uint64_t end);
hearth_status hth_gguf_source_map(hth_gguf_source *s, hearth_error *err);
/* IO if a page of the map was found missing. */
hearth_status hth_gguf_source_check_map(const hth_gguf_source *s, hearth_error *err);
/* "PATH: cannot WHAT: reason of errno", as an IO error. */
hearth_status hth_gguf_fail_errno(hearth_error *err, const char *path, const char *what, int error);

/* ---- the cursor: gguf_cursor.c ---------------------------------------------- */

/* The item that is being read, for messages. The name is empty while it is unknown. */
typedef struct hth_gguf_context {
    const char *kind; /* "header", "key", "tensor" */
    hth_str name;
    uint64_t number, n; /* number of n */
    uint64_t offset;
} hth_gguf_context;

/* Reads a source sequentially. Bytes from `mark` on stay in the window. */
typedef struct hth_gguf_cursor {
    const hth_gguf_source *source;
    const unsigned char *bytes; /* window */
    unsigned char *owned;       /* memory of the window, for files */
    size_t capacity;
    uint64_t base; /* offset of the window in the source */
    size_t n;      /* bytes in the window */
    uint64_t offset;   /* offset of the next byte to read */
    uint64_t mark;
    hth_gguf_context context;
    hearth_error *err;
} hth_gguf_cursor;

static inline uint64_t hth_gguf_remaining(const hth_gguf_cursor *c) { return c->source->size - c->offset; }

/* The next n bytes, valid until the next read; NULL after an error. `what` names them in it if the file ends. */
hearth_status hth_gguf_read_bytes(hth_gguf_cursor *c, uint64_t n, const char *what, const unsigned char **bytes);
hearth_status hth_gguf_read_int(hth_gguf_cursor *c, size_t size, const char *what, uint64_t *word);
/* Reads a length or count. FORMAT if it is below min or above max, or more than the rest of the file can hold when
 * each item has at least `each` bytes. */
hearth_status hth_gguf_read_count(hth_gguf_cursor *c, const char *what, uint64_t min, uint64_t max,
                                  uint64_t each, uint64_t *count);
/* The bytes from mark to offset. */
const unsigned char *hth_gguf_marked(const hth_gguf_cursor *c, size_t *n);
/* Reports an error about the current item: "PATH: key 'k' (at byte 9): " and the formatted rest. A file whose name says
 * that it is a part of one that was cut by bytes is called so. */
hearth_status hth_gguf_error(const hth_gguf_cursor *c, hearth_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hth_gguf_cursor_free(hth_gguf_cursor *c);

/* ---- parts and files --------------------------------------------------------- */

typedef struct hth_gguf_part {
    hth_gguf_source source;
    uint32_t version;
    bool powerinfer;           /* according to its magic */
    uint64_t n_tensor, n_pair; /* from the header */
    uint64_t alignment;
    uint64_t data_offset; /* start of the tensor data */
    uint64_t end;     /* end of the last tensor, or of the directory */
    hth_gguf_value *values;
    size_t n_value, value_capacity;
    hth_file_name_index keys;
    size_t i_first; /* index of its first tensor in hth_gguf.tensors */
} hth_gguf_part;

struct hth_gguf {
    char *path;      /* as given; NULL for bytes in memory */
    hth_arena arena; /* strings and raw values of all parts */
    hth_gguf_part *parts;
    uint32_t n_part;
    hth_gguf_tensor *tensors;
    size_t n_tensor, tensor_capacity;
    hth_file_name_index names;
};

/* gguf_header.c: magic, version and counts. */
hearth_status hth_gguf_parse_header(hth_gguf_cursor *c, hth_gguf_part *part);
/* gguf_meta.c: all metadata pairs, then the alignment. */
hearth_status hth_gguf_parse_meta(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_part *part);
/* Adds a pair whose key the part does not have; its bytes are in the file's arena. */
hearth_status hth_gguf_keep_value(hth_gguf_part *part, const hth_gguf_value *v, hearth_error *err);
/* gguf_tensors.c: the tensor directory of part i_part. Checks the extents of the data. */
hearth_status hth_gguf_parse_tensors(hth_gguf_cursor *c, hth_gguf *file, uint32_t i_part);
/* gguf_open.c: opens and parses one more part. */
hearth_status hth_gguf_add_part(hth_gguf *file, const char *path, hearth_error *err);
/* The same for a descriptor, the i-th of those that the caller gave. */
hearth_status hth_gguf_add_descriptor(hth_gguf *file, size_t i, int fd, hearth_error *err);
void hth_gguf_drop_parts(hth_gguf *file);
/* gguf_split.c: called with part 0 parsed. If it is one of several parts, opens all parts in order instead. */
hearth_status hth_gguf_join_parts(hth_gguf *file, hearth_error *err);
/* The same for descriptors, none of which is parsed yet, in any order. */
hearth_status hth_gguf_join_descriptors(hth_gguf *file, const int *fds, size_t n_fd, hearth_error *err);

/* gguf_values.c */
const hth_gguf_value *hth_gguf_part_find(const hth_gguf_part *part, const char *key);
hearth_status hth_gguf_part_uint(const hth_gguf_part *part, const char *key, uint64_t min, uint64_t max,
                                 uint64_t *value, bool *found, hearth_error *err);

/* A name from a file, escaped and truncated for a message. */
typedef struct hth_gguf_shown {
    char text[140];
} hth_gguf_shown;
static inline hth_gguf_shown hth_gguf_show(hth_str name)
{
    hth_gguf_shown s;
    hth_escape(s.text, sizeof s.text, name.bytes, name.n);
    return s;
}

#endif
