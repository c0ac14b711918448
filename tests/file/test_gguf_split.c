/* Models of several files: any part opens all, and parts that do not belong together are refused (class G of
 * docs/reliability.md). Parts are written to scratch files; each holds one tensor. */
#include "base/alloc.h"
#include "file/gguf.h"
#include "support/models/gguf_build.h"
#include "support/test.h"

#include <sys/stat.h>

/* What the metadata of one part say; -1 leaves a key out. */
typedef struct part {
    int no, count, n_tensor;
    const char *architecture; /* or NULL */
    const char *tensor;
    uint32_t version, alignment;
} part;

static const part good[3] = {
    {0, 3, 3, "llama", "a", 3, 32},
    {1, 3, 3, NULL, "b", 3, 64},
    {2, 3, 3, "llama", "c", 3, 32},
};

static const char *part_path(int number, int count)
{
    char name[60];
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    return test_scratch(name);
}

static void pair_int(gguf_bytes *b, const char *key, uint32_t type, size_t size, int value)
{
    if (value < 0) return;
    gguf_key(b, key, type);
    gguf_word(b, (uint64_t)value, size);
}

static void build_part(gguf_bytes *b, const part *p)
{
    uint64_t n_pair = (uint64_t)(p->no >= 0) + (p->count >= 0) + (p->n_tensor >= 0) + (p->architecture != NULL) + 1;
    b->n = 0;
    gguf_header(b, p->version, 1, n_pair);
    pair_int(b, "split.no", 2, 2, p->no);
    pair_int(b, "split.count", 2, 2, p->count);
    pair_int(b, "split.tensors.count", 5, 4, p->n_tensor);
    if (p->architecture) gguf_pair_text(b, "general.architecture", p->architecture);
    gguf_pair_u32(b, "general.alignment", p->alignment);
    gguf_info(b, p->tensor, 1, (uint64_t[]){8}, 0, 0);
    gguf_pad(b, p->alignment);
    for (int i = 0; i < 32; i++) gguf_word(b, (uint64_t)(unsigned char)p->tensor[0], 1);
}

static void write_parts(const part parts[3])
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    for (int i = 0; i < 3; i++) {
        build_part(&b, &parts[i]);
        CHECK(test_write_file(part_path(i + 1, 3), b.data, b.n));
    }
}

static void remove_parts(void) { for (int i = 1; i <= 3; i++) unlink(part_path(i, 3)); }

static void check_open_refused(const char *path, const char *words)
{
    hth_gguf *file = NULL;
    hearth_error why = {0};
    uint64_t held = hth_alloc_in_use();
    CHECK(hth_gguf_open(path, &file, &why) != HEARTH_OK);
    if (!strstr(why.message, words)) test_fail(__FILE__, __LINE__, "\"%s\" does not hold \"%s\"", why.message, words);
    hth_gguf_close(file);
    CHECK_INT(hth_alloc_in_use(), held);
}

/* Parts 1 to 3 with one of them replaced must be refused, whichever is opened. */
static void check_set_refused(int i_bad, part bad, const char *words)
{
    part parts[3];
    memcpy(parts, good, sizeof parts);
    parts[i_bad] = bad;
    write_parts(parts);
    check_open_refused(part_path(1, 3), words);
}

TEST(split_each_part_opens_the_model_with_data_of_all)
{
    write_parts(good);
    for (int number = 1; number <= 3; number++) {
        unsigned char got[32];
        CLOSED(hth_gguf) *file = OPENED(hth_gguf, part_path(number, 3));
        if (!file) continue;
        CHECK_TEXT(hth_gguf_path(file), part_path(number, 3));
        for (size_t i = 0; i < 3; i++) {
            const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
            CHECK_INT(t->i_part, i);
            CHECK_OK(hth_gguf_read(file, t, 0, 32, got, err));
            CHECK_INT(got[31], 'a' + (int)i);
        }
        CHECK_OK(hth_gguf_map(file, err));
        CHECK_INT(*(const char *)hth_gguf_mapped(file, hth_gguf_find_tensor(file, "c")), 'c');
    }
}

