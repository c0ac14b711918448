/* A JSON document (RFC 8259) as a tree, the only reader of JSON in the library and the program. Objects keep the order
 * of their members; of several with one name the last counts, at the place of the first, as in JavaScript and Python.
 * A surrogate without its partner is U+FFFD. Numbers keep their digits. */
#ifndef HTH_TEXT_JSON_H
#define HTH_TEXT_JSON_H

#include "base/alloc.h"
#include "base/status.h"
#include "file/gguf.h"

#include <stdbool.h>
#include <string.h>

typedef enum hth_json_kind {
    HTH_JSON_ABSENT, /* hth_json_kind_of(NULL) */
    HTH_JSON_NULL,
    HTH_JSON_BOOL,
    HTH_JSON_INTEGER, /* a whole number within int64_t, however it is written: 8, 8.0, 1e1 */
    HTH_JSON_REAL,    /* any other number */
    HTH_JSON_TEXT,
    HTH_JSON_ARRAY,
    HTH_JSON_OBJECT,
} hth_json_kind;

/* Levels of nested arrays and objects, unless a caller's limit is another one. */
enum { HTH_JSON_MAX_DEPTH = 128 };

typedef struct hth_json hth_json;
struct hth_json {
    hth_json_kind kind;
    uint32_t n, index; /* number of its values; its index in its parent */
    hth_str key;       /* its name in its parent, if that is an object; terminated */
    hth_str text;      /* TEXT: terminated, but a byte of it may be zero; numbers: as they are written */
    int64_t integer;   /* INTEGER; BOOL: 0 or 1 */
    double real;       /* a number's nearest double, which may be infinite */
    hth_json *parent, *child, *next;
};

/* Limits of a document; a field that is 0 has the default. */
typedef struct hth_json_limits {
    uint32_t max_depth; /* HTH_JSON_MAX_DEPTH */
    uint64_t max_bytes; /* memory for its values, without its text; default: no limit */
} hth_json_limits;

/* Reads n bytes, all of them one value; the tree lies in the arena and needs the text no more. limits: NULL, or as
 * above. FORMAT: no JSON; UNSUPPORTED: a limit; MEMORY. Messages of FORMAT: "no JSON: line 1 column 2: ...". */
hearth_status hth_json_read(hth_arena *arena, const char *text, size_t n, const hth_json_limits *limits,
                            hth_json **out, hearth_error *err);

/* The same with a memory of its own, freed by hth_json_close. NULL: an error. */
hth_json *hth_json_open(const char *text, size_t n, const hth_json_limits *limits, hearth_error *err);
void hth_json_close(hth_json *document);

/* The value as one line, terminated. spaced: with a space behind ',' and ':', as Python and most models write it. n, if
 * it is not NULL, is set to the length. NULL: no memory. Freed by hth_free. */
char *hth_json_write(const hth_json *value, bool spaced, size_t *n);

/* ---- questions: a value that is NULL is absent -------------------------------------------------------- */

static inline hth_json_kind hth_json_kind_of(const hth_json *v) { return v ? v->kind : HTH_JSON_ABSENT; }
static inline bool hth_json_is_number(const hth_json *v)
{
    return hth_json_kind_of(v) == HTH_JSON_INTEGER || hth_json_kind_of(v) == HTH_JSON_REAL;
}

/* v may be NULL. */
static inline bool hth_json_is_word(const hth_json *v, const char *word)
{
    return hth_json_kind_of(v) == HTH_JSON_TEXT && hth_str_eq(v->text, word);
}

static inline bool hth_json_is_true(const hth_json *v)
{
    return hth_json_kind_of(v) == HTH_JSON_BOOL && v->integer;
}

/* The first value of an array or object, whose others follow by `next`; NULL: there is none. */
static inline const hth_json *hth_json_first(const hth_json *v) { return v ? v->child : NULL; }
static inline size_t hth_json_count(const hth_json *v) { return v ? v->n : 0; }

/* The member of an object; NULL: there is none, or it is no object. */
static inline const hth_json *hth_json_member(const hth_json *object, const char *name)
{
    const hth_json *v = hth_json_kind_of(object) == HTH_JSON_OBJECT ? object->child : NULL;
    while (v && !hth_str_eq(v->key, name)) v = v->next;
    return v;
}

/* The value that a pointer as "#/a/0/b" names from root on; NULL: there is none, or it is no such pointer. */
const hth_json *hth_json_at(const hth_json *root, hth_str pointer);

/* A text in which no byte is zero, terminated; NULL: it is something else. */
static inline const char *hth_json_text(const hth_json *v)
{
    return hth_json_kind_of(v) == HTH_JSON_TEXT && strlen(v->text.bytes) == v->text.n ? v->text.bytes : NULL;
}

#endif
