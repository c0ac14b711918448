/* The reader over valid files: the golden model in its five dresses, typed lookups,
 * data by read and by map. What must be refused is in test_gguf_refuse.c. */
#include "base/alloc.h"
#include "file/gguf.h"
#include "file/sigbus_guard.h"
#include "support/models/gguf_build.h"
#include "support/test.h"

static hth_gguf *open_golden(const char *name)
{
    hth_gguf *file = NULL;
    const char *path = test_data(name);
    if (path) CHECK_OK(hth_gguf_open(path, &file, err));
    return file;
}

static bool is_text(hth_str a, const char *b)
{
    return a.n == strlen(b) && memcmp(a.bytes, b, a.n) == 0 && a.bytes[a.n] == '\0';
}

/* Every tensor of b has the name, shape and bytes that it has in a. */
static void check_same_tensors(hth_gguf *a, hth_gguf *b)
{
    CHECK_INT(hth_gguf_n_tensor(a), hth_gguf_n_tensor(b));
    CHECK_OK(hth_gguf_map(a, err));
    for (size_t i = 0; i < hth_gguf_n_tensor(b); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(b, i);
        const hth_gguf_tensor *u = hth_gguf_find_tensor(a, t->name.bytes);
        if (!CHECK(u != NULL)) continue;
        CHECK(u->type == t->type && u->n_dim == t->n_dim && u->size == t->size);
        CHECK(memcmp(u->dim, t->dim, sizeof u->dim) == 0);
        unsigned char *bytes = malloc((size_t)t->size);
        CHECK_OK(hth_gguf_read(b, t, 0, (size_t)t->size, bytes, err));
        CHECK_BYTES(hth_gguf_mapped(a, u), bytes, (size_t)t->size);
        free(bytes);
    }
}

TEST(tiny_has_the_metadata_it_was_made_with)
{
    CLOSED(hth_gguf) *file = open_golden("golden/files/tiny.gguf");
    if (!file) return;
    uint64_t u = 0;
    bool found = false;
    hth_str text = {0};
    CHECK_INT(hth_gguf_version(file), 3);
    CHECK_INT(hth_gguf_n_part(file), 1);
    CHECK_INT(hth_gguf_size(file), 107296);
    CHECK_INT(hth_gguf_alignment(file), 32);
    CHECK_INT(hth_gguf_trailing(file), 0);
    CHECK_OK(hth_gguf_get_uint(file, "llama.embedding_length", 1, 100, &u, &found, err));
    CHECK(found && u == 32);
    CHECK_OK(hth_gguf_get_text(file, "general.architecture", &text, NULL, err));
    CHECK(is_text(text, "llama"));
    CHECK(is_text(hth_gguf_value_at(file, 0)->key, "general.architecture"));
    CHECK(hth_gguf_value_at(file, hth_gguf_n_value(file)) == NULL);
    const hth_gguf_value *tokens = NULL;
    CHECK_OK(hth_gguf_get_array(file, "tokenizer.ggml.tokens", HTH_GGUF_TEXT, 0, &tokens, err));
    CHECK(tokens && tokens->n_element > 256);
    CHECK(is_text(((const hth_str *)tokens->elements)[0], "<unk>"));
}

TEST(every_dress_holds_the_same_tensors)
{
    static const char *const dresses[] = {
        "golden/files/tiny-v2.gguf", "golden/files/tiny-meta.gguf", "golden/files/tiny-nested.gguf",
        "golden/files/tiny-00001-of-00003.gguf",
    };
    CLOSED(hth_gguf) *tiny = open_golden("golden/files/tiny.gguf");
    if (!tiny) return;
    for (size_t i = 0; i < sizeof dresses / sizeof dresses[0]; i++) {
        CLOSED(hth_gguf) *other = open_golden(dresses[i]);
        if (other) check_same_tensors(tiny, other);
    }
}

TEST(version_2_is_read)
{
    CLOSED(hth_gguf) *file = open_golden("golden/files/tiny-v2.gguf");
    if (file) CHECK_INT(hth_gguf_version(file), 2);
}

