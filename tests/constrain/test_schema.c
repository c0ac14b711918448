/* JSON schemas: which texts each keyword allows, byte by byte, and what is refused by name and path. */
#include "support/test.h"
#include "support/texts.h"

#define SCHEMA(...) CHECK_TEXTS(HEARTH_CONSTRAINT_JSON_SCHEMA, __VA_ARGS__)
#define TAKES(...) .takes = {__VA_ARGS__}
#define REFUSES(...) .refuses = {__VA_ARGS__}
#define BAD(SOURCE, STATUS, WORDS)                                                                           \
    CHECK_REFUSED(HEARTH_CONSTRAINT_JSON_SCHEMA, SOURCE, HEARTH_ERROR_##STATUS, WORDS)

TEST(schema_of_types)
{
    SCHEMA("{\"type\": \"null\"}", TAKES("null"), REFUSES("", "nul", "nulls", " null", "false"));
    SCHEMA("{\"type\": \"boolean\"}", TAKES("true", "false"), REFUSES("null", "True", "1"));
    SCHEMA("{\"type\": \"integer\"}", TAKES("0", "-1", "12", "9999999999999999999", "-9999999999999999999"),
           REFUSES("-0", "01", "1.0", "1e3", "+1", "-", "10000000000000000000"));
    SCHEMA("{\"type\": \"number\"}", TAKES("0", "-0.5", "12.25", "1e9", "3.5E-07", "-12"),
           REFUSES("01", "1.", ".5", "1e", "1e+", "--1", "1e100", "NaN"));
    SCHEMA("{\"type\": \"string\"}",
           TAKES("\"\"", "\"a b\"", "\"\\n\\\"\\\\\\/\\b\"", "\"\\u00e9\\uD83D\\uDE00\"",
                 "\"\xC3\xA9\xF0\x9F\x98\x80\""),
           REFUSES("\"", "\"a\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\u0000\"", "\"\xC3\"",
                   "\"\xED\xA0\x80\"", "\"\xC0\x80\"", "'a'"));
    SCHEMA("{\"type\": [\"string\", \"null\"]}", TAKES("\"x\"", "null"), REFUSES("1", "true"));
    SCHEMA("{\"type\": \"array\"}", TAKES("[]", "[1, \"a\", {}, [null]]", "[\n  1,\n  2\n]"),
           REFUSES("[1,]", "[1 2]", "[", "{}"));
    SCHEMA("{\"type\": \"object\"}", TAKES("{}", "{\"a\": 1, \"b\": {\"c\": [true]}}", "{ }"),
           REFUSES("{\"a\"}", "{a: 1}", "{\"a\": 1,}", "[]", "{\"a\" : 1}"));
    SCHEMA("{}", TAKES("1", "\"a\"", "null", "[{}]", "{\"a\": [1.5e3]}"), REFUSES("", "a", "tru"));
    SCHEMA("true", TAKES("1", "{}"), REFUSES("nil"));
}

TEST(schema_of_objects)
{
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
           "\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
           TAKES("{\"b\": true}", "{\"a\":1,\"b\":false}", "{\"a\":1, \"b\":false,\n \"c\":null}",
                 "{\"b\":true,\"c\":null}"),
           REFUSES("{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":1}", "{\"b\":true,\"d\":1}",
                   "{\"b\":true,\"b\":true}", "{,\"b\":true}"));
    SCHEMA("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}}}",
           TAKES("{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"),
           REFUSES("{\"b\":1,\"a\":1}", "{\"c\":1}", "1"));
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
           TAKES("{}", "{\"x\":1,\"\":2}"), REFUSES("{\"x\":\"1\"}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"},\"a\\u00e9\":{\"type\":\"null\"}}"
           ",\"additionalProperties\":{\"type\":\"integer\"}}",
           TAKES("{\"ab\":null,\"a\xC3\xA9\":null,\"x\":1}", "{\"a\":1}", "{\"abc\":1,\"b\\n\":2}",
                 "{\"a\xC3\xA8\":1}", "{\"\":1}"),
           REFUSES("{\"ab\":1}", "{\"a\xC3\xA9\":1}", "{\"x\":null}", "{\"x\":1,\"ab\":null}",
                   "{\"\\u0061b\":1}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":false}",
           TAKES("{}", "{\"a\":null}"), REFUSES("{\"b\":null}"));
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":false}", TAKES("{}"), REFUSES("{\"b\":null}"));
    SCHEMA("{\"type\":\"object\",\"required\":[\"n\"]}", TAKES("{\"n\":[1]}"), REFUSES("{}", "{\"m\":1}"));
    SCHEMA("{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":3,\"additionalProperties\":{\"type\":"
           "\"null\"}}",
           TAKES("{\"a\":null,\"b\":null}", "{\"a\":null,\"b\":null,\"c\":null}"),
           REFUSES("{}", "{\"a\":null}", "{\"a\":null,\"b\":null,\"c\":null,\"d\":null}"));
    SCHEMA("{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{"
           "\"type\":\"null\"}}}",
           TAKES("{\"b\":null}", "{\"a\":null}"), REFUSES("{}"));
    SCHEMA(
        "{\"type\":\"object\",\"properties\":{\"q\\\"\\n\":{\"type\":\"null\"}},\"required\":[\"q\\\"\\n\"]}",
        TAKES("{\"q\\\"\\n\":null}"), REFUSES("{\"q\":null}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}", TAKES("{}", "{\"b\":1}"),
           REFUSES("{\"a\":1}"));
}

