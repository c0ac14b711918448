/* The fuzz target of JSON schemas and grammars over its corpus and seeded mutations of it; it aborts on a fault. */
#include "fuzz_constraint.c"
#include "mutate_text.h"

static const char *const pieces[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "{\"type\":\"object\"}", "\"type\":\"string\",", "\"type\":\"integer\",",
    "\"$ref\":\"#\"", "\"anyOf\":[", "\"allOf\":[", "\"properties\":{", "\"a\":", "\"required\":[\"a\"]", "\"items\":",
    "\"minItems\":", "\"maxLength\":", "\"minLength\":", "\"pattern\":\"", "\"enum\":[1,\"a\"]", "\"const\":", "\"minimum\":",
    "\"additionalProperties\":", "true", "false", "null", "-1", "0", "1000000000", "1e9", "root ::= ", "a ::= ", "\n", " | ", "(", ")",
    "*", "+", "?", "{2,3}", "{0,99}", "[a-z]", "[^\"]", ".", "\"x\"", " a ", " root ", "\\u00e9", "\\d", "^", "$", "#", "\xC3\xA9",
};

TEST(the_corpus_and_its_mutations_pass_the_constraint_target)
{
    const text_pieces p = {.at = pieces, .n = sizeof pieces / sizeof *pieces};
    CHECK(replay_folder(HEARTH_SOURCE_DIR "/tests/fuzz/corpus/constraint", &p, test_is_long() ? 5000 : 100) > 15);
}
