/* Faults while reading: files cut at every byte, every allocation and every read that can fail, reads that come in
 * pieces or are interrupted. After each: one error line that names the file, and not a byte kept. */
#include "base/alloc.h"
#include "file/gguf.h"
#include "support/models/gguf_build.h"
#include "support/test.h"

/* The file cut to n bytes, in memory of exactly that size. */
static hearth_status open_cut(const gguf_bytes *b, size_t n, hearth_error *why)
{
    hth_gguf *file = NULL;
    unsigned char *cut = malloc(n ? n : 1);
    memcpy(cut, b->data, n);
    hearth_status status = hth_gguf_open_memory(cut, n, "cut.gguf", &file, why);
    hth_gguf_close(file);
    free(cut);
    return status;
}

TEST(file_cut_at_every_byte_of_the_directory_is_refused)
{
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    size_t end = gguf_field_of(&b, GGUF_END, 0, 0).at;
    for (size_t n = 0; n <= end; n++) {
        hearth_error why = {0};
        if (open_cut(&b, n, &why) != HEARTH_ERROR_FORMAT || !strstr(why.message, "cut.gguf: "))
            test_fail(__FILE__, __LINE__, "cut at %zu: %s", n, why.message);
    }
}

TEST(cut_is_named_by_its_offset)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    hearth_error why = {0};
    gguf_small(&b);
    size_t at = gguf_field_of(&b, GGUF_OFFSET, 2, 0).at;
    open_cut(&b, at + 3, &why);
    char words[80];
    snprintf(words, sizeof words, "offset takes 8 bytes from byte %zu, but the file ends at byte %zu", at, at + 3);
    CHECK(strstr(why.message, "tensor 'c.weight' (info at byte ") && strstr(why.message, words));
}

TEST(file_cut_within_data_names_the_first_tensor_that_lacks_bytes)
{
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    size_t data = b.n - 224;
    static const struct {
        size_t at;
        const char *words;
    } cuts[] = {
        {0, "tensor 'a.weight'"},   {64, "tensor 'a.weight'"},  {127, "tensor 'a.weight'"},
        {128, "tensor 'b.weight'"}, {150, "tensor 'b.weight'"}, {163, "tensor 'b.weight'"},
        {164, "tensor 'c.weight'"}, {192, "tensor 'c.weight'"}, {201, "tensor 'c.weight'"},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        hearth_error why = {0};
        CHECK_INT(open_cut(&b, data + cuts[i].at, &why), HEARTH_ERROR_FORMAT);
        CHECK(strstr(why.message, cuts[i].words) && strstr(why.message, "past the end of the file"));
    }
}

TEST(file_cut_in_the_last_padding_is_accepted_with_one_warning)
{
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    for (size_t n = b.n - 22; n <= b.n; n++) {
        test_log_start();
        CHECK_INT(open_cut(&b, n, NULL), HEARTH_OK);
        CHECK_INT(test_n_warning(""), n < b.n);
    }
    test_log_stop();
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Fails allocation 1, 2, ... until an opening succeeds. */
static void fail_each_allocation(const char *path, int sticky)
{
    uint64_t held = hth_alloc_in_use();
    for (uint64_t n = 1; n < 100000; n++) {
        hth_gguf *file = NULL;
        hearth_error why = {0};
        hth_alloc_fail_at(n, sticky);
        hearth_status status = hth_gguf_open(path, &file, &why);
        hth_alloc_fail_at(0, 0);
        hth_gguf_close(file);
        CHECK_INT(hth_alloc_in_use(), held);
        if (status == HEARTH_OK) {
            CHECK(n > 5);
            return;
        }
        CHECK_INT(status, HEARTH_ERROR_MEMORY);
        CHECK(strstr(why.message, "no memory: ") != NULL);
    }
    test_fail(__FILE__, __LINE__, "no end of allocations");
}

TEST(every_allocation_may_fail)
{
    const char *path = test_scratch("alloc.gguf");
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    CHECK(test_write_file(path, b.data, b.n));
    fail_each_allocation(path, 0);
    fail_each_allocation(path, 1);
}

TEST(every_allocation_may_fail_over_large_metadata_and_parts)
{
    const char *meta = test_data("golden/files/tiny-meta.gguf");
    const char *parts = test_data("golden/files/tiny-00002-of-00003.gguf");
    if (!meta || !parts) return;
    fail_each_allocation(meta, 0);
    fail_each_allocation(parts, 0);
    fail_each_allocation(parts, 1);
}

/* ---- reads --------------------------------------------------------------------------------- */

/* Opens path and reads all tensors; *sum is over their bytes. */
static hearth_status read_all(const char *path, uint64_t *sum, hearth_error *why)
{
    CLOSED(hth_gguf) *file = NULL;
    hearth_status status = hth_gguf_open(path, &file, why);
    *sum = 0;
    for (size_t i = 0; status == HEARTH_OK && i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        unsigned char *bytes = malloc((size_t)t->size);
        status = hth_gguf_read(file, t, 0, (size_t)t->size, bytes, why);
        for (uint64_t k = 0; status == HEARTH_OK && k < t->size; k++) *sum = *sum * 31 + bytes[k];
        free(bytes);
    }
    return status;
}

static void fault_each_read(const char *path, hth_read_fault fault)
{
    uint64_t want, got, held = hth_alloc_in_use();
    hearth_error why = {0};
    CHECK_INT(read_all(path, &want, &why), HEARTH_OK);
    int n_fault = 0;
    for (uint64_t n = 1; n < 100; n++) {
        hth_gguf_fail_read_at(n, fault);
        hearth_status status = read_all(path, &got, &why);
        hth_gguf_fail_read_at(0, fault);
        if (status == HEARTH_OK) {
            CHECK(got == want);
            continue;
        }
        n_fault++;
        CHECK_INT(status, HEARTH_ERROR_IO);
        CHECK(strstr(why.message, "cannot read") && strstr(why.message, ".gguf: "));
    }
    CHECK_INT(hth_alloc_in_use(), held);
    CHECK(fault == HTH_READ_FAILS ? n_fault > 10 : n_fault == 0);
}

static void fault_each_read_of_files(hth_read_fault fault)
{
    static const char *const files[] = {"golden/files/tiny-meta.gguf", "golden/files/tiny-00003-of-00003.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *path = test_data(files[i]);
        if (path) fault_each_read(path, fault);
    }
}

TEST(every_read_may_fail) { fault_each_read_of_files(HTH_READ_FAILS); }
TEST(every_read_may_be_cut_short) { fault_each_read_of_files(HTH_READ_SHORT); }
TEST(every_read_may_be_interrupted) { fault_each_read_of_files(HTH_READ_INTERRUPTED); }
