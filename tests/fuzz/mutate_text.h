/* Texts of a corpus and seeded mutations of them, in memory of exactly their size, for a fuzz target. */
#ifndef HEARTH_TESTS_FUZZ_MUTATE_TEXT_H
#define HEARTH_TESTS_FUZZ_MUTATE_TEXT_H

#include "support/test.h"

#include <dirent.h>
#include <string.h>

typedef struct text_pieces {
    const char *const *at; /* [n] that are put in */
    size_t n;
    /* Another mutation, three times of four; returns the new size, or 0: there is none. NULL: always those of text. */
    size_t (*otherwise)(uint8_t *data, size_t n, size_t capacity, uint64_t seed);
} text_pieces;

/* A piece put in, cut out or doubled. */
static size_t mutate(const text_pieces *p, test_random *r, uint8_t *data, size_t n, size_t capacity)
{
    size_t at = 1 + test_random_below(r, (uint32_t)n), size;
    const char *piece = p->at[test_random_below(r, (uint32_t)p->n)];
    if (at > n) at = n;
    switch (test_random_below(r, 4)) {
    case 0:
        size = strlen(piece);
        if (n + size > capacity) return n;
        memmove(data + at + size, data + at, n - at);
        memcpy(data + at, piece, size);
        return n + size;
    case 1:
        size = test_random_below(r, 20);
        if (size > n - at) size = n - at;
        memmove(data + at, data + at + size, n - at - size);
        return n - size;
    case 2:
        size = test_random_below(r, 60);
        if (size > n - at) size = n - at;
        if (n + size > capacity) return n;
        memmove(data + at + size, data + at, n - at);
        return n + size;
    default:
        if (at < n) data[at] ^= (uint8_t)(1u << test_random_below(r, 8));
        return n;
    }
}

/* In memory of exactly its size, for the sanitizer. */
static void feed(const uint8_t *data, size_t n)
{
    FREED uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, data, n);
    CHECK_INT(LLVMFuzzerTestOneInput(exact, n), 0);
}

static void replay(const char *path, const text_pieces *p, test_random *r, uint32_t n_mutation)
{
    enum { CAPACITY = 1 << 15 };
    static uint8_t data[CAPACITY];
    size_t n = 0;
    FREED char *source = test_read_file(path, &n);
    if (!CHECK(source != NULL && n < CAPACITY / 2)) return;
    feed((uint8_t *)source, n);
    for (uint32_t i = 0; i < n_mutation; i++) {
        size_t size = n;
        memcpy(data, source, n);
        for (uint32_t k = 1 + test_random_below(r, 4); k > 0; k--) {
            size_t other = p->otherwise && test_random_below(r, 4) ? p->otherwise(data, size, CAPACITY, test_random_next(r)) : 0;
            size = other ? other : mutate(p, r, data, size, CAPACITY);
        }
        feed(data, size);
    }
}

/* All files of a folder; returns how many. */
static uint32_t replay_folder(const char *folder, const text_pieces *p, uint32_t n_mutation)
{
    test_random r = {20261121};
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, NULL, alphasort);
    uint32_t n_file = 0;
    printf("     %u mutations of each file, seed %llu\n", n_mutation, (unsigned long long)r.state);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') replay(path, p, &r, n_mutation);
        n_file += entries[i]->d_name[0] != '.';
        free(entries[i]);
    }
    free(entries);
    return n_file;
}

#endif
