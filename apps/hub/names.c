/* Names of repositories, files and quantisations: selects a file of a repository for a request. Pure functions
 * on texts; tests/hub/test_names.c. */
#include "hub/parts.h"

#include "base/format_bytes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char lower(char c) { return (char)tolower((unsigned char)c); }

bool hub_equal(const char *a, const char *b)
{
    for (; *a && lower(*a) == lower(*b); a++, b++)
        ;
    return lower(*a) == lower(*b);
}

static bool begins(const char *text, const char *with)
{
    for (; *with && lower(*text) == lower(*with); text++, with++)
        ;
    return !*with;
}

const char *hub_find_text(const char *in, const char *part)
{
    for (;; in++) {
        if (begins(in, part)) return in;
        if (!*in) return NULL;
    }
}

/* ---- files --------------------------------------------------------------------------------------------- */

static bool is_digits(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return true;
}

/* Strips "-00001-of-00003" from the end of the stem. */
static void strip_part(hub_file_name *f)
{
    enum { LENGTH = 15 };
    size_t n = strlen(f->stem);
    char *end = f->stem + n - LENGTH;
    f->part = f->n_part = 1;
    if (n <= LENGTH || end[0] != '-' || !is_digits(end + 1, 5) || memcmp(end + 6, "-of-", 4) != 0 ||
        !is_digits(end + 10, 5))
        return;
    unsigned long part = strtoul(end + 1, NULL, 10), n_part = strtoul(end + 10, NULL, 10);
    if (part < 1 || part > n_part) return;
    f->part = (uint32_t)part, f->n_part = (uint32_t)n_part;
    *end = '\0';
}

/* "Q4_K_M", "IQ3_XXS", "TQ1_0", "F16", "BF16", "MXFP4": one of these prefixes, then a digit. */
static bool is_quant(const char *text)
{
    static const char *const heads[] = {"q", "iq", "tq", "f", "bf", "fp", "mxfp", "nvfp"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if (begins(text, heads[i]) && text[n] >= '1' && text[n] <= '9') return true;
    }
    return false;
}

/* Finds the last component between separators that names a quantisation, with an optional "UD-" before it. */
static void find_quant(hub_file_name *f)
{
    const char *base = strrchr(f->stem, '/'), *found = NULL;
    base = base ? base + 1 : f->stem;
    for (const char *p = base; *p; p += strcspn(p, "-.")) {
        p += p[0] == '-' || p[0] == '.';
        if (is_quant(p)) found = p;
    }
    f->quant[0] = '\0';
    if (!found) return;
    size_t n = strcspn(found, "-.");
    if (found - base >= 3 && begins(found - 3, "ud-")) found -= 3, n += 3;
    if (n < sizeof f->quant) snprintf(f->quant, sizeof f->quant, "%.*s", (int)n, found);
}

bool hub_parse_file(const char *path, hub_file_name *out)
{
    size_t n = strlen(path);
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (n < 6 || n - 5 >= sizeof out->stem || !hub_equal(path + n - 5, ".gguf") || strlen(base) == 5)
        return false;
    if (hub_find_text(base, "mmproj") || hub_find_text(base, "imatrix")) return false;
    snprintf(out->stem, sizeof out->stem, "%.*s", (int)(n - 5), path);
    strip_part(out);
    find_quant(out);
    return true;
}

bool hub_has_quant(const char *stem, const char *quant)
{
    size_t n = strlen(quant);
    for (const char *at = stem; n > 0 && (at = hub_find_text(at, quant)) != NULL; at++) {
        bool starts = at == stem || strchr("-._/", at[-1]) != NULL;
        if (starts && (at[n] == '\0' || strchr("-./", at[n]))) return true;
        if (!*at) break;
    }
    return false;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t n)
{
    if (n == 0 || n > 96 || strchr("-.", text[0]) || strchr("-.", text[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_letter && c != '-' && c != '_' && c != '.') return false;
        if (i > 0 && c == text[i - 1] && (c == '-' || c == '.')) return false; /* "--" is the separator in the cache */
    }
    return true;
}

bool hub_is_repo(const char *repo)
{
    size_t n = strcspn(repo, "/");
    return is_word(repo, n) && (!repo[n] || is_word(repo + n + 1, strlen(repo + n + 1)));
}

static bool is_revision(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f || strchr("~^:?*[\\", *p)) return false;
    return hub_is_safe_path(text) && !strstr(text, "..");
}

/* Parses the part of an address after the host: ORG/NAME; ORG/NAME/blob/REVISION/FILE as browsers show a file
 * (resolve: as they download it); ORG/NAME/tree/REVISION. A query is dropped. Writes ORG/NAME:FILE. False: no
 * match. */
