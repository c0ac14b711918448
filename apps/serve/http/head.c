/* Callbacks of the parser. A head is parsed in one piece, so a name or value that comes in several calls continues the
 * last one in place. */
#include "serve/http/head.h"

#include <string.h>
#include <strings.h>

static const char *const field_names[N_HEAD_FIELD] = {
    [HEAD_HOST] = "host",
    [HEAD_CONTENT_TYPE] = "content-type",
    [HEAD_AUTHORIZATION] = "authorization",
    [HEAD_API_KEY] = "x-api-key",
    [HEAD_ORIGIN] = "origin",
    [HEAD_FETCH_SITE] = "sec-fetch-site",
    [HEAD_EXPECT] = "expect",
    [HEAD_REQUEST_ID] = "x-request-id",
    [HEAD_REQUEST_HEADERS] = "access-control-request-headers",
    [HEAD_CONTENT_LENGTH] = "content-length",
    [HEAD_TRANSFER_ENCODING] = "transfer-encoding",
    [HEAD_CONTENT_ENCODING] = "content-encoding",
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

/* NULL: behind the head; fields are trailers then, which are not used. */
static head *head_of(const parser_state *s) { return ((const message_reader *)s->data)->head; }

static int on_url(parser_state *s, const char *at, size_t n)
{
    head *h = head_of(s);
    extend(&h->target, at, n);
    return 0;
}

static int on_field(parser_state *s, const char *at, size_t n)
{
    head *h = head_of(s);
    if (!h) return 0;
    if (h->in_value) h->name = (text_part){0};
    h->in_value = false;
    extend(&h->name, at, n);
    return 0;
}

static int on_value(parser_state *s, const char *at, size_t n)
{
    head *h = head_of(s);
    if (!h) return 0;
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

static int on_head(parser_state *s)
{
    head *h = head_of(s);
    h->method = s->method;
    h->is_http_1_1 = s->http_minor == 1;
    h->keep_alive = parser_keeps_alive(s);
    h->chunked = (s->flags & F_CHUNKED) != 0;
    h->content_length = s->content_length == UINT64_MAX ? 0 : s->content_length;
    s->upgrade = 0; /* an offer to change the protocol is not taken: the request is answered as it is */
    return 0;
}

static int on_body(parser_state *s, const char *at, size_t n)
{
    message_reader *m = s->data;
    return m->take_body(m->user, at, n) ? 0 : -1;
}

/* The bytes that follow belong to the next request. */
static int on_complete(parser_state *s)
{
    message_reader *m = s->data;
    m->is_complete = true;
    return parser_stop(s);
}

static const parser_callbacks callbacks = {.on_url = on_url,
                                           .on_header_field = on_field,
                                           .on_header_value = on_value,
                                           .on_headers_complete = on_head,
                                           .on_body = on_body,
                                           .on_message_complete = on_complete};

/* Whether a list of codings ends with chunked, behind a compression that other servers have. */
static bool is_known_coding(text_part list)
{
    static const char *const names[] = {"gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"};
    const char *comma = memchr(list.text, ',', list.n);
    if (!comma) return false;
    const size_t n = (size_t)(comma - list.text);
    const text_part first = text_trim((text_part){list.text, n}), last = text_trim((text_part){comma + 1, list.n - n - 1});
    bool is_known = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) is_known |= text_is(first, names[i]);
    return is_known && text_is(last, "chunked");
}

/* A target of a request to a proxy, which a server takes too: its authority counts as the Host (RFC 9112, 3.2.2). */
static void split_target(head *h)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(schemes[i]);
        if (h->target.n <= n || !text_is((text_part){h->target.text, n}, schemes[i])) continue;
        const text_part rest = {h->target.text + n, h->target.n - n};
        size_t n_host = 0; /* the authority ends before the path, or before a query (RFC 3986, 3.2) */
        while (n_host < rest.n && rest.text[n_host] != '/' && rest.text[n_host] != '?' && rest.text[n_host] != '#') n_host++;
        const bool has_path = n_host < rest.n && rest.text[n_host] == '/';
        if (h->n_field[HEAD_HOST] > 0) h->field[HEAD_HOST] = (text_part){rest.text, n_host};
        h->target = has_path ? (text_part){rest.text + n_host, rest.n - n_host} : (text_part){"/", 1};
        return;
    }
}

/* Says what is wrong with fields that not all parsers refuse: other codings than chunked, which nothing here decodes, and
 * fields that come twice, which another program could understand differently. NULL: nothing is wrong. */
static const char *unclear_body(head *h)
{
    unsigned n_length = h->n_field[HEAD_CONTENT_LENGTH], n_coding = h->n_field[HEAD_TRANSFER_ENCODING];
    text_part coding = h->field[HEAD_TRANSFER_ENCODING];
    if (n_coding == 1 && n_length == 0 && is_known_coding(coding)) {
        h->refusal = 501;
        return "bodies are taken chunked, in no other transfer-encoding";
    }
    if (n_coding > 0 && (n_coding > 1 || !h->chunked || !text_is(coding, "chunked")))
        return "request has invalid transfer-encoding";
    if (n_length > 0 && (n_length > 1 || h->chunked)) return "unexpected content-length header";
    return NULL;
}

bool head_read(message_reader *m, const char *bytes, size_t n, head *out, const char **why)
{
    size_t n_read;
    *out = (head){0};
    *m = (message_reader){.head = out};
    parser_begin(&m->parser, &callbacks, m);
    bool ok = parser_run(&m->parser, bytes, n, &n_read, why);
    m->head = NULL;
    if (!ok) return false;
    for (int i = 0; i < N_HEAD_FIELD; i++)
        if (out->field[i].text) out->field[i] = text_trim(out->field[i]);
    bool has_body = out->chunked || out->content_length > 0, has_end = n_read == n && m->is_complete != has_body;
    const char *wrong = out->method > HTTP_SOURCE ? "invalid HTTP method" /* the last one that http-parser has */
                                                  : unclear_body(out);
    if (wrong) *why = wrong;
    split_target(out);
    return has_end && !wrong;
}

bool body_read(message_reader *m, const char *bytes, size_t n, body_fn *take, void *user, size_t *n_used)
{
    const char *why;
    m->take_body = take;
    m->user = user;
    return parser_run(&m->parser, bytes, n, n_used, &why);
}
