/* Chat formats by name: the text around messages if a file's own template is missing, cannot be parsed, or is
 * overridden. They write the same text as llama.cpp's formats of the same names. */
#ifndef HTH_CHAT_CHAT_FORMATS_H
#define HTH_CHAT_CHAT_FORMATS_H

#include "chat/template.h"

typedef struct hth_chat_format hth_chat_format;

/* NULL if no format has the name. */
const hth_chat_format *hth_chat_format_find(hth_str name);
/* The format that a template's text most likely implements, or NULL if no rule matches. */
const hth_chat_format *hth_chat_format_detect(hth_str source);
const char *hth_chat_format_name(const hth_chat_format *f);
/* The i-th format by name, or NULL past the last. */
const hth_chat_format *hth_chat_format_at(size_t i);

/* As hth_template_render; bos, seconds and variables are not used. The text never contains the first begin-of-text
 * token. */
hearth_status hth_chat_format_render(const hth_chat_format *f, const hth_template_input *in,
                                     hth_rendered *out, hearth_error *err);

#endif
