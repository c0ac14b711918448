/* Packs file matrices into the device layout (weight_layout.h): each block is decoded into integers and scales,
 * which are stored where the row shaders read them. Called at loading and for streamed weights. kernels/
 * (NAME_ref.c) defines the block formats. */
#include "forward/gpu/weight_layout.h"
#include "forward/gpu/weight_layout_int.h"

#include "base/bits.h"
#include "base/checked_math.h"
#include "kernels/quant/blocks.h"

#include <string.h>

enum { GROUP = 8, PIECE = 16 /* bytes */ };

/* ---- blocks of 32 ----------------------------------------------------------------------------- */

/* 32 weights from the nibbles of 16 bytes. */
static void read_nibbles(const uint8_t *p, uint8_t *raw)
{
    memset(raw, 0, 32);
    add_bits(p, 16, 0, 15, 0, raw);
    add_bits(p, 16, 4, 15, 0, raw + 16);
}

static void add_fifths(uint32_t bits, uint8_t *raw)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t x = hth_load_u64(raw + 8 * i) | spread_bits(bits >> 8 * i & 255) << 4;
        memcpy(raw + 8 * i, &x, sizeof x);
    }
}

/* Q4_0 and IQ4_NL. */
static void read_q4_0(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p);
    read_nibbles(p + 2, k->raw);
}

static void read_q4_1(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p), k->m = hth_load_u16(p + 2);
    read_nibbles(p + 4, k->raw);
}

static void read_q5_0(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p);
    read_nibbles(p + 6, k->raw);
    add_fifths(hth_load_u32(p + 2), k->raw);
}

static void read_q5_1(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p), k->m = hth_load_u16(p + 2);
    read_nibbles(p + 8, k->raw);
    add_fifths(hth_load_u32(p + 4), k->raw);
}

static void read_q8_0(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p);
    memcpy(k->raw, p + 2, 32);
}

static void read_mxfp4(const uint8_t *p, hth_soa_decoded *k)
{
    k->exponent = *p;
    read_nibbles(p + 1, k->raw);
}

/* 64 weights, and the four bytes of scales as `part`. */
static void read_nvfp4(const uint8_t *p, hth_soa_decoded *k)
{
    memcpy(k->part, p, 4);
    memset(k->raw, 0, 64);
    for (unsigned i = 0; i < 4; i++) {
        add_bits(p + 4 + 8 * i, 8, 0, 15, 0, k->raw + 16 * i);
        add_bits(p + 4 + 8 * i, 8, 4, 15, 0, k->raw + 16 * i + 8);
    }
}

/* ---- blocks of 256 ------------------------------------------------------------------------------ */

static void read_q2_k(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p + 80), k->m = hth_load_u16(p + 82);
    for (int i = 0; i < 16; i++) k->part[i] = (int8_t)(p[i] & 15), k->sub_min[i] = p[i] >> 4;
    memset(k->raw, 0, sizeof k->raw);
    for (unsigned s = 0; s < 8; s++) add_bits(p + 16 + 32 * (s / 4), 32, 2 * (s % 4), 3, 0, k->raw + 32 * s);
}

static void read_q3_k(const uint8_t *p, hth_soa_decoded *k)
{
    int16_t scale[16];
    k->d = hth_load_u16(p + 108);
    hth_q3_k_scales(p + 96, scale);
    narrow(scale, 1, k->part);
    memset(k->raw, 0, sizeof k->raw);
    for (unsigned s = 0; s < 8; s++) {
        add_bits(p + 32 + 32 * (s / 4), 32, 2 * (s % 4), 3, 0, k->raw + 32 * s);
        add_bits(p, 32, s, 1, 2, k->raw + 32 * s);
    }
}

static void read_k_head(const uint8_t *p, hth_soa_decoded *k)
{
    uint8_t scale[8];
    k->d = hth_load_u16(p), k->m = hth_load_u16(p + 2);
    hth_k_scales(p + 4, scale, k->sub_min);
    memcpy(k->part, scale, sizeof scale); /* 0..63 */
    memset(k->raw, 0, sizeof k->raw);
}

