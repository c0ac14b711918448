/* The writer: what it writes is read back, a golden file is rewritten byte for byte,
 * and whatever fails leaves neither a file nor its .part behind. */
#include "base/alloc.h"
#include "file/gguf_write.h"
#include "file/atomic_writer.h"
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static const char *part_of(const char *path)
{
    static char part[1100];
    snprintf(part, sizeof part, "%s.hearth-part", path);
    return part;
}

/* ---- round trips ------------------------------------------------------------------------ */

static void set_all_types(hth_gguf_writer *w)
{
    static const hth_str texts[] = {{"one", 3}, {"", 0}, {"\0\xff", 2}};
    static const uint32_t numbers[] = {1, 2, UINT32_MAX};
    static const uint8_t bools[] = {1, 0};
    hth_gguf_writer_uint(w, "u8", HTH_GGUF_U8, 255);
    hth_gguf_writer_int(w, "i8", HTH_GGUF_I8, -128);
    hth_gguf_writer_uint(w, "u16", HTH_GGUF_U16, 65535);
    hth_gguf_writer_int(w, "i16", HTH_GGUF_I16, -32768);
    hth_gguf_writer_uint(w, "u32", HTH_GGUF_U32, UINT32_MAX);
    hth_gguf_writer_int(w, "i32", HTH_GGUF_I32, INT32_MIN);
    hth_gguf_writer_float(w, "f32", HTH_GGUF_F32, 1e-45);
    hth_gguf_writer_bool(w, "bool", true);
    hth_gguf_writer_text(w, "text", "h\xc3\xa9\0!", 5);
    hth_gguf_writer_uint(w, "u64", HTH_GGUF_U64, UINT64_MAX);
    hth_gguf_writer_int(w, "i64", HTH_GGUF_I64, INT64_MIN);
    hth_gguf_writer_float(w, "f64", HTH_GGUF_F64, -HUGE_VAL);
    hth_gguf_writer_array(w, "numbers", HTH_GGUF_U32, numbers, 3);
    hth_gguf_writer_array(w, "bools", HTH_GGUF_BOOL, bools, 2);
    hth_gguf_writer_array(w, "empty", HTH_GGUF_F32, NULL, 0);
    hth_gguf_writer_texts(w, "texts", texts, 3);
    hth_gguf_writer_texts(w, "no.texts", NULL, 0);
}

static void check_all_types(const hth_gguf *file)
{
    CHECK_INT(hth_gguf_n_value(file), 17);
    CHECK_INT(hth_gguf_find(file, "u8")->as.u, 255);
    CHECK_INT(hth_gguf_find(file, "i8")->as.i, -128);
    CHECK_INT(hth_gguf_find(file, "u16")->as.u, 65535);
    CHECK_INT(hth_gguf_find(file, "i16")->as.i, -32768);
    CHECK_INT(hth_gguf_find(file, "u32")->as.u, UINT32_MAX);
    CHECK_INT(hth_gguf_find(file, "i32")->as.i, INT32_MIN);
    CHECK(hth_gguf_find(file, "f32")->as.f == (double)1e-45f);
    CHECK_INT(hth_gguf_find(file, "bool")->as.u, 1);
    CHECK(hth_gguf_find(file, "u64")->as.u == UINT64_MAX);
    CHECK(hth_gguf_find(file, "i64")->as.i == INT64_MIN);
    CHECK(hth_gguf_find(file, "f64")->as.f == -HUGE_VAL);
    hth_str text = hth_gguf_find(file, "text")->as.text;
    CHECK(text.n == 5 && memcmp(text.bytes, "h\xc3\xa9\0!", 6) == 0);
    CHECK(hth_gguf_element_uint(hth_gguf_find(file, "numbers"), 2) == UINT32_MAX);
    CHECK_INT(hth_gguf_element_uint(hth_gguf_find(file, "bools"), 0), 1);
    CHECK_INT(hth_gguf_find(file, "empty")->n_element, 0);
    const hth_gguf_value *texts = hth_gguf_find(file, "texts");
    CHECK_INT(texts->n_element, 3);
    CHECK_BYTES(((const hth_str *)texts->elements)[2].bytes, "\0\xff", 3);
    CHECK_INT(hth_gguf_find(file, "no.texts")->n_element, 0);
}

