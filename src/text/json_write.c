/* Writes JSON without recursion, twice: to count, then to memory of that size. */
#include "text/json.h"

#include <string.h>

typedef struct writer {
    char *to; /* NULL: counts */
    size_t n;
    bool spaced;
} writer;

static void put_bytes(writer *w, const char *bytes, size_t n)
{
    if (w->to) memcpy(w->to + w->n, bytes, n);
    w->n += n;
}

static void put_char(writer *w, char c) { put_bytes(w, &c, 1); }

static void put_text(writer *w, hth_str text)
{
    static const char from[] = "\"\\\n\t", escapes[] = "\"\\nt", hex[] = "0123456789abcdef";
    put_char(w, '"');
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.bytes[i];
        const char *known = c ? strchr(from, c) : NULL;
        if (known) put_bytes(w, (const char[]){'\\', escapes[known - from]}, 2);
        else if (c < 0x20 || c == 0x7f)
            put_bytes(w, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        else put_char(w, (char)c);
    }
    put_char(w, '"');
}

static void put_value(writer *w, const hth_json *v)
{
    static const char *const words[] = {"false", "true"};
    switch (v->kind) {
    case HTH_JSON_BOOL: put_bytes(w, words[v->integer], strlen(words[v->integer])); break;
    case HTH_JSON_INTEGER:
    case HTH_JSON_REAL: put_bytes(w, v->text.bytes, v->text.n); break;
    case HTH_JSON_TEXT: put_text(w, v->text); break;
    case HTH_JSON_ARRAY: put_char(w, '['); break;
    case HTH_JSON_OBJECT: put_char(w, '{'); break;
    default: put_bytes(w, "null", 4);
    }
}

static void put_mark(writer *w, char c) { put_bytes(w, (const char[]){c, ' '}, w->spaced ? 2 : 1); }

static void put_closing(writer *w, const hth_json *v)
{
    if (v->kind == HTH_JSON_ARRAY) put_char(w, ']');
    if (v->kind == HTH_JSON_OBJECT) put_char(w, '}');
}

static void put_tree(writer *w, const hth_json *root)
{
    for (const hth_json *v = root;;) {
        if (v != root && v->parent->kind == HTH_JSON_OBJECT) put_text(w, v->key), put_mark(w, ':');
        put_value(w, v);
        if (v->child) {
            v = v->child;
            continue;
        }
        for (put_closing(w, v); v != root && !v->next; put_closing(w, v)) v = v->parent;
        if (v == root) return;
        put_mark(w, ',');
        v = v->next;
    }
}

char *hth_json_write(const hth_json *value, bool spaced, size_t *n)
{
    writer w = {.spaced = spaced};
    put_tree(&w, value);
    char *text = hth_alloc(w.n + 1, 1);
    if (!text) return NULL;
    w = (writer){.to = text, .spaced = spaced};
    put_tree(&w, value);
    if (n) *n = w.n;
    return text;
}