TEST(any_part_opens_all_parts)
{
    static const char *const parts[] = {
        "golden/files/tiny-00001-of-00003.gguf", "golden/files/tiny-00002-of-00003.gguf",
        "golden/files/tiny-00003-of-00003.gguf",
    };
    for (size_t i = 0; i < 3; i++) {
        CLOSED(hth_gguf) *file = open_golden(parts[i]);
        if (!file) return;
        CHECK_INT(hth_gguf_n_part(file), 3);
        CHECK(strstr(hth_gguf_part_path(file, 0), "00001-of-00003"));
        CHECK(strstr(hth_gguf_path(file), strrchr(parts[i], '/')));
        CHECK_INT(hth_gguf_size(file), 57088 + 6336 + 44224);
        CHECK(hth_gguf_find(file, "general.architecture") != NULL);
        CHECK_INT(hth_gguf_tensor_at(file, 6)->i_part, 0);
        CHECK_INT(hth_gguf_tensor_at(file, 7)->i_part, 1);
        CHECK_INT(hth_gguf_tensor_at(file, 8)->i_part, 2);
    }
}

/* ---- tiny-meta: every type with its extremes ------------------------------------------- */

static void check_integers(const hth_gguf *file, const char *name, bool is_signed, uint32_t bits)
{
    char key[40] = "zz.";
    size_t n = strlen(strcat(key, name));
    uint64_t top = is_signed ? UINT64_MAX >> (65 - bits) : UINT64_MAX >> (64 - bits);
    int64_t bottom = is_signed ? -(int64_t)top - 1 : 0;
    strcpy(key + n, ".min");
    const hth_gguf_value *v = hth_gguf_find(file, key);
    CHECK(v && (is_signed ? v->as.i == bottom : v->as.u == 0));
    strcpy(key + n, ".max");
    v = hth_gguf_find(file, key);
    CHECK(v && v->as.u == top);
    strcpy(key + n, ".array");
    v = hth_gguf_find(file, key);
    if (!CHECK(v && v->n_element == 1000)) return;
    CHECK_INT(hth_gguf_element_int(v, 0), bottom);
    CHECK(hth_gguf_element_uint(v, 1) == top);
    CHECK_INT(hth_gguf_element_uint(v, 999), 97);
    CHECK(hth_gguf_element_float(v, 0) == (double)bottom);
}

TEST(integers_of_all_widths_keep_their_extremes)
{
    CLOSED(hth_gguf) *file = open_golden("golden/files/tiny-meta.gguf");
    if (!file) return;
    check_integers(file, "u8", false, 8);
    check_integers(file, "i8", true, 8);
    check_integers(file, "u16", false, 16);
    check_integers(file, "i16", true, 16);
    check_integers(file, "u32", false, 32);
    check_integers(file, "i32", true, 32);
    check_integers(file, "u64", false, 64);
    check_integers(file, "i64", true, 64);
}

TEST(floats_bools_and_texts_keep_their_bytes)
{
    CLOSED(hth_gguf) *file = open_golden("golden/files/tiny-meta.gguf");
    if (!file) return;
    const hth_gguf_value *v = hth_gguf_find(file, "zz.f32.array");
    CHECK(v && v->n_element == 20000);
    CHECK(hth_gguf_element_float(v, 0) == (double)1e-45f);
    CHECK(hth_gguf_element_float(v, 1) == 0.0 && signbit(hth_gguf_element_float(v, 1)));
    CHECK(hth_gguf_element_float(v, 19999) == 0.5);
    v = hth_gguf_find(file, "zz.f64.array");
    CHECK(v && hth_gguf_element_float(v, 0) == 5e-324 && hth_gguf_element_float(v, 2) == 0.1);
    CHECK(hth_gguf_find(file, "zz.f64")->as.f == 0.1);
    v = hth_gguf_find(file, "zz.bool.array");
    CHECK(v && hth_gguf_element_uint(v, 0) == 1 && hth_gguf_element_uint(v, 1) == 0);
    v = hth_gguf_find(file, "zz.string.array");
    CHECK(v && v->n_element == 60000);
    CHECK(is_text(((const hth_str *)v->elements)[59999], "piece 8571"));
    CHECK(is_text(hth_gguf_find(file, "zz.string.empty")->as.text, ""));
    CHECK_INT(hth_gguf_find(file, "zz.string.long")->as.text.n, 21 * 5000);
    hth_str odd = hth_gguf_find(file, "zz.string.bytes")->as.text;
    CHECK(odd.n == 5 && memcmp(odd.bytes, "\xff\xfe\0\x80""A", 5) == 0);
    CHECK_INT(hth_gguf_find(file, "zz.array.empty.strings")->n_element, 0);
    CHECK_INT(hth_gguf_find(file, "zz.array.empty.u32")->n_element, 0);
    CHECK_INT(hth_gguf_find(file, "zz.many.1999")->as.u, 1999);
    CHECK_INT(hth_gguf_alignment(file), 4096);
}

