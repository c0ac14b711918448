/* JSON from hubs, manifests and requests of a server, parsed by jansson: the queries that the apps need. Every query
 * checks the type; a missing value is NULL. A build without jansson reads none. */
#ifndef HEARTH_APPS_HUB_JSON_IN_H
#define HEARTH_APPS_HUB_JSON_IN_H

#include "base/status.h"

#include <stdbool.h>

typedef struct json_in json_in; /* a value; values below a document live as long as it */

/* NULL: not JSON (FORMAT; err has the position), or MEMORY. Freed by json_in_free. */
json_in *json_in_read(const char *text, size_t n, hearth_error *err);
void json_in_free(json_in *document);
bool json_in_is_there(void); /* whether this build can read JSON */

const json_in *json_in_member(const json_in *object, const char *key);
bool json_in_is_array(const json_in *value);
size_t json_in_count(const json_in *array); /* 0 for anything but arrays */
const json_in *json_in_at(const json_in *array, size_t i);
const char *json_in_text(const json_in *value); /* without zero bytes inside */
bool json_in_uint(const json_in *value, uint64_t *number);

typedef enum json_in_kind {
    JSON_IN_ABSENT,
    JSON_IN_NULL,
    JSON_IN_BOOL,
    JSON_IN_INTEGER,
    JSON_IN_REAL,
    JSON_IN_TEXT,
    JSON_IN_ARRAY,
    JSON_IN_OBJECT
} json_in_kind;
json_in_kind json_in_kind_of(const json_in *value);
bool json_in_bool(const json_in *value);       /* of a JSON_IN_BOOL */
int64_t json_in_integer(const json_in *value); /* of a JSON_IN_INTEGER */
double json_in_number(const json_in *value);   /* of a JSON_IN_INTEGER or JSON_IN_REAL */
const char *json_in_bytes(const json_in *value, size_t *n); /* of a JSON_IN_TEXT: n bytes, terminated */
size_t json_in_size(const json_in *object); /* members; 0 for anything but objects */
/* Calls fn for each member of an object, in any order, until it returns false. */
typedef bool json_in_member_fn(void *user, const char *key, const json_in *value);
bool json_in_each(const json_in *object, json_in_member_fn *fn, void *user);
/* The value as one line of JSON, freed with free. NULL: out of memory. */
char *json_in_write(const json_in *value);

#endif
