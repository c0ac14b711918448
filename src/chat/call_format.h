/* How models write reasoning and calls of functions: the marks of each family as a table, found by the text of a chat
 * template. answer.c reads what these marks divide; constrain/calls.c makes grammars of them. */
#ifndef HTH_CHAT_CALL_FORMAT_H
#define HTH_CHAT_CALL_FORMAT_H

#include "file/gguf.h"

/* How the name of a function and its arguments stand within a call. */
typedef enum hth_call_style {
    HTH_CALL_JSON,     /* {"name": "NAME", "arguments": {...}} */
    HTH_CALL_NAMED,    /* NAME, name_end, {...} */
    HTH_CALL_ELEMENTS, /* <function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function> */
    HTH_CALL_PAIRS,    /* NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n */
    HTH_CALL_HARMONY, /* as NAMED, in a message of a channel of its own: all of the answer consists of messages */
} hth_call_style;

/* The text of an answer with calls: first, then each call: open, the call, close, with `between` between two of them,
 * then last. Marks can be control tokens. "" is absent. */
typedef struct hth_call_format {
    const char *name;
    hth_call_style style;
    const char *first, *open, *close, *between, *last;
    const char *arguments;       /* JSON: the key of the arguments */
    const char *name_end;        /* NAMED */
    bool one;                    /* the template can write one call in an answer */
    const char *mark, *end_mark; /* what of it an answer is searched for: where a call begins and ends */
    const char *other_mark[2];   /* around all calls */
    const char *name_mark;       /* what stands between mark and name */
} hth_call_format;

/* NULL: the template shows no functions. */
const hth_call_format *hth_call_format_detect(hth_str template_source);
/* The format of templates that show no functions: hth_plain_messages_make tells the model about it. */
const hth_call_format *hth_call_format_plain(void);
/* That of a chat format by name; NULL: it shows no functions. */
const hth_call_format *hth_call_format_of_name(const char *chat_format);

typedef struct hth_reasoning_marks {
    const char *open, *close;
} hth_reasoning_marks;

/* NULL: the template has none, or they are those of Harmony. */
const hth_reasoning_marks *hth_reasoning_detect(hth_str template_source);

#endif
