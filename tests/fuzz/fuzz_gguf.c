/* Fuzz target of the GGUF reader: opens the bytes and touches everything that the
 * accessors hand out. With clang (preset fuzz) it is a libFuzzer program; without,
 * test_replay_gguf.c includes it and feeds it mutations of a golden file. */
#include "file/gguf.h"
#include "support/test.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps the compiler from dropping what is only read. */
static volatile uint64_t sink;

static void touch_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i];
    sink += sum;
}

static void touch_text(hth_str text) { touch_bytes(text.bytes, text.n + 1); /* and its NUL */ }

static void touch_array(const hth_gguf_value *v)
{
    for (uint64_t i = 0; i < v->n_element; i++) {
        if (v->element_type == HTH_GGUF_TEXT) touch_text(((const hth_str *)v->elements)[i]);
        else
            sink += hth_gguf_element_uint(v, i) + (uint64_t)hth_gguf_element_int(v, i) +
                    (hth_gguf_element_float(v, i) > 0.0);
    }
}

static void touch_value(const hth_gguf *file, const hth_gguf_value *v)
{
    hearth_error why;
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    hth_str text = {0};
    const hth_gguf_value *array = NULL;
    touch_text(v->key);
    touch_bytes(v->raw.bytes, v->raw.n);
    sink += hth_gguf_find(file, v->key.bytes) == v;
    hth_gguf_get_uint(file, v->key.bytes, 1, 100, &u, NULL, &why);
    hth_gguf_get_float(file, v->key.bytes, 0, 1, &f, NULL, &why);
    hth_gguf_get_bool(file, v->key.bytes, &b, NULL, &why);
    hth_gguf_get_array(file, v->key.bytes, v->element_type, 0, &array, &why);
    if (hth_gguf_get_text(file, v->key.bytes, &text, NULL, &why) == HEARTH_OK) touch_text(text);
    if (v->type == HTH_GGUF_ARRAY && v->element_type != HTH_GGUF_ARRAY) touch_array(v);
}

static void touch_tensor(const hth_gguf *file, const hth_gguf_tensor *t)
{
    unsigned char bytes[256];
    hearth_error why;
    size_t n = t->size < sizeof bytes ? (size_t)t->size : sizeof bytes;
    touch_text(t->name);
    sink += hth_gguf_find_tensor(file, t->name.bytes) == t;
    sink += hth_type_row_size(t->type, (size_t)t->dim[0]);
    if (hth_gguf_read(file, t, 0, n, bytes, &why) == HEARTH_OK) touch_bytes(bytes, n);
    if (hth_gguf_read(file, t, t->size - n, n, bytes, &why) == HEARTH_OK) touch_bytes(bytes, n);
    touch_bytes(hth_gguf_mapped(file, t), (size_t)t->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLOSED(hth_gguf) *file = NULL;
    hearth_error why;
    if (hth_gguf_open_memory(data, size, "fuzz.gguf", &file, &why) != HEARTH_OK) {
        touch_bytes(why.message, strlen(why.message));
        return 0;
    }
    sink += hth_gguf_size(file) + hth_gguf_trailing(file) + hth_gguf_alignment(file);
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) touch_value(file, hth_gguf_value_at(file, i));
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) touch_tensor(file, hth_gguf_tensor_at(file, i));
    return 0;
}