TEST(writer_values_of_every_type_are_read_back)
{
    const char *path = test_scratch("types.gguf");
    CLOSED(hth_gguf) *file = NULL, *copied = NULL;
    hth_gguf_writer *w = OPENED(hth_gguf_writer, path);
    set_all_types(w);
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK(!exists(path) && exists(part_of(path)));
    CHECK_OK(hth_gguf_writer_finish(w, err));
    hth_gguf_writer_close(w);
    CHECK(exists(path) && !exists(part_of(path)));
    CHECK_OK(hth_gguf_open(path, &file, err));
    check_all_types(file);
    CHECK_OK(hth_gguf_writer_open(path, &w, err));
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) hth_gguf_writer_copy(w, hth_gguf_value_at(file, i));
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_finish(w, err));
    hth_gguf_writer_close(w);
    CHECK_OK(hth_gguf_open(path, &copied, err));
    check_all_types(copied);
}

/* Copies everything of one file; data in pieces of at most `piece` bytes. */
static hearth_status rewrite(const char *from, const char *to, size_t piece, hearth_error *why)
{
    CLOSED(hth_gguf) *file = NULL;
    CLOSED(hth_gguf_writer) *w = NULL;
    hearth_status status = hth_gguf_open(from, &file, why);
    if (status == HEARTH_OK) status = hth_gguf_map(file, why);
    if (status == HEARTH_OK) status = hth_gguf_writer_open(to, &w, why);
    if (status != HEARTH_OK) goto done;
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) hth_gguf_writer_copy(w, hth_gguf_value_at(file, i));
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        hth_gguf_writer_tensor(w, t->name.bytes, t->type, t->n_dim, t->dim);
    }
    status = hth_gguf_writer_begin(w, why);
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        const char *bytes = hth_gguf_mapped(file, t);
        for (uint64_t at = 0; at < t->size && status == HEARTH_OK; at += piece) {
            size_t size = t->size - at < piece ? (size_t)(t->size - at) : piece;
            status = hth_gguf_writer_data(w, bytes + at, size, why);
        }
    }
    if (status == HEARTH_OK) status = hth_gguf_writer_finish(w, why);
done:
    return status;
}

static void check_rewritten(const char *golden, size_t piece)
{
    const char *from = test_data(golden), *to = test_scratch("rewritten.gguf");
    size_t n_from = 0, n_to = 0;
    if (!from) return;
    CHECK_OK(rewrite(from, to, piece, err));
    char *a = test_read_file(from, &n_from), *b = test_read_file(to, &n_to);
    CHECK_INT(n_from, n_to);
    if (a && b && n_from == n_to) CHECK_BYTES(a, b, n_from);
    free(a);
    free(b);
}

TEST(writer_rewrites_golden_files_byte_for_byte)
{
    check_rewritten("golden/files/tiny.gguf", SIZE_MAX);
    check_rewritten("golden/files/tiny.gguf", 1000);
    check_rewritten("golden/files/tiny-nested.gguf", SIZE_MAX);
    check_rewritten("golden/files/tiny-meta.gguf", 7); /* alignment 4096 */
}

/* ---- rules -------------------------------------------------------------------------------- */

TEST(writer_key_set_twice_keeps_its_place_and_takes_the_later_value)
{
    const char *path = test_scratch("twice.gguf");
    hth_gguf_writer *w = OPENED(hth_gguf_writer, path);
    hth_gguf_writer_uint(w, "a", HTH_GGUF_U32, 1);
    hth_gguf_writer_uint(w, "b", HTH_GGUF_U32, 2);
    hth_gguf_writer_text(w, "a", "later", 5);
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_finish(w, err));
    hth_gguf_writer_close(w);
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    CHECK_INT(hth_gguf_n_value(file), 2);
    CHECK_TEXT(hth_gguf_value_at(file, 0)->key.bytes, "a");
    CHECK_TEXT(hth_gguf_value_at(file, 0)->as.text.bytes, "later");
}

static const char many_bytes[70] = "seventy bytes make a name that is longer than the format takes 123456";

