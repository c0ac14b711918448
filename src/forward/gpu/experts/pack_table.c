/* Finds the tables of pack_table.h. Blocks that hold the numbers of their bits, one bit of each number at a time, show
 * where each bit of the result comes from. Random blocks then show whether the table gives what
 * hth_soa_layout_pack gives, because a conversion that computes anything gives other bits. */
#include "forward/gpu/experts/pack_table.h"

#include "base/bits.h"
#include "base/random.h"

#include <string.h>

enum {
    MAX_SIZE = 256 /* bytes of a block */,
    MAX_ELEMENT = 64,
    MAX_PLANES = 4096,
    WORD_BITS = 32,
    SLACK = 4
};
enum { N_RANDOM = 16 /* panels */ };

typedef struct finder {
    hth_type type;
    hth_layout layout;
    uint64_t n_col;
    size_t size;
    uint32_t n_element, n_term;
    size_t at[MAX_ELEMENT]; /* bytes of the result */
    uint32_t mask[MAX_ELEMENT];
    uint32_t inverted[MAX_ELEMENT];
    uint16_t from[MAX_ELEMENT][WORD_BITS];        /* number of the block's bit, from 1; 0: constant */
    uint8_t first_byte[MAX_SIZE], unit[MAX_SIZE]; /* of the panel's unit of a byte */
    uint32_t *table;
} finder;

/* ---- elements --------------------------------------------------------------------------------------- */

static void add_elements(finder *f, uint32_t word, uint32_t n, uint32_t mask)
{
    for (uint32_t i = 0; i < n; i++)
        f->at[f->n_element] = 4 * (size_t)(word + i), f->mask[f->n_element++] = mask;
}

/* false: too many, or blocks of the file are not those of the layout. */
static bool list_elements(finder *f)
{
    const hth_type_info *info = hth_type_find(f->type);
    hth_quant_desc d;
    hth_soa_layout one;
    if (!info || !hth_quant_desc_of(f->type, &d) || info->n_weight != d.block || info->size > MAX_SIZE)
        return false;
    if (!hth_soa_layout_init(f->type, 1, d.block, &one) || one.size > MAX_PLANES) return false;
    const uint32_t low = d.block * d.low_bits / 32, high = d.block * d.high_bits / 32,
                   part = d.part ? d.block / d.part / 4 : 0;
    if (low + high + 2 * part + 2 > MAX_ELEMENT) return false;
    f->n_col = d.block, f->size = info->size;
    add_elements(f, 0, low, UINT32_MAX);
    add_elements(f, one.offsets.high, high, UINT32_MAX);
    add_elements(f, one.offsets.sub_scale, part, UINT32_MAX);
    add_elements(f, one.offsets.sub_min, d.minima ? part : 0, UINT32_MAX);
    add_elements(f, one.offsets.scale, 1, d.scale == HTH_SCALE_E8M0 ? 0xff : 0xffff);
    add_elements(f, one.offsets.minimum, d.minima ? 1 : 0, 0xffff);
    return true;
}

/* The elements of a block as they shall be. */
static void pack_block(const finder *f, const uint8_t *block, uint32_t *elements)
{
    uint8_t planes[MAX_PLANES] = {0};
    hth_soa_layout_pack(f->type, 1, f->n_col, block, f->size, 0, 1, planes);
    for (uint32_t e = 0; e < f->n_element; e++) elements[e] = hth_load_u32(planes + f->at[e]) & f->mask[e];
}

/* ---- where bits come from ---------------------------------------------------------------------------- */

/* Packs a block whose bits are bit i of their numbers. */
static void probe(finder *f, unsigned i)
{
    uint8_t block[MAX_SIZE] = {0};
    uint32_t elements[MAX_ELEMENT];
    for (size_t b = 0; b < 8 * f->size; b++)
        block[b / 8] = (uint8_t)(block[b / 8] | ((b + 1) >> i & 1) << b % 8);
    pack_block(f, block, elements);
    for (uint32_t e = 0; e < f->n_element; e++)
        for (uint32_t k = 0; k < WORD_BITS; k++)
            f->from[e][k] = (uint16_t)(f->from[e][k] | ((elements[e] ^ f->inverted[e]) >> k & 1) << i);
}

static bool find_bits(finder *f)
{
    const uint8_t zeros[MAX_SIZE] = {0};
    pack_block(f, zeros, f->inverted);
    for (unsigned i = 0; 8 * f->size >> i > 0; i++) probe(f, i);
    for (uint32_t e = 0; e < f->n_element; e++)
        for (uint32_t k = 0; k < WORD_BITS; k++)
            if (f->from[e][k] > 8 * f->size) return false;
    return true;
}

/* The place of byte `at` of row r in the panel's block. */
static size_t place_in_panel(const finder *f, size_t at, size_t r)
{
    uint8_t rows[HTH_PANEL_ROW * MAX_SIZE] = {0}, panel[HTH_PANEL_ROW * MAX_SIZE];
    size_t place = 0;
    rows[r * f->size + at] = 1;
    hth_panel_pack(f->type, 1, rows, f->size, panel);
    while (panel[place] == 0) place++;
    return place;
}

/* Byte `at` of row 0 is at 16 first + at - first, where `first` is the first byte of its unit. */
static void find_units(finder *f)
{
    for (size_t at = 0; at < f->size; at++) {
        size_t place = place_in_panel(f, at, 0);
        f->unit[at] = (uint8_t)(place_in_panel(f, at, 1) - place);
        f->first_byte[at] = (uint8_t)((place - at) / (HTH_PANEL_ROW - 1));
    }
}

