/* What the reader must refuse: the classes of malformed files, each made from one valid file by spoiling one thing.
 * Rows of the table name the class (A to D as in docs/reliability.md), the field, the value written there, and
 * words that the error line must hold. Every value of every length and count: test_gguf_values.c; files of several
 * parts: test_gguf_split.c. */
#include "base/clock.h"
#include "file/gguf.h"
#include "support/models/gguf_build.h"
#include "support/refusal.h"
#include "support/test.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- one field at a time ------------------------------------------------------------------- */

#define LEFT 1 /* the value is the bytes that follow the field, plus .value */
#define M1(X) (UINT64_MAX - (X) + 1)

static const struct bad_row {
    const char *id;
    gguf_field_kind kind;
    uint32_t i, j;
    uint64_t value;
    int flags;
    hearth_status status;
    const char *words;
} bad_rows[] = {
    {"A6", GGUF_VERSION, 0, 0, 0, 0, HEARTH_ERROR_UNSUPPORTED, "version at byte 4 is 0"},
    {"A6", GGUF_VERSION, 0, 0, 1, 0, HEARTH_ERROR_UNSUPPORTED, "version at byte 4 is 1"},
    {"A6", GGUF_VERSION, 0, 0, 4, 0, HEARTH_ERROR_UNSUPPORTED, "version at byte 4 is 4"},
    {"A6", GGUF_VERSION, 0, 0, 0x03000000, 0, HEARTH_ERROR_UNSUPPORTED, "big-endian"},
    {"B2", GGUF_N_TENSOR, 0, 0, 4, 0, HEARTH_ERROR_FORMAT, "tensor info 4 of 4"},
    {"B2", GGUF_N_TENSOR, 0, 0, 1 << 20, 0, HEARTH_ERROR_FORMAT, "number of tensors|bytes follow"},
    {"B2", GGUF_N_TENSOR, 0, 0, (1 << 20) + 1, 0, HEARTH_ERROR_FORMAT, "allowed are 0 to 1048576"},
    {"B2", GGUF_N_TENSOR, 0, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "number of tensors at byte 8"},
    {"B2", GGUF_N_TENSOR, 0, 0, (uint64_t)1 << 63, 0, HEARTH_ERROR_FORMAT, "number of tensors"},
    {"B3", GGUF_N_PAIR, 0, 0, 0, 0, HEARTH_ERROR_FORMAT, "tensor"},
    {"B3", GGUF_N_PAIR, 0, 0, 8, 0, HEARTH_ERROR_FORMAT, "tensor info 1 of 3"},
    {"B3", GGUF_N_PAIR, 0, 0, 6, 0, HEARTH_ERROR_FORMAT, "tensor 'small.f32'"},
    {"B3", GGUF_N_PAIR, 0, 0, 65536, 0, HEARTH_ERROR_FORMAT, "metadata pairs|bytes follow"},
    {"B3", GGUF_N_PAIR, 0, 0, 65537, 0, HEARTH_ERROR_FORMAT, "allowed are 0 to 65536"},
    {"B3", GGUF_N_PAIR, 0, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "metadata pairs at byte 16"},
    {"B4", GGUF_KEY_LENGTH, 0, 0, 0, 0, HEARTH_ERROR_FORMAT, "metadata pair 1 of 7 (at byte 24)"},
    {"B4", GGUF_KEY_LENGTH, 1, 0, 65535, 0, HEARTH_ERROR_FORMAT, "key length|bytes follow"},
    {"B4", GGUF_KEY_LENGTH, 1, 0, 65536, 0, HEARTH_ERROR_FORMAT, "allowed are 1 to 65535"},
    {"B4", GGUF_KEY_LENGTH, 1, 0, 1, LEFT, HEARTH_ERROR_FORMAT, "key length|bytes follow"},
    {"B4", GGUF_KEY_LENGTH, 1, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "key length"},
    {"B4", GGUF_KEY_LENGTH, 1, 0, M1(8), 0, HEARTH_ERROR_FORMAT, "key length"},
    {"B5", GGUF_TEXT_LENGTH, 0, 0, 1, LEFT, HEARTH_ERROR_FORMAT, "general.architecture|text length"},
    {"B5", GGUF_TEXT_LENGTH, 0, 0, 16 << 20, 0, HEARTH_ERROR_FORMAT, "text length|bytes follow"},
    {"B5", GGUF_TEXT_LENGTH, 0, 0, (16 << 20) + 1, 0, HEARTH_ERROR_FORMAT, "allowed are 0 to"},
    {"B5", GGUF_TEXT_LENGTH, 4, 1, 1, LEFT, HEARTH_ERROR_FORMAT, "small.texts|text length"},
    {"B6", GGUF_TEXT_LENGTH, 0, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "text length"},
    {"B6", GGUF_TEXT_LENGTH, 0, 0, M1(64), 0, HEARTH_ERROR_FORMAT, "text length"},
    {"B6", GGUF_TEXT_LENGTH, 4, 0, M1(8), 0, HEARTH_ERROR_FORMAT, "text length"},
    {"B6", GGUF_TEXT_LENGTH, 4, 0, (uint64_t)1 << 63, 0, HEARTH_ERROR_FORMAT, "text length"},
    {"B7", GGUF_COUNT, 3, 0, 1 << 24, 0, HEARTH_ERROR_FORMAT, "small.numbers|number of elements"},
    {"B7", GGUF_COUNT, 3, 0, (1 << 24) + 1, 0, HEARTH_ERROR_FORMAT, "allowed are 0 to 16777216"},
    {"B7", GGUF_COUNT, 3, 0, (uint64_t)1 << 62, 0, HEARTH_ERROR_FORMAT, "number of elements"},
    {"B7", GGUF_COUNT, 3, 0, ((uint64_t)1 << 62) + 1, 0, HEARTH_ERROR_FORMAT, "number of elements"},
    {"B7", GGUF_COUNT, 4, 0, 1, LEFT, HEARTH_ERROR_FORMAT, "small.texts|number of elements"},
    {"B7", GGUF_COUNT, 5, 0, 1, LEFT, HEARTH_ERROR_FORMAT, "small.bools|number of elements"},
    {"B7", GGUF_COUNT, 5, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "number of elements"},
    {"B9", GGUF_NAME_LENGTH, 1, 0, 0, 0, HEARTH_ERROR_FORMAT, "tensor info 2 of 3|allowed are 1 to 63"},
    {"B9", GGUF_NAME_LENGTH, 1, 0, 64, 0, HEARTH_ERROR_FORMAT, "name length"},
    {"B9", GGUF_NAME_LENGTH, 1, 0, 65, 0, HEARTH_ERROR_FORMAT, "name length"},
    {"B9", GGUF_NAME_LENGTH, 1, 0, M1(1), 0, HEARTH_ERROR_FORMAT, "name length"},
    {"C1", GGUF_VALUE_TYPE, 2, 0, 13, 0, HEARTH_ERROR_FORMAT, "small.bool|value type|is 13"},
    {"C1", GGUF_VALUE_TYPE, 2, 0, 255, 0, HEARTH_ERROR_FORMAT, "small.bool|value type"},
    {"C1", GGUF_VALUE_TYPE, 2, 0, 1u << 31, 0, HEARTH_ERROR_FORMAT, "small.bool|value type"},
    {"C1", GGUF_VALUE_TYPE, 2, 0, UINT32_MAX, 0, HEARTH_ERROR_FORMAT, "small.bool|value type"},
    {"C2", GGUF_ELEMENT_TYPE, 3, 0, 13, 0, HEARTH_ERROR_FORMAT, "small.numbers|element type"},
    {"C2", GGUF_ELEMENT_TYPE, 3, 0, UINT32_MAX, 0, HEARTH_ERROR_FORMAT, "small.numbers|element type"},
    {"C4", GGUF_VALUE, 2, 0, 2, 0, HEARTH_ERROR_FORMAT, "small.bool|is 2"},
    {"C4", GGUF_VALUE, 2, 0, 255, 0, HEARTH_ERROR_FORMAT, "small.bool|is 255"},
    {"C4", GGUF_VALUE, 5, 0, 0x0200, 0, HEARTH_ERROR_FORMAT, "small.bools|is 2"},
    {"C6", GGUF_KEY, 3, 0, 0x0073, 0, HEARTH_ERROR_FORMAT, "s\\x00|control"},
    {"C6", GGUF_KEY, 3, 0, '\n', 0, HEARTH_ERROR_FORMAT, "'\\x0a|control"},
    {"C6", GGUF_KEY, 3, 0, '\033', 0, HEARTH_ERROR_FORMAT, "'\\x1b|control"},
    {"C12", GGUF_VALUE, 1, 0, 0, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 0"},
    {"C12", GGUF_VALUE, 1, 0, 1, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 1,"},
    {"C12", GGUF_VALUE, 1, 0, 4, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 4,"},
    {"C12", GGUF_VALUE, 1, 0, 7, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 7,"},
    {"C12", GGUF_VALUE, 1, 0, 24, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 24"},
    {"C12", GGUF_VALUE, 1, 0, 33, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 33"},
    {"C12", GGUF_VALUE, 1, 0, 65537, 0, HEARTH_ERROR_FORMAT, "general.alignment|is 65537"},
    {"C12", GGUF_VALUE, 1, 0, 131072, 0, HEARTH_ERROR_FORMAT, "powers of two from 8 to 65536"},
    {"C12", GGUF_VALUE, 1, 0, 1u << 31, 0, HEARTH_ERROR_FORMAT, "general.alignment"},
    {"C12", GGUF_VALUE, 1, 0, UINT32_MAX, 0, HEARTH_ERROR_FORMAT, "general.alignment"},
    {"C12", GGUF_VALUE_TYPE, 1, 0, 5, 0, HEARTH_ERROR_FORMAT, "general.alignment|i32, expected u32"},
    {"C12", GGUF_VALUE_TYPE, 1, 0, 6, 0, HEARTH_ERROR_FORMAT, "general.alignment|f32, expected u32"},
    {"C14", GGUF_VALUE, 1, 0, 256, 0, HEARTH_ERROR_FORMAT, "'b.weight'|multiple of the alignment"},
    {"D1", GGUF_N_DIM, 0, 0, 0, 0, HEARTH_ERROR_FORMAT, "'a.weight' (info at byte|dimensions"},
    {"D1", GGUF_N_DIM, 0, 0, 5, 0, HEARTH_ERROR_FORMAT, "'a.weight'|is 5, allowed are 1 to 4"},
    {"D1", GGUF_N_DIM, 0, 0, 255, 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimensions"},
    {"D1", GGUF_N_DIM, 0, 0, UINT32_MAX, 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimensions"},
    {"D2", GGUF_DIM, 0, 0, 0, 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimension 0|is 0"},
    {"D2", GGUF_DIM, 0, 1, 0, 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimension 1|is 0"},
    {"D3", GGUF_DIM, 0, 0, (uint64_t)1 << 63, 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimension 0"},
    {"D3", GGUF_DIM, 0, 1, M1(1), 0, HEARTH_ERROR_FORMAT, "'a.weight'|dimension 1"},
    {"D3", GGUF_DIM, 0, 1, ((uint64_t)1 << 40) + 1, 0, HEARTH_ERROR_FORMAT, "dimension 1"},
    {"D3", GGUF_DIM, 1, 1, ((uint64_t)1 << 40), 0, HEARTH_ERROR_FORMAT, "'b.weight'|past the end"},
    {"D4", GGUF_TYPE, 0, 0, 4, 0, HEARTH_ERROR_UNSUPPORTED, "'a.weight'|unknown type 4|removed"},
    {"D4", GGUF_TYPE, 0, 0, 5, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 5"},
    {"D4", GGUF_TYPE, 0, 0, 31, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 31"},
    {"D4", GGUF_TYPE, 0, 0, 32, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 32"},
    {"D4", GGUF_TYPE, 0, 0, 33, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 33"},
    {"D4", GGUF_TYPE, 0, 0, 36, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 36"},
    {"D4", GGUF_TYPE, 0, 0, 37, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 37"},
    {"D4", GGUF_TYPE, 0, 0, 38, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 38"},
    {"D4", GGUF_TYPE, 0, 0, 43, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 43"},
    {"D4", GGUF_TYPE, 0, 0, 1u << 31, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 2147483648"},
    {"D4", GGUF_TYPE, 0, 0, UINT32_MAX, 0, HEARTH_ERROR_UNSUPPORTED, "unknown type 4294967295"},
    {"D5", GGUF_OFFSET, 1, 0, 129, 0, HEARTH_ERROR_FORMAT, "'b.weight'|is 129, not a multiple"},
    {"D5", GGUF_OFFSET, 1, 0, 144, 0, HEARTH_ERROR_FORMAT, "'b.weight'|not a multiple"},
    {"D6", GGUF_OFFSET, 1, 0, 224, 0, HEARTH_ERROR_FORMAT, "'b.weight'|past the end of the file"},
    {"D6", GGUF_OFFSET, 1, 0, (uint64_t)1 << 40, 0, HEARTH_ERROR_FORMAT, "past the end"},
    {"D6", GGUF_OFFSET, 1, 0, M1(32), 0, HEARTH_ERROR_FORMAT, "past the end"},
    {"D6", GGUF_OFFSET, 1, 0, M1(512), 0, HEARTH_ERROR_FORMAT, "past the end"},
    {"D8", GGUF_OFFSET, 1, 0, 0, 0, HEARTH_ERROR_FORMAT, "overlap|'a.weight'|'b.weight'"},
    {"D8", GGUF_OFFSET, 1, 0, 96, 0, HEARTH_ERROR_FORMAT, "overlap|'a.weight'|'b.weight'"},
    {"D8", GGUF_OFFSET, 0, 0, 64, 0, HEARTH_ERROR_FORMAT, "overlap|'a.weight'|'b.weight'"},
    {"D8", GGUF_OFFSET, 2, 0, 128, 0, HEARTH_ERROR_FORMAT, "overlap|'b.weight'|'c.weight'"},
    {"D8", GGUF_OFFSET, 2, 0, 160, 0, HEARTH_ERROR_FORMAT, "overlap|'b.weight'|'c.weight'"},
    {"D10", GGUF_DIM, 1, 0, 31, 0, HEARTH_ERROR_FORMAT, "'b.weight'|rows of 31|blocks of 32"},
    {"D10", GGUF_TYPE, 1, 0, 12, 0, HEARTH_ERROR_FORMAT, "'b.weight'|Q4_K has blocks of 256"},
    {"D12", GGUF_NAME, 2, 0, 0x0063, 0, HEARTH_ERROR_FORMAT, "c\\x00|NUL"},
    {"D12", GGUF_NAME, 2, 0, 'b', 0, HEARTH_ERROR_FORMAT, "'b.weight'|the same name"},
};

TEST(gguf_refuses_every_spoilt_field)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    for (size_t k = 0; k < sizeof bad_rows / sizeof bad_rows[0]; k++) {
        const struct bad_row *row = &bad_rows[k];
        gguf_small(&b);
        gguf_field f = gguf_field_of(&b, row->kind, row->i, row->j);
        uint64_t value = row->value + (row->flags & LEFT ? b.n - f.at - f.width : 0);
        /* of names only the first bytes are spoilt: one, or two when there is a NUL */
        bool name = row->kind == GGUF_KEY || row->kind == GGUF_NAME;
        size_t width = name ? ((value & 0xff) == 'b' || value < 0x20 ? 1 : 2) : f.width;
        gguf_patch(&b, f.at, value, width);
        char id[40];
        snprintf(id, sizeof id, "%s (row %zu)", row->id, k);
        refusal_check(&b, row->status, id, row->words);
    }
}

TEST(gguf_small_file_itself_is_accepted)
{
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    refusal_check_accepted(&b, "small");
}

/* ---- A: the file as such ---------------------------------------------------------------------- */

TEST(gguf_says_what_a_foreign_file_looks_like)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } rows[] = {
        {"FUGG\0\0\0\3", 8, "'FUGG'|big-endian"},
        {"lmgg", 4, "GGML"},
        {"tjgg\3\0\0\0", 8, "GGJT"},
        {"PK\3\4xxxx", 8, "'PK\\x03\\x04'|ZIP"},
        {"\x80\2}q\0", 5, "'\\x80\\x02}q'|pickle"},
        {"\x40\0\0\0\0\0\0\0{\"a\":1}", 15, "safetensors"},
        {"\x7f"
         "ELF\2\1\1",
         7, "program"},
        {"<!DOCTYPE html>", 15, "web page"},
        {"version https://git-lfs", 23, "Git LFS"},
        {"\0\0\0\0\0\0\0\0", 8, "zeros"},
        {"HUGF\3\0\0\0", 8, "'HUGF', expected 'GGUF'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLEANUP(gguf_free) gguf_bytes b = {0};
        gguf_put(&b, rows[i].bytes, rows[i].n);
        refusal_check(&b, HEARTH_ERROR_FORMAT, rows[i].words, rows[i].words);
        gguf_zeros(&b, 100);
        refusal_check(&b, HEARTH_ERROR_FORMAT, rows[i].words, rows[i].words);
    }
}

/* Hubs cut large files by bytes; what a user opens is the first part, or another. */
TEST(gguf_says_that_parts_must_be_joined)
{
    static const struct {
        const char *name;
        bool is_part;
    } names[] = {{"m.gguf.part1of2", true},   {"m.gguf.part2of2", true}, {"m.gguf.part12", true},
                 {"m.gguf-split-a", true},    {"m.gguf.part", false},    {"m.part1of2.gguf", false},
                 {"m.part1of.gguf", false},   {"m.gguf.part1of", false}, {"m.gguf-split-10", false},
                 {"x.part1/m.gguf", false}};
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_small(&b);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int cut = 0; cut < 3; cut++) { /* in the directory, in the data, and without the beginning */
            hth_gguf *file = NULL;
            hearth_error why = {0};
            const size_t from = cut == 2 ? 4 : 0, n = cut == 0 ? 40 : b.n - 64 - from;
            CHECK_INT(hth_gguf_open_memory(b.data + from, n, names[i].name, &file, &why), HEARTH_ERROR_FORMAT);
            CHECK(file == NULL);
            if ((strstr(why.message, "join the parts") != NULL) != names[i].is_part)
                test_fail(__FILE__, __LINE__, "%s: %s", names[i].name, why.message);
        }
    }
}

TEST(gguf_refuses_each_wrong_byte_of_the_magic)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    for (size_t at = 0; at < 4; at++) {
        gguf_small(&b);
        b.data[at] ^= 0x20;
        refusal_check(&b, HEARTH_ERROR_FORMAT, "A5", "magic at byte 0");
    }
}

TEST(gguf_refuses_files_too_short_for_a_header)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    refusal_check(&b, HEARTH_ERROR_FORMAT, "A1", "too short for a GGUF header|ends at byte 0");
    for (size_t n = 1; n < 24; n++) {
        gguf_small(&b);
        b.n = n;
        refusal_check(&b, HEARTH_ERROR_FORMAT, "A1", "too short for a GGUF header");
    }
}

static void check_path_refused(const char *path, const char *words)
{
    hth_gguf *file = NULL;
    hearth_error why = {0};
    CHECK_INT(hth_gguf_open(path, &file, &why), HEARTH_ERROR_IO);
    CHECK(file == NULL);
    if (!strstr(why.message, words) || !strstr(why.message, path))
        test_fail(__FILE__, __LINE__, "%s: %s", path, why.message);
}

TEST(gguf_refuses_what_is_not_a_regular_file_without_waiting)
{
    const char *fifo = test_scratch("fifo"), *sock = test_scratch("sock");
    const char *dangling = test_scratch("dangling"), *loop = test_scratch("loop");
    check_path_refused("/tmp", "is a folder");
    check_path_refused("/dev/zero", "is a character device");
    check_path_refused("/dev/random", "is a character device");
    check_path_refused("/no/such/file.gguf", "cannot open: No such file");
    check_path_refused("", "cannot open");
    if (CHECK_INT(mkfifo(fifo, 0600), 0)) check_path_refused(fifo, "is a pipe");
    unlink(fifo);
    if (CHECK_INT(symlink("/no/such/target", dangling), 0)) check_path_refused(dangling, "No such");
    unlink(dangling);
    if (CHECK_INT(symlink(loop, loop), 0)) check_path_refused(loop, "cannot open");
    unlink(loop);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", sock);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0)
        check_path_refused(sock, "is a socket");
    if (fd >= 0) close(fd);
    unlink(sock);
}

TEST(gguf_says_that_a_file_may_not_be_read)
{
    const char *path = test_scratch("locked.gguf");
    const uid_t nobody = 65534, user = geteuid(); /* the superuser may read every file */
    CHECK(test_write_file(path, "GGUF", 4));
    CHECK_INT(chmod(path, 0), 0);
    if (user == 0 && seteuid(nobody) != 0) test_skip("the superuser cannot become another user here");
    else check_path_refused(path, "cannot open: Permission denied");
    if (user == 0) CHECK_INT(seteuid(user), 0);
}

TEST(gguf_says_that_descriptors_ran_out)
{
    struct rlimit old, none;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    hth_gguf *file = NULL;
    hearth_error why = {0};
    CHECK_INT(hth_gguf_open("/etc/hostname", &file, &why), HEARTH_ERROR_IO);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK(strstr(why.message, "RLIMIT_NOFILE") != NULL);
}

TEST(gguf_line_has_room_for_the_reason_behind_a_long_path)
{
    char path[1200];
    memset(path, 'x', sizeof path);
    for (size_t i = 100; i < sizeof path; i += 100) path[i] = '/';
    path[sizeof path - 1] = '\0';
    hth_gguf *file = NULL;
    CHECK_FAILS(hth_gguf_open(path, &file, err), HEARTH_ERROR_IO, "cannot open: No such file");
}

TEST(gguf_accepts_bytes_after_the_last_tensor)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    hth_gguf *file = NULL;
    static const size_t extra[] = {1, 32, 1000};
    for (size_t i = 0; i < 3; i++) {
        gguf_small(&b);
        gguf_zeros(&b, extra[i]);
        CHECK_OK(hth_gguf_open_memory(b.data, b.n, "long.gguf", &file, err));
        CHECK_INT(hth_gguf_trailing(file), extra[i]);
        hth_gguf_close(file);
    }
}

TEST(gguf_accepts_sparse_files_of_any_size)
{
    hth_gguf *file = NULL;
    const char *path = test_scratch("sparse.gguf");
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    static const off_t sizes[] = {(off_t)1 << 30, (off_t)1 << 43, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        CHECK(test_write_file(path, b.data, b.n));
        if (truncate(path, sizes[i]) != 0) continue; /* more than this file system has */
        CHECK_OK(hth_gguf_open(path, &file, err));
        CHECK_INT(hth_gguf_trailing(file), (uint64_t)sizes[i] - b.n);
        hth_gguf_close(file);
    }
}

/* ---- B: counts -------------------------------------------------------------------------------------- */

TEST(gguf_accepts_files_without_tensors_and_without_metadata)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 0);
    refusal_check_accepted(&b, "B1");
}

TEST(gguf_refuses_arrays_over_the_limit_though_they_are_there)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    uint64_t n = (1 << 24) + 1;
    gguf_header(&b, 3, 0, 1);
    gguf_array(&b, "long", 0, n);
    unsigned char *zeros = calloc(1, n);
    gguf_put(&b, zeros, n);
    free(zeros);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "B8", "'long'|is 16777217, allowed are 0 to 16777216");
    gguf_patch(&b, gguf_field_of(&b, GGUF_COUNT, 0, 0).at, n - 1, 8);
    refusal_check_accepted(&b, "B8");
}

TEST(gguf_refuses_array_counts_for_every_element_type)
{
    static const unsigned sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    for (uint32_t type = 0; type < 13; type++) {
        CLEANUP(gguf_free) gguf_bytes b = {0};
        char words[80];
        gguf_header(&b, 3, 0, 1);
        gguf_array(&b, "few", type, 5);
        gguf_zeros(&b, 4 * sizes[type] + 3 % sizes[type]); /* one element is missing */
        snprintf(words, sizeof words, "'few'|is 5, but only|(%u or more for each)", sizes[type]);
        refusal_check(&b, HEARTH_ERROR_FORMAT, "B7", words);
    }
}

TEST(gguf_refuses_many_declared_keys_in_a_small_file)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 65536);
    gguf_word(&b, 65535, 8);
    gguf_zeros(&b, 1000);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "B10", "metadata pairs at byte 16 is 65536");
}

TEST(gguf_finds_a_duplicate_key_among_fifty_thousand)
{
    enum { N = 50000 };
    CLEANUP(gguf_free) gguf_bytes b = {0};
    char key[40];
    gguf_header(&b, 3, 0, N + 1);
    for (int i = 0; i <= N; i++) {
        snprintf(key, sizeof key, "key.%d", i % N);
        gguf_pair_u32(&b, key, 0);
    }
    uint64_t start = hth_clock_ns();
    refusal_check(&b, HEARTH_ERROR_FORMAT, "B11", "key 'key.0'|the same key is at byte 24 already");
    printf("     50,000 keys and a duplicate: %.1f ms\n", (double)(hth_clock_ns() - start) / 1e6);
}

TEST(gguf_finds_a_duplicate_tensor_among_fifty_thousand)
{
    enum { N = 50000 };
    CLEANUP(gguf_free) gguf_bytes b = {0};
    char name[40];
    gguf_header(&b, 3, N + 1, 0);
    for (uint64_t i = 0; i <= N; i++) {
        snprintf(name, sizeof name, "t.%u", (unsigned)(i % N));
        gguf_info(&b, name, 1, (uint64_t[]){1}, 0, 32 * i);
    }
    uint64_t start = hth_clock_ns();
    refusal_check(&b, HEARTH_ERROR_FORMAT, "B11", "'t.0'|the same name is in the info at byte 24");
    printf("     50,000 tensors and a duplicate: %.1f ms\n", (double)(hth_clock_ns() - start) / 1e6);
}

/* ---- C: metadata --------------------------------------------------------------------------------------- */

TEST(gguf_follows_arrays_in_arrays_to_depth_four)
{
    static const int depths[] = {1, 2, 4, 5, 1000};
    for (size_t k = 0; k < 5; k++) {
        CLEANUP(gguf_free) gguf_bytes b = {0};
        gguf_header(&b, 3, 0, 1);
        gguf_key(&b, "deep", 9);
        for (int d = 1; d < depths[k]; d++) {
            gguf_word(&b, 9, 4);
            gguf_word(&b, 1, 8);
        }
        gguf_word(&b, 0, 4);
        gguf_word(&b, 1, 8);
        gguf_word(&b, 7, 1);
        if (depths[k] <= 4) refusal_check_accepted(&b, "C3");
        else refusal_check(&b, HEARTH_ERROR_FORMAT, "C3", "'deep'|deeper than 4");
    }
}

TEST(gguf_refuses_a_key_twice_with_another_type_too)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 2);
    gguf_pair_u32(&b, "twice", 1);
    gguf_pair_text(&b, "twice", "1");
    refusal_check(&b, HEARTH_ERROR_FORMAT, "C5", "key 'twice' (at byte 45)|at byte 24 already");
}

TEST(gguf_warns_once_about_odd_keys)
{
    static const char *const odd[] = {"Upper", "a b", "a..b", ".a", "a.", "h\xc3\xa9", "a/b"};
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 8);
    gguf_pair_u32(&b, "plain.key-1_x", 1);
    for (uint32_t i = 0; i < 7; i++) gguf_pair_u32(&b, odd[i], i);
    test_log_start();
    refusal_check_accepted(&b, "C6");
    test_log_stop();
    CHECK_INT(test_n_warning(""), 1);
    CHECK(test_n_warning("'Upper'") && test_n_warning("7 such keys"));
}

TEST(gguf_takes_alignments_from_8_to_65536)
{
    for (uint32_t align = 8; align <= 65536; align *= 2) {
        CLEANUP(gguf_free) gguf_bytes b = {0};
        gguf_header(&b, 3, 2, 1);
        gguf_pair_u32(&b, "general.alignment", align);
        gguf_info(&b, "a", 1, (uint64_t[]){1}, 0, 0);
        gguf_info(&b, "b", 1, (uint64_t[]){1}, 0, align);
        gguf_pad(&b, align);
        gguf_word(&b, 1, 4);
        gguf_pad(&b, align);
        gguf_word(&b, 2, 4);
        CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "aligned.gguf");
        if (file) CHECK_BYTES(hth_gguf_mapped(file, hth_gguf_find_tensor(file, "b")), "\2", 1);
    }
}

TEST(gguf_refuses_alignment_as_text_and_array)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 1);
    gguf_pair_text(&b, "general.alignment", "32");
    refusal_check(&b, HEARTH_ERROR_FORMAT, "C12", "is of type text, expected u32");
    b.n = 0;
    gguf_header(&b, 3, 0, 1);
    gguf_array(&b, "general.alignment", 4, 1);
    gguf_word(&b, 32, 4);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "C12", "is of type array, expected u32");
}

