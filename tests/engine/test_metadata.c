/* Metadata by index and by key: values of all types of the format, any bytes in strings, elements of arrays; what is not
 * there is told apart from what is wrong. */
#include "file/gguf.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N_ENTRY = 21 };
static gguf_bytes file;
static hearth_model *model;

/* Keys of each type; no vocabulary. */
static bool open_model(void)
{
    const uint64_t half = 0x3FE0000000000000; /* 0.5 */
    file = (gguf_bytes){0};
    gguf_header(&file, 3, 0, N_ENTRY);
    gguf_pair_text(&file, "general.architecture", "none");
    const struct {
        const char *key;
        uint32_t type;
        uint64_t value;
        size_t size;
    } scalars[] = {{"a.u8", HTH_GGUF_U8, 0xFF, 1},         {"a.i8", HTH_GGUF_I8, 0xFF, 1},
                   {"a.u16", HTH_GGUF_U16, 0xFFFF, 2},     {"a.i16", HTH_GGUF_I16, 0x8000, 2},
                   {"a.u32", HTH_GGUF_U32, 0xFFFFFFFF, 4}, {"a.i32", HTH_GGUF_I32, 0xFFFFFFFE, 4},
                   {"a.u64", HTH_GGUF_U64, UINT64_MAX, 8}, {"a.i64", HTH_GGUF_I64, (uint64_t)INT64_MIN, 8},
                   {"a.f32", HTH_GGUF_F32, 0x3FC00000, 4}, {"a.f64", HTH_GGUF_F64, half, 8},
                   {"a.true", HTH_GGUF_BOOL, 1, 1},        {"a.false", HTH_GGUF_BOOL, 0, 1}};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        gguf_key(&file, scalars[i].key, scalars[i].type);
        gguf_word(&file, scalars[i].value, scalars[i].size);
    }
    gguf_key(&file, "a.bytes", HTH_GGUF_TEXT);
    gguf_word(&file, 4, 8);
    gguf_put(&file, "\0x\xFF\n", 4);
    gguf_array(&file, "b.i16", HTH_GGUF_I16, 2), gguf_word(&file, 0xFFFF, 2), gguf_word(&file, 7, 2);
    gguf_array(&file, "b.f64", HTH_GGUF_F64, 1), gguf_word(&file, half, 8);
    gguf_array(&file, "b.bool", HTH_GGUF_BOOL, 2), gguf_word(&file, 0, 1), gguf_word(&file, 1, 1);
    gguf_array(&file, "b.u8", HTH_GGUF_U8, 1), gguf_word(&file, 200, 1);
    gguf_array(&file, "b.text", HTH_GGUF_TEXT, 2), gguf_text(&file, "x"), gguf_text(&file, "");
    gguf_array(&file, "b.empty", HTH_GGUF_U32, 0);
    gguf_array(&file, "b.nested", HTH_GGUF_ARRAY, 1);
    gguf_word(&file, HTH_GGUF_U8, 4), gguf_word(&file, 1, 8), gguf_word(&file, 5, 1);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "keys.gguf",
                                      &(hearth_model_options){.vocab_only = true}, &model, err));
    return model != NULL;
}

static void close_model(void)
{
    hearth_model_close(model);
    gguf_free(&file);
    model = NULL;
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = open_model, test_after_each = close_model;
}

static hearth_metadata find(const char *key)
{
    hearth_metadata found;
    memset(&found, 0xAB, sizeof found);
    found.size = sizeof found;
    CHECK_INT(hearth_model_find_metadata(model, key, &found), HEARTH_OK);
    CHECK_INT(found.size, sizeof found);
    return found;
}

