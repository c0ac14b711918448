/* Finds the end of a request's head, and checks its bytes where parsers are lenient: line ends are CR LF and nothing
 * else, no header line is continued, names are tokens that end at the colon, the version is 1.0 or 1.1, and nothing is
 * larger than its limit. Lines of chunked bodies are checked in the same way: extensions are ";name" or ";name=token",
 * and trailers do not change the framing. The parser (parser.h) gets only bytes that passed, so that it does not see
 * any that two programs may read in two ways. */
#ifndef HEARTH_APPS_SERVE_HTTP_FRAMING_H
#define HEARTH_APPS_SERVE_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAD_MAX_TARGET = 8 << 10,   /* bytes of the request's target */
    HEAD_MAX_HEADERS = 16 << 10, /* bytes of header lines together, with their ends */
    HEAD_MAX_LINES = 100,        /* header lines */
};

/* Zero-initialised before the first byte of a request. */
typedef struct head_scan {
    unsigned part; /* part of the request line: 0 method, 1 target, 2 version */
    size_t n_part; /* bytes of it */
    size_t n_line; /* bytes of the line */
    size_t n_byte; /* bytes of header lines */
    unsigned n_headers;
    bool in_headers, in_value, after_cr, skipped;
} head_scan;

/* Reads on, up to the end of the head. Returns 0, or the status of a refusal: 400, 414 or 431; *why then says what is
 * wrong, without quoting. *n_used: bytes read; *is_complete: the head ends behind them. */
int head_scan_bytes(head_scan *h, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                    const char **why);

/* Zero-initialised before the first byte of a chunked body. */
typedef struct chunk_scan {
    unsigned state;
    unsigned n_digit;
    size_t n_line, n_trailer;
    size_t n_part;   /* bytes of a name or value of an extension */
    bool in_value;   /* inside the value of an extension or trailer */
    unsigned fields; /* bits of the refused trailers with this beginning */
    uint64_t left; /* bytes of the chunk */
} chunk_scan;

/* The same for a chunked body with its trailers. */
int chunk_scan_bytes(chunk_scan *c, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                     const char **why);

/* A character of a token (RFC 9110, 5.6.2). */
bool is_token_byte(unsigned char c);

#endif
