/* Reads extents of files into memory by one thread of its own, which keeps several reads running. It bypasses the page
 * cache where the file system allows it. Short reads, interruptions and failures are handled here: a load has either
 * all its bytes or one error. */
#ifndef HTH_STORE_READER_H
#define HTH_STORE_READER_H

#include "store/disk.h"

#include <stddef.h>

/* Bytes of a file. */
typedef struct hth_extent {
    uint32_t i_file;
    uint64_t offset, size;
} hth_extent;

/* Gate, up and down. */
enum { HTH_MAX_EXTENT = 3, HTH_BUFFER_ALIGN = 4096 };

/* Why a load failed. */
typedef struct hth_load_failure {
    int error;       /* errno; 0: the file became shorter */
    uint32_t i_file;
    uint64_t at;     /* byte of the file */
    bool wrong;      /* the bytes from there on have another checksum than they should */
} hth_load_failure;

typedef struct hth_load hth_load;
struct hth_load {
    hth_extent extents[HTH_MAX_EXTENT];
    uint32_t n_extent;
    uint8_t *to;      /* hth_reader_buffer_size bytes, aligned to HTH_BUFFER_ALIGN; the reader's until done is called */
    uint32_t guess_size; /* 0: needed now; else a guess: read after what is needed, while reads of fewer bytes run */
    bool prioritized, dropped; /* set by hth_reader_prioritize and hth_reader_drop */
    /* Called by the reader's thread, once. It must not wait. */
    void (*done)(hth_load *load);
    void *user;
    bool again;       /* the user's: bytes were wrong, and are read again */
    /* Set before done. */
    bool failed;
    hth_load_failure failure;
    const uint8_t *data[HTH_MAX_EXTENT]; /* the first byte of each extent */
    /* The reader's. */
    hth_load *next;
    uint64_t read_from; /* offset of the next piece in the extent that is read */
    uint32_t i_extent, n_running;
};

/* An open file. fd stays the caller's, and open. */
typedef struct hth_reader_file {
    int fd;
    const char *path; /* path in error messages */
} hth_reader_file;

typedef struct hth_reader_options {
    const hth_reader_file *files; /* copied */
    uint32_t n_file;
    hth_disk *disk;  /* the reader closes it, also if opening fails */
    bool buffered;   /* never O_DIRECT; the page cache keeps what was read */
    bool in_caller;  /* no thread: hth_reader_start reads */
} hth_reader_options;

typedef struct hth_reader_stats {
    uint64_t n_read, size;             /* reads that ended, and their bytes, rounded out to the alignment */
    uint64_t busy_ns;                  /* time by the disk's clock in which at least one read ran */
    uint64_t n_short, n_again, n_failed; /* short reads, repeated ones, failures that were tried again */
    uint64_t n_buffered_file;          /* files that are not read directly */
    uint32_t depth;                    /* reads that run at once, now */
} hth_reader_stats;

typedef struct hth_reader hth_reader;

/* Bytes of memory that extents need, whose sizes are not 0: each begins as far behind a multiple of the alignment as in
 * the file. False: overflow. */
bool hth_reader_buffer_size(const hth_extent *extents, uint32_t n, size_t *size);

/* MEMORY. If the system creates no thread, hth_reader_start reads, by pread. */
hearth_status hth_reader_open(const hth_reader_options *options, hth_reader **out, hearth_error *err);
/* Ends all loads: those that were not read fail. NULL is allowed. */
void hth_reader_close(hth_reader *reader);

/* Ends the loads that were queued so far, as hth_reader_close does; those whose reads run end with these. */
void hth_reader_cancel(hth_reader *reader);

/* Queues loads, linked by next. From any thread. */
void hth_reader_start(hth_reader *reader, hth_load *loads);

/* A load that was queued as a guess is needed now. From any thread, until done is called. */
void hth_reader_prioritize(hth_reader *reader, hth_load *load);

/* A load is not needed any more: unless all its reads have started, it fails. From any thread, until done is called. */
void hth_reader_drop(hth_reader *reader, hth_load *load);

const char *hth_reader_path(const hth_reader *reader, uint32_t i_file);
/* A line about a failure, as an IO error. */
hearth_status hth_reader_describe(const hth_reader *reader, const hth_load_failure *failure, hearth_error *err);

hth_reader_stats hth_reader_get_stats(hth_reader *reader);
/* "io_uring" */
const char *hth_reader_name(const hth_reader *reader);
/* What a simulated disk simulates (disk_simulated.h); NULL: the disk is a real one. */
const struct hth_disk_model *hth_reader_disk_model(const hth_reader *reader);

#endif
