/* HTTP with libcurl (7.85 and later): one handle, one request at a time. */
#define _GNU_SOURCE
#include "hub/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool hub_http_escape(char *out, size_t n_out, const char *text, bool whole_path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    size_t n = 0;
    for (; *text; text++) {
        if (n + 4 > n_out) return false;
        if (strchr(plain, *text) || (whole_path && *text == '/')) out[n++] = *text;
        else n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*text);
    }
    if (n >= n_out) return false;
    out[n] = '\0';
    return true;
}

bool hub_http_may_pass(const hub_reply *reply)
{
    return reply->status == 408 || reply->status == 429 || (reply->status >= 500 && reply->status != 501);
}

#if HEARTH_CURL

#include <curl/curl.h>

enum { MAX_REDIRECTS = 8, MAX_WAIT = 600, MAX_ERROR_BODY = 1 << 20 };

struct hub_http {
    CURL *curl;
    hub_pull_options options;
    char endpoint[1024], token[1024];
    bool has_answered; /* one request succeeded, so the address is right and a retry may help */
    char problem[CURL_ERROR_SIZE];
};

/* State of one request. */
typedef struct request {
    hub_http *http;
    hub_take_fn *take;
    void *user;
    hub_reply *reply;
    uint64_t n_ignored;
    bool is_stopped;
    char location[4096];
} request;

const char *hub_http_endpoint(const hub_http *http) { return http->endpoint; }
bool hub_http_has_token(const hub_http *http) { return http->token[0] != '\0'; }

/* ---- open ---------------------------------------------------------------------------------------------- */

static hearth_status read_environment(hub_http *h, hearth_error *err)
{
    const char *endpoint = hub_variable("HF_ENDPOINT"), *token = hub_variable("HF_TOKEN");
    if (!endpoint) endpoint = HUB_ENDPOINT;
    size_t n = strlen(endpoint), n_token = token ? strlen(token) : 0;
    while (n > 0 && endpoint[n - 1] == '/') n--;
    if (n >= sizeof h->endpoint ||
        (strncmp(endpoint, "https://", 8) != 0 && strncmp(endpoint, "http://", 7) != 0))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "HF_ENDPOINT '%s': is no address; expected https://HOST",
                        endpoint);
    snprintf(h->endpoint, sizeof h->endpoint, "%.*s", (int)n, endpoint);
    while (n_token > 0 && strchr(" \t\r\n", token[n_token - 1])) n_token--; /* as text files end */
    bool is_token = n_token < sizeof h->token;
    for (size_t i = 0; i < n_token; i++) /* a line break would start another header */
        if ((unsigned char)token[i] <= 0x20 || (unsigned char)token[i] >= 0x7f) is_token = false;
    if (!is_token) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "HF_TOKEN: holds what no token can hold");
    if (n_token > 0) snprintf(h->token, sizeof h->token, "%.*s", (int)n_token, token);
    return HEARTH_OK;
}

hearth_status hub_http_open(const hub_pull_options *options, hub_http **out, hearth_error *err)
{
    hub_http *h = calloc(1, sizeof *h);
    if (!h) return hth_fail_memory(err, sizeof *h, "a connection");
    h->options = *options;
    hearth_status st = read_environment(h, err);
    if (st == HEARTH_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "libcurl does not start");
    else if (st == HEARTH_OK && !(h->curl = curl_easy_init()))
        st = hth_fail_memory(err, sizeof *h, "a connection");
    if (st == HEARTH_OK) *out = h;
    else free(h);
    return st;
}

void hub_http_close(hub_http *http)
{
    if (!http) return;
    curl_easy_cleanup(http->curl);
    curl_global_cleanup();
    free(http);
}

/* ---- response headers ------------------------------------------------------------------------------------ */

