/* Slices of the host's bytes that a device converts to its layout: on the null device and on the first that Vulkan knows
 * they have the bytes that hth_soa_layout_pack writes, from rows in file order, from panels, and from slices that the host
 * has packed. All other slices, and what lies between the arrays, stay. */
#include "forward/gpu/experts/pack_table.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, N_SLOT = 4, N_SOURCE = 3, N_JOB = 3, MAX_JOBS_AT = 5, LOCAL = 64 };
static const uint32_t slots[N_JOB] = {3, 0, 2}, sources[N_JOB] = {1, 2, 0}; /* slot 1 stays */

/* ---- one matrix ---------------------------------------------------------------------------------------- */

typedef struct matrix {
    hth_type type;
    uint32_t form, slice_rows, n_block, n_col;
    uint32_t consts[HTH_PACK_ROWS_N_CONST];
    hth_push_pack_rows push;
    size_t row_size, n_byte;    /* of the source, whole pieces */
    uint8_t *rows, *source;     /* [N_SOURCE][slice_rows] rows; what the host has */
    uint8_t *planes, *expected; /* [N_SLOT] slices */
    hth_soa_layout layout;
    uint32_t jobs[MAX_JOBS_AT + HTH_PACK_ROWS_HEAD + 2 * (N_JOB + 1)];
    uint32_t table[HTH_PACK_TABLE_WORDS], n_word;
} matrix;

static void free_matrix(matrix *m) { free(m->rows), free(m->source), free(m->planes), free(m->expected); }

static void *get(size_t n) { return calloc(n ? n : 1, 1); }

/* A slice as the host has it. */
static void put_source(const matrix *m, const uint8_t *rows, uint8_t *to)
{
    const size_t n_row = m->slice_rows, size = m->row_size;
    if (m->form == HTH_PACK_ROWS_FILE) memcpy(to, rows, n_row * size);
    if (m->form == HTH_PACK_ROWS_PLANES)
        hth_soa_layout_pack(m->type, n_row, m->n_col, rows, size, 0, n_row, to);
    for (size_t r = 0; m->form == HTH_PACK_ROWS_PANELS && r < n_row; r += HTH_PANEL_ROW)
        hth_panel_pack(m->type, m->n_block, rows + r * size, size, to + r * size);
}

/* What fills up rows of slices that are written becomes 0: of scales a part of a word, of floats some words. */
static void zero_rows(const matrix *m, uint32_t array_at, uint32_t row_words, uint32_t slot)
{
    const size_t n = (size_t)m->slice_rows * row_words;
    memset(m->expected + 4 * (array_at + slot * n), 0, 4 * n);
}

static void expect(matrix *m)
{
    uint32_t words[HTH_PACK_ARRAYS];
    hth_pack_rows_words(m->consts, m->push.n_block, words);
    memset(m->expected, SHADERS_POISON, (size_t)m->layout.size);
    for (uint32_t i = 0; i < N_JOB; i++) {
        uint32_t first = slots[i] * m->slice_rows;
        if (!rows_quantised(m->type)) zero_rows(m, 0, words[0], slots[i]);
        zero_rows(m, m->layout.offsets.scale, words[2], slots[i]);
        zero_rows(m, m->layout.offsets.minimum, words[5], slots[i]);
        hth_soa_layout_pack(m->type, N_SLOT * (uint64_t)m->slice_rows, m->n_col,
                            m->rows + (size_t)sources[i] * m->slice_rows * m->row_size, m->row_size, first,
                            m->slice_rows, m->expected);
    }
}

static void fill_jobs(matrix *m, test_random *r)
{
    m->push.jobs_at = test_random_below(r, MAX_JOBS_AT + 1);
    uint32_t *job = m->jobs + m->push.jobs_at;
    job[0] = N_JOB, job += HTH_PACK_ROWS_HEAD;
    for (uint32_t i = 0; i < N_JOB; i++, job += 2) job[0] = slots[i], job[1] = sources[i];
    job[0] = 1, job[1] = 0; /* of no job */
}

