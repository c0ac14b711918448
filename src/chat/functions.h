/* The functions that a model may call, as JSON in OpenAI's form: [{"type": "function", "function": {"name",
 * "description", "parameters"}}]; and how a model is told of them whose template shows none. */
#ifndef HTH_CHAT_FUNCTIONS_H
#define HTH_CHAT_FUNCTIONS_H

#include "base/alloc.h"
#include "chat/call_format.h"
#include "chat/template.h"
#include "text/json.h"

/* Whether a function of that name is among them. tools: NULL, or terminated. *has_memory becomes false if memory ran
 * out. */
bool hth_function_is_given(const char *tools, hth_str function, bool *has_memory);
/* Whether the schema of a function says that a value of an argument is a text. false also if it says nothing. */
bool hth_function_takes_text(const char *tools, hth_str function, hth_str argument, hth_str value, bool *has_memory);
/* The schema behind references, which begin at root; NULL: they lead nowhere. */
const hth_json *hth_schema_target(const hth_json *root, const hth_json *schema);
/* Whether a schema takes texts: by its type, its values, or one of the schemas that it combines. value: whether it takes
 * this one as a text; NULL: any. */
bool hth_schema_takes_text(const hth_json *root, const hth_json *schema, const hth_str *value);
/* Whether a text is one JSON value. */
bool hth_is_json(const char *text, size_t n, bool *has_memory);
/* FORMAT: a text, which may be NULL or empty, is no JSON, or neither an array nor an object as is expected; name: its field. MEMORY;
 * UNSUPPORTED: beyond the limits of templates. */
hearth_status hth_check_json(const char *name, const char *text, bool is_array, hearth_error *err);

/* Conversations for templates that show no functions: tools become a text of the system's, calls the text of a format,
 * and results a text of the user's, unless the template has messages of the role "tool". */
typedef struct hth_plain_messages {
    hth_message *at;
    size_t n;
    hth_arena arena;
} hth_plain_messages;

/* FORMAT: tools or members are no such JSON; MEMORY. */
hearth_status hth_plain_messages_make(const hth_message *messages, size_t n, hth_str tools, const hth_call_format *format,
                                      bool keeps_results, hth_plain_messages *out, hearth_error *err);
/* Conversations for templates that show functions, but no calls: calls become the text that their format has for them. */
hearth_status hth_calls_as_text(const hth_message *messages, size_t n, const hth_call_format *format,
                                hth_plain_messages *out, hearth_error *err);
void hth_plain_messages_free(hth_plain_messages *m);

#endif
