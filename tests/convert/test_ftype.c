/* Which matrix gets which type: the mixes of llama-quantize, counted for models of
 * known shape, and what happens to rows that fit no block. */
#include "convert/ftype.h"
#include "support/test.h"

static hth_str text(const char *s) { return (hth_str){s, strlen(s)}; }

static hth_type type_of(const char *mix, hth_ftype_model m, const char *name, uint64_t n_col)
{
    return hth_ftype_type(hth_ftype_find(mix), &m, text(name), n_col, NULL);
}

/* In how many of the layers a matrix gets a type. */
static uint32_t count(const char *mix, hth_ftype_model m, const char *name, hth_type type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m.n_layer; i++) {
        char full[64];
        snprintf(full, sizeof full, "blk.%u.%s.weight", i, name);
        n += type_of(mix, m, full, 4096) == type;
    }
    return n;
}

TEST(names_are_found_without_regard_to_case)
{
    CHECK(hth_ftype_find("q4_k_m") == hth_ftype_find("Q4_K") && hth_ftype_find("Q4_K_M")->file_type == 15);
    CHECK(hth_ftype_find("Q8_0")->type == HTH_TYPE_Q8_0 && hth_ftype_find("iq4_nl")->file_type == 25);
    CHECK(!hth_ftype_find("q4") && !hth_ftype_find("Q4_K_XL") && !hth_ftype_find(""));
    CHECK(!hth_ftype_find("a name that is far too long for any type"));
}

/* Every name of the list is one, so messages do not lie. */
TEST(list_names_all_mixes)
{
    char list[200];
    int n = 0;
    snprintf(list, sizeof list, "%s", hth_ftype_list());
    for (char *name = list; name; n++) {
        char *comma = strstr(name, ", ");
        if (comma) *comma = '\0';
        const hth_ftype *ftype = hth_ftype_find(name);
        if (CHECK(ftype != NULL)) CHECK(strcmp(ftype->name, name) == 0);
        name = comma ? comma + 2 : NULL;
    }
    CHECK_INT(n, 18);
}

/* As llama-quantize writes a Llama 2 7B (32 layers, as many KV heads as heads). */
TEST(mixes_of_a_7b_model_are_the_published_ones)
{
    hth_ftype_model m = {.n_layer = 32, .n_gqa = 1};
    CHECK_INT(count("Q4_K_M", m, "attn_v", HTH_TYPE_Q6_K), 16);
    CHECK_INT(count("Q4_K_M", m, "ffn_down", HTH_TYPE_Q6_K), 16);
    CHECK_INT(count("Q4_K_M", m, "ffn_down", HTH_TYPE_Q4_K), 16);
    CHECK_INT(count("Q4_K_M", m, "ffn_up", HTH_TYPE_Q4_K), 32);
    CHECK_INT(count("Q4_K_S", m, "attn_v", HTH_TYPE_Q5_K), 4);
    CHECK_INT(count("Q4_K_S", m, "ffn_down", HTH_TYPE_Q5_K), 4);
    CHECK_INT(count("Q5_K_M", m, "attn_v", HTH_TYPE_Q6_K), 16);
    CHECK_INT(count("Q3_K_M", m, "attn_v", HTH_TYPE_Q5_K), 2);
    CHECK_INT(count("Q3_K_M", m, "ffn_down", HTH_TYPE_Q5_K), 2);
    CHECK_INT(count("Q3_K_M", m, "attn_output", HTH_TYPE_Q4_K), 32);
    CHECK_INT(count("Q3_K_L", m, "attn_output", HTH_TYPE_Q5_K), 32);
    CHECK_INT(count("Q2_K", m, "attn_v", HTH_TYPE_Q3_K), 32);
    CHECK_INT(count("Q2_K", m, "attn_q", HTH_TYPE_Q2_K), 32);
    CHECK_INT(count("Q4_0", m, "ffn_down", HTH_TYPE_Q4_0), 32);
    CHECK_INT(count("IQ4_NL", m, "ffn_down", HTH_TYPE_Q5_K), 4);
}

