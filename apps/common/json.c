/* Writes JSON for the --json option of all commands. */
#include "common/json.h"

#include "text/utf8.h"

#include <assert.h>
#include <string.h>

static void write_escaped(FILE *out, const char *text, size_t n);

/* Writes comma, line break and key before a value. */
static void before(json *j, const char *key)
{
    if (j->started[j->depth]) fputc(',', j->out);
    if (j->depth > 0 && !j->compact[j->depth]) fprintf(j->out, "\n%*s", 2 * (int)j->depth, "");
    else if (j->started[j->depth]) fputc(' ', j->out);
    j->started[j->depth] = true;
    if (key) {
        write_escaped(j->out, key, strlen(key));
        fputs(": ", j->out);
    }
}

static void open_value(json *j, const char *key, char bracket, bool compact)
{
    before(j, key);
    fputc(bracket, j->out);
    assert(j->depth + 1 < sizeof j->started);
    j->depth++;
    j->started[j->depth] = false;
    j->compact[j->depth] = compact;
}

void json_open(json *j, const char *key, char bracket) { open_value(j, key, bracket, j->compact[j->depth]); }
void json_open_compact(json *j, const char *key, char bracket) { open_value(j, key, bracket, true); }

void json_close(json *j, char bracket)
{
    bool lines = j->started[j->depth] && !j->compact[j->depth];
    j->depth--;
    if (lines) fprintf(j->out, "\n%*s", 2 * (int)j->depth, "");
    fputc(bracket, j->out);
}

static void write_escaped(FILE *out, const char *text, size_t n)
{
    fputc('"', out);
    for (size_t i = 0; i < n;) {
        const unsigned char *p = (const unsigned char *)text + i;
        uint32_t ignored;
        size_t len = hth_text_utf8_decode(text + i, n - i, &ignored);
        i += len ? len : 1;
        if (len == 0) fputs("\xef\xbf\xbd", out);
        else if (*p == '"' || *p == '\\') fprintf(out, "\\%c", *p);
        else if (*p == '\n') fputs("\\n", out);
        else if (*p == '\t') fputs("\\t", out);
        else if (*p < 0x20 || *p == 0x7f) fprintf(out, "\\u%04x", *p);
        else fwrite(p, 1, len, out);
    }
    fputc('"', out);
}

void json_text(json *j, const char *key, const char *text, size_t n)
{
    before(j, key);
    write_escaped(j->out, text, n);
}

void json_word(json *j, const char *key, const char *text) { json_text(j, key, text, strlen(text)); }

void json_uint(json *j, const char *key, uint64_t value)
{
    before(j, key);
    fprintf(j->out, "%llu", (unsigned long long)value);
}

void json_int(json *j, const char *key, int64_t value)
{
    before(j, key);
    fprintf(j->out, "%lld", (long long)value);
}

void json_float(json *j, const char *key, double value, int digits)
{
    before(j, key);
    if (value - value != 0.0) fputs("null", j->out);
    else fprintf(j->out, "%.*g", digits, value);
}

void json_bool(json *j, const char *key, bool value)
{
    before(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_put_null(json *j, const char *key)
{
    before(j, key);
    fputs("null", j->out);
}

void json_raw(json *j, const char *key, const char *text, size_t n)
{
    before(j, key);
    fwrite(text, 1, n, j->out);
}

void json_hash(json *j, const char *key, uint64_t hash)
{
    before(j, key);
    fprintf(j->out, "\"%016llx\"", (unsigned long long)hash);
}

json json_begin(FILE *out)
{
    json j = {.out = out};
    json_open(&j, NULL, '{');
    return j;
}

void json_end(json *j)
{
    json_close(j, '}');
    fputc('\n', j->out);
}
