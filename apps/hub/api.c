/* The API of the hub: GET api/models/REPO/revision/REV (the commit), then api/models/REPO/tree/COMMIT, page by
 * page (path, size, hashes of each file). Contents are at REPO/resolve/COMMIT/PATH. */
#include "hub/api.h"

#include <stdlib.h>
#include <string.h>

/* Responses have some hundred bytes per file. */
enum { MAX_BODY = 64 << 20, MAX_FILES = 200000, MAX_PAGES = 1000 };

typedef struct body {
    char *bytes;
    size_t n, capacity;
    bool is_full;
} body;

static bool append_body(void *user, const hub_reply *reply, const uint8_t *bytes, size_t n)
{
    body *b = user;
    (void)reply;
    if (b->n + n > MAX_BODY) return b->is_full = true, false;
    if (b->n + n + 1 > b->capacity) {
        size_t capacity = 2 * (b->n + n + 1);
        char *more = realloc(b->bytes, capacity);
        if (!more) return false;
        b->bytes = more, b->capacity = capacity;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return true;
}

hearth_status hub_api_refuse(const hub_http *http, const hub_request *request, const char *file,
                             const hub_reply *reply, hearth_error *err)
{
    const char *end = hub_http_endpoint(http);
    bool has_token = hub_http_has_token(http);
    long status = reply->status;
    if (file && status == 404)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s/%s: has no file %s any more (404)", end,
                        request->repo, file);
    if (strcmp(reply->code, "RevisionNotFound") == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s/%s: has no revision '%s'", end, request->repo,
                        request->revision);
    if (strcmp(reply->code, "GatedRepo") == 0 || status == 403)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s/%s: is given only to those whom its owner lets in (%ld): ask for access on that page%s", end,
            request->repo, status,
            has_token ? "; the token in HF_TOKEN has none yet" : ", and put your token in HF_TOKEN");
    if (status == 401)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s/%s: does not exist, or is private (401): %s", end,
                        request->repo,
                        has_token ? "the token in HF_TOKEN does not open it"
                                  : "HF_TOKEN is not set; check the name, or put your token there");
    if (status == 404)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s/%s: there is no such repository, or no revision '%s' (404)", end, request->repo,
                        request->revision);
    return hth_fail(err, HEARTH_ERROR_IO, "%s/%s: the server answers %ld", end, request->repo, status);
}

/* Requests one JSON document. NULL: error in err. */
static hth_json *get(hub_http *http, const hub_request *request, const char *url, hub_reply *reply,
                    hearth_error *err)
{
    for (unsigned n_try = 0;;) {
        body b = {.n = 0};
        hub_outcome outcome = hub_http_get(http, url, 0, append_body, &b, reply, err);
        bool again = outcome == HUB_BROKEN || (outcome == HUB_ANSWERED && hub_http_may_pass(reply));
        hth_json *document = NULL;
        if (outcome == HUB_ANSWERED && reply->status == 200) {
            document = hth_json_open(b.bytes ? b.bytes : "", b.n, NULL, err);
            hearth_error why = *err;
            if (!document)
                hth_fail(err, why.status, "%s: what it says of %s is %s", hub_http_endpoint(http),
                         request->repo, why.message);
        } else if (outcome == HUB_STOPPED && b.is_full) {
            hth_fail(err, HEARTH_ERROR_FORMAT, "%s: what it says of %s has no end", hub_http_endpoint(http),
                     request->repo);
        } else if (outcome == HUB_STOPPED) {
            hth_fail_memory(err, 2 * b.n, "a list of files");
        } else if (outcome == HUB_ANSWERED && !again) {
            hub_api_refuse(http, request, NULL, reply, err);
        }
        free(b.bytes);
        if (!again || !hub_http_wait(http, request->repo, reply, outcome, &n_try, err)) return document;
    }
}

