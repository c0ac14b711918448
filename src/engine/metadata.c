/* Implements metadata of hearth.h: entries of the file by index and by key, with typed values. */
#include "engine/engine.h"
#include "engine/struct_size.h"

static hearth_metadata_type type_of(hth_gguf_type type)
{
    switch (type) {
    case HTH_GGUF_U8:
    case HTH_GGUF_U16:
    case HTH_GGUF_U32:
    case HTH_GGUF_U64: return HEARTH_METADATA_UNSIGNED;
    case HTH_GGUF_I8:
    case HTH_GGUF_I16:
    case HTH_GGUF_I32:
    case HTH_GGUF_I64: return HEARTH_METADATA_SIGNED;
    case HTH_GGUF_F32:
    case HTH_GGUF_F64: return HEARTH_METADATA_FLOAT;
    case HTH_GGUF_BOOL: return HEARTH_METADATA_BOOL;
    case HTH_GGUF_TEXT: return HEARTH_METADATA_STRING;
    case HTH_GGUF_ARRAY: return HEARTH_METADATA_ARRAY;
    }
    return HEARTH_METADATA_NONE; /* the reader knows no other type */
}

static hearth_metadata entry_at(const hearth_model *m, size_t index)
{
    const hth_gguf_value *v = hth_gguf_value_at(m->file, index);
    hearth_metadata out = {.type = type_of(v->type), .index = index, .key = v->key.bytes, .n_key = v->key.n};
    switch (out.type) {
    case HEARTH_METADATA_UNSIGNED: out.as_unsigned = v->as.u; break;
    case HEARTH_METADATA_SIGNED: out.as_signed = v->as.i; break;
    case HEARTH_METADATA_FLOAT: out.as_float = v->as.f; break;
    case HEARTH_METADATA_BOOL: out.as_bool = v->as.u != 0; break;
    case HEARTH_METADATA_STRING: out.as_string = v->as.text.bytes, out.n = v->as.text.n; break;
    case HEARTH_METADATA_ARRAY: out.element_type = type_of(v->element_type), out.n = v->n_element; break;
    case HEARTH_METADATA_NONE: break;
    }
    return out;
}

static hearth_metadata element_at(const hearth_model *m, size_t index, uint64_t i)
{
    const hth_gguf_value *v = hth_gguf_value_at(m->file, index);
    hearth_metadata out = {
        .type = type_of(v->element_type), .index = index, .key = v->key.bytes, .n_key = v->key.n};
    if (out.type == HEARTH_METADATA_UNSIGNED) out.as_unsigned = hth_gguf_element_uint(v, i);
    if (out.type == HEARTH_METADATA_SIGNED) out.as_signed = hth_gguf_element_int(v, i);
    if (out.type == HEARTH_METADATA_FLOAT) out.as_float = hth_gguf_element_float(v, i);
    if (out.type == HEARTH_METADATA_BOOL) out.as_bool = hth_gguf_element_uint(v, i) != 0;
    if (out.type == HEARTH_METADATA_STRING) {
        const hth_str *texts = v->elements;
        out.as_string = texts[i].bytes, out.n = texts[i].n;
    }
    return out;
}

static bool can_write(const hearth_model *m, const hearth_metadata *to)
{
    return m && hth_engine_can_write_result(&hth_size_of_hearth_metadata, to);
}

size_t hearth_model_n_metadata(const hearth_model *m) { return m ? hth_gguf_n_value(m->file) : 0; }

hearth_status hearth_model_get_metadata(const hearth_model *m, size_t index, hearth_metadata *out)
{
    hearth_metadata all = {0};
    if (!can_write(m, out)) return HEARTH_ERROR_ARGUMENT;
    bool exists = index < hth_gguf_n_value(m->file);
    if (exists) all = entry_at(m, index);
    hth_engine_write_result(&hth_size_of_hearth_metadata, &all, out);
    return exists ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
}

hearth_status hearth_model_find_metadata(const hearth_model *m, const char *key, hearth_metadata *out)
{
    hearth_metadata all = {0};
    if (!can_write(m, out)) return HEARTH_ERROR_ARGUMENT;
    const hth_gguf_value *v = key ? hth_gguf_find(m->file, key) : NULL;
    if (v) all = entry_at(m, (size_t)(v - hth_gguf_value_at(m->file, 0)));
    hth_engine_write_result(&hth_size_of_hearth_metadata, &all, out);
    return key ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
}

hearth_status hearth_model_get_metadata_element(const hearth_model *m, size_t index, uint64_t i,
                                                hearth_metadata *out)
{
    hearth_metadata all = {0};
    if (!can_write(m, out)) return HEARTH_ERROR_ARGUMENT;
    const hth_gguf_value *v = hth_gguf_value_at(m->file, index);
    hearth_status st = v && v->type == HTH_GGUF_ARRAY && i < v->n_element ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
    if (st == HEARTH_OK && v->element_type == HTH_GGUF_ARRAY) st = HEARTH_ERROR_UNSUPPORTED;
    if (st == HEARTH_OK) all = element_at(m, index, i);
    hth_engine_write_result(&hth_size_of_hearth_metadata, &all, out);
    return st;
}