TEST(schema_of_arrays)
{
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
           TAKES("[1,2]", "[1, 2, 3]"), REFUSES("[]", "[1]", "[1,2,3,4]", "[1,\"a\"]", "[1,2,]"));
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":0}", TAKES("[]"),
           REFUSES("[null]"));
    SCHEMA("{\"type\":\"array\",\"maxItems\":1}", TAKES("[]", "[1]"), REFUSES("[1,2]"));
    SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{"
           "\"type\":\"null\"}}",
           TAKES("[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"),
           REFUSES("[\"a\"]", "[1,null]", "[1,\"a\",1]"));
    SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":"
           "false,\"minItems\":1}",
           TAKES("[1]", "[1,\"a\"]"), REFUSES("[]", "[1,\"a\",1]"));
    SCHEMA("{\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"},\"minItems\":3}",
           TAKES("[1,null,null]"), REFUSES("[1,null]", "[1]"));
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":100000,\"maxItems\":1000000000}",
           REFUSES("[null]", "[]"));
}

TEST(schema_of_strings)
{
    SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
           TAKES("\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"a\\u00e9\\n\"", "\"\\uD83D\\uDE00x\""),
           REFUSES("\"a\"", "\"\"", "\"abcd\"", "\"\\uD83D\\uDE00\""));
    SCHEMA("{\"type\":\"string\",\"maxLength\":0}", TAKES("\"\""), REFUSES("\"a\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"date\"}", TAKES("\"2024-02-28\"", "\"1999-12-31\"", "\"2024-02-29\"", "\"2000-02-29\"", "\"1996-02-29\"", "\"0400-02-29\""),
           REFUSES("\"2024-02-30\"", "\"2024-13-01\"", "\"24-01-01\"", "\"\"", "\"2023-02-29\"", "\"1900-02-29\"", "\"2100-02-29\"",
                   "\"2022-02-29\""));
    SCHEMA("{\"format\":\"date-time\"}", TAKES("\"2024-02-28T23:59:00Z\"", "\"2024-02-28T00:00:00.5+01:00\""),
           REFUSES("\"2024-02-28\"", "\"2024-02-28T24:00:00Z\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"uuid\"}", TAKES("\"123e4567-e89b-12d3-a456-426614174000\""),
           REFUSES("\"123e4567\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}", TAKES("\"0.0.0.0\"", "\"192.168.1.255\""),
           REFUSES("\"256.1.1.1\"", "\"01.1.1.1\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"email\"}", TAKES("\"a.b+c@mail.example.org\""),
           REFUSES("\"a\"", "\"a@b\"", "\"a@-b.c\"", "\"a b@c.d\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"hostname\"}", TAKES("\"localhost\"", "\"a-1.example\""),
           REFUSES("\"a-\"", "\"a..b\"", "\"\""));
    SCHEMA("{\"type\":\"string\",\"format\":\"uri\"}", TAKES("\"anything\""), REFUSES("1"));
}

TEST(schema_of_numbers)
{
    SCHEMA("{\"type\":\"integer\",\"minimum\":17,\"maximum\":342}",
           TAKES("17", "19", "20", "99", "100", "299", "300", "342"),
           REFUSES("16", "343", "1", "9", "1000", "-17", "017", "400"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":-5,\"maximum\":3}", TAKES("-5", "-1", "0", "3"),
           REFUSES("-6", "-0", "4", "-10"));
    SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}", TAKES("1", "9"),
           REFUSES("0", "10", "-1"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true}", TAKES("1", "100"), REFUSES("0"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", TAKES("1", "2"), REFUSES("0", "3"));
    SCHEMA("{\"type\":\"integer\",\"maximum\":-100}", TAKES("-100", "-101", "-999999999999999"),
           REFUSES("-99", "-1", "0", "100"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":9007199254740993}",
           TAKES("9007199254740993", "9223372036854775808", "9999999999999999999"),
           REFUSES("9007199254740992", "10000000000000000000"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":9223372036854775808,\"maximum\":18446744073709551615}",
           TAKES("9223372036854775808", "10000000000000000000", "18446744073709551615"),
           REFUSES("9223372036854775807", "18446744073709551616", "0", "-9223372036854775808"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":-1e400,\"maximum\":1e400}", TAKES("-1", "0", "18446744073709551615"),
           REFUSES("18446744073709551616"));
    SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":-2.5,\"maximum\":-0.5}", TAKES("-2", "-1"), REFUSES("-3", "0", "-0"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":5,\"maximum\":5}", TAKES("5"), REFUSES("4", "6", "55"));
    SCHEMA("{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", TAKES("0", "0.5", "0.000", "1", "0.999"),
           REFUSES("1.0", "1.1", "-0.1", "2", "-0"));
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0}", TAKES("0.5", "1", "17.25", "0.001"),
           REFUSES("0", "0.0", "-1", "0.000"));
    SCHEMA("{\"type\":\"number\",\"minimum\":-2,\"exclusiveMaximum\":2}",
           TAKES("-2", "-1.5", "-0.5", "0", "1.99"), REFUSES("2", "-2.5", "-3", "2.0", "-2.1"));
    SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":99.95}",
           TAKES("0.5", "0.51", "0.500", "1", "7.25", "99", "99.9", "99.949999"),
           REFUSES("0", "0.4", "0.49999", "99.95", "99.951", "99.96", "100", "-1", "99.", "0."));
    SCHEMA("{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":1e-2}", TAKES("-1.25", "-1", "-0.001", "0", "0.01", "0.0"),
           REFUSES("-1.26", "-1.251", "0.02", "0.011", "1", "-0"));
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"exclusiveMaximum\":0.26}", TAKES("0.251", "0.2500001", "0.2599"),
           REFUSES("0.25", "0.250", "0.26", "0.2", "0"));
    SCHEMA("{\"type\":\"number\",\"maximum\":-10}", TAKES("-10", "-10.5", "-11", "-11.25"),
           REFUSES("-9", "-9.5", "0", "10"));
}

TEST(schema_of_literals)
{
    SCHEMA("{\"enum\":[\"a\",\"ab\",1,1.5,null,[1,{\"x\":\"y\\n\"}],{}]}",
           TAKES("\"a\"", "\"ab\"", "1", "1.5", "null", "[1,{\"x\":\"y\\n\"}]", "{}"),
           REFUSES("\"abc\"", "2", "[1]", "true"));
    SCHEMA("{\"const\":\"\\u00e9\\\"\"}", TAKES("\"\xC3\xA9\\\"\""), REFUSES("\"e\""));
    SCHEMA("{\"type\":\"string\",\"enum\":[\"a\",1,null]}", TAKES("\"a\""), REFUSES("1", "null"));
    SCHEMA("{\"const\":0.1}", TAKES("0.1"), REFUSES("0.10000000000000001"));
    SCHEMA("{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}],\"const\":3}", TAKES("3"),
           REFUSES("2", "1", "4"));
}

TEST(schema_of_combinations)
{
    SCHEMA("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}", TAKES("12", "\"a\""),
           REFUSES("\"ab\"", "null"));
    SCHEMA("{\"oneOf\":[{\"const\":1},{\"const\":2}]}", TAKES("1", "2"), REFUSES("3"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},"
           "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
           TAKES("{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"), REFUSES("{}"));
    SCHEMA("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":["
           "\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}}}]}",
           TAKES("{\"a\":5}", "{\"a\":17,\"b\":null}"), REFUSES("{\"a\":4}", "{\"b\":null}"));
    SCHEMA("{\"allOf\":[{\"type\":[\"integer\",\"null\"]},{\"type\":[\"integer\",\"string\"]}]}", TAKES("7"),
           REFUSES("null", "\"a\""));
    SCHEMA("{\"anyOf\":[{\"type\":\"integer\",\"minimum\":5,\"maximum\":1},{\"type\":\"null\"}]}",
           TAKES("null"), REFUSES("5", "1"));
}

TEST(schema_of_references)
{
    SCHEMA("{\"$ref\":\"#/$defs/"
           "node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
           "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
           "node\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}",
           TAKES("{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"),
           REFUSES("{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"));
    SCHEMA("{\"definitions\":{\"a/b\":{\"type\":\"null\"},\"c~d\":{\"$ref\":\"#/definitions/"
           "a~1b\"}},\"$ref\":\"#/definitions/c~0d\"}",
           TAKES("null"), REFUSES("1"));
    SCHEMA("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", TAKES("[]", "[[],[[]]]"), REFUSES("[1]"));
    SCHEMA("{\"$ref\":\"#/$defs/a%20b\",\"minimum\":3,\"$defs\":{\"a b\":{\"type\":\"integer\"}}}",
           TAKES("3"), REFUSES("2"));
    SCHEMA("{\"prefixItems\":[{\"type\":\"null\"},{\"$ref\":\"#/prefixItems/"
           "0\"}],\"items\":false,\"type\":\"array\"}",
           TAKES("[null,null]"), REFUSES("[null,1]"));
}

TEST(schema_of_patterns)
{
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}", TAKES("\"a\"", "\"abccba\""),
           REFUSES("\"\"", "\"d\"", "\"ad\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"b\"}", TAKES("\"b\"", "\"abc\"", "\"\\n\xC3\xA9ub\""),
           REFUSES("\"ac\"", "\"\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^a|b$\"}", TAKES("\"ax\"", "\"xb\""),
           REFUSES("\"xa\"", "\"bx\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?:ab|c(d|e)?){2,3}$\"}",
           TAKES("\"abab\"", "\"cdceab\"", "\"cc\""), REFUSES("\"ab\"", "\"ccccc\"", "\"abd\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^\\\\d{3}-\\\\w*\\\\s?$\"}",
           TAKES("\"123-\"", "\"000-aZ_9 \"", "\"123-\\t\""), REFUSES("\"12-\"", "\"123-%\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[^\\\\d\\\"]$\"}",
           TAKES("\"a\"", "\"\xE2\x82\xAC\"", "\"\\\\\""), REFUSES("\"1\"", "\"\\\"\"", "\"ab\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[\\u00e9-\\u20ac]\\\\u{1F600}?.$\"}",
           TAKES("\"\xC3\xA9x\"", "\"\xE2\x82\xAC\xF0\x9F\x98\x80y\""),
           REFUSES("\"\xC3\xA8x\"", "\"\xE2\x82\xADx\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^\\\\.\\\\x41\\\\/[\\\\]\\\\-a]$\"}",
           TAKES("\".A/]\"", "\".A/-\"", "\".A/a\""), REFUSES("\"xA/]\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^(a*)*b{0}$\"}", TAKES("\"\"", "\"aaa\""),
           REFUSES("\"b\"", "\"ab\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^a{0,1000000000}?$\"}", TAKES("\"\"", "\"aaaa\""),
           REFUSES("\"b\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[ab]{2,4}$\",\"minLength\":1,\"maxLength\":4}",
           TAKES("\"ab\""), REFUSES("\"a\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"\"}", TAKES("\"\"", "\"x\""), REFUSES("1"));
}

/* All numbers with two digits behind the point, against all such bounds. */
TEST(bounds_with_fractions_hold_for_every_number)
{
    static const int bounds[] = {-250, -201, -200, -101, -100, -75, -10, -1, 0, 1, 9, 50, 99, 100, 110, 199, 200, 225};
    enum { N = sizeof bounds / sizeof *bounds };
    hth_token_trie *trie = texts_bytes_trie();
    for (int which = 0; which < N * N * 4; which++) {
        char source[200], text[32];
        const int min = bounds[which / 4 / N], max = bounds[which / 4 % N], is_min_open = which & 1, is_max_open = which >> 1 & 1;
        hearth_constraint *c = NULL, *copy;
        hearth_error why = {.status = HEARTH_OK};
        snprintf(source, sizeof source, "{\"type\":\"number\",\"%s\":%de-2,\"%s\":%de-2}",
                 is_min_open ? "exclusiveMinimum" : "minimum", min, is_max_open ? "exclusiveMaximum" : "maximum", max);
        const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
        bool is_empty = min > max || (min == max && (is_min_open || is_max_open));
        hearth_status st = hth_constraint_open(trie, &o, NULL, &c, &why);
        if ((st == HEARTH_ERROR_ARGUMENT) != is_empty) test_fail(__FILE__, __LINE__, "%s: %s", source, why.message);
        for (int v = -260; c && v <= 260; v++) {
            int size = v < 0 ? -v : v;
            const char *sign = v < 0 ? "-" : "";
            if (size % 100 == 0) snprintf(text, sizeof text, "%s%d", sign, size / 100);
            else if (size % 10 == 0) snprintf(text, sizeof text, "%s%d.%d", sign, size / 100, size / 10 % 10);
            else snprintf(text, sizeof text, "%s%d.%02d", sign, size / 100, size % 100);
            bool fits = (is_min_open ? v > min : v >= min) && (is_max_open ? v < max : v <= max);
            CHECK_OK(hearth_constraint_copy(c, &copy, err));
            bool takes = hth_constraint_accept_bytes(copy, text, strlen(text)) &&
                         hearth_constraint_get_end(copy) != HEARTH_CONSTRAINT_INCOMPLETE;
            if (takes != fits) test_fail(__FILE__, __LINE__, "%s: %s is %s", source, text, takes ? "taken" : "refused");
            hearth_constraint_close(copy);
        }
        hearth_constraint_close(c);
    }
    hth_token_trie_close(trie);
}

TEST(keywords_that_ask_for_nothing_and_for_the_impossible)
{
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"propertyNames\":{\"type\":\"string\",\"title\":"
           "\"names\"}}",
           TAKES("{}", "{\"any\":null}"), REFUSES("{\"any\":1}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}},\"b\":{\"type\":\"null\"}}}", TAKES("{}", "{\"b\":null}"),
           REFUSES("{\"a\":1}"));
    SCHEMA("{\"anyOf\":[{\"not\":{}},{\"type\":\"null\"},{\"not\":true}]}", TAKES("null"), REFUSES("1", "{}"));
    SCHEMA("{\"type\":\"null\",\"not\":false}", TAKES("null"), REFUSES("1"));
    BAD("{\"not\":{}}", ARGUMENT, "allows no text");
}

TEST(unique_items_of_a_list)
{
    SCHEMA("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\",3,\"a\"]}}",
           TAKES("[]", "[\"a\"]", "[3, \"a\"]", "[\"b\",3,\"a\"]"),
           REFUSES("[\"a\",\"a\"]", "[3,\"a\",3]", "[\"b\",3,\"a\",\"b\"]", "[,]", "[\"c\"]"));
    SCHEMA("{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"maxItems\":2,\"items\":{\"$ref\":\"#/$defs/c\"},\"$defs\":{\"c\":{"
           "\"enum\":[1,2,3]}}}",
           TAKES("[1,2]", "[3,1]"), REFUSES("[1]", "[1,1]", "[1,2,3]", "[]"));
    SCHEMA("{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1,\"items\":{\"type\":\"string\"}}", TAKES("[]", "[\"a\"]"),
           REFUSES("[\"a\",\"b\"]"));
    BAD("{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"items\":{\"const\":1}}", ARGUMENT, "allows no text");
}

TEST(what_is_not_enforced_is_noted)
{
    static const char source[] =
        "{\"type\":\"object\",\"properties\":{\"tags\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}}}";
    hth_token_trie *trie = texts_bytes_trie();
    const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
    hearth_constraint *c = NULL;
    CHECK_OK(hth_constraint_open(trie, &o, NULL, &c, err));
    CHECK_TEXT(hearth_constraint_get_notes(c), "#/properties/tags/uniqueItems: uniqueItems is enforced only where the items are "
                                               "listed in an enum of at most 8\n");
    CHECK(hth_constraint_accept_bytes(c, "{\"tags\":[\"a\",\"a\"]}", 18));
    CHECK_TEXT(hearth_constraint_get_notes(NULL), "");
    hearth_constraint_close(c);
    hth_token_trie_close(trie);
}

TEST(annotations_and_unknown_keywords_are_ignored)
{
    SCHEMA("{\"$schema\":\"http://json-schema.org/draft-07/"
           "schema#\",\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[2],\"type\":\"null\","
           "\"x-order\":3,\"uniqueItems\":false,\"multipleOf\":1,\"patternProperties\":{}}",
           TAKES("null"), REFUSES("1"));
}

TEST(schemas_are_refused_by_path_and_name)
{
    BAD("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":2}}}", UNSUPPORTED,
        "JSON schema: #/properties/a/multipleOf: |multipleOf is not supported");
    BAD("{\"not\":{\"type\":\"null\"}}", UNSUPPORTED, "#/not: |not");
    BAD("{\"if\":{\"type\":\"null\"}}", UNSUPPORTED, "#/if: ");
    BAD("{\"type\":\"array\",\"contains\":{}}", UNSUPPORTED, "#/contains");
    BAD("{\"patternProperties\":{\"a\":{}}}", UNSUPPORTED, "#/patternProperties");
    BAD("{\"propertyNames\":{\"pattern\":\"a\"}}", UNSUPPORTED, "#/propertyNames");
    BAD("{\"dependentRequired\":{\"a\":[\"b\"]}}", UNSUPPORTED, "#/dependentRequired");
    BAD("{\"unevaluatedProperties\":false}", UNSUPPORTED, "#/unevaluatedProperties");
    BAD("{\"$ref\":\"other.json\"}", UNSUPPORTED, "#/$ref: |within the schema");
    BAD("{\"$ref\":\"#/$defs/x\"}", ARGUMENT, "#/$ref: |there is no #/$defs/x");
    BAD("{\"type\":\"float\"}", FORMAT, "#/type: |boolean");
    BAD("{\"type\":\"string\",\"minLength\":-1}", FORMAT, "#/minLength: |whole number");
    BAD("{\"type\":\"string\",\"minLength\":\"1\"}", FORMAT, "#/minLength: |whole number");
    BAD("{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", ARGUMENT, "allows no text");
    BAD("{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", ARGUMENT, "allows no text");
    BAD("{\"enum\":[]}", ARGUMENT, "#/enum: |allows nothing");
    BAD("{\"type\":\"string\",\"enum\":[1]}", ARGUMENT, "allows no text");
    BAD("{\"const\":\"a\",\"minLength\":1}", UNSUPPORTED, "#/minLength: |beside enum or const");
    BAD("{\"type\":\"number\",\"minimum\":1e-20}", UNSUPPORTED, "#/minimum: |15 digits behind the point");
    BAD("{\"type\":\"number\",\"minimum\":1e20}", UNSUPPORTED, "#/minimum: |beyond 18446744073709551615");
    BAD("{\"type\":\"integer\",\"exclusiveMaximum\":-1e20}", UNSUPPORTED, "#/exclusiveMaximum: |beyond");
    BAD("{\"type\":\"integer\",\"minimum\":\"0\"}", FORMAT, "#/minimum: |number");
    BAD("false", ARGUMENT, "allows no text");
    BAD("{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", ARGUMENT,
        "allows no text");
    BAD("{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", ARGUMENT, "allows no text");
    BAD("{\"properties\":[]}", FORMAT, "#/properties: |object of schemas");
    BAD("{\"type\":\"object\",\"properties\":{\"a\":1}}", FORMAT, "#/properties/a: |a schema is");
    BAD("{\"required\":\"a\"}", FORMAT, "#/required: |list of names");
    BAD("{\"required\":[1]}", FORMAT, "#/required/0: |name");
    BAD("{\"anyOf\":[]}", FORMAT, "#/anyOf: |list of schemas");
    BAD("{\"allOf\":{}}", FORMAT, "#/allOf: |list of schemas");
    BAD("{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", UNSUPPORTED,
        "#/allOf/1/pattern: |combined");
    BAD("{\"type\":\"object\",\"minProperties\":2,\"properties\":{\"a\":{}}}", UNSUPPORTED, "minProperties");
    BAD("{\"type\":\"object\",\"maxProperties\":1,\"properties\":{\"a\":{},\"b\":{}}}", UNSUPPORTED,
        "maxProperties");
    BAD("{\"a\":1,}", FORMAT, "JSON schema: no JSON: line 1 column ");
    BAD("", FORMAT, "no JSON");
    BAD("[]", FORMAT, "#: |a schema is");
}

TEST(patterns_are_refused_by_place)
{
    static const struct {
        const char *pattern;
        hearth_status status;
        const char *words;
    } cases[] = {{"(?=a)", HEARTH_ERROR_UNSUPPORTED, "#/pattern: |look-around|character 2"},
                 {"(?<!a)", HEARTH_ERROR_UNSUPPORTED, "look-around"},
                 {"(a)\\\\1", HEARTH_ERROR_UNSUPPORTED, "back references"},
                 {"\\\\bx", HEARTH_ERROR_UNSUPPORTED, "\\b"},
                 {"\\\\p{L}", HEARTH_ERROR_UNSUPPORTED, "\\p"},
                 {"(^a)", HEARTH_ERROR_UNSUPPORTED, "^ is supported only"},
                 {"a$b", HEARTH_ERROR_UNSUPPORTED, "$ is supported only"},
                 {"(a$)", HEARTH_ERROR_UNSUPPORTED, "$ in a group"},
                 {"(a", HEARTH_ERROR_FORMAT, "not closed"},
                 {"a)", HEARTH_ERROR_FORMAT, ") without"},
                 {"[a", HEARTH_ERROR_FORMAT, "not closed"},
                 {"[b-a]", HEARTH_ERROR_FORMAT, "upside down"},
                 {"*", HEARTH_ERROR_FORMAT, "nothing to repeat"},
                 {"a**", HEARTH_ERROR_FORMAT, "nothing to repeat"},
                 {"a{2,1}", HEARTH_ERROR_FORMAT, "exchanged"},
                 {"a{9999999999}", HEARTH_ERROR_UNSUPPORTED, "too large"},
                 {"a{", HEARTH_ERROR_FORMAT, "{"},
                 {"\\\\q", HEARTH_ERROR_FORMAT, "escape"},
                 {"\\\\ud800", HEARTH_ERROR_FORMAT, "\\u"},
                 {"(a?){0,65}", HEARTH_ERROR_UNSUPPORTED, "can be empty"},
                 {"[]", HEARTH_ERROR_ARGUMENT, "allows no text"}};
    char schema[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"%s\"}", cases[i].pattern);
        CHECK_REFUSED(HEARTH_CONSTRAINT_JSON_SCHEMA, schema, cases[i].status, cases[i].words);
    }
    BAD("{\"type\":\"string\",\"pattern\":\"^a+$\",\"maxLength\":5}", UNSUPPORTED,
        "#/pattern: |maxLength beside");
}

TEST(any_json_object)
{
    CHECK_TEXTS(HEARTH_CONSTRAINT_JSON_OBJECT, "", TAKES("{}", "{\"a\": [1, {\"b\": null}], \"c\": -1.5e3}"),
                REFUSES("[]", "1", "", "{\"a\":}", "{}x"));
}
