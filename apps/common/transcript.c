/* Conversations in memory and in files. Reading accepts what writing produces, and the variants of other
 * programs: members in any order, any escapes. */
#define _GNU_SOURCE
#include "common/transcript.h"

#include "common/buffer.h"
#include "common/input.h"
#include "common/json.h"
#include "common/output.h"
#include "common/text_file.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- messages ---------------------------------------------------------------------------------- */

void transcript_free_message(hearth_message *m)
{
    free((void *)(uintptr_t)m->role);
    free((void *)(uintptr_t)m->content);
}

void transcript_drop(transcript *t, size_t i)
{
    transcript_free_message(&t->message[i]);
    t->n--;
    memmove(t->message + i, t->message + i + 1, (t->n - i) * sizeof *t->message);
}

void transcript_free(transcript *t)
{
    while (t->n > 0) transcript_drop(t, t->n - 1);
    free(t->message);
    *t = (transcript){0};
}

static char *copy_of(const char *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, bytes, n);
    copy[n] = '\0';
    return copy;
}

bool transcript_add(transcript *t, const char *role, const char *content, size_t n)
{
    hearth_message *more = grow_array(t->message, &t->capacity, t->n + 1, sizeof *more);
    if (!more) return report_text("out of memory for the conversation") == 0;
    t->message = more;
    char *r = copy_of(role, strlen(role)), *c = copy_of(content, n);
    if (!r || !c) {
        free(r);
        free(c);
        return report_text("out of memory for the conversation") == 0;
    }
    t->message[t->n++] = (hearth_message){.role = r, .content = c, .n = n};
    return true;
}

bool transcript_add_first(transcript *t, const char *role, const char *content, size_t n)
{
    if (!transcript_add(t, role, content, n)) return false;
    hearth_message last = t->message[t->n - 1];
    memmove(t->message + 1, t->message, (t->n - 1) * sizeof *t->message);
    t->message[0] = last;
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void write_messages(const transcript *t, FILE *f)
{
    for (size_t i = 0; i < t->n; i++) {
        json j = {.out = f};
        json_open_compact(&j, NULL, '{');
        json_word(&j, "role", t->message[i].role);
        json_text(&j, "content", t->message[i].content, t->message[i].n);
        json_end(&j);
    }
}

/* An existing file may be replaced if it is a conversation or empty, so that a typing error cannot destroy a
 * model. */
static bool may_replace(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return true;
    if (!S_ISREG(st.st_mode))
        return report_text("%s exists and is not a regular file; choose another name", path) == 0;
    if (is_empty_or_begins(path, "{\"role\"")) return true;
    return report_text("%s exists and is not a conversation; choose another name", path) == 0;
}

bool transcript_save(const transcript *t, const char *path)
{
    text_file f;
    if (!may_replace(path)) return false;
    if (text_file_open(&f, path, true)) write_messages(t, f.out);
    bool ok = text_file_finish(&f) || report(&f.err) == 0;
    text_file_close(&f);
    return ok;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path, *p, *end;
    size_t line;
} reader;

static bool bad(const reader *r, const char *what)
{
    report_text("%s: line %zu: %s; a line is {\"role\": \"user\", \"content\": \"...\"}", r->path, r->line,
                what);
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool read_hex(reader *r, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < 4; i++) {
        char c = r->p < r->end ? *r->p++ : '\0';
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return bad(r, "\\u wants four digits");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return true;
}

static bool read_escape(reader *r, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t cp, low;
    char c = r->p < r->end ? *r->p++ : '\0';
    const char *at = c ? strchr(from, c) : NULL;
    if (at) out[(*n)++] = to[at - from];
    if (at) return true;
    if (c != 'u') return bad(r, "an escape that JSON does not have");
    if (!read_hex(r, &cp)) return false;
    if (cp >= 0xD800 && cp < 0xDC00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        r->p += 2;
        if (!read_hex(r, &low)) return false;
        if (low < 0xDC00 || low >= 0xE000) return bad(r, "half of a pair of \\u");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    if (cp >= 0xD800 && cp < 0xE000) return bad(r, "half of a pair of \\u");
    *n += hth_text_utf8_encode(cp, out + *n);
    return true;
}

/* Reads a JSON string; the result is never longer than its source. Freed with free. */
static char *read_text(reader *r, size_t *n)
{
    *n = 0;
    if (!take(r, '"')) {
        bad(r, "expected a text");
        return NULL;
    }
    char *out = malloc((size_t)(r->end - r->p) + 1);
    while (out && r->p < r->end && *r->p != '"') {
        bool ok = (unsigned char)*r->p >= 0x20 || bad(r, "a control character in a text");
        if (ok && *r->p != '\\') {
            out[(*n)++] = *r->p++;
        } else if (ok) {
            r->p++;
            ok = read_escape(r, out, n);
        }
        if (ok) continue;
        free(out);
        return NULL;
    }
    if (!out) report_text("out of memory for the conversation");
    else out[*n] = '\0';
    if (out && !take(r, '"')) {
        bad(r, "a text is not closed");
        free(out);
        return NULL;
    }
    return out;
}

static bool role_ok(const char *role, size_t n)
{
    return n > 0 && n <= 64 &&
           strspn(role, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

/* Reads one line; values[0] is the role, values[1] the content. */
static bool read_members(reader *r, char *values[2], size_t n[2])
{
    if (!take(r, '{')) return bad(r, "expected {");
    do {
        size_t n_key;
        char *key = read_text(r, &n_key);
        if (!key) return false;
        int which = strcmp(key, "role") == 0 ? 0 : strcmp(key, "content") == 0 ? 1 : -1;
        free(key);
        if (which < 0 || values[which]) return bad(r, "a member that is not known, or is there twice");
        if (!take(r, ':')) return bad(r, "expected :");
        if (!(values[which] = read_text(r, &n[which]))) return false;
    } while (take(r, ','));
    if (!take(r, '}')) return bad(r, "expected }");
    skip_blanks(r);
    if (r->p != r->end) return bad(r, "something follows the message");
    if (!values[0] || !values[1]) return bad(r, "role or content is missing");
    return role_ok(values[0], n[0]) || bad(r, "a role is one word");
}

static bool read_line(reader *r, transcript *t)
{
    char *values[2] = {NULL, NULL};
    size_t n[2];
    bool ok = read_members(r, values, n) && transcript_add(t, values[0], values[1], n[1]);
    free(values[0]);
    free(values[1]);
    return ok;
}

bool transcript_load(transcript *t, const char *path)
{
    size_t n;
    transcript fresh = {0};
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe might never be written to */
        return report_text("%s: not a regular file", path) == 0;
    char *text = read_whole(path, &n);
    if (!text) return false;
    reader r = {.path = path};
    bool ok = true;
    for (char *p = text; ok && p < text + n;) {
        char *end = memchr(p, '\n', (size_t)(text + n - p));
        if (!end) end = text + n;
        r.p = p;
        r.end = end;
        r.line++;
        skip_blanks(&r);
        ok = r.p == r.end || read_line(&r, &fresh); /* empty lines are skipped */
        p = end + 1;
    }
    free(text);
    if (ok) {
        transcript_free(t);
        *t = fresh;
    } else {
        transcript_free(&fresh);
    }
    return ok;
}
