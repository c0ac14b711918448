/* Files of a fuzz target that are edits of a valid one, so that what comes behind their first checks is reached too: the
 * first byte says whether the rest is a file as it is, or edits of 8 bytes each. */
#ifndef HEARTH_TESTS_FUZZ_EDITED_FILE_H
#define HEARTH_TESTS_FUZZ_EDITED_FILE_H

#include "support/models/gguf_build.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EDIT_SIZE = 8, EDIT_MAX_ADDED = 64 };
typedef enum edit_kind { EDIT_FLIP, EDIT_BYTE, EDIT_WORD, EDIT_LONG, EDIT_CUT, EDIT_REMOVE, EDIT_ADD, EDIT_COPY, N_EDIT } edit_kind;

#define expect(HOLDS) expect_at(HOLDS, #HOLDS, __LINE__)
static inline void expect_at(bool holds, const char *what, int line)
{
    if (holds) return;
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

static inline void put_at(gguf_bytes *b, size_t at, uint64_t value, size_t size)
{
    if (at < b->n) memcpy(b->data + at, &value, size < b->n - at ? size : b->n - at);
}

/* kind, three bytes of an offset, which wraps, and a value. */
static inline void edit_one(gguf_bytes *b, const uint8_t *e)
{
    uint32_t value;
    size_t at = (e[1] | (size_t)e[2] << 8 | (size_t)e[3] << 16) % (b->n + 1), left = b->n - at;
    memcpy(&value, e + 4, sizeof value);
    size_t n = value % EDIT_MAX_ADDED < left ? value % EDIT_MAX_ADDED : left;
    switch (e[0] % N_EDIT) {
    case EDIT_FLIP: put_at(b, at, left ? b->data[at] ^ (1u << value % 8) : 0, 1); break;
    case EDIT_BYTE: put_at(b, at, value, 1); break;
    case EDIT_WORD: put_at(b, at, value, 4); break;
    case EDIT_LONG: put_at(b, at, (uint64_t)(int64_t)(int32_t)value, 8); break;
    case EDIT_CUT: b->n = at; break;
    case EDIT_REMOVE:
        memmove(b->data + at, b->data + at + n, left - n);
        b->n -= n;
        break;
    case EDIT_ADD:
        gguf_zeros(b, n);
        memmove(b->data + at + n, b->data + at, left);
        break;
    default: memmove(b->data + value % (b->n - n + 1), b->data + at, n);
    }
}

/* The file of an input, in memory of exactly its size but for what edits take away; freed with gguf_free. */
static inline gguf_bytes edited_file(const gguf_bytes *valid, const uint8_t *data, size_t n)
{
    gguf_bytes b = {0};
    if (n > 0 && data[0] % 2) {
        gguf_put(&b, data + 1, n - 1);
        return b;
    }
    gguf_put(&b, valid->data, valid->n);
    for (size_t at = 1; at + EDIT_SIZE <= n; at += EDIT_SIZE) edit_one(&b, data + at);
    return b;
}

/* Bytes as a file for readers of paths: *path is its name until the descriptor is closed. */
static inline int memory_file(const gguf_bytes *b, char path[40])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, b->data, b->n) == (ssize_t)b->n);
    snprintf(path, 40, "/proc/self/fd/%d", fd);
    return fd;
}

/* What a writer of files writes. */
static inline gguf_bytes take_file(const char *path)
{
    static unsigned char block[1 << 16];
    gguf_bytes b = {0};
    FILE *f = fopen(path, "rb");
    expect(f != NULL);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) gguf_put(&b, block, n);
    fclose(f);
    unlink(path);
    return b;
}

#endif