static bool read_address(const char *text, char what[HUB_NAME], char revision[200])
{
    char path[HUB_NAME];
    size_t n = strcspn(text, "?#");
    if (n >= sizeof path) return false;
    snprintf(path, sizeof path, "%.*s", (int)n, text);
    while (n > 0 && path[n - 1] == '/') path[--n] = '\0';
    revision[0] = '\0';
    char *slash = strchr(path, '/'), *kind = slash ? strchr(slash + 1, '/') : NULL;
    if (!kind || strchr(path, ':')) return snprintf(what, HUB_NAME, "%s", path) > 0; /* ORG/NAME:QUANT */
    *kind++ = '\0';
    bool is_file = begins(kind, "blob/") || begins(kind, "resolve/");
    if (!is_file && !begins(kind, "tree/")) return false;
    char *from = strchr(kind, '/') + 1, *file = strchr(from, '/');
    if (is_file != (file != NULL)) return false;
    if (file) *file++ = '\0';
    snprintf(revision, 200, "%.199s", from);
    return snprintf(what, HUB_NAME, "%s%s%s", path, file ? ":" : "", file ? file : "") < HUB_NAME;
}

/* The part of an address after the hub's host; NULL: not an address of the hub. */
static const char *after_host(const char *what)
{
    const char *host = strstr(HUB_ENDPOINT, "//") + 2, *own = hub_variable("HF_ENDPOINT");
    const char *const heads[] = {HUB_ENDPOINT, "https://hf.co", "hf.co", host, own ? own : HUB_ENDPOINT};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        while (n > 0 && heads[i][n - 1] == '/') n--;
        if (strncasecmp(what, heads[i], n) == 0 && what[n] == '/') return what + n + 1;
    }
    return NULL;
}

bool hub_read_address(const char *text, char name[HUB_NAME])
{
    char revision[200];
    const char *address = after_host(text);
    return address && read_address(address, name, revision);
}

hearth_status hub_parse_request(const char *what, const char *revision, hub_request *out, hearth_error *err)
{
    char meant[HUB_NAME], of_address[200] = "";
    const char *text = what, *address = after_host(what);
    *out = (hub_request){.repo = ""};
    if (address ? !read_address(address, meant, of_address) : strstr(what, "://") != NULL)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "'%s' is no address of a repository or a file on the hub; ORG/NAME:QUANT is taken too", what);
    if (address) text = meant;
    size_t n = strcspn(text, ":"), n_want = text[n] ? strlen(text + n + 1) : 0;
    if (n < sizeof out->repo) snprintf(out->repo, sizeof out->repo, "%.*s", (int)n, text);
    if (!hub_is_repo(out->repo))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "'%s' names no repository; expected ORG/NAME or ORG/NAME:QUANT", what);
    if (text[n] == ':' && (n_want == 0 || !hub_is_safe_path(text + n + 1)))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%s': behind ':' stands a quantisation or a file's name",
                        what);
    if (n_want > 0) snprintf(out->want, sizeof out->want, "%s", text + n + 1);
    if (!revision) revision = of_address[0] ? of_address : "main";
    if (strlen(revision) >= sizeof out->revision || !is_revision(revision))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%s' is no name of a branch, tag or commit", revision);
    snprintf(out->revision, sizeof out->revision, "%s", revision);
    return HEARTH_OK;
}

/* ---- selection ------------------------------------------------------------------------------------------------- */

void hub_free_files(hub_files *files)
{
    for (size_t i = 0; i < files->n; i++) free(files->at[i].path);
    free(files->at);
    *files = (hub_files){.n = 0};
}

/* By stem, then by the number of parts: negative, 0 or positive. */
static int compare_models(const hub_file *a, const hub_file *b)
{
    int by_byte = memcmp(a->path, b->path, a->n_stem < b->n_stem ? a->n_stem : b->n_stem);
    if (by_byte || a->n_stem != b->n_stem) return by_byte ? by_byte : a->n_stem < b->n_stem ? -1 : 1;
    return (a->n_part > b->n_part) - (a->n_part < b->n_part);
}

static int compare_parts(const void *a, const void *b)
{
    const hub_file *x = a, *y = b;
    int by_model = compare_models(x, y);
    return by_model ? by_model : (x->part > y->part) - (x->part < y->part);
}

void hub_sort_files(hub_files *files)
{
    hub_file_name name;
    for (size_t i = 0; i < files->n; i++) {
        hub_file *f = &files->at[i];
        f->n_stem = hub_parse_file(f->path, &name) ? strlen(name.stem) : 0;
        f->part = f->n_stem ? name.part : 0, f->n_part = f->n_stem ? name.n_part : 0;
    }
    if (files->n > 1) qsort(files->at, files->n, sizeof *files->at, compare_parts);
}