static void read_q4_k(const uint8_t *p, hth_soa_decoded *k)
{
    read_k_head(p, k);
    for (unsigned s = 0; s < 8; s++) add_bits(p + 16 + 32 * (s / 2), 32, 4 * (s % 2), 15, 0, k->raw + 32 * s);
}

static void read_q5_k(const uint8_t *p, hth_soa_decoded *k)
{
    read_k_head(p, k);
    for (unsigned s = 0; s < 8; s++) {
        add_bits(p + 48 + 32 * (s / 2), 32, 4 * (s % 2), 15, 0, k->raw + 32 * s);
        add_bits(p + 16, 32, s, 1, 4, k->raw + 32 * s);
    }
}

static void read_q6_k(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p + 208);
    memcpy(k->part, p + 192, 16);
    memset(k->raw, 0, sizeof k->raw);
    for (unsigned s = 0; s < 8; s++) {
        add_bits(p + 64 * (s / 4) + 32 * (s % 2), 32, s % 4 / 2 * 4, 15, 0, k->raw + 32 * s);
        add_bits(p + 128 + 32 * (s / 4), 32, 2 * (s % 4), 3, 4, k->raw + 32 * s);
    }
}

static void read_iq4_xs(const uint8_t *p, hth_soa_decoded *k)
{
    int16_t scale[16];
    k->d = hth_load_u16(p);
    hth_iq4_xs_scales(p, scale);
    narrow(scale, 2, k->part);
    for (int s = 0; s < 8; s++) read_nibbles(p + 8 + 16 * s, k->raw + 32 * s);
}

/* Base-3 digits: those of 32 bytes in turn, then those of sixteen bytes and of four. */
static void read_tq1_0(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p + 52);
    for (int i = 0; i < 160; i++) k->raw[i] = hth_tq1_digit(p[i % 32], i / 32);
    for (int i = 0; i < 80; i++) k->raw[160 + i] = hth_tq1_digit(p[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++) k->raw[240 + i] = hth_tq1_digit(p[48 + i % 4], i / 4);
}

static void read_tq2_0(const uint8_t *p, hth_soa_decoded *k)
{
    k->d = hth_load_u16(p + 64);
    memset(k->raw, 0, sizeof k->raw);
    for (unsigned s = 0; s < 8; s++) add_bits(p + 32 * (s / 4), 32, 2 * (s % 4), 3, 0, k->raw + 32 * s);
}

/* ---- types ------------------------------------------------------------------------------------------ */

typedef struct quantised {
    hth_quant_desc desc;
    void (*read)(const uint8_t *p, hth_soa_decoded *k);
    /* byte offset of the quants in a block whose quants are already in device order, without high bits; 0: not so */
    size_t quants;
} quantised;