/* ---- D: tensors ------------------------------------------------------------------------------------------ */

/* A file with one tensor and n_data bytes of data. */
static void build_one(gguf_bytes *b, const char *name, uint32_t n_dim, const uint64_t dim[], uint32_t type,
                      size_t n_data)
{
    b->n = 0;
    gguf_header(b, 3, 1, 0);
    gguf_info(b, name, n_dim, dim, type, 0);
    if (n_data > 0) gguf_pad(b, 32);
    gguf_zeros(b, n_data);
}

TEST(gguf_refuses_dimensions_whose_product_wraps)
{
    static const struct {
        uint32_t n_dim;
        uint64_t dim[4];
    } rows[] = {
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}},
        {4, {1 << 16, 1 << 16, 1 << 16, 1 << 16}},
        {3, {(uint64_t)1 << 40, (uint64_t)1 << 23, 2}},
        {2, {((uint64_t)1 << 32) + 1, (uint64_t)1 << 32}},
        {2, {(uint64_t)1 << 40, 257}},
        {3, {(uint64_t)1 << 40, (uint64_t)1 << 40, (uint64_t)1 << 40}},
    };
    CLEANUP(gguf_free) gguf_bytes b = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        build_one(&b, "w", rows[i].n_dim, rows[i].dim, 0, 64);
        refusal_check(&b, HEARTH_ERROR_FORMAT, "D3", "'w'|multiply to more than");
    }
    build_one(&b, "w", 2, (uint64_t[]){(uint64_t)1 << 40, 256}, 28, 64);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "D11", "'w'|past the end");
    build_one(&b, "w", 4, (uint64_t[]){1, 1, 1, 1}, 0, 4);
    refusal_check_accepted(&b, "D2");
}

