/* A fuzz target for what people type and hubs answer: the first line is a request ("ORG/NAME:QUANT", an address), the rest
 * a page of a hub's list of files. A request that is taken has names that make paths below the cache; of a list each file
 * that is taken does too, has a size and a hash, and one that is chosen is the first part of a model. Built with libFuzzer by
 * the preset `fuzz`; test_hub.c replays that and mutations of it. */
#include "fuzz/mutate_json.h"
#include "hub/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define expect(HOLDS) expect_at(HOLDS, #HOLDS, __LINE__)
static void expect_at(bool holds, const char *what, int line)
{
    if (holds) return;
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

/* No byte of a name leaves its folder or controls a terminal. */
static void expect_safe(const char *path)
{
    const char *part = path;
    for (size_t n; *part; part += n + (part[n] == '/')) {
        n = strcspn(part, "/");
        expect(n > 0 && !(n == 1 && part[0] == '.') && !(n == 2 && memcmp(part, "..", 2) == 0));
        for (size_t i = 0; i < n; i++) expect((unsigned char)part[i] >= 0x20 && part[i] != 0x7f && part[i] != '\\');
    }
    expect(part > path && part[-1] != '/');
}

static void check_request(const hub_request *r)
{
    char folder[HUB_PATH], again[200];
    expect_safe(r->repo);
    expect_safe(r->revision);
    if (r->want[0]) expect_safe(r->want);
    expect(strspn(r->repo, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./") == strlen(r->repo));
    if (!hub_cache_repo(r->repo, folder)) return;
    const char *name = strrchr(folder, '/');
    expect(name && hub_cache_repo_name(name + 1, again) && strcmp(again, r->repo) == 0);
}

static void say(void *user, const char *line)
{
    (void)line;
    ++*(size_t *)user;
}

static void check_files(const hub_files *files, const hub_request *r)
{
    size_t chosen = 0, n_said = 0;
    char shown[HUB_NAME];
    hub_file_name name;
    hearth_error why = {0};
    const hub_watch watch = {.say = say, .user = &n_said};
    for (size_t i = 0; i < files->n; i++) {
        const hub_file *f = &files->at[i];
        expect_safe(f->path);
        expect(f->size > 0 && strlen(f->etag) == (f->has_sha256 ? 64 : 40) && strspn(f->etag, "0123456789abcdef") == strlen(f->etag));
        expect(hub_parse_file(f->path, &name) && name.part >= 1 && name.part <= name.n_part);
        hub_cache_name(r->repo, f->path, (const char *const *)&f->path, 1, shown);
        expect(strlen(shown) < HUB_NAME);
    }
    if (hub_choose(files, r, &chosen, &why) == HEARTH_OK)
        expect(chosen < files->n && hub_parse_file(files->at[chosen].path, &name) && name.part == 1 && hub_part_of(files, chosen, 1));
    else expect(why.message[0]);
    hub_say_choices(files, &watch);
    expect(n_said <= files->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const hub_request otherwise = {.repo = "org/name", .revision = "main"};
    char what[3 * HUB_NAME];
    hub_request r;
    hub_files files = {.n = 0};
    hearth_error why = {0};
    const uint8_t *end = memchr(data, '\n', n);
    size_t n_line = end ? (size_t)(end - data) : n, n_page = end ? n - n_line - 1 : 0;
    if (n_line >= sizeof what) return 0;
    memcpy(what, data, n_line);
    what[n_line] = '\0';
    bool ok = hub_parse_request(what, NULL, &r, &why) == HEARTH_OK;
    if (ok) check_request(&r);
    else expect(why.message[0]);
    hth_json *page = hth_json_open((const char *)data + n - n_page, n_page, NULL, NULL);
    if (page && hub_api_read_page(page, "org/name", &files, &why) != HEARTH_OK) expect(why.message[0]);
    hub_sort_files(&files);
    check_files(&files, ok ? &r : &otherwise); /* those before the wrong one, too */
    hub_free_files(&files);
    hth_json_close(page);
    return 0;
}