TEST(split_refuses_missing_and_renamed_parts)
{
    write_parts(good);
    unlink(part_path(2, 3));
    check_open_refused(part_path(1, 3), "m-00002-of-00003.gguf: cannot open");
    check_open_refused(part_path(3, 3), "m-00002-of-00003.gguf: cannot open");
    unlink(part_path(1, 3));
    check_open_refused(part_path(3, 3), "m-00001-of-00003.gguf: cannot open");
    remove_parts();
    write_parts(good);
    const char *other = test_scratch("other.gguf");
    CHECK_INT(rename(part_path(1, 3), other), 0);
    check_open_refused(other, "the name must end in -00001-of-00003.gguf");
    unlink(other);
    const char *upper = test_scratch("m-00001-OF-00003.gguf");
    CHECK_INT(rename(part_path(2, 3), upper), 0);
    check_open_refused(upper, "the name must end in");
}

TEST(split_refuses_numbers_that_contradict_the_names)
{
    write_parts(good);
    CHECK_INT(rename(part_path(3, 3), part_path(2, 3)), 0);
    check_open_refused(part_path(1, 3), "split.no is 2, expected 1 for part 2 of 3");
    check_open_refused(part_path(2, 3), "split.no is 2, expected 1");
    remove_parts();
    write_parts(good);
    unlink(part_path(2, 3));
    CHECK_INT(symlink(part_path(1, 3), part_path(2, 3)), 0);
    check_open_refused(part_path(1, 3), "m-00001-of-00003.gguf already");
    remove_parts();
    check_set_refused(1, (part){-1, 3, 3, NULL, "b", 3, 32}, "key split.no missing");
    check_set_refused(2, (part){2, -1, 3, NULL, "c", 3, 32}, "key split.count missing");
    check_set_refused(1, (part){1, 4, 3, NULL, "b", 3, 32}, "split.count is 4, but there are 3");
    check_set_refused(1, (part){0, 3, 3, NULL, "b", 3, 32}, "split.no is 0, expected 1");
}

TEST(split_refuses_counts_that_are_none)
{
    check_set_refused(0, (part){0, 1, 3, NULL, "a", 3, 32}, "split.count is 1, but the name says");
    check_set_refused(0, (part){0, 65535, 3, NULL, "a", 3, 32}, "is 65535, allowed are 0 to 1024");
    check_set_refused(0, (part){0, 2, 3, NULL, "a", 3, 32}, "split.count is 2, but there are 3");
    CLEANUP(gguf_free) gguf_bytes b = {0};
    gguf_header(&b, 3, 0, 1);
    gguf_pair_text(&b, "split.count", "3");
    CHECK(test_write_file(part_path(1, 3), b.data, b.n));
    check_open_refused(part_path(1, 3), "key 'split.count' (at byte 24): is of type text");
}

TEST(split_count_zero_means_one_file)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    build_part(&b, &(part){0, 0, -1, "llama", "a", 3, 32});
    CHECK(test_write_file(part_path(1, 3), b.data, b.n));
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, part_path(1, 3));
    if (file) CHECK_INT(hth_gguf_n_part(file), 1);
}

TEST(split_refuses_parts_of_two_models)
{
    check_set_refused(2, (part){2, 3, 3, "falcon", "c", 3, 32}, "key 'general.architecture' (at byte");
    check_set_refused(2, (part){2, 3, 3, "falcon", "c", 3, 32}, "the parts are not of one model");
    check_set_refused(1, (part){1, 3, 3, NULL, "b", 2, 32}, "version at byte 4 is 2, but 3 in");
    check_set_refused(2, (part){2, 3, 4, NULL, "c", 3, 32},
                      "split.tensors.count is 4, but the 3 parts have 3 tensors");
    check_set_refused(2, (part){2, 3, 3, NULL, "a", 3, 32}, "m-00001-of-00003.gguf already");
}

TEST(split_names_the_part_that_is_malformed)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    write_parts(good);
    build_part(&b, &good[1]);
    b.n -= 1;
    CHECK(test_write_file(part_path(2, 3), b.data, b.n));
    check_open_refused(part_path(1, 3), "m-00002-of-00003.gguf: tensor 'b'");
}

