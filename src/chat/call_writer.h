/* Writes calls of functions in a format, for templates that show none. */
#ifndef HTH_CHAT_CALL_WRITER_H
#define HTH_CHAT_CALL_WRITER_H

#include "chat/call_format.h"
#include "chat/jinja.h"
#include "text/json.h"

typedef struct hth_call_writer {
    hth_jinja *j;
    hth_jinja_strbuf *b;
    const hth_call_format *format;
    uint32_t n_call;
} hth_call_writer;

/* The next call. Arguments are the text of a JSON object; another text is the member `arguments` where members are
 * written one by one. False: j has the error. */
bool hth_call_write(hth_call_writer *w, hth_str name, hth_str arguments);
/* Behind the last call. */
bool hth_calls_end(hth_call_writer *w);

#endif
