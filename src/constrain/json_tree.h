/* A JSON document as a tree whose objects keep the order of their members. Its reader is jansson's; a build without
 * jansson reads none (json_tree_none.c). */
#ifndef HTH_CONSTRAIN_JSON_TREE_H
#define HTH_CONSTRAIN_JSON_TREE_H

#include "base/alloc.h"
#include "base/status.h"
#include "file/gguf.h"

/* Levels of nested lists and objects. */
enum { HTH_JSON_MAX_DEPTH = 128 };

typedef enum hth_json_kind {
    HTH_JSON_NULL,
    HTH_JSON_FALSE,
    HTH_JSON_TRUE,
    HTH_JSON_INTEGER,
    HTH_JSON_REAL, /* with a point or an exponent */
    HTH_JSON_TEXT,
    HTH_JSON_ARRAY,
    HTH_JSON_OBJECT,
} hth_json_kind;

typedef struct hth_json hth_json;
struct hth_json {
    hth_json_kind kind;
    uint32_t n, index; /* of its values; of itself in its parent */
    hth_str key;       /* in its parent, if that is an object */
    hth_str text;      /* TEXT; REAL: the shortest text of that number */
    int64_t integer;
    double real; /* of both kinds of numbers */
    hth_json *parent, *child, *next;
};

/* Reads n bytes, all of them one value; the tree lies in the arena. FORMAT: no JSON, an object with the same name
 * twice, a character U+0000; UNSUPPORTED: nested too deeply, or a build without jansson; MEMORY. */
hearth_status hth_json_read(hth_arena *arena, const char *text, size_t n, hth_json **out, hearth_error *err);

/* Whether this build reads JSON. */
bool hth_json_is_read(void);

/* The member of an object; NULL: there is none, or it is no object. */
static inline const hth_json *hth_json_member(const hth_json *object, const char *name)
{
    const hth_json *v = object->kind == HTH_JSON_OBJECT ? object->child : NULL;
    while (v && !hth_str_eq(v->key, name)) v = v->next;
    return v;
}

#endif