/* Folders within folders, until the path of a part is as long as the system takes. */
TEST(split_names_the_end_of_a_path_that_is_almost_too_long)
{
    char path[4096], home[2048];
    CLEANUP(gguf_free) gguf_bytes b = {0};
    hth_gguf *file = NULL;
    const char *root = test_scratch("deep");
    CHECK(getcwd(home, sizeof home) != NULL);
    mkdir(root, 0700);
    CHECK_INT(chdir(root), 0);
    char folder[201];
    memset(folder, 'd', 200);
    folder[200] = '\0';
    size_t n = (size_t)snprintf(path, sizeof path, "%s", root), depth = 0;
    for (; n + 201 + 30 < sizeof path; depth++) {
        CHECK_INT(mkdir(folder, 0700), 0);
        CHECK_INT(chdir(folder), 0);
        n += (size_t)snprintf(path + n, sizeof path - n, "/%s", folder);
    }
    size_t n_name = sizeof path - 1 - n - 1; /* the longest name that is left */
    char name[260], part_name[320];
    memset(name, 'n', sizeof name);
    name[n_name - strlen("-00001-of-00002.gguf")] = '\0';
    snprintf(part_name, sizeof part_name, "%s-00001-of-00002.gguf", name);
    CHECK_INT(strlen(part_name), n_name);
    build_part(&b, &(part){0, 2, 2, "llama", "a", 3, 32});
    CHECK(test_write_file(part_name, b.data, b.n));
    snprintf(path + n, sizeof path - n, "/%s", part_name);
    CHECK_INT(strlen(path), sizeof path - 1); /* PATH_MAX counts the NUL */
    CHECK_FAILS(hth_gguf_open(path, &file, err), HEARTH_ERROR_IO, "-00002-of-00002.gguf: cannot open: No such file");
    unlink(part_name);
    for (; depth > 0; depth--) {
        CHECK_INT(chdir(".."), 0);
        CHECK_INT(rmdir(folder), 0);
    }
    CHECK_INT(chdir(home), 0);
    rmdir(root);
}

/* A part of each kind of damage is named, whichever it is (G7): A to D by one example. */
TEST(split_refuses_damage_of_every_class_in_a_part)
{
    static const struct {
        gguf_field_kind kind;
        uint32_t i, j;
        uint64_t value;
        const char *words;
    } rows[] = {
        {GGUF_MAGIC, 0, 0, 0x46554748, "header: magic at byte 0 is 'HGUF'"},
        {GGUF_VERSION, 0, 0, 4, "header: version at byte 4 is 4"},
        {GGUF_N_TENSOR, 0, 0, UINT64_MAX, "header: number of tensors at byte 8"},
        {GGUF_N_PAIR, 0, 0, 65537, "header: number of metadata pairs at byte 16"},
        {GGUF_KEY_LENGTH, 1, 0, 0, "metadata pair 2 of 4"},
        {GGUF_VALUE_TYPE, 1, 0, 13, "key 'split.count'"},
        {GGUF_DIM, 0, 0, 0, "tensor 'b'"},
        {GGUF_TYPE, 0, 0, 99, "tensor 'b'"},
        {GGUF_OFFSET, 0, 0, 1, "tensor 'b'"},
    };
    CLEANUP(gguf_free) gguf_bytes b = {0};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char words[120];
        write_parts(good);
        build_part(&b, &good[1]);
        gguf_field f = gguf_field_of(&b, rows[k].kind, rows[k].i, rows[k].j);
        gguf_patch(&b, f.at, rows[k].value, f.width);
        CHECK(test_write_file(part_path(2, 3), b.data, b.n));
        snprintf(words, sizeof words, "m-00002-of-00003.gguf: %s", rows[k].words);
        check_open_refused(part_path(1, 3), words);
        remove_parts();
    }
}

TEST(split_part_in_memory_is_refused)
{
    CLEANUP(gguf_free) gguf_bytes b = {0};
    hth_gguf *file = NULL;
    build_part(&b, &good[0]);
    CHECK_FAILS(hth_gguf_open_memory(b.data, b.n, "m-00001-of-00003.gguf", &file, err), HEARTH_ERROR_UNSUPPORTED,
                "is one of 3 parts");
}