TEST(gguf_accepts_data_that_end_with_the_file_and_not_one_byte_less)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    build_one(&b, "w", 1, (uint64_t[]){16}, 0, 64);
    refusal_check_accepted(&b, "D7");
    b.n--;
    refusal_check(&b, HEARTH_ERROR_FORMAT, "D7", "'w' (info at byte 24)|past the end of the file");
    build_one(&b, "w", 1, (uint64_t[]){16}, 0, 0);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "D19", "'w'|past the end");
}

TEST(gguf_accepts_known_types_that_are_not_supported)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    build_one(&b, "w", 1, (uint64_t[]){256}, 15, 292); /* Q8_K */
    CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "q8_k.gguf");
    if (file) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, 0);
        CHECK_INT(t->size, 292);
        CHECK(!hth_type_find((uint32_t)t->type)->supported);
    }
}

TEST(gguf_accepts_gaps_any_order_and_dirty_padding)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 3, 0);
    gguf_info(&b, "a", 1, (uint64_t[]){8}, 0, 320);
    gguf_info(&b, "b", 1, (uint64_t[]){8}, 0, 0);
    gguf_info(&b, "c", 1, (uint64_t[]){8}, 0, 96);
    while (b.n % 32 != 0) gguf_word(&b, 0xee, 1);
    for (int i = 0; i < 352; i++) gguf_word(&b, 0xee, 1);
    CLOSED(hth_gguf) *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "gaps.gguf");
    if (file) CHECK_TEXT(hth_gguf_tensor_at(file, 0)->name.bytes, "a");
    if (file) CHECK_INT(hth_gguf_trailing(file), 0);
}

