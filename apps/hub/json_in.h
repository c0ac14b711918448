/* JSON from hubs and manifests, parsed by jansson: the queries that this module needs. Every query checks the
 * type; a missing value is NULL. A build without jansson reads none. */
#ifndef HEARTH_APPS_HUB_JSON_IN_H
#define HEARTH_APPS_HUB_JSON_IN_H

#include "base/status.h"

#include <stdbool.h>

typedef struct json_in json_in; /* a value; values below a document live as long as it */

/* NULL: not JSON; err has the position. Freed by json_in_free. */
json_in *json_in_read(const char *text, size_t n, hearth_error *err);
void json_in_free(json_in *document);
bool json_in_is_there(void); /* whether this build can read JSON */

const json_in *json_in_member(const json_in *object, const char *key);
bool json_in_is_array(const json_in *value);
size_t json_in_count(const json_in *array); /* 0 for anything but arrays */
const json_in *json_in_at(const json_in *array, size_t i);
const char *json_in_text(const json_in *value); /* without zero bytes inside */
bool json_in_uint(const json_in *value, uint64_t *number);

#endif
