/* Tells what this machine and this build of the library have. */
#ifndef HEARTH_DEVICE_H
#define HEARTH_DEVICE_H

#include <hearth/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The GPUs of this machine, and drivers that compute on the CPU, as they were when the list was made. Immutable; any
 * number of threads may use it. */
typedef struct hearth_devices hearth_devices;

typedef enum hearth_device_kind {
    HEARTH_DEVICE_DISCRETE = 0, /* a card */
    HEARTH_DEVICE_INTEGRATED,   /* shares the memory of the CPU */
    HEARTH_DEVICE_CPU,          /* computes on the CPU */
} hearth_device_kind;

/* Strings are valid until hearth_devices_close. */
typedef struct hearth_device_info {
    size_t size;               /* set by the caller: Versions in hearth.h */
    hearth_device_kind kind;
    bool is_usable;
    bool is_auto;              /* "auto" in hearth_gpu_options names it, without measuring */
    bool has_byte_dot;         /* dot products of bytes are an instruction */
    bool has_cooperative_matrix2; /* NV_cooperative_matrix2 is there and used */
    bool lists_cooperative_matrix2; /* it is there, but not used */
    const char *device;        /* its name in hearth_gpu_options: "vulkan:0" */
    const char *uuid;          /* another one, which stays when devices come and go: 32 hexadecimal digits */
    const char *description;   /* as the driver names it; any bytes may occur */
    const char *driver;        /* name and version; any bytes may occur */
    const char *problem;       /* why it is not usable; "" */
    uint64_t memory_bytes;     /* of its own, or that it may use */
    uint64_t free_bytes;       /* when the list was made; 0: the driver does not say */
    uint64_t binding_bytes;    /* the largest part of a buffer that a program can address */
    const char *matrix_shapes; /* of products of bytes by matrix units, "16x16x32 8x8x16"; "": it has none */
} hearth_device_info;

/* Makes a list of devices. It asks the drivers, which may take some tenths of a second. That there is no device is no
 * error.
 * Errors: MEMORY.
 * Ownership: *out is the caller's, until hearth_devices_close.
 * Threads: any. */
HEARTH_API hearth_status hearth_devices_open(hearth_devices **out, hearth_error *err);

/* Closes a list.
 * Errors: none.
 * Ownership: gives it up, and the strings of its devices.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_devices_close(hearth_devices *devices);

/* Returns the number of devices; 0 for NULL.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API size_t hearth_devices_count(const hearth_devices *devices);

/* Returns why there is no device, or ""; NULL for NULL.
 * Errors: none.
 * Ownership: the string is the list's.
 * Threads: any. */
HEARTH_API const char *hearth_devices_note(const hearth_devices *devices);

/* Gives device i, below hearth_devices_count.
 * Errors: ARGUMENT: there is no device i, or info->size is too small.
 * Ownership: strings are the list's.
 * Threads: any. */
HEARTH_API hearth_status hearth_devices_get(const hearth_devices *devices, size_t i, hearth_device_info *info);

/* Returns the i-th level of kernels that this machine can run ("avx2"), best first, for cpu of hearth_model_options;
 * NULL past the last.
 * Errors: none.
 * Ownership: the string is valid as long as the library is loaded.
 * Threads: any. */
HEARTH_API const char *hearth_cpu_level(size_t i);

/* Returns the name of a part that a build may lack, and tells whether this one has it (built may be NULL); NULL past
 * the last:
 *     "vulkan"     GPUs
 *     "io_uring"   reading storage by it; without it threads read
 *     "json"       constraints by JSON schemas and calls of functions
 *     "bpe"        vocabularies of byte-level BPE
 *     "wordpiece"  vocabularies of WordPiece, and of BPE that lowers case
 * Errors: none.
 * Ownership: the string is valid as long as the library is loaded.
 * Threads: any. */
HEARTH_API const char *hearth_feature(size_t i, bool *built);

#ifdef __cplusplus
}
#endif
#endif