TEST(scalars_have_their_values)
{
    static const struct {
        const char *key;
        hearth_metadata expected;
    } all[] = {{"a.u8", {.type = HEARTH_METADATA_UNSIGNED, .as_unsigned = 255}},
               {"a.i8", {.type = HEARTH_METADATA_SIGNED, .as_signed = -1}},
               {"a.u16", {.type = HEARTH_METADATA_UNSIGNED, .as_unsigned = 65535}},
               {"a.i16", {.type = HEARTH_METADATA_SIGNED, .as_signed = -32768}},
               {"a.u32", {.type = HEARTH_METADATA_UNSIGNED, .as_unsigned = UINT32_MAX}},
               {"a.i32", {.type = HEARTH_METADATA_SIGNED, .as_signed = -2}},
               {"a.u64", {.type = HEARTH_METADATA_UNSIGNED, .as_unsigned = UINT64_MAX}},
               {"a.i64", {.type = HEARTH_METADATA_SIGNED, .as_signed = INT64_MIN}},
               {"a.f32", {.type = HEARTH_METADATA_FLOAT, .as_float = 1.5}},
               {"a.f64", {.type = HEARTH_METADATA_FLOAT, .as_float = 0.5}},
               {"a.true", {.type = HEARTH_METADATA_BOOL, .as_bool = true}},
               {"a.false", {.type = HEARTH_METADATA_BOOL}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const hearth_metadata found = find(all[i].key), *e = &all[i].expected;
        CHECK_TEXT(found.key, all[i].key);
        CHECK_INT(found.n_key, strlen(all[i].key));
        CHECK_INT(found.type, e->type);
        CHECK(found.as_unsigned == e->as_unsigned && found.as_signed == e->as_signed &&
              found.as_float == e->as_float && found.as_bool == e->as_bool);
        CHECK(!found.as_string && found.n == 0 && found.element_type == HEARTH_METADATA_NONE);
    }
}

TEST(strings_have_any_bytes)
{
    const hearth_metadata found = find("a.bytes"), other = find("general.architecture");
    CHECK_INT(found.type, HEARTH_METADATA_STRING);
    if (CHECK_INT(found.n, 4)) CHECK_BYTES(found.as_string, "\0x\xFF\n\0", 5);
    CHECK_INT(other.n, 4);
    CHECK_TEXT(other.as_string, "none");
}

static hearth_metadata element(const char *key, uint64_t i)
{
    hearth_metadata found = {.size = sizeof found};
    CHECK_INT(hearth_model_get_metadata_element(model, find(key).index, i, &found), HEARTH_OK);
    CHECK_TEXT(found.key, key);
    return found;
}

TEST(arrays_have_elements)
{
    const hearth_metadata array = find("b.i16");
    CHECK(array.type == HEARTH_METADATA_ARRAY && array.element_type == HEARTH_METADATA_SIGNED &&
          array.n == 2);
    CHECK(!array.as_string && array.as_signed == 0);
    CHECK(element("b.i16", 0).type == HEARTH_METADATA_SIGNED && element("b.i16", 0).as_signed == -1);
    CHECK_INT(element("b.i16", 1).as_signed, 7);
    CHECK(element("b.f64", 0).type == HEARTH_METADATA_FLOAT && element("b.f64", 0).as_float == 0.5);
    CHECK(!element("b.bool", 0).as_bool && element("b.bool", 1).as_bool);
    CHECK(element("b.u8", 0).type == HEARTH_METADATA_UNSIGNED && element("b.u8", 0).as_unsigned == 200);
    CHECK_TEXT(element("b.text", 0).as_string, "x");
    CHECK_INT(element("b.text", 0).n, 1);
    CHECK(element("b.text", 1).as_string && element("b.text", 1).n == 0);
    CHECK_INT(find("b.empty").n, 0);
    CHECK_INT(find("b.empty").element_type, HEARTH_METADATA_UNSIGNED);
    CHECK_INT(find("b.nested").element_type, HEARTH_METADATA_ARRAY);
}

TEST(entries_come_in_the_order_of_the_file)
{
    hearth_metadata found = {.size = sizeof found};
    CHECK_INT(hearth_model_n_metadata(model), N_ENTRY);
    for (size_t i = 0; i < N_ENTRY; i++) {
        CHECK_INT(hearth_model_get_metadata(model, i, &found), HEARTH_OK);
        CHECK_INT(found.index, i);
        CHECK_INT(find(found.key).index, i);
        CHECK_INT(find(found.key).type, found.type);
    }
}

TEST(absent_keys_are_no_error)
{
    const char *const absent[] = {"a", "a.u8 ", "", "A.U8", "b"};
    for (size_t i = 0; i < 5; i++) {
        const hearth_metadata found = find(absent[i]);
        CHECK_INT(found.type, HEARTH_METADATA_NONE);
        CHECK(!found.key && !found.as_string && found.n == 0);
    }
}

TEST(what_is_wrong_gives_nothing)
{
    hearth_metadata found = {.size = sizeof found, .as_unsigned = 5};
    const size_t array = find("b.i16").index;
    CHECK_INT(hearth_model_get_metadata(model, N_ENTRY, &found), HEARTH_ERROR_ARGUMENT);
    CHECK(found.as_unsigned == 0 && found.type == HEARTH_METADATA_NONE);
    CHECK_INT(hearth_model_get_metadata_element(model, array, 2, &found), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, array, UINT64_MAX, &found), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, N_ENTRY, 0, &found), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, find("a.u8").index, 0, &found), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, find("b.empty").index, 0, &found),
              HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, find("b.nested").index, 0, &found),
              HEARTH_ERROR_UNSUPPORTED);
    CHECK_INT(found.type, HEARTH_METADATA_NONE);
}

/* The same entries with weights. */
TEST(models_with_weights_have_metadata)
{
    tiny_model t = tiny_new();
    CLEANUP(gguf_free) gguf_bytes b = tiny_take(&t);
    CLOSED(hearth_model) *m =
        OPENED_BY(hearth_model_open_memory, hearth_model, b.data, b.n, "tiny.gguf", NULL);
    hearth_metadata found = {0}, third = {0};
    CHECK_INT(hearth_model_find_metadata(m, "tokenizer.ggml.tokens", &found), HEARTH_OK);
    CHECK_INT(found.n, TINY_VOCAB);
    CHECK_INT(hearth_model_get_metadata_element(m, found.index, 2, &third), HEARTH_OK);
    CHECK_TEXT(third.as_string, "</s>");
}
