/* Typed lookups of metadata: other folders read values of a file only through them. A wrong kind or a value out of
 * range is reported here, with key and offset, so that callers need no checks of their own. */
#include "file/gguf_int.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- kinds ------------------------------------------------------------------------------ */

bool hth_gguf_is_unsigned(hth_gguf_type type)
{
    return type == HTH_GGUF_U8 || type == HTH_GGUF_U16 || type == HTH_GGUF_U32 || type == HTH_GGUF_U64;
}

bool hth_gguf_is_signed(hth_gguf_type type)
{
    return type == HTH_GGUF_I8 || type == HTH_GGUF_I16 || type == HTH_GGUF_I32 || type == HTH_GGUF_I64;
}

static bool is_float(hth_gguf_type type) { return type == HTH_GGUF_F32 || type == HTH_GGUF_F64; }

int64_t hth_gguf_load_signed(const void *bytes, size_t size)
{
    uint64_t sign = (uint64_t)1 << (8 * size - 1);
    return (int64_t)((hth_gguf_load(bytes, size) ^ sign) - sign);
}

double hth_gguf_load_float(const void *bytes, size_t size)
{
    if (size == 4) {
        uint32_t word = (uint32_t)hth_gguf_load(bytes, 4);
        float f;
        memcpy(&f, &word, sizeof f);
        return (double)f;
    }
    uint64_t word = hth_gguf_load(bytes, 8);
    double d;
    memcpy(&d, &word, sizeof d);
    return d;
}

/* ---- finding ------------------------------------------------------------------------------ */

const hth_gguf_value *hth_gguf_part_find(const hth_gguf_part *part, const char *key)
{
    uint32_t i =
        hth_file_name_find(&part->keys, part->values, sizeof *part->values, (hth_str){key, strlen(key)});
    return i == HTH_FILE_NAME_NONE ? NULL : &part->values[i];
}

const hth_gguf_value *hth_gguf_find(const hth_gguf *file, const char *key)
{
    return hth_gguf_part_find(&file->parts[0], key);
}

static hearth_status wrong_kind(const hth_gguf_part *part, const hth_gguf_value *v, const char *expected,
                                hearth_error *err)
{
    bool array = v->type == HTH_GGUF_ARRAY;
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "%s: key '%s' (at byte %" PRIu64 "): is of type %s%s%s, expected %s", part->source.label,
                    hth_gguf_show(v->key).text, v->offset, hth_gguf_type_name(v->type), array ? " of " : "",
                    array ? hth_gguf_type_name(v->element_type) : "", expected);
}

/* *v is NULL if the key is absent. */
static void look_up(const hth_gguf_part *part, const char *key, const hth_gguf_value **v, bool *found)
{
    *v = hth_gguf_part_find(part, key);
    if (found) *found = *v != NULL;
}

/* ---- scalars --------------------------------------------------------------------------------- */

hearth_status hth_gguf_part_uint(const hth_gguf_part *part, const char *key, uint64_t min, uint64_t max,
                                 uint64_t *value, bool *found, hearth_error *err)
{
    const hth_gguf_value *v;
    look_up(part, key, &v, found);
    if (!v) return HEARTH_OK;
    bool negative = hth_gguf_is_signed(v->type) && v->as.i < 0;
    if (!hth_gguf_is_signed(v->type) && !hth_gguf_is_unsigned(v->type))
        return wrong_kind(part, v, "an integer", err);
    if (negative)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: key '%s' (at byte %" PRIu64 "): is %" PRId64 ", allowed are %" PRIu64
                        " to %" PRIu64,
                        part->source.label, hth_gguf_show(v->key).text, v->offset, v->as.i, min, max);
    uint64_t u = hth_gguf_is_signed(v->type) ? (uint64_t)v->as.i : v->as.u;
    if (u < min || u > max)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: key '%s' (at byte %" PRIu64 "): is %" PRIu64 ", allowed are %" PRIu64
                        " to %" PRIu64,
                        part->source.label, hth_gguf_show(v->key).text, v->offset, u, min, max);
    *value = u;
    return HEARTH_OK;
}

hearth_status hth_gguf_get_uint(const hth_gguf *file, const char *key, uint64_t min, uint64_t max,
                                uint64_t *value, bool *found, hearth_error *err)
{
    return hth_gguf_part_uint(&file->parts[0], key, min, max, value, found, err);
}