/* Slices begin at any byte, and not at multiples of a word. */
static matrix make(test_random *r, hth_type type, uint32_t form, uint32_t slice_rows, uint32_t n_block)
{
    const hth_type_info *info = hth_type_find(type);
    const uint64_t n_row = (uint64_t)N_SLOT * slice_rows;
    hth_quant_desc desc = {0};
    matrix m = {.type = type,
                .form = form,
                .slice_rows = slice_rows,
                .n_block = n_block,
                .n_col = n_block * info->n_weight};
    hth_soa_layout alone;
    bool quantised = hth_quant_desc_of(type, &desc);
    m.row_size = hth_type_row_size(type, m.n_col);
    CHECK(hth_soa_layout_init(type, n_row, m.n_col, &m.layout));
    CHECK(hth_soa_layout_init(type, slice_rows, m.n_col, &alone));
    size_t n_slice = form == HTH_PACK_ROWS_PLANES ? (size_t)alone.size : slice_rows * m.row_size;
    m.push =
        (hth_push_pack_rows){.base = test_random_below(r, 40),
                             .pitch = (uint32_t)n_slice + test_random_below(r, 20),
                             .slice_rows = slice_rows,
                             .n_block = quantised ? m.n_col / desc.block : hth_soa_row_words(type, m.n_col),
                             .at = m.layout.offsets};
    m.consts[HTH_PACK_ROWS_LOCAL] = LOCAL, m.consts[HTH_PACK_ROWS_FORM] = form;
    m.consts[HTH_PACK_ROWS_SIZE] = info->size,
    m.consts[HTH_PACK_ROWS_BLOCKS] = hth_pack_rows_blocks(info->size);
    memcpy(m.consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
    m.n_byte = (m.push.base + (size_t)N_SOURCE * m.push.pitch + 15) / 16 * 16;
    m.rows = get(N_SOURCE * slice_rows * m.row_size), m.source = get(m.n_byte);
    m.planes = get((size_t)m.layout.size), m.expected = get((size_t)m.layout.size);
    for (size_t i = 0; i < N_SOURCE * slice_rows * m.row_size; i++) m.rows[i] = (uint8_t)test_random_next(r);
    for (size_t i = 0; i < N_SOURCE; i++)
        put_source(&m, m.rows + i * slice_rows * m.row_size, m.source + m.push.base + i * m.push.pitch);
    fill_jobs(&m, r);
    if (form != HTH_PACK_ROWS_PLANES) CHECK(hth_pack_table(type, (hth_layout)form, m.table, &m.n_word));
    expect(&m);
    return m;
}

/* With the grid in memory, or with one job more than there is. */
static void check(hth_device *d, const char *name, matrix *m, bool is_indirect)
{
    uint32_t grid[2];
    hth_pack_rows_grid(m->consts, m->slice_rows, m->push.n_block, grid);
    uint64_t n_byte = hth_pack_rows_bytes(m->consts, m->slice_rows, m->push.n_block);
    shaders_run run = {.id = HTH_SHADER_pack_rows,
                       .consts = m->consts,
                       .push = &m->push,
                       .bind = {{m->jobs, sizeof m->jobs},
                                {m->source, m->n_byte},
                                {m->table, (size_t)m->n_word * sizeof *m->table},
                                {m->planes, (size_t)m->layout.size}},
                       .grid = {grid[0], grid[1], is_indirect ? N_JOB : N_JOB + 1},
                       .read_bytes = is_indirect ? n_byte / (grid[0] * grid[1]) + 1 : 0};
    if (!shaders_do(d, &run)) return;
    for (size_t i = 0; i < m->layout.size; i++)
        if (m->planes[i] != m->expected[i]) {
            test_fail(__FILE__, __LINE__, "%s, %s, form %u, %u rows of %u blocks: byte %zu is %#x, not %#x",
                      name, rows_type_name(m->type), m->form, m->slice_rows, m->n_block, i, m->planes[i],
                      m->expected[i]);
            return;
        }
}

/* ---- all types ----------------------------------------------------------------------------------------- */

static const uint32_t n_blocks[] = {1, 3, 8, 9, 17, 40}, n_rows[] = {1, 24, 40, 256},
                      n_panel_rows[] = {16, 32, 48, 256};
enum { N_BLOCKS = 6, N_ROWS = 4 };

static bool has_form(hth_type type, uint32_t form)
{
    uint32_t table[HTH_PACK_TABLE_WORDS], n_word;
    return form == HTH_PACK_ROWS_PLANES || hth_pack_table(type, (hth_layout)form, table, &n_word);
}

static void check_shapes(hth_device *d, const char *name, test_random *r, hth_type type, uint32_t form)
{
    for (uint32_t i = 0; i < N_BLOCKS * N_ROWS; i++) {
        uint32_t n_row = (form == HTH_PACK_ROWS_PANELS ? n_panel_rows : n_rows)[i % N_ROWS],
                 n_block = n_blocks[i / N_ROWS];
        if (n_row == 256 && n_block > 9 && i % 3 > 0) continue; /* some megabytes */
        CLEANUP(free_matrix) matrix m = make(r, type, form, n_row, n_block);
        check(d, name, &m, i % 2);
    }
}

static void check_form(uint32_t form)
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        for (size_t t = 0; d && t < ROWS_N_TYPE; t++)
            if (has_form(rows_types[t], form)) check_shapes(d, devices[i], &r, rows_types[t], form);
        if (d) shaders_close(d);
    }
}

TEST(rows_in_file_order_are_packed_to_the_byte) { check_form(HTH_PACK_ROWS_FILE); }
TEST(panels_are_packed_to_the_byte) { check_form(HTH_PACK_ROWS_PANELS); }
TEST(slices_in_device_layout_are_copied_to_their_places) { check_form(HTH_PACK_ROWS_PLANES); }

