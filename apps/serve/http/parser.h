/* The parser of HTTP messages below head.c: llhttp where the build found it, else http-parser, which it replaced.
 * Neither is made lenient. What framing.h and head.c pass they read with the same values and the same ends, but for
 * two things: http-parser refuses a header whose name begins with Transfer-Encoding, and takes no "close" from a list
 * that begins with a comma or ends with a tab, so that the connection stays open. */
#ifndef HEARTH_APPS_SERVE_HTTP_PARSER_H
#define HEARTH_APPS_SERVE_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#if HEARTH_LLHTTP
#include <llhttp.h>
typedef llhttp_t parser_state;
typedef llhttp_settings_t parser_callbacks;
#else
#include <http_parser.h>
typedef http_parser parser_state;
typedef http_parser_settings parser_callbacks;
#endif

typedef struct parser {
    parser_state state; /* callbacks get its address; its field data is `user` of parser_begin */
    const parser_callbacks *callbacks;
} parser;

void parser_begin(parser *p, const parser_callbacks *callbacks, void *user);
/* Parses the next n bytes. *n_used: fewer if a callback returned parser_stop. False: *why says what is wrong. */
bool parser_run(parser *p, const char *bytes, size_t n, size_t *n_used, const char **why);
/* A callback returns the value of this to stop: the bytes behind it are not parsed. */
int parser_stop(parser_state *s);
bool parser_keeps_alive(const parser_state *s);
/* "GET" */
const char *parser_method_name(unsigned method);

#endif
