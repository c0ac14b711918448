/* Reads the head of a request (the method, the target, how its body comes, the headers that the server uses), then the
 * body. Texts are parts of the bytes that were read, and live as long as they. */
#ifndef HEARTH_APPS_SERVE_HTTP_HEAD_H
#define HEARTH_APPS_SERVE_HTTP_HEAD_H

#include "serve/http/parser.h"

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
    HEAD_FETCH_SITE, /* sec-fetch-site, of browsers */
    HEAD_EXPECT,
    HEAD_REQUEST_ID,      /* x-request-id */
    HEAD_REQUEST_HEADERS, /* access-control-request-headers */
    HEAD_CONTENT_LENGTH,
    HEAD_TRANSFER_ENCODING,
    HEAD_CONTENT_ENCODING,
    N_HEAD_FIELD
} head_field;

typedef struct head {
    unsigned method; /* HTTP_GET ... of the parser's header */
    bool is_http_1_1, keep_alive;
    bool chunked;
    uint64_t content_length; /* bytes of the body, unless it is chunked */
    text_part target;        /* without the scheme and the authority, which is the host then */
    int refusal;             /* the status with which head_read refuses it; 0: 400 */
    text_part field[N_HEAD_FIELD]; /* the last one of each; text NULL: there is none */
    unsigned n_field[N_HEAD_FIELD];
    /* While it is read. */
    text_part name;
    text_part *value;
    bool in_value;
} head;

/* Gets the next bytes of a body. False: they are refused. */
typedef bool body_fn(void *user, const char *bytes, size_t n);

/* Reads a request: its head, then its body. */
typedef struct message_reader {
    parser parser;
    head *head; /* while it is read */
    body_fn *take_body;
    void *user;
    bool is_complete;
} message_reader;

/* Reads a head of n bytes, which head_scan_bytes passed. The body can be read then. False: *why says what is wrong. */
bool head_read(message_reader *m, const char *bytes, size_t n, head *out, const char **why);
/* Reads the next n > 0 bytes of a body. *n_used: up to its end. False: they were refused, or are no body. */
bool body_read(message_reader *m, const char *bytes, size_t n, body_fn *take, void *user, size_t *n_used);

/* Whether a text is this word, letters in any case. */
bool text_is(text_part text, const char *word);
text_part text_trim(text_part text);

#endif
