/* Changes one value of a JSON document that stands behind a line: by another kind of value, by one of the document, or it
 * is left out or comes twice. So most inputs stay JSON, and reach what reads its fields. */
#ifndef HEARTH_TESTS_FUZZ_MUTATE_JSON_H
#define HEARTH_TESTS_FUZZ_MUTATE_JSON_H

#include "base/random.h"
#include "text/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer has it; without libFuzzer there is none. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t capacity) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t capacity, unsigned seed);

typedef struct json_change {
    const hth_json *value; /* that is changed */
    const char *with;      /* NULL: it is left out */
    uint8_t *to;
    size_t n, capacity;
    bool twice, is_full;
} json_change;

static inline void put_bytes(json_change *c, const char *bytes, size_t n)
{
    c->is_full |= n > c->capacity - c->n;
    if (c->is_full) return;
    memcpy(c->to + c->n, bytes, n);
    c->n += n;
}

static inline void put_text(json_change *c, const char *text) { put_bytes(c, text, strlen(text)); }

static inline void put_value(json_change *c, const hth_json *v);

static inline void put_member(json_change *c, const hth_json *v, bool is_first)
{
    if (!is_first) put_text(c, ",");
    if (v->parent->kind == HTH_JSON_OBJECT) {
        put_text(c, "\"");
        put_bytes(c, v->key.bytes, v->key.n);
        put_text(c, "\":");
    }
    put_value(c, v);
}

static inline void put_value(json_change *c, const hth_json *v)
{
    if (v == c->value && c->with) {
        put_text(c, c->with);
        return;
    }
    if (v->kind < HTH_JSON_ARRAY) {
        size_t n;
        char *text = hth_json_write(v, false, &n);
        put_bytes(c, text, n);
        hth_free(text);
        return;
    }
    bool is_first = true;
    put_text(c, v->kind == HTH_JSON_ARRAY ? "[" : "{");
    for (const hth_json *m = v->child; m; m = m->next) {
        if (m == c->value && !c->with && !c->twice) continue;
        for (int i = 0; i < (m == c->value && c->twice ? 2 : 1); i++, is_first = false) put_member(c, m, is_first);
    }
    put_text(c, v->kind == HTH_JSON_ARRAY ? "]" : "}");
}

/* The i-th value in the order of the text; NULL: it has fewer, and *i is less by their number. */
static inline const hth_json *nth_value(const hth_json *v, size_t *i)
{
    const hth_json *found = *i == 0 ? v : NULL;
    if (!found) --*i;
    for (const hth_json *m = v->child; m && !found; m = m->next) found = nth_value(m, i);
    return found;
}

static inline const hth_json *any_value(const hth_json *document, uint64_t *state)
{
    size_t most = SIZE_MAX, i = most;
    nth_value(document, &i);
    i = hth_random_next(state) % (most - i);
    return nth_value(document, &i);
}

/* Returns the new size; 0: no JSON stands there, or it has no room. */
static inline size_t mutate_json(uint8_t *data, size_t n, size_t capacity, uint64_t seed)
{
    static const char *const others[] = {
        "null", "true", "false", "0", "-1", "1", "2", "8.0", "1e1", "0.5", "1e400", "-1e-400", "2147483648", "18446744073709551615", "\"\"",
        "\"a\"", "\"auto\"", "\"none\"", "\"required\"", "\"user\"", "\"tool\"", "\"system\"", "\"assistant\"", "\"text\"", "\"\\u0000\"", "\"\\ud800x\"",
        "\"{\\\"a\\\":1}\"", "\"{\"", "[]", "{}", "[[]]", "[1,2]", "[\"a\",\"\"]", "{\"type\":\"text\",\"text\":\"a\"}", "[{\"type\":\"text\",\"text\":\"\"}]",
        "{\"type\":\"object\"}", "{\"type\":[\"string\",\"null\"]}", "{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}]}", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"};
    const uint8_t *line = memchr(data, '\n', n);
    size_t head = line ? (size_t)(line - data) + 1 : 0;
    uint64_t state = seed;
    hth_json *document = head ? hth_json_open((const char *)data + head, n - head, NULL, NULL) : NULL;
    if (!document || head > capacity) {
        hth_json_close(document);
        return 0;
    }
    json_change c = {.value = any_value(document, &state), .to = data + head, .capacity = capacity - head};
    uint64_t kind = hth_random_next(&state) % 8;
    char *own = kind == 1 ? hth_json_write(any_value(document, &state), false, NULL) : NULL;
    c.twice = kind == 2;
    if (kind > 2) c.with = others[hth_random_next(&state) % (sizeof others / sizeof *others)];
    if (own) c.with = own;
    put_value(&c, document);
    hth_free(own);
    hth_json_close(document);
    return c.is_full ? 0 : head + c.n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t capacity, unsigned seed)
{
    size_t changed = seed % 4 ? mutate_json(data, n, capacity, seed) : 0;
    return changed ? changed : LLVMFuzzerMutate(data, n, capacity);
}

#endif
