/* Implements charsmap.h. A unit of the double array holds: the byte that leads to it (bits 0 to 7, and bit 31, which
 * only values have), whether a string ends there (bit 8), and the distance to its children (bits 10 to 30, times 256
 * if bit 9 is set). The child for a byte is the unit whose index is the exclusive or of the parent's index, that
 * distance and the byte; the child for byte 0 holds the value. */
#include "text/charsmap.h"

#include "base/alloc.h"

#include <string.h>

static const char key[] = "tokenizer.ggml.precompiled_charsmap";

enum { MAX_UNIT = 1 << 24 };

static uint32_t unit_at(const hth_charsmap *map, uint32_t i)
{
    uint32_t unit;
    memcpy(&unit, map->units + (size_t)i * sizeof unit, sizeof unit);
    return unit;
}

static uint32_t label(uint32_t unit) { return unit & UINT32_C(0x800000FF); }
static bool is_end(uint32_t unit) { return unit >> 8 & 1; }
/* The base of the children of unit i: the index of a child is the base XOR the child's byte. */
static uint32_t children(uint32_t i, uint32_t unit) { return i ^ (unit >> 10 << ((unit & 1u << 9) >> 6)); }

/* ---- looking up ----------------------------------------------------------------------------------- */

size_t hth_charsmap_find(const hth_charsmap *map, const char *bytes, size_t n, hth_str *replacement)
{
    size_t found = 0;
    uint32_t value = 0;
    if (map->n_unit == 0) return 0;
    uint32_t base = children(0, unit_at(map, 0));
    for (size_t i = 0; i < n && bytes[i] != '\0'; i++) {
        const uint32_t byte = (unsigned char)bytes[i], at = base ^ byte;
        const uint32_t unit = at < map->n_unit ? unit_at(map, at) : 0;
        if (label(unit) != byte) break;
        base = children(at, unit);
        if (!is_end(unit)) continue;
        value = unit_at(map, base) & UINT32_C(0x7FFFFFFF);
        found = i + 1;
    }
    if (found > 0) *replacement = (hth_str){map->texts + value, strlen(map->texts + value)};
    return found;
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* A unit on the path that is walked, and the byte of its next child. */
typedef struct step {
    uint32_t unit, byte;
} step;

typedef struct check {
    const hth_charsmap *map;
    const hth_gguf *file;
    uint64_t offset;
    unsigned char *state; /* [n_unit] 0, ON_PATH or DONE */
    step *path;
    hearth_error *err;
} check;

enum { ON_PATH = 1, DONE };

static hearth_status damaged(const check *c, uint32_t unit, const char *what)
{
    return hth_fail(c->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: unit %u of the map %s",
                    hth_gguf_path(c->file), key, (unsigned long long)c->offset, (unsigned)unit, what);
}

static hearth_status check_value(const check *c, uint32_t i, uint32_t base)
{
    if (base >= c->map->n_unit) return damaged(c, i, "has its value outside of it");
    const uint32_t unit = unit_at(c->map, base);
    if (!(unit >> 31)) return damaged(c, i, "has no value");
    if ((unit & UINT32_C(0x7FFFFFFF)) >= c->map->n_text)
        return damaged(c, i, "names a replacement past the last one");
    return HEARTH_OK;
}

/* Walks the units below the root, each once: paths may meet, because equal ends are shared. */
static hearth_status check_paths(check *c)
{
    hearth_status status = HEARTH_OK;
    size_t depth = 1;
    c->path[0] = (step){0, 1};
    c->state[0] = ON_PATH;
    while (status == HEARTH_OK && depth > 0) {
        step *s = &c->path[depth - 1];
        const uint32_t unit = unit_at(c->map, s->unit), base = children(s->unit, unit), byte = s->byte++;
        if (byte == 1 && depth > 1 && is_end(unit)) status = check_value(c, s->unit, base);
        if (byte == 256) {
            c->state[s->unit] = DONE;
            depth--;
            continue;
        }
        const uint32_t at = base ^ byte;
        if (at >= c->map->n_unit || label(unit_at(c->map, at)) != byte || c->state[at] == DONE) continue;
        if (c->state[at] == ON_PATH) {
            status = damaged(c, at, "leads back to itself");
        } else {
            c->state[at] = ON_PATH;
            c->path[depth++] = (step){at, 1};
        }
    }
    return status;
}

static hearth_status check_map(const hth_charsmap *map, const hth_gguf *file, uint64_t offset,
                               hearth_error *err)
{
    check c = {.map = map, .file = file, .offset = offset, .err = err};
    c.state = hth_alloc(map->n_unit, 1);
    c.path = hth_alloc((size_t)map->n_unit + 1, sizeof *c.path);
    hearth_status status =
        c.state && c.path ? check_paths(&c) : hth_fail_memory(err, map->n_unit, "checking the normalisation");
    hth_free(c.path);
    hth_free(c.state);
    return status;
}

hearth_status hth_charsmap_read(hth_charsmap *map, const hth_gguf *file, hearth_error *err)
{
    const hth_gguf_value *array = hth_gguf_find(file, key);
    const bool is_signed = array && array->element_type == HTH_GGUF_I8;
    hearth_status status =
        hth_gguf_get_array(file, key, is_signed ? HTH_GGUF_I8 : HTH_GGUF_U8, 0, &array, err);
    if (status != HEARTH_OK || !array || array->n_element == 0) return status;
    const char *bytes = array->elements, *path = hth_gguf_path(file);
    const unsigned long long offset = array->offset, n = array->n_element;
    uint32_t n_trie = 0;
    if (n > sizeof n_trie) memcpy(&n_trie, bytes, sizeof n_trie);
    if (n_trie < sizeof(uint32_t) || n_trie % sizeof(uint32_t) != 0 || n_trie > n - sizeof n_trie ||
        n_trie / sizeof(uint32_t) > MAX_UNIT)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: a trie of %u bytes is stated, of %llu bytes in all", path, key,
                        offset, (unsigned)n_trie, n);
    map->units = bytes + sizeof n_trie;
    map->n_unit = n_trie / (uint32_t)sizeof(uint32_t);
    map->texts = map->units + n_trie;
    map->n_text = (size_t)(n - sizeof n_trie - n_trie);
    if (map->n_text == 0 || map->texts[map->n_text - 1] != '\0')
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: the last replacement has no end", path,
                        key, offset);
    return check_map(map, file, offset, err);
}
