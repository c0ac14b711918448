/* Reads test vectors; see json_lines.h. Used by tests/text. */
#include "support/models/json_lines.h"

#include <stdlib.h>
#include <string.h>

char *json_next_line(char **rest)
{
    char *line = *rest;
    if (!*line) return NULL;
    char *end = strchr(line, '\n');
    *rest = end ? end + 1 : line + strlen(line);
    if (end) *end = '\0';
    return line;
}

/* Behind the string that begins at its opening quote. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\') p++;
    return p + 1;
}

const char *json_field(const char *line, const char *name)
{
    size_t n = strlen(name);
    int depth = 0;
    for (const char *p = line; *p;) {
        if (*p == '"') {
            const char *end = skip_string(p);
            bool match = depth == 1 && *end == ':' && (size_t)(end - p) == n + 2 && memcmp(p + 1, name, n) == 0;
            if (match) return end + 1 + strspn(end + 1, " ");
            p = end;
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p++;
    }
    return NULL;
}

static size_t put_code_point(char *out, unsigned long cp)
{
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(mark[n] | cp);
    return n;
}

static unsigned long hex4(const char *p)
{
    char digits[5] = {p[0], p[1], p[2], p[3], 0};
    return strtoul(digits, NULL, 16);
}

/* One escape, from behind the backslash; returns behind it. */
static const char *unescape(const char *p, char *out, size_t *n)
{
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    if (*p != 'u') {
        const char *at = strchr(from, *p);
        out[(*n)++] = at ? to[at - from] : *p;
        return p + 1;
    }
    unsigned long cp = hex4(p + 1);
    p += 5;
    if (cp >= 0xD800 && cp < 0xDC00 && p[0] == '\\' && p[1] == 'u') {
        cp = 0x10000 + ((cp - 0xD800) << 10) + (hex4(p + 2) - 0xDC00);
        p += 6;
    }
    *n += put_code_point(out + *n, cp);
    return p;
}

char *json_text_of(const char *value, size_t *n)
{
    char *out = malloc(strlen(value) + 1);
    *n = 0;
    for (const char *p = value + 1; *p && *p != '"';) {
        if (*p == '\\') p = unescape(p + 1, out, n);
        else out[(*n)++] = *p++;
    }
    out[*n] = '\0';
    return out;
}

char *json_base64(const char *value, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = malloc(strlen(value) + 1);
    uint32_t bits = 0;
    int n_bit = 0;
    *n = 0;
    for (const char *p = value + 1, *at; (at = *p == '"' ? NULL : strchr(digits, *p)); p++) {
        bits = bits << 6 | (uint32_t)(at - digits);
        n_bit += 6;
        if (n_bit >= 8) out[(*n)++] = (char)(bits >> (n_bit -= 8));
    }
    out[*n] = '\0';
    return out;
}

int32_t *json_ints(const char *value, size_t *n, const char **end)
{
    size_t capacity = 16;
    int32_t *out = malloc(capacity * sizeof *out);
    *n = 0;
    const char *p = value + 1;
    while (*p != ']') {
        char *behind;
        if (*n == capacity) out = realloc(out, (capacity *= 2) * sizeof *out);
        out[(*n)++] = (int32_t)strtol(p, &behind, 10);
        p = *behind == ',' ? behind + 1 : behind;
    }
    if (end) *end = p + 1;
    return out;
}
