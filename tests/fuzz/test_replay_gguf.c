/* Runs the fuzz target over golden files and seeded mutations, without a fuzzer. Four of five mutations put a
 * boundary value into a field of the directory, the rest flip bytes anywhere, cut, or splice. A finding is a crash
 * or a report of the sanitizers; memory that stays allocated is one too. The seed is printed. */
#include "base/alloc.h"
#include "support/models/corpus.h"
#include "support/models/gguf_build.h"
#include "support/test.h"

#include "fuzz/fuzz_gguf.c"

enum { N_FIELD_MAX = 4096 };

static uint64_t boundary(test_random *r, size_t left)
{
    static const uint64_t values[] = {
        0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 31, 32, 33, 63, 64, 65, 255, 256, 65535, 65536, 65537,
        (1 << 20) + 1, 1 << 24, (1 << 24) + 1, INT32_MAX, (uint64_t)INT32_MAX + 1, UINT32_MAX,
        (uint64_t)UINT32_MAX + 1, (uint64_t)1 << 40, (uint64_t)1 << 48, INT64_MAX,
        (uint64_t)INT64_MAX + 1, UINT64_MAX - 31, UINT64_MAX - 7, UINT64_MAX,
    };
    uint32_t n = sizeof values / sizeof values[0], k = test_random_below(r, n + 4);
    if (k < n) return values[k];
    return k == n ? left : k == n + 1 ? left + 1 : test_random_next(r) >> test_random_below(r, 64);
}

static void spoil_field(test_random *r, gguf_bytes *b, const gguf_field *fields, size_t n_field)
{
    const gguf_field *f = &fields[test_random_below(r, (uint32_t)n_field)];
    if (f->at + f->width > b->n || f->width == 0) return;
    size_t width = f->width < 8 ? f->width : 8;
    gguf_patch(b, f->at, boundary(r, b->n - f->at - width), width);
}

static void swap_fields(test_random *r, gguf_bytes *b, const gguf_field *fields, size_t n_field)
{
    const gguf_field *f = &fields[test_random_below(r, (uint32_t)n_field)];
    const gguf_field *g = &fields[test_random_below(r, (uint32_t)n_field)];
    for (size_t i = 0; i < f->width && i < g->width; i++) {
        if (f->at + i >= b->n || g->at + i >= b->n) return;
        unsigned char c = b->data[f->at + i];
        b->data[f->at + i] = b->data[g->at + i];
        b->data[g->at + i] = c;
    }
}

static void flip_bytes(test_random *r, gguf_bytes *b)
{
    for (uint32_t n = test_random_below(r, 8) + 1; n > 0 && b->n > 0; n--)
        b->data[test_random_below(r, (uint32_t)b->n)] ^= (unsigned char)(1u << test_random_below(r, 8));
}

/* Moves the tail of the file forward or back: bytes missing, or there twice. */
static void move_tail(test_random *r, gguf_bytes *b)
{
    if (b->n < 64) return;
    size_t from = test_random_below(r, (uint32_t)b->n), n = test_random_below(r, 64);
    size_t to = test_random_below(r, (uint32_t)b->n);
    if (from + n > b->n || to + n > b->n) return;
    memmove(b->data + to, b->data + from, n);
}

static void mutate(test_random *r, gguf_bytes *b, const gguf_field *fields, size_t n_field)
{
    for (uint32_t n = test_random_below(r, 3) + 1; n > 0; n--) {
        switch (test_random_below(r, 20)) {
        case 0: flip_bytes(r, b); break;
        case 1: move_tail(r, b); break;
        case 2: b->n = test_random_below(r, (uint32_t)b->n + 1); break;
        case 3: swap_fields(r, b, fields, n_field); break;
        default: spoil_field(r, b, fields, n_field); break;
        }
    }
}

/* Mutates a valid file n times and feeds each, in memory of exactly its size. */
static void replay(const unsigned char *data, size_t size, size_t n_directory, uint64_t seed,
                   uint32_t n)
{
    static gguf_field fields[N_FIELD_MAX];
    size_t n_field = gguf_fields(data, fields, N_FIELD_MAX);
    uint64_t held = hth_alloc_in_use();
    test_random r = {seed};
    printf("     %u mutations, seed %llu\n", n, (unsigned long long)seed);
    for (uint32_t i = 0; i < n; i++) {
        gguf_bytes b = {0};
        gguf_put(&b, data, size);
        mutate(&r, &b, fields, n_field);
        /* flips within the directory are worth more than within the weights */
        if (n_directory < b.n && test_random_below(&r, 4) == 0)
            b.data[test_random_below(&r, (uint32_t)n_directory)] ^= 0xff;
        unsigned char *exact = malloc(b.n ? b.n : 1);
        memcpy(exact, b.data, b.n);
        LLVMFuzzerTestOneInput(exact, b.n);
        free(exact);
        gguf_free(&b);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
}

TEST(seeds_of_the_corpus_pass_the_target) { CHECK(corpus_replay("gguf", LLVMFuzzerTestOneInput) >= 10); }

TEST(golden_files_go_through_the_target)
{
    static const char *const names[] = {"tiny", "tiny-v2", "tiny-meta", "tiny-nested", "tiny-00002-of-00003"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char relative[100];
        size_t n = 0;
        snprintf(relative, sizeof relative, "golden/files/%s.gguf", names[i]);
        const char *path = test_data(relative);
        if (!path) return;
        FREED char *bytes = test_read_file(path, &n);
        CHECK(bytes != NULL && n > 0);
        LLVMFuzzerTestOneInput((const uint8_t *)bytes, n);
    }
}

TEST(mutations_of_a_small_file_do_no_harm)
{
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    replay(b.data, b.n, gguf_field_of(&b, GGUF_END, 0, 0).at, 20260801, 20000);
}

TEST(mutations_of_a_golden_file_do_no_harm)
{
    size_t n = 0;
    const char *path = test_data("golden/files/tiny.gguf");
    if (!path) return;
    FREED char *bytes = test_read_file(path, &n);
    gguf_bytes b = {(unsigned char *)bytes, n, n};
    replay(b.data, n, gguf_field_of(&b, GGUF_END, 0, 0).at, 20260802, 3000);
}
