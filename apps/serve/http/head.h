/* What a request's head says, read by http-parser: the method, the target, how its body comes, and the headers that
 * the server uses. Texts are parts of the bytes that were read, and live as long as they. */
#ifndef HEARTH_APPS_SERVE_HTTP_HEAD_H
#define HEARTH_APPS_SERVE_HTTP_HEAD_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_part {
    const char *text;
    size_t n;
} text_part;

typedef enum head_field {
    HEAD_HOST,
    HEAD_CONTENT_TYPE,
    HEAD_AUTHORIZATION,
    HEAD_API_KEY, /* x-api-key, of clients of Anthropic's interface */
    HEAD_ORIGIN,
    HEAD_EXPECT,
    HEAD_REQUEST_ID,      /* x-request-id */
    HEAD_REQUEST_HEADERS, /* access-control-request-headers */
    N_HEAD_FIELD
} head_field;

typedef struct head {
    unsigned method; /* of http_parser.h */
    bool is_http_1_1, keep_alive;
    bool chunked;
    uint64_t content_length; /* of the body, unless it is chunked */
    text_part target;
    text_part field[N_HEAD_FIELD]; /* the last one of each; text NULL: there is none */
    unsigned n_field[N_HEAD_FIELD];
    /* While it is read. */
    text_part name;
    text_part *value;
    bool in_value;
} head;

/* Reads a head of n bytes, which head_scan_bytes passed. The parser is then ready for the body. False: *why says what
 * is wrong. */
bool head_read(http_parser *parser, const char *bytes, size_t n, head *out, const char **why);

/* Whether a text is this word, letters in any case. */
bool text_is(text_part text, const char *word);
text_part text_trim(text_part text);

#endif
