/* The fuzz target of requests' bodies over its corpus and seeded mutations of it; it aborts on a fault. */
#include "fuzz_body.c"
#include "mutate_text.h"

static const char *const pieces[] = {
    "{", "}", "[", "]", ",", ":", "null", "true", "-1", "0", "1e400", "8.0", "18446744073709551615", "\"\"", "\"a\"", "\"\\u0000\"",
    "\"\\ud800\"", "{\"type\":\"text\",\"text\":\"a\"}", "\"stream\":true,", "\"n\":3,", "\"stop\":[\"a\",\"\"],", "\"logprobs\":true,",
    "\"max_tokens\":0,", "\"echo\":true,", "\"temperature\":-1,", "\"top_p\":0,", "\"logit_bias\":{\"5\":-100},", "\"seed\":-1,",
    "\"response_format\":{\"type\":\"json_object\"},", "\"grammar\":\"root ::= \\\"a\\\"\",", "\"json_schema\":{\"type\":\"integer\"},",
    "\"tools\":[],", "\"tool_choice\":\"required\",", "\"messages\":[],", "\"prompt\":", "\"input\":", "\"content\":",
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},",
    "\"arguments\":\"no json\"", "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"b\"},", "[1,2,3]", "[999999]", "\"options\":{\"num_ctx\":5},",
    "\"keep_alive\":0,", "\"images\":[\"a\"],", "\"format\":\"json\",",
};

TEST(the_corpus_and_its_mutations_pass_the_body_target)
{
    const text_pieces p = {.at = pieces, .n = sizeof pieces / sizeof *pieces, .otherwise = mutate_json};
    test_keeps_memory(); /* the model */
    CHECK(replay_folder(HEARTH_SOURCE_DIR "/tests/fuzz/corpus/body", &p, test_is_long() ? 50000 : 3000) >= 14);
}
