/* The shader pack_rows as a C function (shader_params.h): slices of a matrix from the host's bytes to the device's
 * layout, by hth_panel_row and hth_soa_layout_pack. It runs on the reference device, from any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "kernels/panel/panel.h"

#include <assert.h>
#include <string.h>

enum {
    GROUP = 8,
    MAX_GROUP = 8 << 8 /* bytes of a group's blocks */,
    MAX_PLANES = 4096 /* and of its arrays */
};

/* One slice. */
typedef struct slice {
    const uint32_t *consts;
    hth_push_pack_rows push;
    hth_type type;
    uint32_t slot, row_words[HTH_PACK_ARRAYS];
    const uint8_t *from;
    uint32_t *planes;
} slice;

/* Of several types with one descriptor that with blocks of this size. */
static hth_type type_of(const uint32_t *consts)
{
    hth_quant_desc desc;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++)
        if (hth_quant_desc_of((hth_type)type, &desc) &&
            hth_type_find(type)->size == consts[HTH_PACK_ROWS_SIZE] &&
            memcmp(&desc, consts + HTH_PACK_ROWS_FORMAT, sizeof desc) == 0)
            return (hth_type)type;
    return (hth_type)HTH_TYPE_LIMIT;
}

/* The arrays' first words. */
static void list_arrays(const hth_soa_offsets *at, uint32_t words[HTH_PACK_ARRAYS])
{
    const uint32_t all[HTH_PACK_ARRAYS] = {0, at->high, at->scale, at->sub_scale, at->sub_min, at->minimum};
    memcpy(words, all, sizeof all);
}

/* Where row r of the slice is in the array. */
static uint32_t *row_at(const slice *s, uint32_t i_array, uint32_t r)
{
    uint32_t starts[HTH_PACK_ARRAYS];
    list_arrays(&s->push.at, starts);
    return s->planes + starts[i_array] + ((size_t)s->slot * s->push.slice_rows + r) * s->row_words[i_array];
}

/* ---- blocks ------------------------------------------------------------------------------------------ */

/* The number of block b among those of a panel. */
static size_t place_in_panel(size_t n_block, size_t b)
{
    const size_t n_sum = hth_panel_n_sum(true);
    size_t place = 0;
    for (size_t j = 0; hth_panel_sum_order(true, j) != b % n_sum; j++)
        place += (n_block + n_sum - 1 - hth_panel_sum_order(true, j)) / n_sum;
    return place + b / n_sum;
}

static void read_block(const slice *s, uint32_t r, size_t b, uint8_t *to)
{
    const size_t size = s->consts[HTH_PACK_ROWS_SIZE], n_block = s->push.n_block, in = r % HTH_PANEL_ROW;
    if (s->consts[HTH_PACK_ROWS_FORM] == HTH_PACK_ROWS_FILE) {
        memcpy(to, s->from + (r * n_block + b) * size, size);
        return;
    }
    const uint8_t *panel = s->from + (r - in) * n_block * size;
    hth_panel_row(s->type, 1, panel + HTH_PANEL_ROW * place_in_panel(n_block, b) * size, in, to);
}

/* Eight blocks of a row, or the last ones, are a row of their own: their arrays are pieces of the row's. */
static void pack_group(const slice *s, uint32_t r, uint32_t first)
{
    const uint32_t n = hth_min_u32(GROUP, s->push.n_block - first), size = s->consts[HTH_PACK_ROWS_SIZE],
                   n_col = n * s->consts[HTH_PACK_ROWS_FORMAT];
    uint8_t blocks[MAX_GROUP];
    uint32_t planes[MAX_PLANES / 4] = {0}, starts[HTH_PACK_ARRAYS], words[HTH_PACK_ARRAYS],
                                 before[HTH_PACK_ARRAYS];
    hth_soa_layout layout;
    assert((size_t)n * size <= sizeof blocks);
    for (uint32_t b = 0; b < n; b++) read_block(s, r, first + b, blocks + (size_t)b * size);
    if (!hth_soa_layout_init(s->type, 1, n_col, &layout)) return;
    assert(layout.size <= sizeof planes);
    hth_soa_layout_pack(s->type, 1, n_col, blocks, (size_t)n * size, 0, 1, (uint8_t *)planes);
    list_arrays(&layout.offsets, starts);
    hth_pack_rows_words(s->consts, n, words);
    hth_pack_rows_words(s->consts, first, before);
    for (uint32_t i = 0; i < HTH_PACK_ARRAYS; i++)
        memcpy(row_at(s, i, r) + before[i], planes + starts[i], words[i] * sizeof *planes);
}

/* ---- slices ------------------------------------------------------------------------------------------ */

/* Rows and blocks of the grid. */
static void pack_slice(const slice *s, const uint32_t *grid)
{
    const uint32_t n_row = hth_min_u32(s->push.slice_rows, grid[1] * HTH_PACK_ROWS_TILE),
                   n_block = hth_min_u32(s->push.n_block, grid[0] * s->consts[HTH_PACK_ROWS_BLOCKS]);
    for (uint32_t r = 0; r < n_row; r++)
        for (uint32_t b = 0; b < n_block; b += GROUP) pack_group(s, r, b);
}

static void copy_slice(const slice *s)
{
    const uint8_t *from = s->from;
    for (uint32_t i = 0; i < HTH_PACK_ARRAYS; i++) {
        size_t size = (size_t)s->push.slice_rows * s->row_words[i] * sizeof *s->planes;
        memcpy(row_at(s, i, 0), from, size);
        from += (size + 255) / 256 * 256;
    }
}

void hth_ref_pack_rows(const hth_dispatch_args *c)
{
    slice s = {.consts = c->consts, .type = type_of(c->consts), .planes = c->bind[3]};
    memcpy(&s.push, c->push, sizeof s.push);
    const uint32_t *jobs = (const uint32_t *)c->bind[0] + s.push.jobs_at, *job = jobs + HTH_PACK_ROWS_HEAD;
    hth_pack_rows_words(c->consts, s.push.n_block, s.row_words);
    for (uint32_t z = 0; z < hth_min_u32(jobs[0], c->grid[2]); z++, job += 2) {
        s.slot = job[0], s.from = (const uint8_t *)c->bind[1] + s.push.base + (size_t)job[1] * s.push.pitch;
        if (c->consts[HTH_PACK_ROWS_FORM] == HTH_PACK_ROWS_PLANES) copy_slice(&s);
        else pack_slice(&s, c->grid);
    }
}
