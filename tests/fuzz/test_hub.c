/* The fuzz target of a hub's answers over its corpus and seeded mutations of it; it aborts on a fault. */
#include "fuzz_hub.c"
#include "mutate_text.h"

static const char *const pieces[] = {
    "org/name", ":", "/", "..", "./", "\\", "--", "Q4_K_M", "UD-", "https://huggingface.co/", "/blob/main/", "/resolve/", "/tree/",
    "?x", "#", "\n", "[", "]", "{", "}", ",", "{\"type\":\"file\",\"path\":\"", ".gguf", "-00001-of-00002", "-00002-of-00002",
    "-99999-of-99999", "mmproj", "\"size\":1,", "\"size\":-1,", "\"size\":1125899906842624,", "\"lfs\":{\"oid\":\"", "\"oid\":\"",
    "0123456789abcdef0123456789abcdef01234567", "\\u0000", "\\u202e", "\\u009b", "\x7F", "\xC2\x9B", "null", "\"path\":", "1e400",
};

TEST(the_corpus_and_its_mutations_pass_the_hub_target)
{
    const text_pieces p = {.at = pieces, .n = sizeof pieces / sizeof *pieces, .otherwise = mutate_json};
    CHECK(replay_folder(HEARTH_SOURCE_DIR "/tests/fuzz/corpus/hub", &p, test_is_long() ? 50000 : 5000) >= 5);
}
