/* How models write reasoning and calls of functions: the marks of each family as a table, found by the text of a chat
 * template. answer.c reads what these marks divide; constrain/calls.c makes grammars of them. */
#ifndef HTH_CHAT_CALL_FORMAT_H
#define HTH_CHAT_CALL_FORMAT_H

#include "file/gguf.h"

/* How the name of a function and its arguments stand between `open` and `close`. */
typedef enum hth_call_style {
    HTH_CALL_JSON,      /* "NAME" name_end {...}: an object with a member of the name and one of the arguments */
    HTH_CALL_KEYED,     /* the same text: the name is the key of the arguments */
    HTH_CALL_NAMED,     /* NAME name_end {...} */
    HTH_CALL_ELEMENTS,  /* a mark and a value for each argument: hth_element_marks */
    HTH_CALL_LITERALS,  /* NAME name_end KEY key_end VALUE between_arguments ...: values in quotes, lists, words */
    HTH_CALL_RECIPIENT, /* as NAMED; all of the answer consists of parts, each with a line that says to whom it goes */
    HTH_CALL_HARMONY,   /* as NAMED, in a message of a channel of its own: all of the answer consists of messages */
} hth_call_style;

/* Arguments as elements: call_open NAME name_close, each argument, call_close. An argument is key_open KEY key_close
 * value_open VALUE value_close. An empty name_close: the name ends with its line. */
typedef struct hth_element_marks {
    char call_open[32], name_close[4], key_open[40], key_close[12], value_open[16], value_close[40], call_close[32];
    char key_gap[4], gap[4]; /* written behind key_close, and behind name_close and value_close */
    bool in_lines;           /* line breaks stand around a value, which are no part of it */
    bool is_typed;           /* key_gap is string="true" or string="false" */
    bool has_cdata;          /* values may stand in <![CDATA[ and ]]> */
} hth_element_marks;

/* The text of an answer with calls: first, then each call: open, the call, close, with `between` between two of them,
 * then last. Marks can be control tokens. "" is absent. A # in a mark is the number of the call. */
typedef struct hth_call_format {
    const char *name;
    hth_call_style style;
    char first[80], open[80], name_end[80], close[80], between[16], last[48];
    hth_element_marks elements;
    char key_end[4], between_arguments[4], quote[8]; /* LITERALS; a quote of several characters is the only one */
    bool is_sorted;                                  /* the members of objects stand in the order of their names */
    bool one;     /* the template can write one call in an answer */
    bool is_bare; /* a call may stand without its mark where an answer begins */
    char text_open[32], text_close[32]; /* around the text of an answer without calls */
    char mark[48], end_mark[48];        /* texts that an answer is searched for: begin and end of a call */
    char other_mark[2][40];             /* around all calls, or around text */
    char name_mark[32];                 /* what stands between mark and name */
} hth_call_format;

/* Whether calls stand in an array. */
bool hth_call_format_is_list(const hth_call_format *f);

/* NULL: the template shows no functions. */
const hth_call_format *hth_call_format_detect(hth_str template_source);
/* The format for templates that show no functions: hth_plain_messages_make tells the model about it. */
const hth_call_format *hth_call_format_plain(void);
/* NULL: no format has the name. */
const hth_call_format *hth_call_format_find(const char *name);

typedef struct hth_reasoning_marks {
    const char *open, *close;
    bool ends_at_calls; /* a mark of calls ends it too */
} hth_reasoning_marks;

/* NULL: the template has none, or they are those of Harmony. */
const hth_reasoning_marks *hth_reasoning_detect(hth_str template_source);

#endif
