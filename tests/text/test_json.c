/* text/json_read.c, text/json_write.c: documents of RFC 8259 and others, limits, failures of memory. */
#include "text/json.h"

#include "support/faults.h"
#include "support/test.h"

#include <math.h>

static hth_json *open_text(const char *text, hearth_error *err) { return hth_json_open(text, strlen(text), NULL, err); }

/* What a document is when it is written again. */
static void check_written(const char *text, const char *wanted)
{
    hearth_error err;
    hth_json *v = open_text(text, &err);
    if (!v) {
        test_fail(__FILE__, __LINE__, "%s: %s", text, err.message);
        return;
    }
    size_t n;
    char *written = hth_json_write(v, false, &n);
    CHECK_TEXT(written, wanted);
    CHECK_INT(n, strlen(wanted));
    hth_free(written);
    hth_json_close(v);
}

TEST(documents_are_written_as_they_were_read)
{
    static const char *const same[] = {
        "null", "true", "false", "0", "-0", "1.50", "1e400", "-1E+9", "18446744073709551615", "\"\"", "\"a\\\"\\\\b\"",
        "[]", "{}", "[[]]", "[{},[]]", "{\"\":{}}", "[1,2,[3,{\"a\":[4]}],5]", "{\"b\":1,\"a\":{\"c\":null},\"d\":[]}",
        "\"\\u0000\\u0001\\u001f\\n\\t\\u000d\\u007f\"", "\"\xC3\xA9\xF0\x9F\x98\x80\""};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) check_written(same[i], same[i]);
    check_written(" [ 1 ,\t{ \"a\" :\n2 } ]\r\n", "[1,{\"a\":2}]");
    check_written("\xEF\xBB\xBF[1]", "[1]");
    check_written("\"\\/\\u00e9\\u20AC\\ud83d\\uDE00\"", "\"/\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}

TEST(a_surrogate_alone_is_a_replacement_character)
{
    check_written("\"\\ud800\"", "\"\xEF\xBF\xBD\"");
    check_written("\"\\udc00x\"", "\"\xEF\xBF\xBDx\"");
    check_written("\"\\ud800\\ud800\\udc00\"", "\"\xEF\xBF\xBD\xF0\x90\x80\x80\"");
    check_written("\"\\ud800\\n\"", "\"\xEF\xBF\xBD\\n\"");
    check_written("\"\\ud83d\\u0041\"", "\"\xEF\xBF\xBD" "A\"");
    check_written("{\"\\udfff\":1}", "{\"\xEF\xBF\xBD\":1}");
}

TEST(of_members_with_one_name_the_last_counts_where_the_first_was)
{
    check_written("{\"a\":1,\"a\":2}", "{\"a\":2}");
    check_written("{\"a\":1,\"b\":2,\"a\":{\"x\":[3]},\"c\":4,\"b\":5,\"a\":[{\"y\":6}]}", "{\"a\":[{\"y\":6}],\"b\":5,\"c\":4}");
    check_written("[{\"\\u0061\":1,\"a\":2},{\"a\":3}]", "[{\"a\":2},{\"a\":3}]");
    hth_json *v = open_text("{\"a\":1,\"b\":2,\"a\":{\"x\":[3]}}", NULL);
    const hth_json *a = hth_json_member(v, "a"), *x = hth_json_member(a, "x");
    CHECK(a && a->parent == v && a->index == 0 && a->next->index == 1 && x && x->parent == a && x->child->parent == x);
    hth_json_close(v);
}

TEST(values_have_kinds_and_numbers)
{
    static const struct {
        const char *text;
        hth_json_kind kind;
        int64_t integer;
        double real;
    } cases[] = {{"8.0", HTH_JSON_INTEGER, 8, 8.0},
                 {"1e1", HTH_JSON_INTEGER, 10, 10.0},
                 {"-9223372036854775808", HTH_JSON_INTEGER, INT64_MIN, -0x1p63},
                 {"9223372036854775808", HTH_JSON_REAL, 0, 0x1p63},
                 {"0.1", HTH_JSON_REAL, 0, 0.1},
                 {"-1e400", HTH_JSON_REAL, 0, -HUGE_VAL},
                 {"1e-400", HTH_JSON_REAL, 0, 0.0},
                 {"true", HTH_JSON_BOOL, 1, 0.0},
                 {"false", HTH_JSON_BOOL, 0, 0.0},
                 {"null", HTH_JSON_NULL, 0, 0.0},
                 {"\"1\"", HTH_JSON_TEXT, 0, 0.0},
                 {"[1]", HTH_JSON_ARRAY, 0, 0.0},
                 {"{}", HTH_JSON_OBJECT, 0, 0.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hth_json *v = open_text(cases[i].text, NULL);
        CHECK(v && v->kind == cases[i].kind && v->integer == cases[i].integer && v->real == cases[i].real);
        CHECK(hth_json_is_true(v) == (strcmp(cases[i].text, "true") == 0));
        hth_json_close(v);
    }
}

TEST(questions_to_what_is_not_there_have_answers)
{
    CHECK_INT(hth_json_kind_of(NULL), HTH_JSON_ABSENT);
    CHECK(!hth_json_member(NULL, "a") && !hth_json_first(NULL) && hth_json_count(NULL) == 0 && !hth_json_text(NULL));
    hth_json *v = open_text("{\"a\":\"x\\u0000y\",\"b\":\"xy\",\"c\":[\"a\"]}", NULL);
    const hth_json *a = hth_json_member(v, "a");
    CHECK(a && !hth_json_text(a) && a->text.n == 3 && memcmp(a->text.bytes, "x\0y", 4) == 0);
    CHECK_TEXT(hth_json_text(hth_json_member(v, "b")), "xy");
    CHECK(!hth_json_member(hth_json_member(v, "c"), "a") && !hth_json_member(v, "d") && !hth_json_text(v));
    hth_json_close(v);
    hth_json_close(NULL);
}

TEST(what_is_no_json_is_refused_with_its_place)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1 column 1: it ends too early"},
        {" \n ", "line 2 column 2: it ends too early"},
        {"[1,]", "line 1 column 4: a value is expected"},
        {"[1 2]", "line 1 column 4: ',' or ']' is expected"},
        {"[,1]", "line 1 column 2: a value is expected"},
        {"[1}", "line 1 column 3: ',' or ']' is expected"},
        {"{\"a\"}", "line 1 column 5: ':' is expected"},
        {"{\"a\":1,}", "line 1 column 8: a name in quotation marks is expected"},
        {"{a:1}", "line 1 column 2: a name in quotation marks is expected"},
        {"{\"a\":1 \"b\":2}", "line 1 column 8: ',' or '}' is expected"},
        {"{\"a\":}", "line 1 column 6: a value is expected"},
        {"01", "line 1 column 2: a number does not begin with 0"},
        {"-", "line 1 column 2: it ends too early"},
        {"-a", "line 1 column 2: a digit is expected"},
        {"+1", "line 1 column 1: a value is expected"},
        {".5", "line 1 column 1: a value is expected"},
        {"[1.]", "line 1 column 4: a digit is expected"},
        {"[1e]", "line 1 column 4: a digit is expected"},
        {"[1e+]", "line 1 column 5: a digit is expected"},
        {"nul", "line 1 column 1: a value is expected"},
        {"True", "line 1 column 1: a value is expected"},
        {"NaN", "line 1 column 1: a value is expected"},
        {"Infinity", "line 1 column 1: a value is expected"},
        {"nullx", "line 1 column 5: something follows the value"},
        {"1 2", "line 1 column 3: something follows the value"},
        {"[]]", "line 1 column 3: something follows the value"},
        {"\"abc", "line 1 column 5: it ends too early"},
        {"\"a\\", "line 1 column 4: it ends too early"},
        {"\"\\u12\"", "line 1 column 4: \\u and four hexadecimal digits are expected"},
        {"\"\\x41\"", "line 1 column 3: no escape begins so"},
        {"\"\xC3\xA9\\q\"", "line 1 column 4: no escape begins so"},
        {"\"a\nb\"", "line 1 column 3: a control character in a text is written as an escape"},
        {"\"\xFF\"", "line 1 column 2: a text is no UTF-8"},
        {"\"\xED\xA0\x80\"", "line 1 column 2: a text is no UTF-8"},
        {"'a'", "line 1 column 1: a value is expected"},
        {"[1] // x", "line 1 column 5: something follows the value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_error err = {0};
        hth_json *v = open_text(cases[i].text, &err);
        CHECK(!v);
        CHECK_INT(err.status, HEARTH_ERROR_FORMAT);
        if (strncmp(err.message, "no JSON: ", 9) != 0 || strcmp(err.message + 9, cases[i].why) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].text, err.message);
        hth_json_close(v);
    }
    hearth_error err;
    CHECK(!hth_json_open("[1]\0", 4, NULL, &err));
    CHECK(!hth_json_open("\"a\0b\"", 5, NULL, &err));
}