/* Whether the file is the first part of a model. */
static bool is_first(const hub_file *f, hub_file_name *name)
{
    return f->part == 1 && hub_parse_file(f->path, name);
}

static bool is_called(const hub_file *f, const char *want)
{
    const char *base = strrchr(f->path, '/');
    return hub_equal(f->path, want) || hub_equal(base ? base + 1 : f->path, want);
}

const hub_file *hub_part_of(const hub_files *files, size_t first, uint32_t part)
{
    hub_file wanted = files->at[first];
    wanted.part = part;
    return bsearch(&wanted, files->at, files->n, sizeof wanted, compare_parts);
}

/* Selects by file name; any part may be named. */
static size_t choose_file(const hub_files *files, const char *want, size_t *chosen)
{
    size_t n = 0;
    for (size_t i = 0; i < files->n; i++) {
        if (files->at[i].part == 0 || !is_called(&files->at[i], want)) continue;
        const hub_file *first = hub_part_of(files, i, 1);
        if (first) *chosen = (size_t)(first - files->at), n++;
    }
    return n;
}

/* "UD-Q4_K_M" matches "Q4_K_M" only if there is no other match. */
static size_t choose_quant(const hub_files *files, const char *quant, size_t *chosen)
{
    size_t n[2] = {0, 0}, at[2] = {0, 0};
    bool asks = begins(quant, "ud-");
    hub_file_name name;
    for (size_t i = 0; i < files->n; i++) {
        if (!is_first(&files->at[i], &name) || !hub_has_quant(name.stem, quant)) continue;
        bool is_other = !asks && begins(name.quant, "ud-");
        n[is_other]++, at[is_other] = i;
    }
    *chosen = n[0] ? at[0] : at[1];
    return n[0] ? n[0] : n[1];
}

static size_t choose_default(const hub_files *files, size_t *chosen)
{
    static const char *const preferred[] = {"Q4_K_M", "Q4_0", "Q8_0"};
    size_t n = 0;
    hub_file_name name;
    for (size_t i = 0; n == 0 && i < sizeof preferred / sizeof *preferred; i++)
        n = choose_quant(files, preferred[i], chosen);
    if (n > 0) return n;
    for (size_t i = 0; i < files->n; i++)
        if (is_first(&files->at[i], &name)) *chosen = i, n++;
    return n;
}

static size_t n_models(const hub_files *files)
{
    size_t n = 0;
    for (size_t i = 0; i < files->n; i++) n += files->at[i].part == 1;
    return n;
}

hearth_status hub_choose(const hub_files *files, const hub_request *request, size_t *chosen,
                         hearth_error *err)
{
    size_t n_want = strlen(request->want);
    bool by_file = n_want > 5 && hub_equal(request->want + n_want - 5, ".gguf");
    size_t n = !n_want   ? choose_default(files, chosen)
               : by_file ? choose_file(files, request->want, chosen)
                         : choose_quant(files, request->want, chosen);
    if (n == 1) return HEARTH_OK;
    if (n_models(files) == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: has no GGUF file of a model; others convert such "
                        "repositories, often under NAME-GGUF",
                        request->repo);
    if (n == 0 && n_want)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: has no file of '%s'; see above what there is",
                        request->repo, request->want);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: %zu files could be meant; name one of those above behind ':'", request->repo, n);
}

void hub_say_choices(const hub_files *files, const hub_watch *watch)
{
    hub_file_name name;
    for (size_t i = 0, next; i < files->n; i = next) {
        const hub_file *first = &files->at[i];
        char line[HUB_NAME + 120];
        uint64_t size = first->size;
        for (next = i + 1; next < files->n && compare_models(first, &files->at[next]) == 0; next++)
            if (files->at[next].part != files->at[next - 1].part) size += files->at[next].size;
        if (!is_first(first, &name)) continue;
        snprintf(line, sizeof line, "%-12s %11s  %s", name.quant, hth_format_bytes(size).text, first->path);
        watch->say(watch->user, line);
    }
}

void hub_cache_name(const char *repo, const char *path, const char *const *paths, size_t n,
                    char out[HUB_NAME])
{
    hub_file_name name, other;
    bool is_unique = hub_parse_file(path, &name) && name.quant[0];
    for (size_t i = 0; i < n && is_unique; i++)
        if (hub_parse_file(paths[i], &other) && strcmp(other.stem, name.stem) != 0 &&
            hub_equal(other.quant, name.quant))
            is_unique = false;
    int length = snprintf(out, HUB_NAME, "%s:%s", repo, is_unique ? name.quant : path);
    if (length >= HUB_NAME) memcpy(out + HUB_NAME - 4, "...", 4);
}
