/* In place of json_tree_jansson.c in a build without jansson: JSON schemas are refused by name. */
#include "constrain/json_tree.h"

bool hth_json_is_read(void) { return false; }

hearth_status hth_json_read(hth_arena *arena, const char *text, size_t n, hth_json **out, hearth_error *err)
{
    (void)arena, (void)text, (void)n;
    *out = NULL;
    return hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED,
        "this build reads no JSON schemas: it was made without jansson; install that, and build again");
}