/* block, low_bits, high_bits, offset, table, part, minima, scale. */
static const quantised types[HTH_TYPE_LIMIT] = {
    [HTH_TYPE_Q4_0] = {{32, 4, 0, 8, 0, 0, 0, 0}, read_q4_0, 2},
    [HTH_TYPE_Q4_1] = {{32, 4, 0, 0, 0, 0, 1, 0}, read_q4_1, 4},
    [HTH_TYPE_Q5_0] = {{32, 4, 1, 16, 0, 0, 0, 0}, read_q5_0, 0},
    [HTH_TYPE_Q5_1] = {{32, 4, 1, 0, 0, 0, 1, 0}, read_q5_1, 0},
    [HTH_TYPE_Q8_0] = {{32, 8, 0, 0, 0, 0, 0, 0}, read_q8_0, 2},
    [HTH_TYPE_IQ4_NL] = {{32, 4, 0, 0, 1, 0, 0, 0}, read_q4_0, 2},
    [HTH_TYPE_MXFP4] = {{32, 4, 0, 0, 2, 0, 0, 1}, read_mxfp4, 1},
    [HTH_TYPE_NVFP4] = {{16, 4, 0, 0, 2, 0, 0, 0}, read_nvfp4, 0},
    [HTH_TYPE_Q2_K] = {{256, 2, 0, 0, 0, 16, 1, 0}, read_q2_k, 0},
    [HTH_TYPE_Q3_K] = {{256, 2, 1, 4, 0, 16, 0, 0}, read_q3_k, 0},
    [HTH_TYPE_Q4_K] = {{256, 4, 0, 0, 0, 32, 1, 0}, read_q4_k, 0},
    [HTH_TYPE_Q5_K] = {{256, 4, 1, 0, 0, 32, 1, 0}, read_q5_k, 0},
    [HTH_TYPE_Q6_K] = {{256, 4, 2, 32, 0, 16, 0, 0}, read_q6_k, 0},
    [HTH_TYPE_IQ4_XS] = {{256, 4, 0, 0, 1, 32, 0, 0}, read_iq4_xs, 0},
    [HTH_TYPE_IQ3_XXS] = {{256, 4, 0, 0, 3, 32, 0, 2}, hth_soa_read_iq3_xxs, 0},
    [HTH_TYPE_IQ3_S] = {{256, 4, 0, 0, 4, 32, 0, 0}, hth_soa_read_iq3_s, 0},
    [HTH_TYPE_IQ2_XXS] = {{256, 2, 1, 0, 5, 32, 0, 3}, hth_soa_read_iq2_xxs, 0},
    [HTH_TYPE_IQ2_XS] = {{256, 2, 1, 0, 5, 16, 0, 3}, hth_soa_read_iq2_xs, 0},
    [HTH_TYPE_IQ2_S] = {{256, 2, 1, 0, 5, 16, 0, 3}, hth_soa_read_iq2_s, 0},
    [HTH_TYPE_IQ1_S] = {{256, 2, 1, 0, 6, 32, 0, 3}, hth_soa_read_iq1_s, 0},
    [HTH_TYPE_IQ1_M] = {{256, 2, 1, 0, 6, 16, 0, 3}, hth_soa_read_iq1_m, 0},
    [HTH_TYPE_TQ1_0] = {{256, 2, 0, 1, 0, 0, 0, 0}, read_tq1_0, 0},
    [HTH_TYPE_TQ2_0] = {{256, 2, 0, 1, 0, 0, 0, 0}, read_tq2_0, 0},
};

static const quantised *find(hth_type type)
{
    return (unsigned)type < HTH_TYPE_LIMIT && types[type].read ? &types[type] : NULL;
}

bool hth_quant_desc_of(hth_type type, hth_quant_desc *desc)
{
    const quantised *q = find(type);
    if (q) *desc = q->desc;
    return q != NULL;
}

/* ---- sizes and offsets -------------------------------------------------------------------------------- */

/* Bytes of one row in each array, for n_block blocks. */
typedef struct row_bytes {
    uint64_t low, high, scale, part, sub_min, minimum;
} row_bytes;

static uint64_t to_words(uint64_t bytes) { return (bytes + 3) / 4 * 4; }
static uint64_t to_pieces(uint64_t bytes) { return (bytes + PIECE - 1) / PIECE * PIECE; }

static row_bytes bytes_of_row(const hth_quant_desc *f, uint64_t n_block)
{
    uint64_t n_part = f->part ? n_block * (f->block / f->part) : 0;
    return (row_bytes){
        .low = n_block * (f->block * f->low_bits / 8),
        .high = n_block * (f->block * f->high_bits / 8),
        .scale = to_words(f->scale == HTH_SCALE_E8M0 ? n_block : 2 * n_block),
        .part = n_part,
        .sub_min = f->minima ? n_part : 0,
        .minimum = f->minima ? to_words(2 * n_block) : 0,
    };
}

/* Appends an array of n_row rows of `bytes` to *size; writes its word offset. */
static bool add_array(uint64_t n_row, uint64_t bytes, uint64_t *size, uint32_t *at)
{
    uint64_t all;
    const uint64_t max = (uint64_t)UINT32_MAX * 4 - 256;
    *at = bytes ? (uint32_t)(*size / 4) : 0;
    if (bytes && n_row > max / bytes) return false;
    all = (n_row * bytes + 255) / 256 * 256;
    if (all > max - *size) return false;
    *size += all;
    return true;
}