TEST(gguf_refuses_a_chain_of_overlaps_in_any_order)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 3, 0);
    gguf_info(&b, "last", 1, (uint64_t[]){16}, 0, 64);
    gguf_info(&b, "first", 1, (uint64_t[]){16}, 0, 0);
    gguf_info(&b, "middle", 1, (uint64_t[]){16}, 0, 32);
    gguf_pad(&b, 32);
    gguf_zeros(&b, 256);
    refusal_check(&b, HEARTH_ERROR_FORMAT, "D8", "overlap|'first'|'middle'");
    for (uint64_t n = 32; n <= 33; n++) { /* bytes, up to the next tensor and one more */
        gguf_free(&b);
        gguf_header(&b, 3, 2, 0);
        gguf_info(&b, "first", 1, &n, 24, 0); /* I8 */
        gguf_info(&b, "second", 1, (uint64_t[]){16}, 0, 32);
        gguf_pad(&b, 32);
        gguf_zeros(&b, 96);
        if (n == 32) refusal_check_accepted(&b, "D8");
        else refusal_check(&b, HEARTH_ERROR_FORMAT, "D8", "overlap|'first'|'second'");
    }
}

TEST(gguf_shows_odd_tensor_names_escaped)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    char name[64];
    static const char *const odd[] = {"../x", "%n%s%n", "a\033[2Jb", "a\nb", "\177"};
    static const char *const shown[] = {"'../x'", "'%n%s%n'", "'a\\x1b[2Jb'", "'a\\x0ab'", "'\\x7f'"};
    for (size_t i = 0; i < 5; i++) {
        build_one(&b, odd[i], 1, (uint64_t[]){16}, 0, 64);
        refusal_check_accepted(&b, "D12");
        b.n--;
        refusal_check(&b, HEARTH_ERROR_FORMAT, "D12", shown[i]);
    }
    memset(name, 0xff, 63);
    name[63] = '\0';
    build_one(&b, name, 1, (uint64_t[]){16}, 0, 64);
    refusal_check_accepted(&b, "D12");
    b.n--;
    refusal_check(&b, HEARTH_ERROR_FORMAT, "D12", "'\\xff\\xff|...'|past the end");
}

TEST(gguf_refuses_sizes_that_only_a_sparse_file_has)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    const char *path = test_scratch("sum.gguf");
    uint64_t dim = (uint64_t)1 << 40;
    gguf_header(&b, 3, 3, 0);
    for (uint64_t i = 0; i < 3; i++)
        gguf_info(&b, (const char *[]){"a", "b", "c"}[i], 2, (uint64_t[]){dim, 256}, 28, i << 62);
    gguf_pad(&b, 32);
    CHECK(test_write_file(path, b.data, b.n));
    hth_gguf *file = NULL;
    if (truncate(path, (off_t)1 << 43) == 0)
        CHECK_FAILS(hth_gguf_open(path, &file, err), HEARTH_ERROR_FORMAT, "tensor 'a'|past the end");
}