static bool is_hex(const char *text, size_t n)
{
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static bool add_file(hub_files *out, const hub_file *f)
{
    enum { N_FIRST = 64 };
    if (out->n == 0 || (out->n >= N_FIRST && (out->n & (out->n - 1)) == 0)) { /* doubled at each power of two */
        hub_file *more = realloc(out->at, (out->n ? 2 * out->n : N_FIRST) * sizeof *more);
        if (!more) return false;
        out->at = more;
    }
    out->at[out->n] = *f;
    out->at[out->n].path = malloc(strlen(f->path) + 1);
    if (!out->at[out->n].path) return false;
    strcpy(out->at[out->n++].path, f->path);
    return true;
}

/* Reads one entry of a tree. Only files of models are kept; all their fields must be valid. */
static hearth_status read_entry(const hth_json *e, const char *repo, hub_files *out, hearth_error *err)
{
    const char *type = hth_json_text(hth_json_member(e, "type")),
               *path = hth_json_text(hth_json_member(e, "path"));
    const hth_json *lfs = hth_json_member(e, "lfs");
    const char *oid = hth_json_text(hth_json_member(lfs ? lfs : e, "oid"));
    hub_file_name name;
    hub_file f = {.has_sha256 = lfs != NULL};
    if (!type || !path)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: a file without type or path is announced", repo);
    size_t n = strlen(path);
    if (strcmp(type, "file") != 0 || n < 5 || !hub_equal(path + n - 5, ".gguf")) return HEARTH_OK;
    if (!hub_is_safe_path(path))
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: announces a file '%.200s', which no cache can hold",
                        repo, path);
    if (!hub_parse_file(path, &name)) return HEARTH_OK;
    /* The size of an LFS pointer itself is not the size of the file. */
    const hth_json *size = hth_json_member(lfs ? lfs : e, "size");
    if (hth_json_kind_of(size) == HTH_JSON_INTEGER && size->integer > 0) f.size = (uint64_t)size->integer;
    if (f.size == 0 || f.size >= (uint64_t)1 << 50)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: announces no possible size of %s", repo, path);
    if (!is_hex(oid, lfs ? 64 : 40))
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: announces no hash of %s", repo, path);
    memcpy(f.etag, oid, strlen(oid) + 1);
    char copy[HUB_NAME];
    memcpy(copy, path, n + 1); /* below HUB_NAME, so it fits */
    f.path = copy;
    if (out->n >= MAX_FILES || !add_file(out, &f)) return hth_fail_memory(err, sizeof f, "a list of files");
    return HEARTH_OK;
}

static hearth_status read_commit(hub_http *http, const hub_request *request, hub_files *out,
                                 hearth_error *err)
{
    char revision[620], url[HUB_PATH];
    hub_reply reply;
    if (!hub_http_escape(revision, sizeof revision, request->revision, false) ||
        !hub_path(url, "%s/api/models/%s/revision/%s", hub_http_endpoint(http), request->repo, revision))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: makes an address that is too long", request->repo);
    hth_json *document = get(http, request, url, &reply, err);
    if (!document) return err->status;
    const char *sha = hth_json_text(hth_json_member(document, "sha"));
    bool good = is_hex(sha, 40);
    if (good) memcpy(out->commit, sha, 41);
    hth_json_close(document);
    return good ? HEARTH_OK
                : hth_fail(err, HEARTH_ERROR_FORMAT, "%s/%s: says no commit of '%s'", hub_http_endpoint(http),
                           request->repo, request->revision);
}

hearth_status hub_api_read_page(const hth_json *page, const char *repo, hub_files *out, hearth_error *err)
{
    if (hth_json_kind_of(page) != HTH_JSON_ARRAY) return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: its files are no list", repo);
    hearth_status st = HEARTH_OK;
    for (const hth_json *e = page->child; e && st == HEARTH_OK; e = e->next) st = read_entry(e, repo, out, err);
    return st;
}

/* The server sends the addresses of later pages; they must be on the same server. */
static bool is_own(const hub_http *http, const char *url)
{
    const char *end = hub_http_endpoint(http);
    size_t n = strlen(end);
    return strncmp(url, end, n) == 0 && url[n] == '/';
}

hearth_status hub_api_files(hub_http *http, const hub_request *request, hub_files *out, hearth_error *err)
{
    char url[HUB_PATH];
    hub_reply reply;
    *out = (hub_files){.n = 0};
    hearth_error none = {.status = HEARTH_OK}; /* err may be NULL elsewhere, but get reads it */
    if (!err) err = &none;
    hearth_status st = read_commit(http, request, out, err);
    if (st == HEARTH_OK && !hub_path(url, "%s/api/models/%s/tree/%s?recursive=true", hub_http_endpoint(http),
                                     request->repo, out->commit))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: makes an address that is too long", request->repo);
    for (int i = 0; st == HEARTH_OK; i++) {
        hth_json *page = get(http, request, url, &reply, err);
        st = page ? hub_api_read_page(page, request->repo, out, err) : err->status;
        hth_json_close(page);
        if (st != HEARTH_OK || !reply.link[0]) break;
        if (i >= MAX_PAGES || !is_own(http, reply.link) || !hub_path(url, "%s", reply.link))
            st = hth_fail(err, HEARTH_ERROR_FORMAT,
                          "%s: its list of files goes on at '%.200s', where hearth does not go",
                          request->repo, reply.link);
    }
    if (st == HEARTH_OK) hub_sort_files(out);
    else hub_free_files(out);
    return st;
}

bool hub_api_url(const hub_http *http, const hub_request *request, const hub_files *files, const char *path,
                 char url[HUB_PATH])
{
    char escaped[3 * HUB_NAME];
    return hub_http_escape(escaped, sizeof escaped, path, true) &&
           hub_path(url, "%s/%s/resolve/%s/%s", hub_http_endpoint(http), request->repo, files->commit,
                    escaped);
}