static void bad_type(hth_gguf_writer *w) { hth_gguf_writer_uint(w, "k", HTH_GGUF_I8, 1); }
static void bad_float(hth_gguf_writer *w) { hth_gguf_writer_float(w, "k", HTH_GGUF_U8, 1); }
static void large_uint(hth_gguf_writer *w) { hth_gguf_writer_uint(w, "k", HTH_GGUF_U8, 256); }
static void small_int(hth_gguf_writer *w) { hth_gguf_writer_int(w, "k", HTH_GGUF_I16, -32769); }
static void empty_key(hth_gguf_writer *w) { hth_gguf_writer_bool(w, "", true); }
static void control_key(hth_gguf_writer *w) { hth_gguf_writer_bool(w, "a\nb", true); }
static void bad_bools(hth_gguf_writer *w) { hth_gguf_writer_array(w, "k", HTH_GGUF_BOOL, "\2", 1); }
static void text_array(hth_gguf_writer *w) { hth_gguf_writer_array(w, "k", HTH_GGUF_TEXT, "", 1); }
static void long_array(hth_gguf_writer *w) { hth_gguf_writer_array(w, "k", HTH_GGUF_U8, "", (1 << 24) + 1); }
static void long_text(hth_gguf_writer *w) { hth_gguf_writer_text(w, "k", "", (16 << 20) + 1); }
static void bad_alignment(hth_gguf_writer *w) { hth_gguf_writer_uint(w, "general.alignment", HTH_GGUF_U32, 48); }
static void wide_alignment(hth_gguf_writer *w) { hth_gguf_writer_uint(w, "general.alignment", HTH_GGUF_U64, 32); }
static void bad_row(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_Q4_0, 2, (uint64_t[]){33, 1});
}
static void zero_dim(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 2, (uint64_t[]){4, 0});
}
static void no_dims(hth_gguf_writer *w) { hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 0, NULL); }
static void wrapping_dims(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 2, (uint64_t[]){(uint64_t)1 << 40, 1 << 30});
}
static void unknown_type(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, "t", (hth_type)4, 1, (uint64_t[]){32});
}
static void long_name(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, many_bytes, HTH_TYPE_F32, 1, (uint64_t[]){4});
}
static void tensor_twice(hth_gguf_writer *w)
{
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 1, (uint64_t[]){4});
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 1, (uint64_t[]){4});
}

TEST(writer_refuses_what_the_reader_would_refuse)
{
    static const struct {
        void (*set)(hth_gguf_writer *w);
        const char *words;
    } rows[] = {
        {bad_type, "not one of u8 to u64"},
        {bad_float, "neither f32 nor f64"},
        {large_uint, "does not fit"},
        {small_int, "does not fit"},
        {empty_key, "1 to 65535 bytes"},
        {control_key, "'a\\x0ab': control bytes"},
        {bad_bools, "bools must be 0 or 1"},
        {text_array, "numbers or bools"},
        {long_array, "more than 2^24"},
        {long_text, "more than 16 MiB"},
        {bad_alignment, "power of two"},
        {wide_alignment, "must be an u32"},
        {bad_row, "tensor 't': rows are not a multiple"},
        {zero_dim, "a dimension is 0"},
        {no_dims, "1 to 4 dimensions"},
        {wrapping_dims, "too many weights"},
        {unknown_type, "unknown type"},
        {long_name, "1 to 63 bytes"},
        {tensor_twice, "declared twice"},
    };
    const char *path = test_scratch("refused.gguf");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hearth_error why = {0};
        hth_gguf_writer *w = OPENED(hth_gguf_writer, path);
        rows[i].set(w);
        CHECK_INT(hth_gguf_writer_begin(w, &why), HEARTH_ERROR_ARGUMENT);
        if (!strstr(why.message, rows[i].words) || !strstr(why.message, "refused.gguf: "))
            test_fail(__FILE__, __LINE__, "\"%s\" does not hold \"%s\"", why.message, rows[i].words);
        CHECK_INT(hth_gguf_writer_finish(w, NULL), HEARTH_ERROR_ARGUMENT);
        hth_gguf_writer_close(w);
        CHECK(!exists(path) && !exists(part_of(path)));
    }
}

