/* Which matrix units are taken for a matrix: the shape that does most at once, of those that fit the tile,
 * where a workgroup may be as large, and share as much, as it needs. */
#include "run/gpu/gpu_int.h"
#include "support/test.h"

static hth_form form_of(hth_type type)
{
    hth_form form = {0};
    CHECK(hth_form_of(type, &form));
    return form;
}

/* The number of the shape that is taken; -1: none is. */
static int taken(const hth_device_info *info, hth_type type)
{
    uint32_t consts[HTH_TILE_N_CONST] = {7, 7, 7, 1};
    const hth_form form = form_of(type);
    if (!hth_gpu_tile_of(info, &form, consts)) {
        CHECK(consts[HTH_ROWS_LOCAL] == 7 && consts[HTH_ROWS_COLS] == 7 && consts[HTH_ROWS_ROWS] == 7);
        return -1;
    }
    uint32_t rows = consts[HTH_ROWS_LOCAL] / 8 * consts[HTH_ROWS_ROWS];
    CHECK_INT(consts[HTH_ROWS_WANT], 1);
    CHECK(consts[HTH_ROWS_LOCAL] <= info->local &&
          consts[HTH_ROWS_LOCAL] % 128 == 0); /* of any subgroup's size */
    CHECK(rows % consts[HTH_TILE_M] == 0 && consts[HTH_ROWS_COLS] % consts[HTH_TILE_N] == 0);
    for (uint32_t i = 0; i < info->n_shape; i++)
        if (info->shapes[i].m == consts[HTH_TILE_M] && info->shapes[i].n == consts[HTH_TILE_N] &&
            info->shapes[i].k == consts[HTH_TILE_K])
            return (int)i;
    return -2;
}

static hth_device_info with(uint32_t n, const hth_matrix_shape *shapes)
{
    hth_device_info info = {.shared = 32768, .local = 256, .n_shape = n};
    for (uint32_t i = 0; i < n; i++) info.shapes[i] = shapes[i];
    return info;
}

TEST(every_quantised_type_has_a_tile_in_32_kib)
{
    static const hth_matrix_shape shapes[] = {
        {8, 8, 8}, {16, 16, 16}, {16, 16, 32}, {8, 16, 32}, {32, 8, 16}};
    hth_form form;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++)
        for (uint32_t i = 0; i < 5 && hth_form_of((hth_type)type, &form); i++) {
            hth_device_info info = with(1, shapes + i);
            if (taken(&info, (hth_type)type) != 0)
                test_fail(__FILE__, __LINE__, "type %u, shape %u", type, i);
        }
}

TEST(the_shape_that_does_most_at_once_is_taken)
{
    static const hth_matrix_shape shapes[] = {{8, 8, 32}, {16, 16, 16}, {16, 8, 32}, {16, 16, 32}};
    hth_device_info info = with(4, shapes);
    CHECK_INT(taken(&info, HTH_TYPE_Q4_0), 3);
    CHECK_INT(taken(&info, HTH_TYPE_Q4_K), 3);
    CHECK_INT(taken(&info, HTH_TYPE_Q6_K), 1); /* 16 weights share a scale: the first of equals */
    info.n_shape = 2;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_0), 1);
}

TEST(shapes_that_do_not_fit_are_not_taken)
{
    static const hth_matrix_shape shapes[] = {{16, 16, 64}, {16, 32, 16}, {64, 8, 16}, {16, 16, 4},
                                              {12, 8, 8},   {0, 0, 0},    {8, 8, 24}};
    hth_device_info info = with(7, shapes);
    CHECK_INT(taken(&info, HTH_TYPE_Q8_0), -1);
    info.shapes[6] = (hth_matrix_shape){8, 8, 8};
    CHECK_INT(taken(&info, HTH_TYPE_Q8_0), 6);
}

TEST(a_device_with_too_little_for_a_workgroup_has_no_tiles)
{
    static const hth_matrix_shape shape = {16, 16, 16};
    hth_device_info info = with(1, &shape);
    info.local = 128;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
    info.local = 256, info.shared = 16384;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
    info.shared = 32768, info.n_shape = 0;
    CHECK_INT(taken(&info, HTH_TYPE_Q4_1), -1);
}

TEST_MAIN