bool hth_soa_layout_init(hth_type type, uint64_t n_row, uint64_t n_col, hth_soa_layout *layout)
{
    uint32_t quants;
    const quantised *q = find(type);
    *layout = (hth_soa_layout){0};
    if (n_col > UINT32_MAX) return false;
    if (!q) {
        const hth_type_info *info = hth_type_find(type);
        bool floats = info && info->supported && !info->quantised;
        return floats && add_array(n_row, to_pieces(n_col * info->size), &layout->size, &quants);
    }
    row_bytes row = bytes_of_row(&q->desc, n_col / q->desc.block);
    return n_col % q->desc.block == 0 && add_array(n_row, row.low, &layout->size, &quants) &&
           add_array(n_row, row.high, &layout->size, &layout->offsets.high) &&
           add_array(n_row, row.scale, &layout->size, &layout->offsets.scale) &&
           add_array(n_row, row.part, &layout->size, &layout->offsets.sub_scale) &&
           add_array(n_row, row.sub_min, &layout->size, &layout->offsets.sub_min) &&
           add_array(n_row, row.minimum, &layout->size, &layout->offsets.minimum);
}

uint64_t hth_soa_layout_offset(hth_type type, uint64_t n_col, uint64_t n, hth_soa_layout *layout)
{
    const quantised *q = find(type);
    if (n == 0) return 0;
    if (!q) {
        uint64_t bytes = n * hth_soa_row_words(type, n_col) * 4;
        layout->size -= bytes;
        return bytes;
    }
    const row_bytes row = bytes_of_row(&q->desc, n_col / q->desc.block);
    const uint32_t skipped = (uint32_t)(n * row.low / 4);
    const uint64_t later[] = {row.high, row.scale, row.part, row.sub_min, row.minimum};
    uint32_t *starts[] = {&layout->offsets.high, &layout->offsets.scale, &layout->offsets.sub_scale,
                          &layout->offsets.sub_min, &layout->offsets.minimum};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (later[i]) *starts[i] += (uint32_t)(n * later[i] / 4) - skipped;
    layout->size -= 4 * (uint64_t)skipped;
    return 4 * (uint64_t)skipped;
}

uint32_t hth_soa_row_words(hth_type type, uint64_t n_col)
{
    return (uint32_t)(to_pieces(n_col * hth_type_find(type)->size) / 4);
}

/* ---- packing ------------------------------------------------------------------------------------------- */

/* Writes `bits` bits of each weight, from `shift` on, as pieces `step` bytes apart. */
static void write_pieces(const uint8_t *raw, unsigned n_weight, unsigned bits, unsigned shift, uint8_t *to,
                         size_t step)
{
    for (unsigned first = 0; first < n_weight; first += 128 / bits, to += step) {
        uint8_t piece[PIECE] = {0};
        for (unsigned i = 0; i < 8 / bits; i++)
            add_bits(raw + first + PIECE * i, PIECE, shift, (1u << bits) - 1, bits * i, piece);
        memcpy(to, piece, PIECE);
    }
}

/* The fifth bits of a block of 32. */
static void write_word(const uint8_t *raw, unsigned shift, uint8_t *to)
{
    uint32_t word = 0;
    for (unsigned i = 0; i < 8; i++) word |= (hth_load_u32(raw + 4 * i) >> shift & 0x01010101u) << i;
    memcpy(to, &word, sizeof word);
}

/* The arrays of a row. */
typedef struct row_arrays {
    uint8_t *low, *high, *scale, *part, *sub_min, *minimum;
} row_arrays;

static void write_block(const hth_quant_desc *f, const hth_soa_decoded *k, size_t b, size_t n_block,
                        const row_arrays *to)
{
    size_t first = b / GROUP * GROUP, n_part = f->part ? f->block / f->part : 0;
    size_t step = PIECE * (n_block - first < GROUP ? n_block - first : GROUP), place = PIECE * (b - first);
    size_t low = f->block * f->low_bits / 8, high = f->block * f->high_bits / 8;
    write_pieces(k->raw, f->block, f->low_bits, 0, to->low + first * low + place, step);
    if (high == 4) write_word(k->raw, f->low_bits, to->high + b * high);
    else if (high)
        write_pieces(k->raw, f->block, f->high_bits, f->low_bits, to->high + first * high + place, step);
    if (f->scale == HTH_SCALE_E8M0) to->scale[b] = k->exponent;
    else hth_store_u16(to->scale + 2 * b, k->d);
    memcpy(to->part + b * n_part, k->part, n_part);
    if (!f->minima) return;
    memcpy(to->sub_min + b * n_part, k->sub_min, n_part);
    hth_store_u16(to->minimum + 2 * b, k->m);
}

