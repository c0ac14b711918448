/* Reads texts and lists of ids from files and pipes. */
#define _GNU_SOURCE
#include "common/input.h"

#include "base/format_bytes.h"
#include "base/format_errno.h"
#include "base/status.h"
#include "common/output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool refuse_odd_file(FILE *f, const char *path)
{
    struct stat st;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
        report_text("%s: is a folder", path);
        return true;
    }
    return false;
}

/* A pipe or a device may never end. No context is that long. */
enum { MAX_TEXT = 1 << 30 };

char *read_whole(const char *path, size_t *n)
{
    bool from_stdin = strcmp(path, "-") == 0;
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    char *bytes = NULL;
    size_t used = 0, capacity = 0, got;
    if (!f) {
        report_text("%s: %s", path, hth_format_errno(errno).text);
        return NULL;
    }
    if (refuse_odd_file(f, path)) goto fail;
    do {
        if (used > MAX_TEXT) {
            report_text("%s: more than %d MiB of text; take a part of it", path, MAX_TEXT >> 20);
            goto fail;
        }
        if (used + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *more = realloc(bytes, capacity);
            if (!more) {
                report_text("%s: out of memory: %s for the text", path, hth_format_bytes(capacity).text);
                goto fail;
            }
            bytes = more;
        }
        got = fread(bytes + used, 1, capacity - used - 1, f);
        used += got;
    } while (got > 0 && !feof(f)); /* a terminal would be read past its end */
    if (ferror(f)) {
        report_text("%s: %s", path, hth_format_errno(errno).text);
        goto fail;
    }
    if (!from_stdin) fclose(f);
    bytes[used] = '\0';
    *n = used;
    return bytes;
fail:
    if (!from_stdin) fclose(f);
    free(bytes);
    return NULL;
}

/* Whether it begins like UTF-16: with a byte order mark, or with an ASCII letter in two bytes. */
static bool is_utf16(const unsigned char *b, size_t n)
{
    if (n < 2) return false;
    bool marked = (b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff);
    return marked || (n >= 4 && ((b[0] && !b[1] && b[2] && !b[3]) || (!b[0] && b[1] && !b[2] && b[3])));
}

bool make_plain(const char *path, char *text, size_t *n)
{
    size_t used = 0, at = *n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (is_utf16((const unsigned char *)text, *n)) {
        report_text("%s: is UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8", path);
        return false;
    }
    for (; at < *n; at++)
        if (text[at] != '\r' || at + 1 == *n || text[at + 1] != '\n') text[used++] = text[at];
    *n = used;
    text[used] = '\0';
    return true;
}

/* Reads a text and makes it plain. */
static char *read_plain(const char *path, size_t *n)
{
    char *text = read_whole(path, n);
    if (!text || make_plain(path, text, n)) return text;
    free(text);
    return NULL;
}

char *read_prompt(const char *path, size_t *n)
{
    char *text = read_plain(path, n);
    if (text && *n > 0 && text[*n - 1] == '\n') text[--*n] = '\0';
    return text;
}

char *read_text_file(const char *path, size_t *n)
{
    char *text = read_plain(path, n);
    if (!text) return NULL;
    const char *zero = memchr(text, 0, *n);
    if (*n > 0 && !zero) return text;
    if (zero) report_text("%s: byte %zu is 0: this is no text", path, (size_t)(zero - text));
    else report_text("%s: is empty", path);
    free(text);
    return NULL;
}

/* ---- ids --------------------------------------------------------------------------------- */

/* White space, and the separators of lists by other programs: [1, 2, 3]. */
static bool is_between(char c) { return c && strchr(" \t\r\n,[]", c); }

/* Reads the number at text[*at] and advances *at. False: no number. */
static bool next_id(const char *text, size_t n, size_t *at, uint64_t limit, int32_t *id)
{
    uint64_t v = 0;
    size_t start = *at;
    for (; *at < n && text[*at] >= '0' && text[*at] <= '9'; (*at)++) {
        v = v * 10 + (uint64_t)(text[*at] - '0');
        if (v >= limit) return false;
    }
    *id = (int32_t)v;
    return *at > start && (*at == n || is_between(text[*at]));
}

int32_t *read_ids(const char *path, uint32_t n_vocab, size_t *n)
{
    size_t size, at = 0;
    char *text = read_whole(path, &size);
    if (!text) return NULL;
    int32_t *ids = malloc((size / 2 + 1) * sizeof *ids);
    if (!ids) {
        report_text("%s: out of memory: %s for ids", path,
                    hth_format_bytes((size / 2 + 1) * sizeof *ids).text);
        free(text);
        return NULL;
    }
    uint64_t limit = n_vocab ? n_vocab : (uint64_t)INT32_MAX + 1;
    for (*n = 0;; (*n)++) {
        while (at < size && is_between(text[at])) at++;
        if (at == size) break;
        size_t start = at;
        if (next_id(text, size, &at, limit, &ids[*n])) continue;
        char found[40];
        size_t end = start;
        while (end < size && !is_between(text[end])) end++;
        report_text("%s: '%s' at byte %zu, number %zu of the ids, is no decimal number below %llu", path,
                    hth_escape(found, sizeof found, text + start, end - start), start, *n + 1,
                    (unsigned long long)limit);
        free(ids);
        free(text);
        return NULL;
    }
    free(text);
    return ids;
}