TEST(writer_refuses_missing_and_surplus_data)
{
    const char *path = test_scratch("data.gguf");
    static const char zeros[32];
    hth_gguf_writer *w = OPENED(hth_gguf_writer, path);
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 1, (uint64_t[]){4});
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_data(w, zeros, 10, err));
    CHECK_FAILS(hth_gguf_writer_finish(w, err), HEARTH_ERROR_ARGUMENT, "tensor 't': 6 of 16 bytes are missing");
    hth_gguf_writer_close(w);
    CHECK(!exists(path) && !exists(part_of(path)));
    CHECK_OK(hth_gguf_writer_open(path, &w, err));
    hth_gguf_writer_tensor(w, "t", HTH_TYPE_F32, 1, (uint64_t[]){4});
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_data(w, zeros, 10, err));
    CHECK_FAILS(hth_gguf_writer_data(w, zeros, 7, err), HEARTH_ERROR_ARGUMENT,
                "7 bytes more than the 6 that it has left");
    hth_gguf_writer_close(w);
    CHECK_OK(hth_gguf_writer_open(path, &w, err));
    CHECK_FAILS(hth_gguf_writer_data(w, zeros, 1, err), HEARTH_ERROR_ARGUMENT, "data before the directory");
    hth_gguf_writer_close(w);
    CHECK_OK(hth_gguf_writer_open(path, &w, err));
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_FAILS(hth_gguf_writer_data(w, zeros, 1, err), HEARTH_ERROR_ARGUMENT, "after the last tensor");
    hth_gguf_writer_close(w);
    CHECK(!exists(path) && !exists(part_of(path)));
}

/* ---- faults ---------------------------------------------------------------------------------- */

TEST(writer_every_failing_write_leaves_the_old_file_alone)
{
    const char *from = test_data("golden/files/tiny.gguf");
    const char *to = test_scratch("full.gguf");
    if (!from) return;
    for (uint64_t n = 1; n < 1000; n++) {
        hearth_error why = {0};
        size_t size = 0;
        CHECK(test_write_file(to, "old", 3));
        hth_atomic_writer_fail_write_at(n);
        hearth_status status = rewrite(from, to, SIZE_MAX, &why);
        hth_atomic_writer_fail_write_at(0);
        CHECK(!exists(part_of(to)));
        char *now = test_read_file(to, &size);
        free(now);
        if (status == HEARTH_OK) {
            CHECK_INT(size, 107296);
            CHECK(n > 4);
            break;
        }
        CHECK_INT(status, HEARTH_ERROR_IO);
        CHECK(strstr(why.message, "full.gguf: cannot ") && strstr(why.message, "No space left"));
        /* when the last step, syncing the folder, fails, the new file is there */
        CHECK(size == 3 || (size == 107296 && strstr(why.message, "sync the folder")));
    }
}

TEST(writer_every_allocation_may_fail)
{
    const char *from = test_data("golden/files/tiny.gguf");
    const char *to = test_scratch("memory.gguf");
    if (!from) return;
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t held = hth_alloc_in_use();
        for (uint64_t n = 1; n < 10000; n++) {
            hearth_error why = {0};
            hth_alloc_fail_at(n, sticky);
            hearth_status status = rewrite(from, to, SIZE_MAX, &why);
            hth_alloc_fail_at(0, 0);
            CHECK_INT(hth_alloc_in_use(), held);
            CHECK(!exists(part_of(to)) && exists(to) == (status == HEARTH_OK));
            if (status == HEARTH_OK) break;
            CHECK_INT(status, HEARTH_ERROR_MEMORY);
        }
        CHECK(exists(to));
        unlink(to);
    }
}

TEST(writer_descriptor_closed_by_others_is_an_error)
{
    const char *path = test_scratch("closed.gguf");
    int next = open("/dev/null", O_RDONLY);
    close(next); /* the writer's descriptor will be this one */
    hth_gguf_writer *w = OPENED(hth_gguf_writer, path);
    hth_gguf_writer_bool(w, "k", true);
    close(next);
    CHECK_OK(hth_gguf_writer_begin(w, err)); /* still in the buffer */
    CHECK_FAILS(hth_gguf_writer_finish(w, err), HEARTH_ERROR_IO, "closed.gguf: cannot write: Bad file descriptor");
    hth_gguf_writer_close(w);
    CHECK(!exists(path) && !exists(part_of(path)));
}

