/* The fuzz target of streamed answers over seeded ones put together of pieces: it aborts on a fault. */
#include "fuzz_events.c"

#include "support/test.h"

TEST(seeded_streams_pass_the_target)
{
    static const char *const pieces[] = {
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":\n1}}</tool_call>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"f\", \"arguments\": {",
        "\"a\":\n[1, \"}\"]",
        "}}",
        "\n",
        "\n\n",
        "\r\n",
        "data: ",
        "\"",
        "\\",
        "<think>",
        "</think>",
        " once",
        "\xC3\xA4x",
        "\xC3",
        "\xE2\x80\xA8",
        "\xF0\x9F\x98\x80",
        "\xF0\x9F",
        "\xED\xA0\x80",
        "\xFF\xFF",
        "\xFF\x20",
        "\xFF\x7E",
        "\x01\x7F",
        "\xFF\x01",
    };
    enum { N_PIECE = sizeof pieces / sizeof *pieces };
    test_random r = {97};
    const int n_stream = test_is_sanitized() && !test_is_long() ? 1500 : 6000;
    for (int i = 0; i < n_stream; i++) {
        char text[MAX_SIZE] = {(char)test_random_below(&r, N_API), (char)test_random_below(&r, 256),
                                (char)test_random_below(&r, 256)};
        size_t n = N_HEAD;
        for (uint32_t k = test_random_below(&r, 14); k > 0; k--) {
            const char *piece = pieces[test_random_below(&r, N_PIECE)];
            memcpy(text + n, piece, strlen(piece));
            n += strlen(piece);
        }
        if (test_random_below(&r, 4) == 0) text[n++] = '\0';
        FREED uint8_t *exact = malloc(n);
        memcpy(exact, text, n);
        CHECK_INT(LLVMFuzzerTestOneInput(exact, n), 0);
    }
    hearth_chat_close(served.chat);
    hearth_model_close(served.model);
}
