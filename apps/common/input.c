/* Texts and lists of ids from files and pipes. */
#define _GNU_SOURCE
#include "common/input.h"

#include "base/bytes.h"
#include "base/same.h"
#include "common/output.h"
#include "file/gguf.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuse_odd_file(FILE *f, const char *path)
{
    struct stat st;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
        report_text("%s: is a folder", path);
        return true;
    }
    return false;
}

/* A pipe or a device may never end; no context is that long. */
enum { MAX_TEXT = 1 << 30 };

char *read_whole(const char *path, size_t *n)
{
    bool from_stdin = strcmp(path, "-") == 0;
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    char *bytes = NULL;
    size_t used = 0, room = 0, got;
    if (!f) {
        report_text("%s: %s", path, strerror(errno));
        return NULL;
    }
    if (refuse_odd_file(f, path)) goto fail;
    do {
        if (used > MAX_TEXT) {
            report_text("%s: more than %d MiB of text; take a part of it", path, MAX_TEXT >> 20);
            goto fail;
        }
        if (used + 1 >= room) {
            room = room ? 2 * room : 1 << 16;
            char *more = realloc(bytes, room);
            if (!more) {
                report_text("%s: out of memory: %s for the text", path, hth_bytes_shown(room).text);
                goto fail;
            }
            bytes = more;
        }
        got = fread(bytes + used, 1, room - used - 1, f);
        used += got;
    } while (got > 0);
    if (ferror(f)) {
        report_text("%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!from_stdin) fclose(f);
    bytes[used] = '\0';
    *n = used;
    return bytes;
fail:
    if (!from_stdin) fclose(f);
    free(bytes);
    return NULL;
}

/* Whether it begins as a text in UTF-16 does: with its mark, or with a letter of ASCII in two bytes. */
static bool is_utf16(const unsigned char *b, size_t n)
{
    if (n < 2) return false;
    bool marked = (b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff);
    return marked || (n >= 4 && ((b[0] && !b[1] && b[2] && !b[3]) || (!b[0] && b[1] && !b[2] && b[3])));
}

bool make_plain(const char *path, char *text, size_t *n)
{
    size_t used = 0, at = *n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (is_utf16((const unsigned char *)text, *n)) {
        report_text("%s: is UTF-16, and UTF-8 is wanted: iconv -f UTF-16 -t UTF-8 turns it into that", path);
        return false;
    }
    for (; at < *n; at++)
        if (text[at] != '\r' || at + 1 == *n || text[at + 1] != '\n') text[used++] = text[at];
    *n = used;
    text[used] = '\0';
    return true;
}

/* A text as its writer meant it. */
static char *read_plain(const char *path, size_t *n)
{
    char *text = read_whole(path, n);
    if (!text || make_plain(path, text, n)) return text;
    free(text);
    return NULL;
}

char *read_prompt(const char *path, size_t *n)
{
    char *text = read_plain(path, n);
    if (text && *n > 0 && text[*n - 1] == '\n') text[--*n] = '\0';
    return text;
}

char *read_text_file(const char *path, size_t *n)
{
    char *text = read_plain(path, n);
    if (!text) return NULL;
    const char *zero = memchr(text, 0, *n);
    if (*n > 0 && !zero) return text;
    if (zero) report_text("%s: byte %zu is 0: this is no text", path, (size_t)(zero - text));
    else report_text("%s: is empty", path);
    free(text);
    return NULL;
}

bool find_place(const char *path, char *place)
{
    char folder[PATH_MAX], name[PATH_MAX];
    if (realpath(path, place)) return true;
    ssize_t n = readlink(path, name, sizeof name - 1);
    if (n >= 0) name[n] = '\0';
    else snprintf(name, sizeof name, "%s", path);
    snprintf(folder, sizeof folder, "%s", n >= 0 && name[0] != '/' ? path : name);
    char *slash = strrchr(folder, '/'), *last = strrchr(name, '/');
    if (slash) slash[slash == folder] = '\0';
    if (!realpath(slash ? folder : ".", place)) return false;
    if (n >= 0 && last && name[0] != '/') { /* a link into another folder */
        size_t used = strlen(place);
        *last = '\0';
        if (snprintf(folder, sizeof folder, "%.*s/%s", (int)used, place, name) >= PATH_MAX) return false;
        if (!realpath(folder, place)) return false;
    }
    size_t used = strlen(place);
    return snprintf(place + used, PATH_MAX - used, "/%s", last ? last + 1 : name) < (int)(PATH_MAX - used);
}

int check_two_outputs(const char *one, const char *other)
{
    char places[2][PATH_MAX];
    bool same = strcmp(one, other) == 0 || hth_same_file(one, other);
    if (!same && find_place(one, places[0]) && find_place(other, places[1]))
        same = strcmp(places[0], places[1]) == 0;
    return same ? usage_error("%s and %s are one file: each output needs its own", one, other) : 0;
}

const option_spec output_options[] = {
    {"force", 0, OPTION_FLAG, NULL, "replace a file that Hearth did not make", 0, 0, NULL, OPTION_RARE},
    {0},
};

/* Whether a file has a key of Hearth's, as all that it writes do. */
static bool is_made_by_hearth(const char *path)
{
    static const char prefix[] = "hearth.";
    hth_gguf *file;
    bool ours = false;
    if (hth_gguf_open(path, &file, NULL) != HEARTH_OK) return false;
    for (size_t i = 0; i < hth_gguf_n_value(file); i++) {
        hth_text key = hth_gguf_value_at(file, i)->key;
        ours |= key.n >= sizeof prefix - 1 && memcmp(key.bytes, prefix, sizeof prefix - 1) == 0;
    }
    const hth_gguf_value *kind = hth_gguf_find(file, "general.architecture");
    ours |= kind && kind->type == HTH_GGUF_TEXT && kind->as.text.n >= sizeof prefix - 1 &&
            memcmp(kind->as.text.bytes, prefix, sizeof prefix - 1) == 0;
    hth_gguf_close(file);
    return ours;
}

static int check_replaced(const args *a, const char *out)
{
    struct stat there;
    if (!verb_offers(a, "force") || args_has(a, "force")) return 0;
    if (stat(out, &there) != 0 || !S_ISREG(there.st_mode) || there.st_size == 0) return 0;
    if (is_made_by_hearth(out)) return 0;
    return usage_error("%s is there, and Hearth did not make it; --force replaces it", out);
}

int check_output(const args *a, const char *out, const input *inputs, size_t n)
{
    if (strcmp(out, "-") == 0) return usage_error("the output is a file; '-' is not one");
    if (out[0] == '\0') return usage_error("the output needs a name");
    for (size_t i = 0; i < n; i++) {
        const char *path = inputs[i].path;
        if (path && strcmp(path, "-") != 0 && hth_same_file(path, out))
            return usage_error("%s is read and written: %s would be lost", out, inputs[i].name);
    }
    return check_replaced(a, out);
}

/* ---- ids --------------------------------------------------------------------------------- */

/* The number at text[*at], which moves behind it; false when it is none. */
static bool next_id(const char *text, size_t n, size_t *at, uint64_t limit, int32_t *id)
{
    uint64_t v = 0;
    size_t start = *at;
    for (; *at < n && text[*at] >= '0' && text[*at] <= '9'; (*at)++) {
        v = v * 10 + (uint64_t)(text[*at] - '0');
        if (v >= limit) return false;
    }
    *id = (int32_t)v;
    return *at > start && (*at == n || strchr(" \t\r\n", text[*at]) != NULL) &&
           (*at == n || text[*at] != '\0');
}

int32_t *read_ids(const char *path, uint32_t n_vocab, size_t *n)
{
    size_t size, at = 0;
    char *text = read_whole(path, &size);
    if (!text) return NULL;
    int32_t *ids = malloc((size / 2 + 1) * sizeof *ids);
    if (!ids) {
        report_text("%s: out of memory: %s for ids", path,
                    hth_bytes_shown((size / 2 + 1) * sizeof *ids).text);
        free(text);
        return NULL;
    }
    uint64_t limit = n_vocab ? n_vocab : (uint64_t)INT32_MAX + 1;
    for (*n = 0;; (*n)++) {
        while (at < size && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n'))
            at++;
        if (at == size) break;
        size_t start = at;
        if (next_id(text, size, &at, limit, &ids[*n])) continue;
        report_text("%s: id %zu at byte %zu is no decimal number below %llu", path, *n, start,
                    (unsigned long long)limit);
        free(ids);
        free(text);
        return NULL;
    }
    free(text);
    return ids;
}
