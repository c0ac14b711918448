/* Which matrix units are taken for a matrix: with products in common the shape that does most at once, of
 * those that fit the tile; with functions of elements the tile that does most for what is loaded, with eight
 * subgroups or a multiple. A workgroup may be as large, and share as much, as it needs. */
#include "forward/gpu/gpu_int.h"
#include "support/test.h"

static hth_quant_desc form_of(hth_type type)
{
    hth_quant_desc desc = {0};
    CHECK(hth_quant_desc_of(type, &desc));
    return desc;
}

/* The number of the shape that is taken; -1: none is. */
static int taken(const hth_device_info *info, hth_type type)
{
    uint32_t consts[HTH_TILE_N_CONST] = {7, 7, 7, 1, 7};
    const hth_quant_desc desc = form_of(type);
    if (!hth_gpu_choose_tile(info, &desc, HTH_COOPMAT_KHR, 512, consts)) {
        CHECK(consts[HTH_ROWS_LOCAL] == 7 && consts[HTH_ROWS_COLS] == 7 && consts[HTH_ROWS_ROWS] == 7);
        return -1;
    }
    uint32_t rows = hth_rows_per_workgroup(consts);
    CHECK_INT(consts[HTH_ROWS_WANT], 1);
    CHECK(consts[HTH_ROWS_LOCAL] <= info->max_workgroup_size &&
          consts[HTH_ROWS_LOCAL] % 128 == 0); /* of any subgroup's size */
    CHECK(rows % consts[HTH_TILE_M] == 0 && consts[HTH_ROWS_COLS] % consts[HTH_TILE_N] == 0);
    for (uint32_t i = 0; i < info->n_shape; i++)
        if (info->shapes[i].m == consts[HTH_TILE_M] && info->shapes[i].n == consts[HTH_TILE_N] &&
            info->shapes[i].k == consts[HTH_TILE_K])
            return (int)i;
    return -2;
}

static hth_device_info with(uint32_t n, const hth_coopmat_shape *shapes)
{
    hth_device_info info = {.max_shared_memory = 32768, .max_workgroup_size = 256, .n_shape = n};
    for (uint32_t i = 0; i < n; i++) info.shapes[i] = shapes[i];
    return info;
}

/* But for that with blocks of 16. */
TEST(every_quantised_type_has_a_tile_in_32_kib)
{
    static const hth_coopmat_shape shapes[] = {
        {8, 8, 8}, {16, 16, 16}, {16, 16, 32}, {8, 16, 32}, {32, 8, 16}};
    hth_quant_desc desc;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++)
        for (uint32_t i = 0; i < 5 && hth_quant_desc_of((hth_type)type, &desc); i++) {
            hth_device_info info = with(1, shapes + i);
            if (taken(&info, (hth_type)type) != (desc.block == 16 ? -1 : 0))
                test_fail(__FILE__, __LINE__, "type %u, shape %u", type, i);
        }
}

TEST(the_shape_that_does_most_at_once_is_taken)
{
    static const hth_coopmat_shape shapes[] = {{8, 8, 32}, {16, 16, 16}, {16, 8, 32}, {16, 16, 32}};
    hth_device_info info = with(4, shapes);
    CHECK_INT(taken(&info, HTH_TYPE_Q4_0), 3);
    CHECK_INT(taken(&info, HTH_TYPE_Q4_K), 3);
    CHECK_INT(taken(&info, HTH_TYPE_Q6_K), 1); /* 16 weights share a scale: the first of equals */
    info.n_shape = 2;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_0), 1);
}

TEST(shapes_that_do_not_fit_are_not_taken)
{
    static const hth_coopmat_shape shapes[] = {{16, 16, 64}, {16, 32, 16}, {64, 8, 16}, {16, 16, 4},
                                              {12, 8, 8},   {0, 0, 0},    {8, 8, 24}};
    hth_device_info info = with(7, shapes);
    CHECK_INT(taken(&info, HTH_TYPE_Q8_0), -1);
    info.shapes[6] = (hth_coopmat_shape){8, 8, 8};
    CHECK_INT(taken(&info, HTH_TYPE_Q8_0), 6);
}

TEST(a_device_with_too_little_for_a_workgroup_has_no_tiles)
{
    static const hth_coopmat_shape shape = {16, 16, 16};
    hth_device_info info = with(1, &shape);
    info.max_workgroup_size = 128;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
    info.max_workgroup_size = 256, info.max_shared_memory = 16384;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
    info.max_shared_memory = 32768, info.n_shape = 0;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
}

/* ---- a partial sum for each subgroup ------------------------------------------------------------------ */

/* Rows and tokens of the tile, and the side K of its shape; 0: there is none. */
typedef struct tile {
    uint32_t rows, tokens, k;
} tile;

