/* Chat formats by name: what to write around messages where a file's own template is
 * missing, cannot be parsed, or is not wanted. They write what llama.cpp's formats of
 * the same names write. */
#ifndef HTH_TEXT_CHAT_FORMATS_H
#define HTH_TEXT_CHAT_FORMATS_H

#include "chat/template.h"

typedef struct hth_chat_format hth_chat_format;

/* NULL where no format has the name. */
const hth_chat_format *hth_chat_format_find(hth_str name);
/* The format that a template's text most likely means, or NULL: nothing is guessed. */
const hth_chat_format *hth_chat_format_detect(hth_str source);
const char *hth_chat_format_name(const hth_chat_format *f);
/* The i-th by name, or NULL behind the last. */
const hth_chat_format *hth_chat_format_at(size_t i);

/* As hth_template_render; bos, seconds and variables are not used. The first
 * begin-of-text token is never in the text. */
hearth_status hth_chat_format_render(const hth_chat_format *f, const hth_template_input *in,
                                     hth_rendered *out, hearth_error *err);

#endif