/* Copies a header's value, truncated to n bytes, if the line has that name. */
static bool header(const char *line, size_t n_line, const char *name, char *value, size_t n)
{
    size_t n_name = strlen(name), from = n_name + 1;
    char head[64];
    if (n_line <= from || line[n_name] != ':' || n_name >= sizeof head) return false;
    snprintf(head, sizeof head, "%.*s", (int)n_name, line);
    if (!hub_equal(head, name)) return false;
    while (from < n_line && strchr(" \t", line[from])) from++;
    while (n_line > from && strchr(" \t\r\n", line[n_line - 1])) n_line--;
    if (n_line - from >= n) return value[0] = '\0', true;
    memcpy(value, line + from, n_line - from);
    value[n_line - from] = '\0';
    return true;
}

static bool read_number(const char **text, uint64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    *value = strtoull(*text, &end, 10);
    *text = end;
    return true;
}

/* "bytes 100-199/200" */
static void read_range(const char *text, hub_reply *r)
{
    uint64_t to;
    if (strncmp(text, "bytes ", 6) != 0) return;
    text += 6;
    r->has_range = read_number(&text, &r->range_from) && *text++ == '-' && read_number(&text, &to) &&
                   *text++ == '/' && read_number(&text, &r->range_total);
}

/* <https://...>; rel="next" */
static void read_link(const char *text, hub_reply *r)
{
    const char *rel = strstr(text, "rel=\"next\""), *from = rel;
    while (from && from > text && *from != '<') from--;
    if (!from || *from != '<') return;
    size_t n = strcspn(from + 1, ">");
    if (n < sizeof r->link) snprintf(r->link, sizeof r->link, "%.*s", (int)n, from + 1);
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    request *q = user;
    hub_reply *r = q->reply;
    char value[4096];
    const char *number = value;
    n *= size;
    if (n > 5 && memcmp(line, "HTTP/", 5) == 0) { /* another response: the following headers describe its body */
        r->has_length = r->has_range = false;
        r->code[0] = r->link[0] = q->location[0] = '\0';
    } else if (header(line, n, "x-error-code", value, sizeof value)) {
        snprintf(r->code, sizeof r->code, "%.60s", value);
    } else if (header(line, n, "x-linked-size", value, sizeof value)) {
        read_number(&number, &r->linked_size);
    } else if (header(line, n, "content-length", value, sizeof value)) {
        r->has_length = read_number(&number, &r->length);
    } else if (header(line, n, "content-range", value, sizeof value)) {
        read_range(value, r);
    } else if (header(line, n, "link", value, sizeof value)) {
        read_link(value, r);
    } else if (header(line, n, "location", value, sizeof value)) {
        snprintf(q->location, sizeof q->location, "%s", value);
    }
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    request *q = user;
    n *= size;
    curl_easy_getinfo(q->http->curl, CURLINFO_RESPONSE_CODE, &q->reply->status);
    if (q->reply->status == 200 || q->reply->status == 206) {
        q->is_stopped = !q->take(q->user, q->reply, (const uint8_t *)bytes, n);
        return q->is_stopped ? 0 : n;
    }
    q->n_ignored += n;
    return q->n_ignored > MAX_ERROR_BODY ? 0 : n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const hub_http *h = user;
    (void)a, (void)b, (void)c, (void)d;
    return h->options.watch.progress(h->options.watch.user, 0, 0) ? 0 : 1;
}

/* ---- one request ----------------------------------------------------------------------------------------- */

