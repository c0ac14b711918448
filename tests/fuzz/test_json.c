/* The fuzz target of JSON over its corpus and seeded mutations of it; it aborts on a fault. */
#include "fuzz_json.c"
#include "mutate_text.h"

static const char *const pieces[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\"a\":", "\"b\":1,", "true", "false", "null", "-", "0", "1", ".", "e", "E+",
    "1e400", "18446744073709551615", "8.0", "\\u0000", "\\ud800", "\\udc00", "\\u00e9", "\\n", " ", "\n", "\xC3\xA9", "\xEF\xBB\xBF",
    "[[[[[[[[[[", "]]]]]]]]]]", "{\"a\":{\"a\":", "}}",
};

TEST(the_corpus_and_its_mutations_pass_the_json_target)
{
    const text_pieces p = {.at = pieces, .n = sizeof pieces / sizeof *pieces};
    CHECK(replay_folder(HEARTH_SOURCE_DIR "/tests/fuzz/corpus/json", &p, test_is_long() ? 50000 : 2000) >= 6);
}