TEST(writer_stops_at_the_limit_of_file_sizes)
{
    const char *from = test_data("golden/files/tiny.gguf");
    const char *to = test_scratch("limit.gguf");
    struct rlimit old, small;
    hearth_error why = {0};
    if (!from) return;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 50000;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    hearth_status status = rewrite(from, to, SIZE_MAX, &why);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_INT(status, HEARTH_ERROR_IO);
    CHECK(strstr(why.message, "limit.gguf: cannot write: File too large") != NULL);
    CHECK(!exists(to) && !exists(part_of(to)));
}

TEST(writer_refuses_places_where_no_file_can_be)
{
    hth_gguf_writer *w = NULL;
    hearth_error why = {0};
    CHECK_FAILS(hth_gguf_writer_open("/no/such/folder/m.gguf", &w, err), HEARTH_ERROR_IO,
                "/no/such/folder/m.gguf: cannot create");
    CHECK_FAILS(hth_gguf_writer_open("/tmp", &w, err), HEARTH_ERROR_IO, "not a regular file");
    CHECK_INT(hth_gguf_writer_open("/dev/null", &w, &why), HEARTH_ERROR_IO);
    CHECK(w == NULL);
}

/* The rule of fs.protected_symlinks, also on kernels where it is off. */
TEST(a_link_of_another_user_in_a_shared_folder_leads_nowhere)
{
    char folder[1024], link[1100], target[HTH_PATH_MAX];
    hth_gguf_writer *w = NULL;
    const uid_t nobody = 65534, other = 65533;
    snprintf(folder, sizeof folder, "%s", test_scratch("shared"));
    snprintf(link, sizeof link, "%s/out.gguf", folder);
    if (!CHECK_INT(mkdir(folder, 0755), 0) || !CHECK_INT(chmod(folder, 01777), 0)) return;
    if (!CHECK_INT(symlink("../planted.gguf", link), 0)) return;
    CHECK(hth_atomic_writer_target(link, target)); /* one's own */
    if (geteuid() != 0) {
        test_skip("links of other users need root");
    } else {
        CHECK_INT(lchown(link, nobody, nobody), 0);
        CHECK(!hth_atomic_writer_target(link, target));
        CHECK_FAILS(hth_gguf_writer_open(link, &w, err), HEARTH_ERROR_IO, "out.gguf: cannot follow the link: Permission denied");
        CHECK(!exists(test_scratch("planted.gguf")));
        CHECK_INT(chown(folder, nobody, nobody), 0); /* the folder is his too */
        CHECK(hth_atomic_writer_target(link, target));
        CHECK_INT(chown(folder, other, other), 0);
        CHECK(!hth_atomic_writer_target(link, target));
        CHECK_INT(chmod(folder, 0777), 0); /* not sticky: whoever may plant a link may replace files as well */
        CHECK(hth_atomic_writer_target(link, target));
    }
    CHECK_INT(unlink(link), 0);
    CHECK_INT(rmdir(folder), 0);
}

TEST(writer_stale_part_is_replaced_and_a_stolen_one_noticed)
{
    const char *path = test_scratch("stolen.gguf");
    hth_gguf_writer *w = NULL, *thief = NULL;
    CHECK(test_write_file(part_of(path), "stale", 5));
    CHECK_OK(hth_gguf_writer_open(path, &w, err));
    CHECK_OK(hth_gguf_writer_begin(w, err));
    CHECK_OK(hth_gguf_writer_open(path, &thief, err));
    CHECK_FAILS(hth_gguf_writer_finish(w, err), HEARTH_ERROR_IO, "removed or replaced while it was written, probably by another process");
    hth_gguf_writer_close(w);
    CHECK_OK(hth_gguf_writer_begin(thief, err));
    CHECK_OK(hth_gguf_writer_finish(thief, err));
    hth_gguf_writer_close(thief);
    CHECK(exists(path) && !exists(part_of(path)));
}
