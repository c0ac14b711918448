/* Bodies of answers. Texts of requests that come back in messages are escaped as JSON, and cut. */
#define _GNU_SOURCE
#include "serve/reply.h"

#include "common/options/field_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_SECONDS = 2 }; /* Retry-After of a 429: other requests must end first */

static bool begin_line(json_line *l, char bracket)
{
    *l = (json_line){.j.out = NULL};
    l->j.out = open_memstream(&l->bytes, &l->n);
    if (l->j.out) json_open_compact(&l->j, NULL, bracket);
    return l->j.out != NULL;
}

static bool end(json_line *l, char bracket, char **bytes, size_t *n)
{
    *bytes = NULL;
    *n = 0;
    if (!l->j.out) return false;
    json_close(&l->j, bracket);
    fputc('\n', l->j.out);
    bool failed = l->j.failed || ferror(l->j.out) != 0;
    if (fclose(l->j.out) != 0) failed = true;
    l->j.out = NULL;
    if (failed) {
        free(l->bytes);
        return false;
    }
    *bytes = l->bytes;
    *n = l->n;
    return true;
}

bool json_line_begin(json_line *l) { return begin_line(l, '{'); }
bool json_array_begin(json_line *l) { return begin_line(l, '['); }
bool json_line_end(json_line *l, char **bytes, size_t *n) { return end(l, '}', bytes, n); }
bool json_array_end(json_line *l, char **bytes, size_t *n) { return end(l, ']', bytes, n); }

/* ---- errors -------------------------------------------------------------------------------------------- */

void problem_set(problem *p, int status, const char *param, const char *format, ...)
{
    va_list list;
    *p = (problem){.status = status};
    snprintf(p->param, sizeof p->param, "%s", param);
    va_start(list, format);
    vsnprintf(p->message, sizeof p->message, format, list);
    va_end(list);
}

static struct {
    char folder[1024]; /* with the slash at its end */
    size_t n;
} hidden[72];
static size_t n_hidden;

void problem_hide_folder(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    size_t n = slash ? (size_t)(slash + 1 - path) : 0;
    bool is_known = n < 2 || n >= sizeof hidden->folder || n_hidden == sizeof hidden / sizeof *hidden;
    for (size_t i = 0; !is_known && i < n_hidden; i++)
        is_known = hidden[i].n == n && memcmp(hidden[i].folder, path, n) == 0;
    if (is_known) return;
    memcpy(hidden[n_hidden].folder, path, n);
    hidden[n_hidden++].n = n;
}

static void hide_folders(char *message)
{
    for (size_t i = 0; i < n_hidden; i++)
        for (char *at; (at = strstr(message, hidden[i].folder));)
            memmove(at, at + hidden[i].n, strlen(at + hidden[i].n) + 1);
}

void problem_of_error(problem *p, const hearth_error *err)
{
    int status = 500;
    if (err->status == HEARTH_ERROR_MEMORY || err->status == HEARTH_ERROR_CANCELLED) status = 503;
    if (err->status == HEARTH_ERROR_ARGUMENT || err->status == HEARTH_ERROR_UNSUPPORTED ||
        err->status == HEARTH_ERROR_CONTEXT || err->status == HEARTH_ERROR_FORMAT)
        status = 400;
    problem_set(p, status, "", "%s", with_options(err->message).text);
    hide_folders(p->message);
    if (err->status == HEARTH_ERROR_CONTEXT) p->code = "context_length_exceeded";
}

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408: return "timeout_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    case 501: return "invalid_request_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void optional_word(json *j, const char *key, const char *word)
{
    if (word && *word) json_word(j, key, word);
    else json_put_null(j, key);
}

void problem_write(json *j, const problem *p)
{
    json_open_compact(j, "error", '{');
    json_word(j, "message", p->message);
    json_word(j, "type", type_of(p->status));
    optional_word(j, "param", p->param);
    optional_word(j, "code", p->code);
    json_close(j, '}');
}

char *problem_json(const problem *p, api_form form, size_t *n)
{
    json_line l;
    char *bytes;
    if (!json_line_begin(&l)) return *n = 0, NULL;
    if (form == FORM_OLLAMA) {
        json_word(&l.j, "error", p->message);
    } else {
        if (form == FORM_ANTHROPIC) json_word(&l.j, "type", "error");
        problem_write(&l.j, p);
    }
    json_line_end(&l, &bytes, n);
    return bytes;
}

void reply_problem(reply *r, const problem *p, api_form form)
{
    r->status = p->status;
    r->body = problem_json(p, form, &r->n);
}

void reply_line(reply *r, json_line *l) { r->status = json_line_end(l, &r->body, &r->n) ? 200 : 503; }

void reply_array(reply *r, json_line *l) { r->status = end(l, ']', &r->body, &r->n) ? 200 : 503; }

void call_problem(call *c, const problem *p)
{
    size_t n;
    char *bytes = problem_json(p, c->form, &n);
    call_reply_later(c, p->status, p->status == 429 ? RETRY_SECONDS : 0, bytes, n);
}

static void reply_ended(call *c, json_line *l, char bracket)
{
    char *bytes;
    size_t n;
    bool ok = end(l, bracket, &bytes, &n);
    call_reply(c, ok ? 200 : 503, bytes, n);
}

void call_line(call *c, json_line *l) { reply_ended(c, l, '}'); }
void call_array(call *c, json_line *l) { reply_ended(c, l, ']'); }

const char *status_words(int status)
{
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    default: return "Status";
    }
}