TEST(arrays_in_arrays_keep_raw_bytes_and_count)
{
    CLOSED(hth_gguf) *file = open_golden("golden/files/tiny-nested.gguf");
    if (!file) return;
    const hth_gguf_value *v = hth_gguf_find(file, "zz.nested");
    if (CHECK(v && v->type == HTH_GGUF_ARRAY && v->element_type == HTH_GGUF_ARRAY)) {
        CHECK_INT(v->n_element, 3);
        CHECK(v->elements == NULL);
        /* heads, 3 u32, 2 texts, and two arrays of 1 byte and of nothing */
        CHECK_INT(v->raw.n, 12 + (12 + 12) + (12 + 9 + 10) + (12 + 13 + 12));
        hearth_error why = {0};
        const hth_gguf_value *array;
        CHECK(hth_gguf_get_array(file, "zz.nested", HTH_GGUF_U32, 0, &array, &why) == HEARTH_ERROR_FORMAT);
        CHECK(strstr(why.message, "is of type array of array, expected array of u32"));
    }
}

/* ---- typed lookups ------------------------------------------------------------------------- */

/* Opens a file without tensors that holds the pairs of b. */
static hth_gguf *open_pairs(const gguf_bytes *pairs, uint64_t n, gguf_bytes *whole)
{
    gguf_header(whole, 3, 0, n);
    gguf_put(whole, pairs->data, pairs->n);
    hth_gguf *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, whole->data, whole->n, "pairs.gguf");
    return file;
}

static hth_gguf *open_mixed(gguf_bytes *whole)
{
    CLEANUP(gguf_free) gguf_bytes pairs = {0};
    gguf_key(&pairs, "k.minus", 1);
    gguf_word(&pairs, 0xff, 1);
    gguf_key(&pairs, "k.small", 1);
    gguf_word(&pairs, 5, 1);
    gguf_key(&pairs, "k.large", 10);
    gguf_word(&pairs, UINT64_MAX, 8);
    gguf_key(&pairs, "k.nan", 6);
    gguf_word(&pairs, 0x7fc00000, 4);
    gguf_key(&pairs, "k.half", 12);
    gguf_word(&pairs, 0x3fe0000000000000u, 8);
    gguf_key(&pairs, "k.yes", 7);
    gguf_word(&pairs, 1, 1);
    gguf_pair_text(&pairs, "k.text", "hm");
    gguf_array(&pairs, "k.array", 5, 2);
    gguf_word(&pairs, 0xfffffffe00000001u, 8);
    hth_gguf *file = open_pairs(&pairs, 8, whole);
    return file;
}