/* ---- terms ------------------------------------------------------------------------------------------- */

typedef struct term {
    size_t byte, unit;
    uint32_t rotation, mask;
} term;

/* The term that begins at a byte of the block and has bit k of the element, with those of `wanted` that it has too. */
static term term_at(const finder *f, uint32_t e, uint32_t k, uint32_t wanted, size_t byte)
{
    const uint16_t *from = f->from[e];
    const size_t unit = f->layout == HTH_LAYOUT_PANELS ? f->unit[byte] : 0, first = 8 * byte + 1,
                 end = first + (unit > 0 ? 8 * unit : WORD_BITS);
    term t = {
        .byte = byte, .unit = unit, .rotation = (k + WORD_BITS - (uint32_t)(from[k] - first)) % WORD_BITS};
    for (uint32_t i = 0; i < WORD_BITS; i++)
        if (wanted >> i & 1 && from[i] >= first && from[i] < end &&
            (from[i] - first + t.rotation) % WORD_BITS == i)
            t.mask |= 1u << i;
    return t;
}

/* Of all terms that have bit k the one with most bits. */
static term best_term(const finder *f, uint32_t e, uint32_t k, uint32_t wanted)
{
    const size_t last = (f->from[e][k] - 1u) / 8;
    term best = {0};
    if (f->layout == HTH_LAYOUT_PANELS) return term_at(f, e, k, wanted, f->first_byte[last]);
    for (size_t byte = last < 3 ? 0 : last - 3; byte <= last && byte + 4 <= f->size; byte++) {
        const term t = term_at(f, e, k, wanted, byte);
        if (hth_count_bits(t.mask) > hth_count_bits(best.mask)) best = t;
    }
    return best;
}

/* false: the table is full. */
static bool add_terms(finder *f, uint32_t e)
{
    uint32_t wanted = 0, first = f->n_term;
    for (uint32_t k = 0; k < WORD_BITS; k++) wanted |= (uint32_t)(f->from[e][k] > 0) << k;
    while (wanted > 0) {
        const term t = best_term(f, e, (uint32_t)__builtin_ctz(wanted), wanted);
        if (t.mask == 0 || 2 * f->n_term + 2 > HTH_PACK_TABLE_WORDS) return false;
        f->table[2 * f->n_term] = (uint32_t)t.byte | (uint32_t)t.unit << 16 | t.rotation << 24;
        f->table[2 * f->n_term++ + 1] = t.mask;
        wanted &= ~t.mask;
    }
    f->table[2 * e] = first | (f->n_term - first) << 16;
    f->table[2 * e + 1] = f->inverted[e];
    return true;
}

/* ---- the check --------------------------------------------------------------------------------------- */

static uint32_t rotated(uint32_t x, uint32_t by) { return x << by | x >> (WORD_BITS - by) % WORD_BITS; }

/* Element e of row r by the table. */
static uint32_t element_by_table(const finder *f, const uint8_t *blocks, size_t r, uint32_t e)
{
    uint32_t first = f->table[2 * e] & 0xffff, n = f->table[2 * e] >> 16, x = f->table[2 * e + 1];
    for (uint32_t t = first; t < first + n; t++) {
        size_t byte = f->table[2 * t] & 0xffff, unit = f->table[2 * t] >> 16 & 0xff;
        size_t at = f->layout == HTH_LAYOUT_PANELS ? HTH_PANEL_ROW * byte + r * unit : r * f->size + byte;
        x ^= rotated(hth_load_u32(blocks + at), f->table[2 * t] >> 24) & f->table[2 * t + 1];
    }
    return x;
}

static bool is_right(const finder *f, uint64_t *random)
{
    uint8_t rows[HTH_PANEL_ROW * MAX_SIZE + SLACK] = {0}, blocks[HTH_PANEL_ROW * MAX_SIZE + SLACK] = {0};
    for (size_t i = 0; i < HTH_PANEL_ROW * f->size; i++) rows[i] = (uint8_t)(hth_random_next(random) >> 32);
    if (f->layout == HTH_LAYOUT_PANELS) hth_panel_pack(f->type, 1, rows, f->size, blocks);
    else memcpy(blocks, rows, sizeof blocks);
    for (size_t r = 0; r < HTH_PANEL_ROW; r++) {
        uint32_t elements[MAX_ELEMENT];
        pack_block(f, rows + r * f->size, elements);
        for (uint32_t e = 0; e < f->n_element; e++)
            if (element_by_table(f, blocks, r, e) != elements[e]) return false;
    }
    return true;
}

bool hth_pack_table(hth_type type, hth_layout layout, uint32_t table[HTH_PACK_TABLE_WORDS], uint32_t *n_word)
{
    finder f = {.type = type, .layout = layout, .table = table};
    uint64_t random = 1;
    if (layout == HTH_LAYOUT_PANELS && !hth_panel_supported(type)) return false;
    if (!list_elements(&f) || !find_bits(&f)) return false;
    if (layout == HTH_LAYOUT_PANELS) find_units(&f);
    f.n_term = f.n_element;
    for (uint32_t e = 0; e < f.n_element; e++)
        if (!add_terms(&f, e)) return false;
    for (int i = 0; i < N_RANDOM; i++)
        if (!is_right(&f, &random)) return false;
    *n_word = 2 * f.n_term;
    return true;
}
