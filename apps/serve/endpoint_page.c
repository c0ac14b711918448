/* GET /: the page, of the files in page/, one after the other in the read-only data of the program. It loads nothing
 * else, and its Content-Security-Policy allows its own style and script alone, by their hashes: what a model writes
 * cannot become either. No key is asked for, because a browser sends none with its first request; the page asks its
 * user for it, and all that it shows comes from endpoints that need it. */
#define _GNU_SOURCE
#include "serve/endpoints.h"

#include "hub/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART(NAME) ".incbin \"" HEARTH_SERVE_PAGE "/" NAME "\"\n"

/* clang-format off */
__asm__(".section .rodata\n"
        ".globl serve_page\n"
        "serve_page:\n"
        PART("begin.html")
        PART("page.css")
        PART("body.html")
        PART("elements.js")
        PART("formulas.js")
        PART("code.js")
        PART("markdown.js")
        PART("storage.js")
        PART("protocol.js")
        PART("conversation.js")
        PART("figures.js")
        PART("notices.js")
        PART("answers.js")
        PART("messages.js")
        PART("attachments.js")
        PART("page.js")
        PART("end.html")
        "serve_page_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        ".globl serve_page_size\n"
        "serve_page_size:\n"
        ".quad serve_page_end - serve_page\n"
        ".previous\n");
/* clang-format on */
extern const char serve_page[];
extern const uint64_t serve_page_size;

enum { HASH_SIZE = 32, BASE64_SIZE = 45 };

static unsigned hex_value(char c) { return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a') + 10; }

/* The SHA-256 of n bytes in base64, as policies have it. */
static void hash_text(const char *text, size_t n, char out[BASE64_SIZE])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[HASH_SIZE + 1] = {0};
    char hex[SHA256_HEX];
    sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, hex);
    for (size_t i = 0; i < HASH_SIZE; i++)
        bytes[i] = (unsigned char)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
    for (size_t i = 0; i <= HASH_SIZE; i += 3) {
        unsigned word = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        for (int k = 0; k < 4; k++) *out++ = digits[word >> (18 - 6 * k) & 63];
    }
    out[-1] = '='; /* 32 bytes are 42 digits and two thirds of one */
    *out = '\0';
}

/* Hashes the page's text between the first <tag> and the </tag> after it; "" if there is none. */
static void hash_element(const char *begin, const char *end, char out[BASE64_SIZE])
{
    const char *from = strstr(serve_page, begin), *to = from ? strstr(from, end) : NULL;
    *out = '\0';
    if (to) hash_text(from + strlen(begin), (size_t)(to - from) - strlen(begin), out);
}

/* Lines of the head of its answer, made once by the network thread. */
static const char *page_headers(void)
{
    static char text[700];
    char style[BASE64_SIZE], script[BASE64_SIZE];
    if (*text) return text;
    hash_element("<style>", "</style>", style);
    hash_element("<script>", "</script>", script);
    snprintf(
        text, sizeof text,
        "Content-Security-Policy: default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
        "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
        "Cache-Control: no-cache\r\n",
        style, script);
    return text;
}

void page_answer(const request *r, reply *out)
{
    const engine *e = server_user(r->server);
    if (e->has_no_page) {
        problem p;
        problem_set(&p, 404, "", "there is no page: the server has --no-page");
        reply_problem(out, &p, FORM_OPENAI);
        return;
    }
    out->body = malloc(serve_page_size);
    out->status = out->body ? 200 : 503;
    if (!out->body) return;
    memcpy(out->body, serve_page, serve_page_size);
    out->n = serve_page_size;
    out->type = "text/html; charset=utf-8";
    out->headers = page_headers();
}
