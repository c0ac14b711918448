/* Answers: a status and a body, mostly one line of JSON; and errors in OpenAI's form, or in that of Ollama's API.
 * Used by both threads. */
#ifndef HEARTH_APPS_SERVE_REPLY_H
#define HEARTH_APPS_SERVE_REPLY_H

#include "common/json.h"
#include "serve/exchange.h"

#include <hearth/hearth.h>

typedef struct reply {
    int status;       /* 0: no answer yet */
    const char *type; /* Content-Type; NULL: JSON */
    char *body;       /* [n], freed with free; NULL: memory ran out, or there is none */
    size_t n;
    const char *headers;  /* more lines of the head, at most 800 bytes, each with CR LF; NULL: none */
    char allow[64];       /* methods of the path, for 405; "": none */
    unsigned retry_after; /* seconds; 0: not said */
    bool close;           /* the connection ends with this answer */
} reply;

/* JSON on one line in memory: json_line_begin opens the object. */
typedef struct json_line {
    json j; /* j.out NULL: out of memory */
    char *bytes;
    size_t n;
} json_line;
bool json_line_begin(json_line *l);
/* False: out of memory. The bytes are then the caller's, freed with free. */
bool json_line_end(json_line *l, char **bytes, size_t *n);

/* The error of a request. */
typedef struct problem {
    int status;
    char param[200];  /* the field: "messages[1].content"; "": none */
    const char *code; /* "model_not_found"; NULL: none */
    char message[400];
} problem;

void problem_set(problem *p, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* By the status of a failed call of the library. */
void problem_of_error(problem *p, const hearth_error *err);
/* The folder of a file, which problem_of_error leaves out of what clients get. Before the server runs; NULL: no file. */
void problem_hide_folder(const char *path);

/* The member "error": {"message", "type", "param", "code"}. */
void problem_write(json *j, const problem *p);
/* An object with it, for Anthropic's API with "type": "error" beside it; {"error": message}
 * for Ollama's. NULL: out of memory. */
char *problem_json(const problem *p, api_form form, size_t *n);

void reply_problem(reply *r, const problem *p, api_form form);
/* Takes what the line has; 503 if memory ran out. */
void reply_line(reply *r, json_line *l);
/* The same for a line that json_array_begin opened. */
bool json_array_begin(json_line *l);
bool json_array_end(json_line *l, char **bytes, size_t *n);
void reply_array(reply *r, json_line *l);
/* The same for calls: they are then over. */
void call_problem(call *c, const problem *p);
void call_line(call *c, json_line *l);
void call_array(call *c, json_line *l);

/* "Not Found" */
const char *status_words(int status);

#endif
