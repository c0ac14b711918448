/* The builder behind gguf_build.h. Used by tests/file and tests/fuzz; what it writes
 * follows the format document, not the code under test. */
#include "support/models/gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gguf_free(gguf_bytes *b)
{
    free(b->data);
    *b = (gguf_bytes){0};
}

void gguf_put(gguf_bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n) + 256;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    if (n > 0) memcpy(b->data + b->n, data, n);
    b->n += n;
}

void gguf_word(gguf_bytes *b, uint64_t v, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(v >> (8 * i));
    gguf_put(b, bytes, size);
}

void gguf_text(gguf_bytes *b, const char *text)
{
    gguf_word(b, strlen(text), 8);
    gguf_put(b, text, strlen(text));
}

void gguf_header(gguf_bytes *b, uint32_t version, uint64_t n_tensor, uint64_t n_pair)
{
    gguf_put(b, "GGUF", 4);
    gguf_word(b, version, 4);
    gguf_word(b, n_tensor, 8);
    gguf_word(b, n_pair, 8);
}

void gguf_key(gguf_bytes *b, const char *key, uint32_t type)
{
    gguf_text(b, key);
    gguf_word(b, type, 4);
}

void gguf_pair_u32(gguf_bytes *b, const char *key, uint32_t value)
{
    gguf_key(b, key, 4);
    gguf_word(b, value, 4);
}

void gguf_pair_text(gguf_bytes *b, const char *key, const char *value)
{
    gguf_key(b, key, 8);
    gguf_text(b, value);
}

void gguf_array(gguf_bytes *b, const char *key, uint32_t element_type, uint64_t n)
{
    gguf_key(b, key, 9);
    gguf_word(b, element_type, 4);
    gguf_word(b, n, 8);
}

void gguf_info(gguf_bytes *b, const char *name, uint32_t n_dim, const uint64_t dim[], uint32_t type,
               uint64_t offset)
{
    gguf_text(b, name);
    gguf_word(b, n_dim, 4);
    for (uint32_t i = 0; i < n_dim; i++) gguf_word(b, dim[i], 8);
    gguf_word(b, type, 4);
    gguf_word(b, offset, 8);
}

void gguf_zeros(gguf_bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++) gguf_put(b, "", 1);
}

void gguf_pad(gguf_bytes *b, size_t align) { gguf_zeros(b, (align - b->n % align) % align); }

void gguf_patch(gguf_bytes *b, size_t at, uint64_t v, size_t size)
{
    for (size_t i = 0; i < size; i++) b->data[at + i] = (unsigned char)(v >> (8 * i));
}

void gguf_small(gguf_bytes *b)
{
    b->n = 0;
    gguf_header(b, 3, 3, 7);
    gguf_pair_text(b, "general.architecture", "llama");
    gguf_pair_u32(b, "general.alignment", 32);
    gguf_key(b, "small.bool", 7);
    gguf_word(b, 1, 1);
    gguf_array(b, "small.numbers", 4, 3);
    for (uint32_t i = 1; i <= 3; i++) gguf_word(b, i, 4);
    gguf_array(b, "small.texts", 8, 2);
    gguf_text(b, "a");
    gguf_text(b, "bc");
    gguf_array(b, "small.bools", 7, 2);
    gguf_word(b, 0x0100, 2);
    gguf_key(b, "small.f32", 6);
    gguf_word(b, 0x3fc00000, 4); /* 1.5 */
    gguf_info(b, "a.weight", 2, (uint64_t[]){8, 4}, 0, 0);
    gguf_info(b, "b.weight", 2, (uint64_t[]){32, 2}, 2, 128);
    gguf_info(b, "c.weight", 1, (uint64_t[]){5}, 1, 192);
    gguf_pad(b, 32);
    for (uint32_t i = 0; i < 224; i++) gguf_word(b, i, 1);
}

gguf_bytes gguf_small_new(void)
{
    gguf_bytes b = {0};
    gguf_small(&b);
    return b;
}

/* ---- walking ------------------------------------------------------------------------ */

typedef struct walk {
    const unsigned char *data;
    size_t at;
    gguf_field *fields;
    size_t n, n_max;
} walk;

static void note(walk *w, gguf_field_kind kind, uint32_t i, uint32_t j, size_t width)
{
    if (w->n < w->n_max) w->fields[w->n++] = (gguf_field){kind, i, j, w->at, width};
    w->at += width;
}

/* Notes a word and gives its value. */
static uint64_t note_word(walk *w, gguf_field_kind kind, uint32_t i, uint32_t j, size_t width)
{
    uint64_t v = 0;
    for (size_t k = 0; k < width; k++) v |= (uint64_t)w->data[w->at + k] << (8 * k);
    note(w, kind, i, j, width);
    return v;
}

static void walk_value(walk *w, uint32_t i, uint64_t type)
{
    static const size_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t n = 1;
    if (type == 9) {
        type = note_word(w, GGUF_ELEMENT_TYPE, i, 0, 4);
        n = note_word(w, GGUF_COUNT, i, 0, 8);
    }
    if (type != 8) {
        note(w, GGUF_VALUE, i, 0, sizes[type] * n);
        return;
    }
    for (uint32_t j = 0; j < n; j++) {
        uint64_t length = note_word(w, GGUF_TEXT_LENGTH, i, j, 8);
        w->at += length;
    }
}

static void walk_info(walk *w, uint32_t i)
{
    note(w, GGUF_NAME, i, 0, note_word(w, GGUF_NAME_LENGTH, i, 0, 8));
    uint64_t n_dim = note_word(w, GGUF_N_DIM, i, 0, 4);
    for (uint32_t j = 0; j < n_dim; j++) note(w, GGUF_DIM, i, j, 8);
    note(w, GGUF_TYPE, i, 0, 4);
    note(w, GGUF_OFFSET, i, 0, 8);
}

size_t gguf_fields(const unsigned char *data, gguf_field *fields, size_t n_max)
{
    walk w = {.data = data, .fields = fields, .n_max = n_max};
    note(&w, GGUF_MAGIC, 0, 0, 4);
    note(&w, GGUF_VERSION, 0, 0, 4);
    uint64_t n_tensor = note_word(&w, GGUF_N_TENSOR, 0, 0, 8);
    uint64_t n_pair = note_word(&w, GGUF_N_PAIR, 0, 0, 8);
    for (uint32_t i = 0; i < n_pair; i++) {
        note(&w, GGUF_KEY, i, 0, note_word(&w, GGUF_KEY_LENGTH, i, 0, 8));
        walk_value(&w, i, note_word(&w, GGUF_VALUE_TYPE, i, 0, 4));
    }
    for (uint32_t i = 0; i < n_tensor; i++) walk_info(&w, i);
    note(&w, GGUF_END, 0, 0, 0);
    return w.n;
}

gguf_field gguf_field_of(const gguf_bytes *b, gguf_field_kind kind, uint32_t i, uint32_t j)
{
    enum { N = 4096 };
    static gguf_field fields[N];
    size_t n = gguf_fields(b->data, fields, N);
    for (size_t k = 0; k < n; k++)
        if (fields[k].kind == kind && fields[k].i == i && fields[k].j == j) return fields[k];
    fprintf(stderr, "gguf_field_of: no field of kind %d, %u, %u\n", (int)kind, i, j);
    abort();
}
