/* A bounded cursor over the directory of a part. Called by the parsers, which read a directory in no other way. It
 * never reads beyond the size that the file had when it was opened. Its window is never larger than the remaining
 * bytes plus those it must keep. Pointers into the window are invalid after the next read. */
#include "file/gguf_int.h"

#include "base/checked_math.h"

#include <inttypes.h>
#include <stdio.h>

enum { CHUNK = 1 << 16 }; /* bytes read ahead; a directory is one or a few of these */

/* "key 'general.name' (at byte 24)", or "metadata pair 3 of 21 (at byte 120)". */
static void describe(const hth_gguf_context *s, char *out, size_t n_out)
{
    if (s->name.n > 0)
        snprintf(out, n_out, "%s '%s' (%s %" PRIu64 ")", s->kind, hth_gguf_show(s->name).text,
                 strcmp(s->kind, "tensor") == 0 ? "info at byte" : "at byte", s->offset);
    else if (s->n > 0)
        snprintf(out, n_out, "%s %" PRIu64 " of %" PRIu64 " (at byte %" PRIu64 ")", s->kind, s->number, s->n,
                 s->offset);
    else snprintf(out, n_out, "%s", s->kind);
}

static size_t n_digit(const char *text) { return strspn(text, "0123456789"); }

/* "model.gguf.part1of2", "model.gguf.part1", "model.gguf-split-a": how hubs cut files that they do not take whole. */
static bool is_name_of_piece(const char *name)
{
    const char *cut = strstr(name, "-split-");
    if (cut && strlen(cut) == strlen("-split-a")) return true;
    for (cut = strstr(name, ".part"); cut; cut = strstr(cut + 1, ".part")) {
        const char *of = cut + strlen(".part") + n_digit(cut + strlen(".part"));
        size_t n = strncmp(of, "of", 2) == 0 ? n_digit(of + 2) : 0;
        if (n_digit(cut + strlen(".part")) > 0 && of[n > 0 ? n + 2 : 0] == '\0') return true;
    }
    return false;
}

hearth_status hth_gguf_error(const hth_gguf_cursor *c, hearth_status status, const char *format, ...)
{
    char subject[300], rest[400];
    va_list args;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    describe(&c->context, subject, sizeof subject);
    const bool is_piece = status == HEARTH_ERROR_FORMAT && is_name_of_piece(c->source->label);
    return hth_fail(c->err, status, "%s: %s: %s%s", c->source->label, subject, rest,
                    is_piece ? "; it is one part of a file that was cut: join the parts (cat FIRST SECOND >model.gguf)"
                             : "");
}

static hearth_status grow_window(hth_gguf_cursor *c, size_t need)
{
    size_t capacity;
    if (need <= c->capacity) return HEARTH_OK;
    if (!hth_mul_size(c->capacity, 2, &capacity) || capacity < need) capacity = need;
    unsigned char *larger = hth_realloc(c->owned, capacity, 1);
    if (!larger) return hth_fail_memory(c->err, capacity, "the directory of a model");
    c->owned = larger;
    c->bytes = larger;
    c->capacity = capacity;
    return HEARTH_OK;
}

/* Makes the next n bytes, and those from mark on, part of the window. n is at most the number of remaining bytes. */
static hearth_status fill(hth_gguf_cursor *c, size_t n)
{
    if (c->source->fd < 0) {
        c->bytes = c->source->bytes;
        c->n = (size_t)c->source->size;
        return HEARTH_OK;
    }
    uint64_t keep_from = c->mark < c->offset ? c->mark : c->offset;
    size_t drop = (size_t)(keep_from - c->base);
    if (drop > 0) {
        memmove(c->owned, c->owned + drop, c->n - drop);
        c->n -= drop;
        c->base = keep_from;
    }
    uint64_t end = c->base + c->n, left = c->source->size - end;
    uint64_t missing = c->offset + n - end;
    uint64_t more = missing > CHUNK ? missing : CHUNK;
    if (more > left) more = left;
    hearth_status status = grow_window(c, c->n + (size_t)more);
    if (status == HEARTH_OK)
        status = hth_gguf_source_read(c->source, end, (size_t)more, c->owned + c->n, c->err);
    if (status == HEARTH_OK) c->n += (size_t)more;
    return status;
}

hearth_status hth_gguf_read_bytes(hth_gguf_cursor *c, uint64_t n, const char *what,
                                  const unsigned char **bytes)
{
    *bytes = NULL;
    if (n > hth_gguf_remaining(c))
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "%s takes %" PRIu64 " bytes from byte %" PRIu64
                              ", but the file ends at byte %" PRIu64 ": it is cut short, copy it again",
                              what, n, c->offset, c->source->size);
    if (n > HTH_GGUF_MAX_DIRECTORY || c->offset + n > HTH_GGUF_MAX_DIRECTORY)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "%s at byte %" PRIu64 " goes beyond the %d bytes that a directory may have",
                              what, c->offset, HTH_GGUF_MAX_DIRECTORY);
    if (c->offset + n > c->base + c->n) {
        hearth_status status = fill(c, (size_t)n);
        if (status != HEARTH_OK) return status;
    }
    *bytes = c->bytes ? c->bytes + (c->offset - c->base) : NULL;
    c->offset += n;
    return HEARTH_OK;
}

hearth_status hth_gguf_read_int(hth_gguf_cursor *c, size_t size, const char *what, uint64_t *word)
{
    const unsigned char *bytes;
    hearth_status status = hth_gguf_read_bytes(c, size, what, &bytes);
    if (status == HEARTH_OK) *word = hth_gguf_load(bytes, size);
    return status;
}

hearth_status hth_gguf_read_count(hth_gguf_cursor *c, const char *what, uint64_t min, uint64_t max,
                                  uint64_t each, uint64_t *count)
{
    uint64_t at = c->offset;
    hearth_status status = hth_gguf_read_int(c, 8, what, count);
    if (status != HEARTH_OK) return status;
    if (*count < min || *count > max)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "%s at byte %" PRIu64 " is %" PRIu64 ", allowed are %" PRIu64 " to %" PRIu64,
                              what, at, *count, min, max);
    if (*count > hth_gguf_remaining(c) / each)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "%s at byte %" PRIu64 " is %" PRIu64 ", but only %" PRIu64
                              " bytes follow (%" PRIu64 " or more for each)",
                              what, at, *count, hth_gguf_remaining(c), each);
    return HEARTH_OK;
}

const unsigned char *hth_gguf_marked(const hth_gguf_cursor *c, size_t *n)
{
    *n = (size_t)(c->offset - c->mark);
    return c->bytes + (c->mark - c->base);
}

void hth_gguf_cursor_free(hth_gguf_cursor *c)
{
    hth_free(c->owned);
    c->owned = NULL;
}