TEST(depth_and_memory_have_limits)
{
    enum { N = 1000 };
    static char text[2 * N + 1];
    hearth_error err;
    for (size_t depth = 126; depth < 132; depth++)
        for (int closed = 0; closed < 2; closed++) {
            memset(text, '[', depth);
            memset(text + depth, ']', depth);
            hth_json *v = hth_json_open(text, closed ? 2 * depth : depth, NULL, &err);
            CHECK((v != NULL) == (closed && depth <= HTH_JSON_MAX_DEPTH));
            if (!v) CHECK_INT(err.status, depth <= HTH_JSON_MAX_DEPTH ? HEARTH_ERROR_FORMAT : HEARTH_ERROR_UNSUPPORTED);
            hth_json_close(v);
        }
    CHECK(!hth_json_open("[[1]]", 5, &(hth_json_limits){.max_depth = 1}, &err));
    CHECK_TEXT(err.message, "it is nested more than 1 levels deep");
    CHECK(!hth_json_open("[1,2,3]", 7, &(hth_json_limits){.max_bytes = 3 * sizeof(hth_json)}, &err));
    CHECK_TEXT(err.message, "it has too many values");
    hth_json *v = hth_json_open("[1,2,3]", 7, &(hth_json_limits){.max_bytes = 4 * sizeof(hth_json)}, &err);
    CHECK(v && v->n == 3);
    hth_json_close(v);
}

static hearth_status read_and_write(const fault_paths *p, hearth_error *err)
{
    static const char text[] = "{\"a\":[1,{\"b\":\"\\u00e9\"}],\"c\":true,\"a\":2}";
    hth_json *v = hth_json_open(text, strlen(text), NULL, err);
    (void)p;
    if (!v) return err->status;
    char *written = hth_json_write(v, true, NULL);
    hth_json_close(v);
    if (!written) return hth_fail_memory(err, sizeof text, "a JSON document");
    CHECK_TEXT(written, "{\"a\": 2, \"c\": true}");
    hth_free(written);
    return HEARTH_OK;
}

TEST(every_allocation_may_fail) { fault_survive("json", read_and_write, 4, 0, 0); }