/* The same for a block whose quants are already in device order; scale and minimum precede them. */
static void move_block(const hth_quant_desc *f, const uint8_t *p, size_t quants, size_t b, size_t n_block,
                       const row_arrays *to)
{
    size_t first = b / GROUP * GROUP, size = f->block * f->low_bits / 8;
    size_t step = PIECE * (n_block - first < GROUP ? n_block - first : GROUP);
    uint8_t *low = to->low + first * size + PIECE * (b - first);
    for (size_t at = 0; at < size; at += PIECE, low += step) memcpy(low, p + quants + at, PIECE);
    if (f->scale == HTH_SCALE_E8M0) to->scale[b] = *p;
    else memcpy(to->scale + 2 * b, p, 2);
    if (f->minima) memcpy(to->minimum + 2 * b, p + 2, 2);
}

/* A row of NVFP4, whose file blocks are four of the layout's. Its scales are halves exactly. */
static void fill_nvfp4(const uint8_t *row, size_t n_block, const row_arrays *to)
{
    hth_soa_decoded k;
    for (size_t b = 0; b < n_block; b += 4, row += 36) {
        read_nvfp4(row, &k);
        for (size_t i = 0; i < 4; i++)
            hth_store_u16(to->scale + 2 * (b + i), hth_f32_to_f16(hth_nvfp4_scale((uint8_t)k.part[i])));
        write_pieces(k.raw, 64, 4, 0, to->low + 8 * b, PIECE);
    }
}

static void fill_floats(hth_type type, size_t n_col, const uint8_t *rows, size_t row_size, uint64_t first,
                        uint64_t n, uint8_t *to)
{
    const size_t size = hth_type_row_size(type, n_col), row_words = hth_soa_row_words(type, n_col);
    for (uint64_t i = first; i < first + n; i++, rows += row_size) {
        uint8_t *row = to + i * row_words * 4;
        for (size_t w = 0; 4 * w < size; w++)
            memcpy(row + 4 * hth_soa_word_offset(type, n_col, w), rows + 4 * w,
                   size - 4 * w < 4 ? size - 4 * w : 4);
    }
}

void hth_soa_layout_pack(hth_type type, uint64_t n_row, uint64_t n_col, const uint8_t *rows, size_t row_size,
                         uint64_t first, uint64_t n, uint8_t *to)
{
    const quantised *q = find(type);
    const size_t size = hth_type_row_size(type, (size_t)n_col);
    hth_soa_layout layout;
    hth_soa_decoded k = {0};
    if (!hth_soa_layout_init(type, n_row, n_col, &layout)) return;
    if (!q) {
        fill_floats(type, (size_t)n_col, rows, row_size, first, n, to);
        return;
    }
    const hth_quant_desc *f = &q->desc;
    const size_t n_block = (size_t)n_col / f->block, block_size = n_block ? size / n_block : 0;
    const row_bytes row = bytes_of_row(f, n_block);
    for (uint64_t i = first; i < first + n; i++, rows += row_size) {
        const row_arrays arrays_of_row = {
            .low = to + i * row.low,
            .high = to + 4 * (uint64_t)layout.offsets.high + i * row.high,
            .scale = to + 4 * (uint64_t)layout.offsets.scale + i * row.scale,
            .part = to + 4 * (uint64_t)layout.offsets.sub_scale + i * row.part,
            .sub_min = to + 4 * (uint64_t)layout.offsets.sub_min + i * row.sub_min,
            .minimum = to + 4 * (uint64_t)layout.offsets.minimum + i * row.minimum,
        };
        if (type == HTH_TYPE_NVFP4) {
            fill_nvfp4(rows, n_block, &arrays_of_row);
            continue;
        }
        for (size_t b = 0; b < n_block && q->quants; b++)
            move_block(f, rows + b * block_size, q->quants, b, n_block, &arrays_of_row);
        for (size_t b = 0; b < n_block && !q->quants; b++) {
            q->read(rows + b * block_size, &k);
            write_block(f, &k, b, n_block, &arrays_of_row);
        }
    }
}