/* Whether two addresses have the same scheme, host and port. */
static bool same_origin(const char *a, const char *b)
{
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *x = curl_url(), *y = curl_url();
    bool same = x && y && curl_url_set(x, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_url_set(y, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (size_t i = 0; same && i < 3; i++) {
        char *p = NULL, *q = NULL;
        same = curl_url_get(x, parts[i], &p, CURLU_DEFAULT_PORT) == CURLUE_OK &&
               curl_url_get(y, parts[i], &q, CURLU_DEFAULT_PORT) == CURLUE_OK && hub_equal(p, q);
        curl_free(p);
        curl_free(q);
    }
    curl_url_cleanup(x);
    curl_url_cleanup(y);
    return same;
}

/* Resolves a redirect to a full URL. False: no target, or from https to http. */
static bool resolve_redirect(char url[HUB_PATH], const char *location)
{
    CURLU *u = curl_url();
    char *whole = NULL;
    bool was_safe = strncmp(url, "https://", 8) == 0;
    bool good = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_URL, &whole, 0) == CURLUE_OK &&
                (strncmp(whole, "https://", 8) == 0 || (!was_safe && strncmp(whole, "http://", 7) == 0)) &&
                hub_path(url, "%s", whole);
    curl_free(whole);
    curl_url_cleanup(u);
    return good;
}

static CURLcode perform(request *q, const char *url, uint64_t from)
{
    hub_http *h = q->http;
    char range[32], bearer[1100];
    struct curl_slist *headers = NULL;
    curl_easy_reset(h->curl);
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h->curl, CURLOPT_USERAGENT, "hearth");
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->curl, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, h->problem);
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT, (long)h->options.timeout_s);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_TIME, (long)h->options.timeout_s);
    curl_easy_setopt(h->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h->curl, CURLOPT_HEADERDATA, q);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, q);
    curl_easy_setopt(h->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(h->curl, CURLOPT_XFERINFODATA, h);
    /* No If-Range: the part is named by the hash of the content, and the complete file is verified. Content
     * hosts have their own etags, by which they would send everything again. */
    snprintf(range, sizeof range, "%llu-", (unsigned long long)from);
    if (from > 0) curl_easy_setopt(h->curl, CURLOPT_RANGE, range);
    if (h->token[0] && same_origin(url, h->endpoint)) {
        snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", h->token);
        headers = curl_slist_append(NULL, bearer);
        curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
    }
    h->problem[0] = '\0';
    CURLcode code = curl_easy_perform(h->curl);
    curl_off_t after = 0;
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &q->reply->status);
    curl_easy_getinfo(h->curl, CURLINFO_RETRY_AFTER, &after);
    q->reply->retry_after = after > 100000 ? 100000 : (long)after;
    curl_slist_free_all(headers);
    return code;
}

/* The server's name, for messages. URLs of content hosts are long and contain signatures. */
static const char *host_of(const char *url, char out[300])
{
    const char *p = strstr(url, "://");
    p = p ? p + 3 : url;
    snprintf(out, 300, "%.*s", (int)(strcspn(p, "/?") < 290 ? strcspn(p, "/?") : 290), p);
    return out;
}

static hub_outcome outcome_of(const request *q, CURLcode code, const char *url, hearth_error *err)
{
    const hub_http *h = q->http;
    char host[300];
    switch (code) {
    case CURLE_OK: return HUB_ANSWERED;
    case CURLE_ABORTED_BY_CALLBACK: hth_fail(err, HEARTH_ERROR_CANCELLED, "stopped"); return HUB_FAILED;
    case CURLE_WRITE_ERROR:
        if (q->is_stopped) return HUB_STOPPED;
        hth_fail(err, HEARTH_ERROR_FORMAT, "%s: answers %ld with endless words", host_of(url, host),
                 q->reply->status);
        return HUB_FAILED;
    default: break;
    }
    hth_fail(err, HEARTH_ERROR_IO, "%s: %s", host_of(url, host),
             h->problem[0] ? h->problem : curl_easy_strerror(code));
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: return h->has_answered ? HUB_BROKEN : HUB_FAILED;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return HUB_BROKEN;
    default: return HUB_FAILED;
    }
}