TEST(shared_values_get_more_bits)
{
    hth_ftype_model m = {.n_layer = 32, .n_gqa = 4};
    CHECK_INT(count("Q2_K", m, "attn_v", HTH_TYPE_Q4_K), 32);
    CHECK_INT(count("IQ4_NL", m, "attn_v", HTH_TYPE_Q5_K), 32);
    m = (hth_ftype_model){.n_layer = 80, .n_gqa = 8};
    CHECK_INT(count("Q4_K_S", m, "attn_v", HTH_TYPE_Q5_K), 80);
}

TEST(the_head_has_a_type_of_its_own)
{
    hth_ftype_model untied = {.n_layer = 2, .n_gqa = 1}, tied = {.n_layer = 2, .n_gqa = 1, .tied = true};
    hth_ftype_model pure = {.n_layer = 2, .n_gqa = 1, .pure = true}, beside = {.n_layer = 2, .parallel = true};
    CHECK(type_of("Q4_0", untied, "output.weight", 4096) == HTH_TYPE_Q6_K);
    CHECK(type_of("Q4_0", untied, "token_embd.weight", 4096) == HTH_TYPE_Q4_0);
    CHECK(type_of("Q4_0", tied, "token_embd.weight", 4096) == HTH_TYPE_Q6_K);
    CHECK(type_of("Q4_0", tied, "token_embd.weight", 288) == HTH_TYPE_Q8_0);
    CHECK(type_of("Q8_0", tied, "token_embd.weight", 4096) == HTH_TYPE_Q8_0);
    CHECK(type_of("Q4_K_M", pure, "output.weight", 4096) == HTH_TYPE_Q4_K);
    CHECK(type_of("Q4_K_M", beside, "output.weight", 4096) == HTH_TYPE_Q8_0);
    CHECK(type_of("F16", untied, "output.weight", 4096) == HTH_TYPE_F16);
}

TEST(rows_that_fit_no_block_get_another_type)
{
    static const struct {
        const char *mix;
        hth_type type;
    } cases[] = {{"Q2_K", HTH_TYPE_IQ4_NL}, {"Q3_K", HTH_TYPE_IQ4_NL}, {"Q4_K", HTH_TYPE_Q5_0},
                 {"Q5_K", HTH_TYPE_Q5_1},   {"Q6_K", HTH_TYPE_Q8_0},   {"Q4_0", HTH_TYPE_Q4_0}};
    hth_ftype_model m = {.n_layer = 32, .n_gqa = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hth_type wanted = HTH_TYPE_F32;
        const char *name = "blk.9.ffn_up.weight";
        CHECK(hth_ftype_type(hth_ftype_find(cases[i].mix), &m, text(name), 288, &wanted) == cases[i].type);
        CHECK(wanted == hth_ftype_find(cases[i].mix)->type);
        CHECK(hth_ftype_type(hth_ftype_find(cases[i].mix), &m, text(name), 172, &wanted) == HTH_TYPE_F16);
        CHECK(wanted == hth_ftype_find(cases[i].mix)->type);
    }
}

TEST(vectors_routers_and_positions_are_no_matrices)
{
    CHECK(hth_ftype_is_matrix(text("blk.0.attn_q.weight"), 2) && hth_ftype_is_matrix(text("token_embd.weight"), 2));
    CHECK(!hth_ftype_is_matrix(text("blk.0.attn_q.bias"), 1) &&
          !hth_ftype_is_matrix(text("blk.0.attn_norm.weight"), 1));
    CHECK(!hth_ftype_is_matrix(text("blk.0.ffn_gate_inp.weight"), 2));
    CHECK(!hth_ftype_is_matrix(text("blk.0.ssm_conv1d.weight"), 2) &&
          !hth_ftype_is_matrix(text("blk.0.shortconv.conv.weight"), 2));
    CHECK(hth_ftype_is_matrix(text("blk.0.shortconv.in_proj.weight"), 2));
    CHECK(!hth_ftype_is_matrix(text("position_embd.weight"), 2) && !hth_ftype_is_matrix(text("weight"), 2));
}
