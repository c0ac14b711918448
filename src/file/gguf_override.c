/* Values of the metadata that the caller gives instead of the file's: hearth_model_options.overrides. They are put into
 * the first part's pairs before anything reads these, so that all readers, and the identity of sessions, see them as
 * if the file had them. */
#include "base/decimal.h"
#include "file/gguf_int.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>

typedef struct override {
    hth_str key;
    const char *kind, *value;
    size_t n_kind;
} override;

static hearth_status fail(const char *text, const char *what, hearth_error *err)
{
    char shown[120];
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_model_options.overrides '%s': %s",
                    hth_escape(shown, sizeof shown, text, strlen(text)), what);
}

static hearth_status divide(const char *text, override *o, hearth_error *err)
{
    const char *equal = strchr(text, '='), *colon = equal ? strchr(equal, ':') : NULL;
    if (!colon || equal == text) return fail(text, "expected KEY=TYPE:VALUE", err);
    *o = (override){{text, (size_t)(equal - text)}, equal + 1, colon + 1, (size_t)(colon - equal - 1)};
    return HEARTH_OK;
}

static bool is_kind(const override *o, const char *name)
{
    return o->n_kind == strlen(name) && memcmp(o->kind, name, o->n_kind) == 0;
}

static bool is_float_type(hth_gguf_type type) { return type == HTH_GGUF_F32 || type == HTH_GGUF_F64; }

static void set_scalar(hth_gguf_value *v, char *raw, uint64_t word)
{
    v->raw = (hth_str){raw, hth_gguf_scalar_size(v->type)};
    hth_gguf_store(raw, word, v->raw.n);
    if (is_float_type(v->type)) v->as.f = hth_gguf_load_float(raw, v->raw.n);
    else if (hth_gguf_is_signed(v->type)) v->as.i = hth_gguf_load_signed(raw, v->raw.n);
    else v->as.u = hth_gguf_load(raw, v->raw.n);
}

static hearth_status set_integer(const override *o, hth_gguf_value *v, bool is_new, char *raw,
                                 const char *text, hearth_error *err)
{
    char *end;
    errno = 0;
    int64_t number = strtoll(o->value, &end, 10);
    if (errno || end == o->value || *end)
        return fail(text, "expected an integer of 64 bits behind int:", err);
    if (is_new) v->type = HTH_GGUF_I64;
    if (!hth_gguf_is_integer(v->type)) return fail(text, "the file's value is no integer", err);
    set_scalar(v, raw, (uint64_t)number);
    bool fits = hth_gguf_is_signed(v->type) ? v->as.i == number : number >= 0 && v->as.u == (uint64_t)number;
    return fits ? HEARTH_OK : fail(text, "the number does not fit the type that the file has for it", err);
}

static hearth_status set_float(const override *o, hth_gguf_value *v, bool is_new, char *raw, const char *text,
                               hearth_error *err)
{
    hth_decimal decimal;
    uint32_t word;
    uint64_t wide;
    if (!hth_decimal_read(o->value, strlen(o->value), &decimal)) /* in any locale */
        return fail(text, "expected a number behind float:, as 0.5 or 1e6", err);
    if (is_new) v->type = HTH_GGUF_F32;
    if (!is_float_type(v->type)) return fail(text, "the file's value is no f32 or f64", err);
    const double number = hth_decimal_double(&decimal), most = v->type == HTH_GGUF_F32 ? (double)FLT_MAX : DBL_MAX;
    if (!(number >= -most && number <= most)) return fail(text, "the number is too large for the type of the value", err);
    const float narrow = (float)number;
    memcpy(&word, &narrow, sizeof word);
    memcpy(&wide, &number, sizeof wide);
    set_scalar(v, raw, v->type == HTH_GGUF_F32 ? word : wide);
    return HEARTH_OK;
}

static hearth_status set_bool(const override *o, hth_gguf_value *v, bool is_new, char *raw, const char *text,
                              hearth_error *err)
{
    bool is_true = strcmp(o->value, "true") == 0;
    if (!is_true && strcmp(o->value, "false") != 0)
        return fail(text, "expected true or false behind bool:", err);
    if (is_new) v->type = HTH_GGUF_BOOL;
    if (v->type != HTH_GGUF_BOOL) return fail(text, "the file's value is no bool", err);
    set_scalar(v, raw, is_true);
    return HEARTH_OK;
}

static hearth_status set_text(const override *o, hth_gguf_value *v, bool is_new, char *raw, const char *text,
                              hearth_error *err)
{
    size_t n = strlen(o->value);
    if (is_new) v->type = HTH_GGUF_TEXT;
    if (v->type != HTH_GGUF_TEXT) return fail(text, "the file's value is no text", err);
    hth_gguf_store(raw, n, 8);
    memcpy(raw + 8, o->value, n + 1);
    v->raw = (hth_str){raw, n + 8};
    v->as.text = (hth_str){raw + 8, n};
    return HEARTH_OK;
}

/* A key that begins with a point stands behind the name of the architecture. */
static hearth_status full_key(hth_gguf *file, override *o, const char *text, hearth_error *err)
{
    hth_str arch = {0};
    hearth_status st = HEARTH_OK;
    if (*o->key.bytes == '.') {
        st = hth_gguf_get_text(file, "general.architecture", &arch, NULL, err);
        if (st == HEARTH_OK && arch.n == 0)
            st = fail(text, "the file names no architecture for this key", err);
    }
    if (st != HEARTH_OK) return st;
    char *key = hth_arena_alloc(&file->arena, arch.n + o->key.n + 1, 1, 1);
    if (!key) return hth_fail_memory(err, arch.n + o->key.n, "a metadata key");
    memcpy(key, arch.bytes ? arch.bytes : "", arch.n);
    memcpy(key + arch.n, o->key.bytes, o->key.n);
    key[arch.n + o->key.n] = '\0';
    o->key = (hth_str){key, arch.n + o->key.n};
    return HEARTH_OK;
}

hearth_status hth_gguf_override(hth_gguf *file, const char *text, hearth_error *err)
{
    static const struct {
        const char *name;
        hearth_status (*set)(const override *o, hth_gguf_value *v, bool is_new, char *raw, const char *text,
                             hearth_error *err);
    } kinds[] = {{"int", set_integer}, {"float", set_float}, {"bool", set_bool}, {"str", set_text}};
    hth_gguf_part *part = &file->parts[0];
    override o;
    hearth_status st = divide(text, &o, err);
    if (st == HEARTH_OK) st = full_key(file, &o, text, err);
    if (st != HEARTH_OK) return st;
    const hth_gguf_value *there = hth_gguf_part_find(part, o.key.bytes);
    hth_gguf_value v = there ? *there : (hth_gguf_value){.key = o.key};
    size_t size = strlen(o.value) + 9; /* bytes of a text with its length and a NUL; a scalar has 8 */
    char *raw = hth_arena_alloc(&file->arena, size, 1, 1);
    if (!raw) return hth_fail_memory(err, size, "a metadata value");
    st = fail(text, "the type before : is one of int, float, bool, str", err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_kind(&o, kinds[i].name)) st = kinds[i].set(&o, &v, !there, raw, text, err);
    if (st != HEARTH_OK) return st;
    if (!there) return hth_gguf_keep_value(part, &v, err);
    part->values[there - part->values] = v;
    return HEARTH_OK;
}
