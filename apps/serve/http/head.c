/* Callbacks of http-parser for heads. A head is parsed in one piece, so a name or value that comes in several calls
 * continues the last one in place. */
#include "serve/http/head.h"

#include <string.h>
#include <strings.h>

static const char *const field_names[N_HEAD_FIELD] = {
    [HEAD_HOST] = "host",
    [HEAD_CONTENT_TYPE] = "content-type",
    [HEAD_AUTHORIZATION] = "authorization",
    [HEAD_API_KEY] = "x-api-key",
    [HEAD_ORIGIN] = "origin",
    [HEAD_EXPECT] = "expect",
    [HEAD_REQUEST_ID] = "x-request-id",
    [HEAD_REQUEST_HEADERS] = "access-control-request-headers",
};

bool text_is(text_part text, const char *word)
{
    return text.text && strlen(word) == text.n && strncasecmp(text.text, word, text.n) == 0;
}

text_part text_trim(text_part text)
{
    while (text.n > 0 && (*text.text == ' ' || *text.text == '\t')) text.text++, text.n--;
    while (text.n > 0 && (text.text[text.n - 1] == ' ' || text.text[text.n - 1] == '\t')) text.n--;
    return text;
}

static void extend(text_part *part, const char *at, size_t n)
{
    if (!part->text) *part = (text_part){at, n};
    else part->n = (size_t)(at - part->text) + n;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    head *h = p->data;
    extend(&h->target, at, n);
    return 0;
}

static int on_field(http_parser *p, const char *at, size_t n)
{
    head *h = p->data;
    if (h->in_value) h->name = (text_part){0};
    h->in_value = false;
    extend(&h->name, at, n);
    return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
    head *h = p->data;
    if (!h->in_value) {
        h->value = NULL;
        for (int i = 0; i < N_HEAD_FIELD; i++) {
            if (!text_is(h->name, field_names[i])) continue;
            h->n_field[i]++;
            h->value = &h->field[i];
            *h->value = (text_part){at, 0};
        }
    }
    h->in_value = true;
    if (h->value) extend(h->value, at, n);
    return 0;
}

static int on_complete(http_parser *p)
{
    head *h = p->data;
    h->method = p->method;
    h->is_http_1_1 = p->http_minor == 1;
    h->keep_alive = http_should_keep_alive(p) != 0;
    h->chunked = (p->flags & F_CHUNKED) != 0;
    h->content_length = p->content_length == UINT64_MAX ? 0 : p->content_length;
    p->upgrade = 0; /* an offer to change the protocol is not taken: the request is answered as it is */
    return 0;
}

bool head_read(http_parser *parser, const char *bytes, size_t n, head *out, const char **why)
{
    static const http_parser_settings settings = {.on_url = on_url,
                                                  .on_header_field = on_field,
                                                  .on_header_value = on_value,
                                                  .on_headers_complete = on_complete};
    *out = (head){0};
    http_parser_init(parser, HTTP_REQUEST);
    parser->data = out;
    size_t n_read = http_parser_execute(parser, &settings, bytes, n);
    enum http_errno error = HTTP_PARSER_ERRNO(parser);
    if (error == HPE_OK && n_read == n) {
        for (int i = 0; i < N_HEAD_FIELD; i++)
            if (out->field[i].text) out->field[i] = text_trim(out->field[i]);
        return true;
    }
    *why = error == HPE_OK ? "the request cannot be parsed" : http_errno_description(error);
    return false;
}
