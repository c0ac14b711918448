/* Byte by byte over heads and chunk lines. Nothing is stored: a head is scanned as it arrives, in any pieces. */
#include "serve/http/framing.h"

#include <string.h>

bool is_token_byte(unsigned char c)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }

static int bad(const char **why, const char *words)
{
    *why = words;
    return 400;
}

static int refuse(const char **why, int status, const char *words)
{
    *why = words;
    return status;
}

/* ---- the request line ---------------------------------------------------------------------------------- */

static int scan_request_byte(head_scan *h, unsigned char c, const char **why)
{
    static const char version[] = "HTTP/1.";
    enum { MAX_METHOD = 20, N_VERSION = sizeof version - 1 };
    if (h->part < 2 && c == ' ') {
        if (h->n_part == 0) return bad(why, "a word of the request line is empty");
        h->part++;
        h->n_part = 0;
        return 0;
    }
    size_t i = h->n_part++;
    if (h->part == 0)
        return is_token_byte(c) && i < MAX_METHOD ? 0 : bad(why, "the request line begins with no method");
    if (h->part == 1) {
        if (c > 0x7e || c < 0x21) return bad(why, "a byte of the target is not allowed there");
        return i < HEAD_MAX_TARGET ? 0 : refuse(why, 414, "the target is longer than 8 KiB");
    }
    bool ok = i < N_VERSION ? c == (unsigned char)version[i] : i == N_VERSION && (c == '0' || c == '1');
    return ok ? 0 : bad(why, "the version is neither HTTP/1.0 nor HTTP/1.1");
}

static int end_request_line(head_scan *h, const char **why)
{
    if (h->n_line == 0) { /* one empty line is tolerated: some clients send it after a body */
        if (h->skipped) return bad(why, "empty lines stand before the request");
        h->skipped = true;
        return 0;
    }
    if (h->part != 2 || h->n_part != 8) return bad(why, "the version is neither HTTP/1.0 nor HTTP/1.1");
    h->in_headers = true;
    return 0;
}

/* ---- header lines -------------------------------------------------------------------------------------- */

static int scan_header_byte(head_scan *h, unsigned char c, const char **why)
{
    if (++h->n_byte > HEAD_MAX_HEADERS) return refuse(why, 431, "the headers are larger than 16 KiB");
    if (h->n_line == 0) {
        if (c == ' ' || c == '\t') return bad(why, "a header is continued on another line");
        if (++h->n_headers > HEAD_MAX_LINES) return refuse(why, 431, "there are more than 100 headers");
        h->in_value = false;
    }
    if (h->in_value) return 0;
    if (c == ':' && h->n_line > 0) h->in_value = true;
    else if (!is_token_byte(c)) return bad(why, "the name of a header has a byte that is not allowed there");
    return 0;
}

static int end_header_line(head_scan *h, bool *is_complete, const char **why)
{
    h->n_byte += 2;
    *is_complete = h->n_line == 0;
    return h->n_line == 0 || h->in_value ? 0 : bad(why, "a header has no colon");
}

int head_scan_bytes(head_scan *h, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                    const char **why)
{
    int status = 0;
    size_t i = 0;
    *is_complete = false;
    for (; i < n && status == 0 && !*is_complete; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (h->after_cr) {
            if (c != '\n') status = bad(why, "a CR is not followed by LF");
            else status = h->in_headers ? end_header_line(h, is_complete, why) : end_request_line(h, why);
            h->after_cr = false;
            h->n_line = 0;
        } else if (c == '\r') {
            h->after_cr = true;
        } else if (c == '\n') {
            status = bad(why, "a line ends with LF without CR");
        } else if (is_control(c)) {
            status = bad(why, "there is a control character in the head");
        } else {
            status = h->in_headers ? scan_header_byte(h, c, why) : scan_request_byte(h, c, why);
            h->n_line++;
        }
    }
    *n_used = i;
    return status;
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

enum {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF
};
enum { MAX_EXTENSION = 256, MAX_TRAILERS = 4 << 10 };

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int scan_chunk_size(chunk_scan *k, unsigned char c, const char **why)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (++k->n_digit > 15) return bad(why, "the size of a chunk is too long");
        k->left = k->left << 4 | (unsigned)digit;
        return 0;
    }
    if (k->n_digit == 0) return bad(why, "the size of a chunk is not hexadecimal");
    if (c == '\r') {
        k->state = CHUNK_SIZE_LF;
        return 0;
    }
    if (c != ';') return bad(why, "the size of a chunk is not hexadecimal");
    k->state = CHUNK_EXTENSION;
    return 0;
}