hearth_status hth_gguf_get_float(const hth_gguf *file, const char *key, double min, double max, double *value,
                                 bool *found, hearth_error *err)
{
    const hth_gguf_part *part = &file->parts[0];
    const hth_gguf_value *v;
    look_up(part, key, &v, found);
    if (!v) return HEARTH_OK;
    if (!is_float(v->type)) return wrong_kind(part, v, "f32 or f64", err);
    if (!(v->as.f >= min && v->as.f <= max)) /* NaN too */
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: key '%s' (at byte %" PRIu64 "): is %g, allowed are %g to %g", part->source.label,
                        hth_gguf_show(v->key).text, v->offset, v->as.f, min, max);
    *value = v->as.f;
    return HEARTH_OK;
}

hearth_status hth_gguf_get_bool(const hth_gguf *file, const char *key, bool *value, bool *found,
                                hearth_error *err)
{
    const hth_gguf_value *v;
    look_up(&file->parts[0], key, &v, found);
    if (!v) return HEARTH_OK;
    if (v->type != HTH_GGUF_BOOL) return wrong_kind(&file->parts[0], v, "bool", err);
    *value = v->as.u != 0;
    return HEARTH_OK;
}

hearth_status hth_gguf_get_text(const hth_gguf *file, const char *key, hth_str *value, bool *found,
                                hearth_error *err)
{
    const hth_gguf_value *v;
    look_up(&file->parts[0], key, &v, found);
    if (!v) return HEARTH_OK;
    if (v->type != HTH_GGUF_TEXT) return wrong_kind(&file->parts[0], v, "text", err);
    *value = v->as.text;
    return HEARTH_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------ */

static hearth_status check_length(const hth_gguf_part *part, const hth_gguf_value *v, uint64_t n_expect,
                                  hearth_error *err)
{
    if (n_expect == 0 || v->n_element == n_expect) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "%s: key '%s' (at byte %" PRIu64 "): has %" PRIu64 " elements, expected %" PRIu64,
                    part->source.label, hth_gguf_show(v->key).text, v->offset, v->n_element, n_expect);
}

hearth_status hth_gguf_get_array(const hth_gguf *file, const char *key, hth_gguf_type element_type,
                                 uint64_t n_expect, const hth_gguf_value **value, hearth_error *err)
{
    const hth_gguf_part *part = &file->parts[0];
    const hth_gguf_value *v = hth_gguf_part_find(part, key);
    *value = NULL;
    if (!v) return HEARTH_OK;
    if (v->type != HTH_GGUF_ARRAY || v->element_type != element_type) {
        char expected[40];
        snprintf(expected, sizeof expected, "array of %s", hth_gguf_type_name(element_type));
        return wrong_kind(part, v, expected, err);
    }
    hearth_status status = check_length(part, v, n_expect, err);
    if (status == HEARTH_OK) *value = v;
    return status;
}

hearth_status hth_gguf_missing(const hth_gguf *file, const char *key, const char *why, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: key %s missing (needed by %s)",
                    file->parts[0].source.label, key, why);
}

/* ---- elements ------------------------------------------------------------------------------------ */

static const unsigned char *element(const hth_gguf_value *array, uint64_t i, size_t *size)
{
    *size = hth_gguf_scalar_size(array->element_type);
    return (const unsigned char *)array->elements + i * *size;
}

bool hth_gguf_is_integer(hth_gguf_type type)
{
    return hth_gguf_is_signed(type) || hth_gguf_is_unsigned(type);
}

uint64_t hth_gguf_element_uint(const hth_gguf_value *array, uint64_t i)
{
    size_t size;
    const unsigned char *bytes = element(array, i, &size);
    if (hth_gguf_is_signed(array->element_type)) return (uint64_t)hth_gguf_load_signed(bytes, size);
    return hth_gguf_load(bytes, size);
}

int64_t hth_gguf_element_int(const hth_gguf_value *array, uint64_t i)
{
    return (int64_t)hth_gguf_element_uint(array, i);
}

double hth_gguf_element_float(const hth_gguf_value *array, uint64_t i)
{
    size_t size;
    const unsigned char *bytes = element(array, i, &size);
    if (is_float(array->element_type)) return hth_gguf_load_float(bytes, size);
    if (hth_gguf_is_signed(array->element_type)) return (double)hth_gguf_load_signed(bytes, size);
    return (double)hth_gguf_load(bytes, size);
}
