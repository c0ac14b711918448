/* llhttp or http-parser, by the functions of parser.h. */
#include "serve/http/parser.h"

static const char *error_text(int error)
{
    switch (error) {
    case HPE_INVALID_METHOD:
    case HPE_INVALID_CONSTANT: return "invalid HTTP method"; /* constant: llhttp says so of methods of RTSP */
    case HPE_INVALID_URL: return "invalid URL";
    case HPE_INVALID_VERSION: return "invalid HTTP version";
    case HPE_INVALID_HEADER_TOKEN: return "invalid character in header";
    case HPE_UNEXPECTED_CONTENT_LENGTH: return "unexpected content-length header";
    case HPE_INVALID_CONTENT_LENGTH: return "invalid character in content-length header";
    case HPE_INVALID_TRANSFER_ENCODING: return "request has invalid transfer-encoding";
    default: return "the request cannot be parsed";
    }
}

#if HEARTH_LLHTTP
void parser_begin(parser *p, const parser_callbacks *callbacks, void *user)
{
    p->callbacks = callbacks;
    llhttp_init(&p->state, HTTP_REQUEST, callbacks);
    p->state.data = user;
}

bool parser_run(parser *p, const char *bytes, size_t n, size_t *n_used, const char **why)
{
    llhttp_errno_t error = llhttp_execute(&p->state, bytes, n);
    *n_used = error == HPE_OK ? n : (size_t)(llhttp_get_error_pos(&p->state) - bytes);
    *why = error_text((int)error);
    return error == HPE_OK || error == HPE_PAUSED;
}

int parser_stop(parser_state *s)
{
    (void)s;
    return HPE_PAUSED;
}

bool parser_keeps_alive(const parser_state *s) { return llhttp_should_keep_alive(s) != 0; }
const char *parser_method_name(unsigned method) { return llhttp_method_name((llhttp_method_t)method); }

#else
void parser_begin(parser *p, const parser_callbacks *callbacks, void *user)
{
    p->callbacks = callbacks;
    http_parser_init(&p->state, HTTP_REQUEST);
    p->state.data = user;
}

bool parser_run(parser *p, const char *bytes, size_t n, size_t *n_used, const char **why)
{
    *n_used = http_parser_execute(&p->state, p->callbacks, bytes, n);
    enum http_errno error = HTTP_PARSER_ERRNO(&p->state);
    *why = error_text((int)error);
    return error == HPE_OK || error == HPE_PAUSED;
}

int parser_stop(parser_state *s)
{
    http_parser_pause(s, 1);
    return 0;
}

bool parser_keeps_alive(const parser_state *s) { return http_should_keep_alive(s) != 0; }
const char *parser_method_name(unsigned method) { return http_method_str((enum http_method)method); }
#endif
