/* The fuzz target of answers over seeded answers put together of pieces: it aborts on a fault. */
#include "fuzz_answer.c"

#include "support/test.h"

TEST(seeded_answers_pass_the_target)
{
    static const char *const pieces[] = {
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"f\"",
        ", \"arguments\": ",
        "{\"a\": [1, \"}\"]}",
        "}",
        "\"",
        "\\",
        "\\u00e4",
        "<function=f>",
        "<parameter=a>",
        "</parameter>",
        "</function>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        ", ",
        "; ",
        HTH_DEEPSEEK_OPEN,
        "function",
        "\n```json\n",
        "```",
        "<|python_tag|>",
        "{\"name\": \"f\", \"parameters\": {}}",
        "<|channel|>",
        "analysis",
        "final",
        "commentary to=functions.f",
        "<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "<think>",
        "</think>",
        "\n",
        " ",
        "text",
        "<",
        "\xFF",
        "\xE2\x96",
        "f",
        "<seed:tool_call>",
        "<minimax:tool_call>",
        "<invoke name=\"f\">",
        "<parameter name=\"a\">",
        "</invoke>",
        "<｜DSML｜function_calls>",
        "<｜DSML｜invoke name=\"f\">",
        "<｜DSML｜parameter name=\"a\" string=\"true\">",
        "</｜DSML｜parameter>",
        "<function name=\"f\">",
        "<param name=\"a\">",
        "<![CDATA[",
        "]]></param>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "<TOOLCALL>",
        "<|inner_prefix|>",
        "<|tools_prefix|>",
        "{\"f\": {",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|START_RESPONSE|>",
        "Action:",
        "```json",
        ">>>",
        "all\n",
        "f\n{",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "f(",
        "a=",
        "'",
        "\"\"\"",
        ")",
        "<|tool_call>",
        "call:f{",
        "a:",
        "<|\"|>",
        "<tool_call|>",
        "True",
        "12",
    };
    enum { N_PIECE = sizeof pieces / sizeof *pieces };
    test_random r = {83};
    for (int i = 0; i < 400000; i++) {
        char text[2000] = {(char)test_random_below(&r, 256), (char)test_random_below(&r, 100)};
        size_t n = 2;
        for (uint32_t k = test_random_below(&r, 16); k > 0; k--) {
            const char *piece = pieces[test_random_below(&r, N_PIECE)];
            memcpy(text + n, piece, strlen(piece));
            n += strlen(piece);
            if (test_random_below(&r, 30) == 0) text[n++] = '\0';
        }
        FREED uint8_t *exact = malloc(n);
        memcpy(exact, text, n);
        CHECK_INT(LLVMFuzzerTestOneInput(exact, n), 0);
    }
}