static int scan_extension(chunk_scan *k, unsigned char c, const char **why)
{
    bool ends = (c == '\r' || c == ';' || (c == '=' && !k->in_value));
    if ((ends && k->n_part == 0) || (!ends && !is_token_byte(c)) || ++k->n_line > MAX_EXTENSION)
        return bad(why, "the extension of a chunk is not allowed");
    k->n_part = ends ? 0 : k->n_part + 1;
    if (ends) k->in_value = c == '=';
    if (c == '\r') k->state = CHUNK_SIZE_LF;
    return 0;
}

/* One byte of a trailer's name. False: the name has ended, and is one of those that say how the body comes. */
static bool match_field(chunk_scan *k, unsigned char c)
{
    static const char *const refused[] = {"transfer-encoding", "content-length"};
    if (k->n_line == 0) k->fields = 3;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!(k->fields >> i & 1)) continue;
        char expected = refused[i][k->n_line]; /* within the word: all bytes before were the same */
        if (c == ':' && expected == '\0') return false;
        if (expected == '\0' || expected != (c >= 'A' && c <= 'Z' ? c + 32 : c)) k->fields &= ~(1u << i);
    }
    return true;
}

static int scan_trailer(chunk_scan *k, unsigned char c, const char **why)
{
    bool ok = c == '\r' ? k->n_line == 0 || k->in_value : !is_control(c) && ++k->n_trailer <= MAX_TRAILERS;
    if (k->n_line == 0) k->in_value = false;
    if (ok && c != '\r' && !k->in_value) {
        k->in_value = c == ':' && k->n_line > 0;
        ok = (k->in_value || is_token_byte(c)) && match_field(k, c);
    }
    if (!ok) return bad(why, "a trailer of the body is not allowed");
    if (c == '\r') k->state = CHUNK_TRAILER_LF;
    else k->n_line++;
    return 0;
}

/* One byte outside the data of chunks. */
static int scan_chunk_byte(chunk_scan *k, unsigned char c, bool *is_complete, const char **why)
{
    switch (k->state) {
    case CHUNK_SIZE: return scan_chunk_size(k, c, why);
    case CHUNK_EXTENSION: return scan_extension(k, c, why);
    case CHUNK_TRAILER: return scan_trailer(k, c, why);
    case CHUNK_DATA_CR:
        k->state = CHUNK_DATA_LF;
        return c == '\r' ? 0 : bad(why, "a chunk is longer than its size");
    default: break;
    }
    if (c != '\n') return bad(why, "a line of the chunked body does not end with CR LF");
    if (k->state == CHUNK_SIZE_LF) {
        k->state = k->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    } else if (k->state == CHUNK_DATA_LF) {
        k->state = CHUNK_SIZE;
    } else {
        *is_complete = k->n_line == 0;
        k->state = CHUNK_TRAILER;
    }
    k->n_digit = 0;
    k->n_line = 0;
    return 0;
}

int chunk_scan_bytes(chunk_scan *k, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                     const char **why)
{
    int status = 0;
    size_t i = 0;
    *is_complete = false;
    while (i < n && status == 0 && !*is_complete) {
        if (k->state == CHUNK_DATA) {
            size_t some = k->left < n - i ? (size_t)k->left : n - i;
            i += some;
            k->left -= some;
            if (k->left == 0) k->state = CHUNK_DATA_CR;
        } else {
            status = scan_chunk_byte(k, (unsigned char)bytes[i++], is_complete, why);
        }
    }
    *n_used = i;
    return status;
}
