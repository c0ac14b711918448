/* file/types.c: the table of block types. */
#include "file/types.h"
#include "support/test.h"

TEST(types_have_the_block_sizes_of_the_format)
{
    static const struct {
        uint32_t id, n_weight, size;
        const char *name;
    } rows[] = {
        {0, 1, 4, "F32"}, {1, 1, 2, "F16"}, {2, 32, 18, "Q4_0"}, {3, 32, 20, "Q4_1"}, {8, 32, 34, "Q8_0"},
        {12, 256, 144, "Q4_K"}, {14, 256, 210, "Q6_K"}, {15, 256, 292, "Q8_K"}, {16, 256, 66, "IQ2_XXS"},
        {17, 256, 74, "IQ2_XS"}, {18, 256, 98, "IQ3_XXS"}, {19, 256, 50, "IQ1_S"}, {21, 256, 110, "IQ3_S"},
        {22, 256, 82, "IQ2_S"}, {28, 1, 8, "F64"}, {29, 256, 56, "IQ1_M"}, {30, 1, 2, "BF16"}, {34, 256, 54, "TQ1_0"},
        {35, 256, 66, "TQ2_0"}, {39, 32, 17, "MXFP4"}, {40, 64, 36, "NVFP4"}, {41, 128, 18, "Q1_0"},
        {42, 64, 18, "Q2_0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const hth_type_info *info = hth_type_find(rows[i].id);
        if (!CHECK(info != NULL)) continue;
        CHECK_TEXT(info->name, rows[i].name);
        CHECK_INT(info->n_weight, rows[i].n_weight);
        CHECK_INT(info->size, rows[i].size);
    }
}

TEST(removed_and_future_types_are_unknown)
{
    static const uint32_t ids[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 44, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) CHECK(hth_type_find(ids[i]) == NULL);
    int n = 0;
    for (uint32_t id = 0; id < HTH_TYPE_LIMIT; id++) n += hth_type_find(id) != NULL;
    CHECK_INT(n, 35);
}

TEST(every_type_is_found_by_its_name_in_any_case)
{
    hth_type type = HTH_TYPE_F32;
    for (uint32_t id = 0; id < HTH_TYPE_LIMIT; id++) {
        const hth_type_info *info = hth_type_find(id);
        if (!info) continue;
        CHECK(hth_type_by_name(info->name, &type));
        CHECK_INT(type, id);
    }
    CHECK(hth_type_by_name("q8_0", &type) && type == HTH_TYPE_Q8_0);
    CHECK(!hth_type_by_name("q8", &type) && !hth_type_by_name("", &type) && !hth_type_by_name("q8_0 ", &type));
}

TEST(list_of_supported_types_is_that_of_the_table)
{
    char list[512], name[32];
    snprintf(list, sizeof list, ", %s,", hth_type_supported_list());
    for (uint32_t id = 0; id < HTH_TYPE_LIMIT; id++) {
        const hth_type_info *info = hth_type_find(id);
        if (!info) continue;
        snprintf(name, sizeof name, ", %s,", info->name);
        CHECK_INT(strstr(list, name) != NULL, info->supported);
    }
}

TEST(inputs_are_rounded_by_as_many_as_a_block_has)
{
    CHECK_INT(hth_type_act_block(HTH_TYPE_Q4_0), 32);
    CHECK_INT(hth_type_act_block(HTH_TYPE_MXFP4), 32);
    CHECK_INT(hth_type_act_block(HTH_TYPE_NVFP4), 32);
    CHECK_INT(hth_type_act_block(HTH_TYPE_Q6_K), 256);
    CHECK_INT(hth_type_act_block(HTH_TYPE_IQ1_M), 256);
    CHECK_INT(hth_type_act_block(HTH_TYPE_TQ1_0), 256);
    CHECK_INT(hth_type_act_block(HTH_TYPE_IQ4_XS), 256);
    CHECK_INT(hth_type_act_block(HTH_TYPE_F16), 0);
    CHECK_INT(hth_type_act_block((hth_type)4), 0);
}

TEST(row_sizes_are_whole_blocks_or_nothing)
{
    CHECK_INT(hth_type_row_size(HTH_TYPE_Q4_0, 64), 36);
    CHECK_INT(hth_type_row_size(HTH_TYPE_F32, 5), 20);
    CHECK_INT(hth_type_row_size(HTH_TYPE_Q4_0, 33), 0);
    CHECK_INT(hth_type_row_size((hth_type)4, 32), 0);
    CHECK_INT(hth_type_row_size(HTH_TYPE_F32, SIZE_MAX), 0);
}