TEST(integers_of_any_width_are_taken_when_they_fit)
{
    CLEANUP(gguf_free) gguf_bytes whole = {0};
    CLOSED(hth_gguf) *file = open_mixed(&whole);
    hearth_error why = {0};
    uint64_t u = 77;
    bool found = true;
    CHECK_OK(hth_gguf_get_uint(file, "k.none", 0, 9, &u, &found, err));
    CHECK(u == 77 && !found);
    CHECK_OK(hth_gguf_get_uint(file, "k.small", 5, 5, &u, &found, err));
    CHECK(u == 5 && found);
    CHECK_OK(hth_gguf_get_uint(file, "k.large", 0, UINT64_MAX, &u, NULL, err));
    CHECK(u == UINT64_MAX);
    CHECK_INT(hth_gguf_get_uint(file, "k.minus", 0, 9, &u, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_TEXT(why.message, "pairs.gguf: key 'k.minus' (at byte 24): is -1, allowed are 0 to 9");
    CHECK_INT(hth_gguf_get_uint(file, "k.small", 6, 9, &u, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_INT(hth_gguf_get_uint(file, "k.yes", 0, 9, &u, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_FAILS(hth_gguf_get_uint(file, "k.nan", 0, 9, &u, NULL, err), HEARTH_ERROR_FORMAT,
                "is of type f32, expected an integer");
    CHECK(u == UINT64_MAX);
}

TEST(lookups_of_another_kind_are_refused)
{
    CLEANUP(gguf_free) gguf_bytes whole = {0};
    CLOSED(hth_gguf) *file = open_mixed(&whole);
    hearth_error why = {0};
    double d = 0;
    bool b = false;
    hth_str text = {0};
    CHECK_OK(hth_gguf_get_float(file, "k.half", 0, 1, &d, NULL, err));
    CHECK(d == 0.5);
    CHECK_INT(hth_gguf_get_float(file, "k.nan", -HUGE_VAL, HUGE_VAL, &d, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_INT(hth_gguf_get_float(file, "k.small", 0, 9, &d, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_OK(hth_gguf_get_bool(file, "k.yes", &b, NULL, err));
    CHECK(b);
    CHECK_INT(hth_gguf_get_bool(file, "k.small", &b, NULL, &why), HEARTH_ERROR_FORMAT);
    CHECK_OK(hth_gguf_get_text(file, "k.text", &text, NULL, err));
    CHECK(is_text(text, "hm"));
    CHECK_FAILS(hth_gguf_get_text(file, "k.array", &text, NULL, err), HEARTH_ERROR_FORMAT,
                "is of type array of i32, expected text");
    CHECK_INT(hth_gguf_missing(file, "a.b", "architecture llama", &why), HEARTH_ERROR_FORMAT);
    CHECK_TEXT(why.message, "pairs.gguf: key a.b missing (needed by architecture llama)");
}

TEST(arrays_are_checked_for_type_and_length)
{
    CLEANUP(gguf_free) gguf_bytes whole = {0};
    CLOSED(hth_gguf) *file = open_mixed(&whole);
    hearth_error why = {0};
    const hth_gguf_value *v = NULL;
    CHECK_OK(hth_gguf_get_array(file, "k.array", HTH_GGUF_I32, 2, &v, err));
    CHECK(v && hth_gguf_element_int(v, 0) == 1 && hth_gguf_element_int(v, 1) == -2);
    CHECK_INT(hth_gguf_get_array(file, "k.array", HTH_GGUF_I32, 3, &v, &why), HEARTH_ERROR_FORMAT);
    CHECK(strstr(why.message, "has 2 elements, expected 3") && v == NULL);
    CHECK_INT(hth_gguf_get_array(file, "k.array", HTH_GGUF_U32, 0, &v, &why), HEARTH_ERROR_FORMAT);
    CHECK_INT(hth_gguf_get_array(file, "k.small", HTH_GGUF_I8, 0, &v, &why), HEARTH_ERROR_FORMAT);
    CHECK_OK(hth_gguf_get_array(file, "k.none", HTH_GGUF_U32, 7, &v, err));
    CHECK(v == NULL);
    CHECK_OK(hth_gguf_get_array(file, "k.array", HTH_GGUF_I32, 2, &v, err));
    CHECK(v != NULL);
    CHECK_INT(hth_gguf_get_array(file, "k.text", HTH_GGUF_I32, 0, &v, &why), HEARTH_ERROR_FORMAT);
}

/* ---- data ------------------------------------------------------------------------------------- */

TEST(reads_stay_inside_their_tensor)
{
    unsigned char got[128];
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    const char *path = test_scratch("inside.gguf");
    CHECK(test_write_file(path, b.data, b.n));
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    const hth_gguf_tensor *t = hth_gguf_find_tensor(file, "b.weight");
    CHECK_OK(hth_gguf_read(file, t, 30, 6, got, err));
    CHECK_BYTES(got, b.data + t->offset + 30, 6);
    CHECK_OK(hth_gguf_read(file, t, 36, 0, got, err));
    CHECK_INT(hth_gguf_read(file, t, 30, 7, got, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hth_gguf_read(file, t, 37, 0, got, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hth_gguf_read(file, t, UINT64_MAX, 2, got, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK(hth_gguf_mapped(file, t) == NULL);
    CHECK_OK(hth_gguf_map(file, err));
    CHECK_OK(hth_gguf_map(file, err));
    CHECK_BYTES(hth_gguf_mapped(file, t), b.data + t->offset, 36);
    CHECK(hth_gguf_find_tensor(file, "none") == NULL && hth_gguf_tensor_at(file, 3) == NULL);
}

TEST(file_that_shrinks_after_opening_is_an_error_that_names_it)
{
    unsigned char got[128];
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    const char *path = test_scratch("shrinks.gguf");
    CHECK(test_write_file(path, b.data, b.n));
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    const hth_gguf_tensor *t = hth_gguf_find_tensor(file, "a.weight");
    CHECK_INT(truncate(path, (off_t)t->offset + 3), 0);
    CHECK_FAILS(hth_gguf_read(file, t, 0, 128, got, err), HEARTH_ERROR_IO, "shrinks.gguf: |became shorter");
    CHECK_FAILS(hth_gguf_map(file, err), HEARTH_ERROR_IO, "became shorter");
}

TEST(file_that_is_replaced_or_unlinked_goes_on)
{
    unsigned char got[128];
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    const char *path = test_scratch("unlinked.gguf");
    CHECK(test_write_file(path, b.data, b.n));
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    unlink(path);
    CHECK(test_write_file(path, "other", 5));
    const hth_gguf_tensor *t = hth_gguf_find_tensor(file, "a.weight");
    CHECK_OK(hth_gguf_read(file, t, 0, 128, got, err));
    CHECK_BYTES(got, b.data + t->offset, 128);
}

TEST(memory_is_read_in_place_and_given_back)
{
    uint64_t before = hth_alloc_in_use();
    unsigned char got[10];
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    hth_gguf *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, b.data, b.n, "small.gguf");
    const hth_gguf_tensor *t = hth_gguf_find_tensor(file, "c.weight");
    CHECK(hth_gguf_mapped(file, t) == b.data + t->offset);
    CHECK_OK(hth_gguf_map(file, err));
    CHECK_OK(hth_gguf_read(file, t, 0, 10, got, err));
    CHECK_BYTES(got, b.data + t->offset, 10);
    CHECK_TEXT(hth_gguf_path(file), "small.gguf");
    hth_gguf_close(file);
    CHECK_INT(hth_alloc_in_use(), before);
}

/* The handler of bus errors knows as many files as its list has places. */
TEST(a_file_too_many_is_not_mapped)
{
    static char pages[HTH_MAP_GUARD_MAX];
    static int places[HTH_MAP_GUARD_MAX];
    const char *path = test_scratch("guard.gguf");
    size_t n = 0;
    CLEANUP(gguf_free) gguf_bytes b = gguf_small_new();
    CHECK(test_write_file(path, b.data, b.n));
    CLOSED(hth_gguf) *file = OPENED(hth_gguf, path);
    while (n < HTH_MAP_GUARD_MAX && (places[n] = hth_sigbus_guard_add(&pages[n], 1)) >= 0) n++;
    CHECK_INT(hth_sigbus_guard_add(pages, 1), -1);
    CHECK_FAILS(hth_gguf_map(file, err), HEARTH_ERROR_MEMORY, "guard.gguf: 1024 files are mapped already");
    CHECK(hth_gguf_mapped(file, hth_gguf_tensor_at(file, 0)) == NULL);
    while (n > 0) hth_sigbus_guard_remove(places[--n]);
    CHECK_OK(hth_gguf_map(file, err));
    CHECK(hth_gguf_mapped(file, hth_gguf_tensor_at(file, 0)) != NULL);
}
