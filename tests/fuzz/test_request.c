/* The fuzz target of requests over its corpus, and over seeded requests put together of pieces: it aborts on a fault. */
#include "fuzz_request.c"

#include "support/models/corpus.h"
#include "support/test.h"

TEST(seeds_of_the_corpus_pass_the_request_target)
{
    CHECK(corpus_replay("request", LLVMFuzzerTestOneInput) >= 5);
}

TEST(seeded_requests_pass_the_target)
{
    static const char *const pieces[] = {
        "GET",
        "POST",
        "HEAD",
        "OPTIONS",
        " ",
        " /",
        "/a",
        "/a/b",
        "?c",
        "%41",
        "%",
        "*",
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/1.2",
        "\r\n",
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "\r",
        "\n",
        "\t",
        "Host: localhost",
        "Host: [::1]:80",
        "Host:",
        "Origin: http://a",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Content-Length: 3",
        "Content-Length: 0",
        "Connection: close",
        "Connection: Upgrade",
        "Upgrade: a",
        "Expect: 100-continue",
        "X-Request-Id: a",
        ": ",
        "3",
        "a;b",
        "0\r\n\r\n",
        "3\r\nabc\r\n",
        "ffffffffffffffff\r\n",
        "abc",
        "\x80",
        "T: v",
    };
    enum { N_PIECE = sizeof pieces / sizeof *pieces };
    test_random r = {79};
    for (int i = 0; i < 100000; i++) {
        char text[2000] = {0};
        bool framed = test_random_below(&r, 2) == 0;
        text[0] = (char)test_random_below(&r, 120);
        size_t n = 1;
        if (framed) n += (size_t)sprintf(text + 1, "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (uint32_t k = 1 + test_random_below(&r, 20); k > 0; k--) {
            const char *piece = pieces[test_random_below(&r, N_PIECE)];
            memcpy(text + n, piece, strlen(piece));
            n += strlen(piece);
        }
        FREED uint8_t *exact = malloc(n);
        memcpy(exact, text, n);
        CHECK_INT(LLVMFuzzerTestOneInput(exact, n), 0);
    }
}
