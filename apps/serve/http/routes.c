/* Finds routes. Paths are compared byte by byte after decoding: neither dots nor slashes mean anything in them. */
#include "serve/http/routes.h"

#include <stdio.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* False: the path is longer than any that exists, or an escape is none. */
static bool decode(text_part target, char *path, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < target.n && target.text[i] != '?'; i++) {
        char c = target.text[i];
        if (c == '%') {
            int high = i + 2 < target.n ? hex_digit(target.text[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(target.text[i + 2]) : -1;
            if (low < 0) return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (*n == ROUTE_MAX_PATH - 1) return false;
        path[(*n)++] = c;
    }
    path[*n] = '\0';
    return true;
}

static bool matches(const char *pattern, const char *path, size_t n, const char **tail)
{
    const char *variable = strchr(pattern, '{');
    size_t fixed = variable ? (size_t)(variable - pattern) : strlen(pattern);
    *tail = path + fixed;
    return (variable ? n > fixed : n == fixed) && memcmp(path, pattern, fixed) == 0;
}

static void allow(route_match *m, const route *r)
{
    size_t n = strlen(m->allow);
    snprintf(m->allow + n, sizeof m->allow - n, "%s%s", n > 0 ? ", " : "",
             r->method == HTTP_GET ? "GET, HEAD" : parser_method_name(r->method));
}

static api_form form_of(const char *path)
{
    static const char anthropic[] = "/v1/messages";
    if (strncmp(path, "/api/", 5) == 0) return FORM_OLLAMA;
    return strncmp(path, anthropic, strlen(anthropic)) == 0 ? FORM_ANTHROPIC : FORM_OPENAI;
}

/* /llm and /llm/ are / below /llm; /llms is another path. */
static void remove_prefix(route_match *m, const char *prefix)
{
    size_t n = prefix ? strlen(prefix) : 0;
    if (n == 0 || m->n_path < n || memcmp(m->path, prefix, n) != 0) return;
    if (m->n_path == n) m->path[--n] = '/';
    else if (m->path[n] != '/') return;
    m->n_path -= n;
    memmove(m->path, m->path + n, m->n_path);
}

void route_find(const route *routes, const char *prefix, unsigned method, text_part target, route_match *out)
{
    const char *tail;
    *out = (route_match){0};
    bool decoded = decode(target, out->path, &out->n_path);
    if (!decoded) out->n_path = 0;
    remove_prefix(out, prefix);
    size_t n = out->n_path;
    if (n > 2 && out->path[n - 1] == '/' && out->path[n - 2] != '/')
        out->n_path--; /* it is the same resource */
    out->path[out->n_path] = '\0';
    if (method == HTTP_HEAD) method = HTTP_GET;
    out->form = form_of(out->path);
    for (size_t i = 0; decoded && routes[i].path; i++) {
        const route *r = &routes[i];
        if (!matches(r->path, out->path, out->n_path, &tail)) continue;
        out->known = true;
        allow(out, r);
        if (r->method != method) continue;
        out->route = r;
        out->i_route = i;
        out->tail = tail;
    }
}