/* Tiles of fewer blocks than there is room for. */
TEST(narrow_tiles_write_the_same)
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        static const uint32_t widths[] = {4, 8, 16};
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        for (uint32_t k = 0; d && k < 6; k++) {
            CLEANUP(free_matrix) matrix m = make(&r, k < 3 ? HTH_TYPE_Q5_1 : HTH_TYPE_MXFP4, k % 2, 48, 21);
            m.consts[HTH_PACK_ROWS_BLOCKS] = widths[k % 3];
            check(d, devices[i], &m, false);
        }
        if (d) shaders_close(d);
    }
}

/* ---- tables and grids ---------------------------------------------------------------------------------- */

TEST(types_whose_bits_only_move_have_tables)
{
    static const hth_type moved[] = {HTH_TYPE_Q4_0,  HTH_TYPE_Q4_1, HTH_TYPE_Q5_0,   HTH_TYPE_Q5_1,
                                     HTH_TYPE_Q8_0,  HTH_TYPE_Q2_K, HTH_TYPE_Q3_K,   HTH_TYPE_Q4_K,
                                     HTH_TYPE_Q5_K,  HTH_TYPE_Q6_K, HTH_TYPE_IQ4_NL, HTH_TYPE_IQ4_XS,
                                     HTH_TYPE_MXFP4, HTH_TYPE_TQ2_0};
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++) {
        bool is_moved = false, has_panels = hth_panel_supported((hth_type)type);
        for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) is_moved = is_moved || moved[i] == type;
        CHECK_INT(has_form((hth_type)type, HTH_PACK_ROWS_FILE), is_moved);
        CHECK_INT(has_form((hth_type)type, HTH_PACK_ROWS_PANELS), is_moved && has_panels);
    }
}

/* The fewer terms, the fewer loads. Nibbles come from two places. */
TEST(tables_are_short)
{
    uint32_t table[HTH_PACK_TABLE_WORDS], n_word;
    CHECK(hth_pack_table(HTH_TYPE_Q8_0, HTH_LAYOUT_ROWS, table, &n_word));
    CHECK_INT(n_word, 2 * (9 + 9));
    CHECK(hth_pack_table(HTH_TYPE_Q4_0, HTH_LAYOUT_PANELS, table, &n_word));
    CHECK_INT(n_word, 2 * (5 + 5));
    CHECK(hth_pack_table(HTH_TYPE_Q4_K, HTH_LAYOUT_PANELS, table, &n_word));
    CHECK_INT(table[0] >> 16, 2);
}

TEST(tiles_fit_into_16_kib_and_grids_into_their_limits)
{
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (uint32_t form = HTH_PACK_ROWS_FILE; form <= HTH_PACK_ROWS_PLANES; form++) {
            const uint32_t size = hth_type_find(rows_types[t])->size, n_row = 1u << 20, n_block = 1u << 12;
            uint32_t consts[HTH_PACK_ROWS_N_CONST] = {256, form, size, hth_pack_rows_blocks(size)}, grid[2];
            hth_quant_desc desc = {0};
            if (hth_quant_desc_of(rows_types[t], &desc))
                memcpy(consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
            uint32_t blocks = consts[HTH_PACK_ROWS_BLOCKS];
            CHECK(blocks == 4 || (blocks % 8 == 0 && blocks > 0));
            if (rows_quantised(rows_types[t])) {
                CHECK(16 * ((blocks * size + 30) / 16 * 16) + 4 <= 16384);
                CHECK(blocks * ((16 * size + 30) / 16 * 16) + 4 <= 16384);
            }
            hth_pack_rows_grid(consts, n_row - 16, n_block, grid);
            CHECK(grid[0] > 0 && grid[1] > 0 && grid[0] <= 65535 && grid[1] <= 65535);
            if (form != HTH_PACK_ROWS_PLANES)
                CHECK(grid[0] * blocks >= n_block && grid[1] * 16 >= n_row - 16);
        }
}

/* What is read is the slice, once. */
TEST(the_bytes_of_a_slice_are_those_of_its_rows)
{
    uint32_t consts[HTH_PACK_ROWS_N_CONST] = {256, HTH_PACK_ROWS_FILE, 210, 4};
    hth_quant_desc desc;
    CHECK(hth_quant_desc_of(HTH_TYPE_Q6_K, &desc));
    memcpy(consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
    CHECK_INT(hth_pack_rows_bytes(consts, 24, 9), 24 * 9 * 210);
    consts[HTH_PACK_ROWS_FORM] = HTH_PACK_ROWS_PLANES;
    CHECK_INT(hth_pack_rows_bytes(consts, 24, 9), 24 * (9 * (128 + 64 + 16) + 5 * 4));
}
