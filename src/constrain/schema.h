/* Parts of the compiler of JSON schemas. Private to schema.c, schema_merge.c, schema_object.c. */
#ifndef HTH_CONSTRAIN_SCHEMA_H
#define HTH_CONSTRAIN_SCHEMA_H

#include "constrain/constraint.h"
#include "constrain/json_rules.h"

/* Schemas that must all hold, properties of an object, and sets of schemas in all. */
enum { HTH_SCHEMA_MAX_JOINED = 64, HTH_SCHEMA_MAX_PROPERTIES = 4096, HTH_SCHEMA_MAX_ITEMS = 1 << 16 };

/* Keywords of a schema that were already expanded into its set of schemas. */
enum { HTH_DONE_REF = 1, HTH_DONE_ALL_OF = 2, HTH_DONE_ANY_OF = 4, HTH_DONE_ONE_OF = 8 };

typedef struct hth_schema_entry {
    const hth_json *schema;
    unsigned done;
} hth_schema_entry;

/* Schemas that a value must all satisfy. */
typedef struct hth_schema_set {
    hth_schema_entry entry[HTH_SCHEMA_MAX_JOINED];
    uint32_t n;
    bool never; /* one of them is false */
} hth_schema_set;

typedef struct hth_schema_item {
    uint32_t first, n, rule; /* range of entries; its rule */
    uint32_t hash;
} hth_schema_item;

typedef struct hth_schema_compiler {
    hth_grammar *g;
    hth_arena *names;
    hth_schema_notes *notes; /* lists unsupported keywords, which are ignored; NULL: they are errors */
    hth_json_rules rules;
    const hth_json *root;
    hth_schema_item *item; /* sets that have rules; the first n_done are compiled */
    uint32_t n_item, item_capacity, n_done;
    hth_schema_entry *entry;
    uint32_t n_entry, entry_capacity;
    uint32_t *index; /* hash table of items + 1 */
} hth_schema_compiler;

/* Types of values, as bits. A number is INTEGER | FRACTION. */
enum {
    HTH_TYPE_NULL = 1,
    HTH_TYPE_BOOLEAN = 2,
    HTH_TYPE_INTEGER = 4,
    HTH_TYPE_FRACTION = 8,
    HTH_TYPE_STRING = 16,
    HTH_TYPE_ARRAY = 32,
    HTH_TYPE_OBJECT = 64,
    HTH_ALL_TYPES = 127,
};

/* The combined constraints of a set of schemas on scalar values, and on the sizes of arrays and objects. */
typedef struct hth_schema_facts {
    unsigned types;
    const hth_json *values; /* values of enum or const; NULL: any */
    uint32_t min_length, max_length;
    const hth_json *pattern, *format;
    hth_json_range range; /* range of numbers */
    bool has_min, has_max;
    uint32_t min_items, max_items, min_properties, max_properties;
} hth_schema_facts;

/* Keeps a failure that names the path of a part of the schema. */
void hth_schema_fail(hth_schema_compiler *c, hearth_status status, const hth_json *at, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));
/* A keyword, of which `at` is the value, is not supported. It fails by it; or, with notes, the keyword counts as absent
 * and the schema has to be compiled again. */
void hth_schema_drop(hth_schema_compiler *c, const hth_json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Notes that a keyword is not enforced here. Without notes nothing is said. */
void hth_schema_note(hth_schema_compiler *c, const hth_json *at, const char *what);
/* Bytes of a text that are shown in a message: at most max, of whole characters. */
int hth_schema_clip(hth_str text, size_t max);
/* Adds a schema, unless the set has it. */
void hth_schema_join(hth_schema_compiler *c, hth_schema_set *set, const hth_json *schema);
/* The rule of a set, which is compiled later. */
uint32_t hth_schema_rule(hth_schema_compiler *c, const hth_schema_set *set);

/* schema_merge.c: adds what the schemas of a set refer to and include; then what they say together. */
void hth_schema_resolve(hth_schema_compiler *c, hth_schema_set *set);
void hth_schema_get_facts(hth_schema_compiler *c, const hth_schema_set *set, hth_schema_facts *facts);
/* schema.c: the literals that have one of the types, are in every enum and equal every const: the one behind v, or the
 * first one (NULL). NULL: there are no more, or values are not listed. */
const hth_json *hth_schema_next_literal(const hth_schema_set *set, const hth_schema_facts *facts, const hth_json *v);
/* Whether a value has one of the types. */
bool hth_schema_has_type(const hth_json *value, unsigned types);
bool hth_json_same(const hth_json *a, const hth_json *b);

/* schema_object.c: objects and arrays of a set. */
uint32_t hth_schema_object(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set,
                           const hth_schema_facts *facts);
uint32_t hth_schema_array(hth_schema_compiler *c, uint32_t tail, const hth_schema_set *set,
                          const hth_schema_facts *facts);

#endif
