/* Tables by which devices convert blocks: which types have one, and how short they are. */
#include "forward/gpu/pack_table.h"
#include "support/test.h"

static bool has_table(hth_type type, hth_layout layout)
{
    uint32_t table[HTH_PACK_TABLE_WORDS], n_word;
    return hth_pack_table(type, layout, table, &n_word);
}

TEST(types_whose_bits_only_move_have_tables)
{
    static const hth_type moved[] = {HTH_TYPE_Q4_0,  HTH_TYPE_Q4_1, HTH_TYPE_Q5_0,   HTH_TYPE_Q5_1,
                                     HTH_TYPE_Q8_0,  HTH_TYPE_Q2_K, HTH_TYPE_Q3_K,   HTH_TYPE_Q4_K,
                                     HTH_TYPE_Q5_K,  HTH_TYPE_Q6_K, HTH_TYPE_IQ4_NL, HTH_TYPE_IQ4_XS,
                                     HTH_TYPE_MXFP4, HTH_TYPE_TQ2_0};
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++) {
        bool is_moved = false, has_panels = hth_panel_supported((hth_type)type);
        for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) is_moved = is_moved || moved[i] == type;
        CHECK_INT(has_table((hth_type)type, HTH_LAYOUT_ROWS), is_moved);
        CHECK_INT(has_table((hth_type)type, HTH_LAYOUT_PANELS), is_moved && has_panels);
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