hub_outcome hub_http_get(hub_http *http, const char *url, uint64_t from, hub_take_fn *take, void *user,
                         hub_reply *reply, hearth_error *err)
{
    char at[HUB_PATH];
    request q = {.http = http, .take = take, .user = user, .reply = reply};
    *reply = (hub_reply){.status = 0};
    if (!hub_path(at, "%s", url)) {
        hth_fail(err, HEARTH_ERROR_ARGUMENT, "an address is too long");
        return HUB_FAILED;
    }
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        hub_outcome outcome = outcome_of(&q, perform(&q, at, from), at, err);
        if (reply->status > 0) http->has_answered = true;
        bool is_redirect = reply->status >= 301 && reply->status <= 308 && reply->status != 304;
        if (outcome != HUB_ANSWERED || !is_redirect) return outcome;
        if (!q.location[0] || !resolve_redirect(at, q.location)) {
            hth_fail(err, HEARTH_ERROR_FORMAT, "%s: redirects to '%.200s', where hearth does not go", url,
                     q.location);
            return HUB_FAILED;
        }
    }
    hth_fail(err, HEARTH_ERROR_FORMAT, "%s: redirects more than %d times", url, MAX_REDIRECTS);
    return HUB_FAILED;
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

static bool sleep_watched(const hub_http *h, long seconds)
{
    const struct timespec tenth = {.tv_nsec = 100000000};
    for (long i = 0; i < 10 * seconds; i++) {
        if (!h->options.watch.progress(h->options.watch.user, 0, 0)) return false;
        nanosleep(&tenth, NULL);
    }
    return true;
}

bool hub_http_wait(hub_http *http, const char *what, const hub_reply *reply, hub_outcome outcome,
                   unsigned *n_try, hearth_error *err)
{
    char line[400], why[300], shown[300];
    const hub_watch *w = &http->options.watch;
    bool asked = outcome == HUB_ANSWERED && reply->retry_after > 0;
    long seconds = asked ? reply->retry_after : 1L << (*n_try < 5 ? *n_try : 5);
    if (outcome == HUB_ANSWERED) snprintf(why, sizeof why, "the server answers %ld", reply->status);
    else snprintf(why, sizeof why, "%.280s", err->message);
    if (asked && seconds > MAX_WAIT) {
        hth_fail(err, HEARTH_ERROR_IO, "%s: %s, and asks to wait for %ld s; try again later", what, why,
                 seconds);
        return false;
    }
    if (*n_try >= http->options.n_retry) {
        hth_fail(err, HEARTH_ERROR_IO,
                 "%s: %s, after %u more attempts; what came is kept: try again later (hearth rm ORG/NAME "
                 "removes it)",
                 what, why, *n_try);
        return false;
    }
    ++*n_try;
    hth_escape(shown, sizeof shown, why, strlen(why));
    snprintf(line, sizeof line, "%s; trying again in %ld s (%u of %u)", shown, seconds, *n_try,
             http->options.n_retry);
    w->say(w->user, line);
    if (sleep_watched(http, seconds)) return true;
    hth_fail(err, HEARTH_ERROR_CANCELLED, "stopped");
    return false;
}

#else

const char *hub_http_endpoint(const hub_http *http) { return (const char *)http; }
bool hub_http_has_token(const hub_http *http) { return http != NULL; }
void hub_http_close(hub_http *http) { (void)http; }

hearth_status hub_http_open(const hub_pull_options *options, hub_http **out, hearth_error *err)
{
    (void)options;
    *out = NULL;
    return hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED,
        "this hearth was built without libcurl, which pull needs: install it with its headers, and "
        "build again");
}

hub_outcome hub_http_get(hub_http *http, const char *url, uint64_t from, hub_take_fn *take, void *user,
                         hub_reply *reply, hearth_error *err)
{
    (void)http, (void)from, (void)take, (void)user, (void)reply;
    hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: no libcurl", url);
    return HUB_FAILED;
}

bool hub_http_wait(hub_http *http, const char *what, const hub_reply *reply, hub_outcome outcome,
                   unsigned *n_try, hearth_error *err)
{
    (void)http, (void)what, (void)reply, (void)outcome, (void)n_try, (void)err;
    return false;
}

#endif
