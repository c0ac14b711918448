/* Chat formats by name: the text around messages if a file's own template is missing, cannot be parsed, or is
 * overridden. Those that llama.cpp has, too, write the same text as its formats of these names. */
#ifndef HTH_CHAT_CHAT_FORMATS_H
#define HTH_CHAT_CHAT_FORMATS_H

#include "chat/template.h"

typedef struct hth_chat_format hth_chat_format;

/* NULL if no format has the name, in which neither case nor - _ . and spaces count. */
const hth_chat_format *hth_chat_format_find(hth_str name);
/* The format that a template's text most likely implements, or NULL if no rule matches. */
const hth_chat_format *hth_chat_format_detect(hth_str source);
const char *hth_chat_format_name(const hth_chat_format *f);
/* The name of its call format. */
const char *hth_chat_format_calls(const hth_chat_format *f);
/* Returns the mark that ends reasoning, or "". */
const char *hth_chat_format_reasoning(const hth_chat_format *f);
/* Whether it writes messages of the role "tool"; if not, the user tells the results of functions. */
bool hth_chat_format_has_results(const hth_chat_format *f);
/* The i-th format by name, or NULL past the last. */
const hth_chat_format *hth_chat_format_at(size_t i);

/* Renders as hth_template_render does; of the variables only enable_thinking is used, and neither bos nor seconds. The
 * text never contains the first begin-of-text token. FORMAT: the variables are no JSON. */
hearth_status hth_chat_format_render(const hth_chat_format *f, const hth_template_input *in,
                                     hth_rendered *out, hearth_error *err);

#endif
