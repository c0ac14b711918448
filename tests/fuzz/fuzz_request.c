/* A fuzz target for requests: the first byte says where the rest is cut in two pieces. What is promised of all bytes:
 * pieces make no difference; what the checks of framing.h pass, the parser reads with the same end, so that no bytes
 * of a body can become a request; no text of a head lies outside it. Built with libFuzzer by the preset `fuzz`;
 * test_request.c replays the corpus and mutations of it. */
#include "serve/http/access.h"
#include "serve/http/framing.h"
#include "serve/http/routes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds)
{
    if (!holds) abort();
}

typedef struct scan_end {
    int status;
    size_t n_used;
    bool is_complete;
} scan_end;

typedef int scan_fn(void *scan, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                    const char **why);

static int scan_head(void *scan, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                     const char **why)
{
    return head_scan_bytes(scan, bytes, n, n_used, is_complete, why);
}

static int scan_chunks(void *scan, const char *bytes, size_t n, size_t *n_used, bool *is_complete,
                       const char **why)
{
    return chunk_scan_bytes(scan, bytes, n, n_used, is_complete, why);
}

/* Whole, and in two pieces. */
static scan_end scan_both(scan_fn *scan, size_t size, const char *bytes, size_t n, size_t cut)
{
    _Alignas(16) char states[2][128] = {{0}};
    const char *why = NULL;
    scan_end whole, cut_end;
    expect(size <= sizeof states[0]);
    whole.status = scan(states[0], bytes, n, &whole.n_used, &whole.is_complete, &why);
    if (cut > n) cut = n;
    cut_end.status = scan(states[1], bytes, cut, &cut_end.n_used, &cut_end.is_complete, &why);
    if (cut_end.status == 0 && !cut_end.is_complete) {
        size_t more;
        expect(cut_end.n_used == cut);
        cut_end.status = scan(states[1], bytes + cut, n - cut, &more, &cut_end.is_complete, &why);
        cut_end.n_used += more;
    }
    expect(whole.status == cut_end.status && whole.is_complete == cut_end.is_complete && whole.n_used <= n);
    expect(whole.status != 0 || whole.n_used == cut_end.n_used);
    expect(whole.status == 0 || why);
    return whole;
}

static bool take_body(void *user, const char *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)user += n;
    return true;
}

static void check_chunks(message_reader *m, const char *bytes, size_t n, size_t cut)
{
    size_t n_read, n_body = 0;
    scan_end end = scan_both(scan_chunks, sizeof(chunk_scan), bytes, n, cut);
    if (end.status != 0 || end.n_used == 0) return; /* no bytes mean the end of the input to the parser */
    if (!body_read(m, bytes, end.n_used, take_body, &n_body, &n_read)) return; /* refused by the stricter of the two */
    expect(m->is_complete == end.is_complete && n_read == end.n_used && n_body <= n_read);
}

static void check_head(const head *h, const char *bytes, size_t n)
{
    static const access_rules rules = {
        .names = {"a.b"}, .n_name = 1, .origins = {"http://a"}, .n_origin = 1, .any_address = true};
    static const route none[] = {
        {.method = HTTP_GET, .path = "/a/{b}"}, {.method = HTTP_POST, .path = "/a"}, {0}};
    route_match m;
    bool foreign;
    unsigned i_key;
    for (int i = 0; i < N_HEAD_FIELD; i++) {
        text_part t = h->field[i];
        expect((t.text != NULL) == (h->n_field[i] > 0));
        if (t.text) expect(t.text >= bytes && t.text + t.n <= bytes + n);
    }
    const bool is_root = h->target.n == 1 && *h->target.text == '/'; /* as a target without a path says */
    expect(h->target.n <= HEAD_MAX_TARGET &&
           (is_root || (h->target.text >= bytes && h->target.text + h->target.n <= bytes + n)));
    route_find(none, "/v1", h->method, h->target, &m);
    expect(m.n_path < ROUTE_MAX_PATH && (!m.route || m.known));
    if (h->n_field[HEAD_HOST] > 0) access_host_ok(&rules, h->field[HEAD_HOST]);
    if (h->n_field[HEAD_HOST] > 0) access_origin_ok(&rules, h, &foreign);
    expect(access_key_ok(&rules, h, &i_key) && i_key == 0); /* there are no keys */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    message_reader m;
    head h;
    const char *why;
    if (n == 0) return 0;
    const char *bytes = (const char *)data + 1;
    size_t cut = data[0];
    n--;
    scan_end end = scan_both(scan_head, sizeof(head_scan), bytes, n, cut);
    if (end.status != 0 || !end.is_complete) return 0;
    if (!head_read(&m, bytes, end.n_used, &h, &why)) return 0;
    check_head(&h, bytes, end.n_used);
    if (h.chunked) check_chunks(&m, bytes + end.n_used, n - end.n_used, cut);
    return 0;
}