static tile tile_of(const hth_device_info *info, hth_type type, uint32_t n_tok)
{
    uint32_t consts[HTH_TILE_N_CONST] = {7, 7, 7, 1, 7};
    const hth_quant_desc desc = form_of(type);
    hth_coopmat_level by = hth_gpu_choose_tile(info, &desc, HTH_COOPMAT_CM2, n_tok, consts);
    CHECK_INT(consts[HTH_ROWS_WANT], 1);
    if (by != HTH_COOPMAT_CM2) return (tile){0};
    const tile t = {hth_rows_per_workgroup(consts), consts[HTH_ROWS_COLS], consts[HTH_TILE_K]};
    CHECK(t.rows % consts[HTH_TILE_M] == 0 && t.tokens % consts[HTH_TILE_N] == 0);
    CHECK_INT(8 * consts[HTH_TILE_SPLIT] * info->subgroup_size, consts[HTH_ROWS_LOCAL]);
    CHECK_INT(t.tokens / consts[HTH_TILE_SPLIT] % consts[HTH_TILE_N], 0);
    CHECK(consts[HTH_ROWS_LOCAL] <= info->max_workgroup_size);
    return t;
}

static void check_tile(const hth_device_info *info, hth_type type, uint32_t n_tok, tile expected)
{
    tile t = tile_of(info, type, n_tok);
    if (t.rows != expected.rows || t.tokens != expected.tokens || t.k != expected.k)
        test_fail(__FILE__, __LINE__, "type %d, %u tokens: %u rows, %u tokens, K %u", (int)type, n_tok,
                  t.rows, t.tokens, t.k);
}

/* Shapes and subgroups as drivers list them. */
TEST(cooperative_matrix_tiles_match_the_subgroups_of_a_workgroup)
{
    static const struct {
        hth_coopmat_shape shape;
        uint32_t subgroup, rows, tokens;
    } cases[] = {{{16, 16, 32}, 32, 64, 32}, {{16, 8, 32}, 32, 64, 32}, {{16, 16, 16}, 64, 64, 32},
                 {{8, 8, 8}, 8, 64, 32},     {{8, 16, 32}, 16, 64, 32}, {{8, 8, 32}, 8, 64, 32}};
    hth_quant_desc desc;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int type = 0; type < HTH_TYPE_LIMIT; type++) {
            hth_device_info info = with(1, &cases[i].shape);
            info.subgroup_size = cases[i].subgroup, info.max_workgroup_size = 512;
            if (hth_quant_desc_of((hth_type)type, &desc) && desc.block != 16)
                check_tile(&info, (hth_type)type, 512,
                           (tile){cases[i].rows, cases[i].tokens, cases[i].shape.k});
        }
}

TEST(cooperative_matrix_tiles_follow_tokens_memory_and_shapes)
{
    static const hth_coopmat_shape shapes[] = {{16, 16, 32}, {16, 16, 16}, {16, 8, 32}};
    hth_device_info info = with(3, shapes);
    info.subgroup_size = 32;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){64, 32, 32});
    check_tile(&info, HTH_TYPE_Q6_K, 512, (tile){64, 32, 16}); /* 16 weights share a scale: without zeros */
    check_tile(&info, HTH_TYPE_Q4_0, 16, (tile){64, 16, 32});
    check_tile(&info, HTH_TYPE_Q4_0, 9, (tile){64, 16, 32});
    info.max_shared_memory = 49152; /* sums of blocks of 256 do not fit twice as many tokens */
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){64, 64, 32});
    check_tile(&info, HTH_TYPE_Q4_0, 40, (tile){64, 48, 32});
    check_tile(&info, HTH_TYPE_Q4_K, 512, (tile){64, 32, 32});
    info.max_shared_memory = 16384;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){32, 16, 32});
    info.max_shared_memory = 4096;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){0});
}

TEST(tiles_that_do_not_fit_are_left_to_the_common_product)
{
    /* More rows, or tokens, than a tile's; zeros; no multiple of a step; no rows of 16 bytes; nothing known of
     * subgroups. */
    static const hth_coopmat_shape shapes[] = {{128, 8, 16}, {8, 64, 16},  {0, 0, 0},
                                               {16, 16, 24}, {16, 16, 64}, {2, 8, 8}};
    hth_device_info info = with(6, shapes);
    info.subgroup_size = 32;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){0});
    info.shapes[1] = (hth_coopmat_shape){16, 16, 16};
    info.subgroup_size = 0;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){0});
    info.subgroup_size = 32;
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){64, 32, 16});
    info.subgroup_size = 8; /* sixteen subgroups: too many sums with the integers of blocks of 256 */
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){64, 32, 16});
    check_tile(&info, HTH_TYPE_Q4_K, 512, (tile){32, 32, 16});
    info.subgroup_size = 32, info.max_workgroup_size = 128; /* four subgroups */
    check_tile(&info, HTH_TYPE_Q4_0, 512, (tile){0});
}
