/* Which matrix gets which type: the mixes of llama-quantize, as it chooses them (tests/data/golden/mixes.txt) and counted for
 * models of known shape, and what happens to rows that fit no block. */
#include "convert/ftype.h"
#include "support/models/gguf_build.h"
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
    CHECK(!hth_ftype_find("IQ3") && hth_ftype_find("iq3_xxs")->file_type == 23);
}

/* Every name of the list is one, so messages do not lie. */
TEST(list_names_all_mixes)
{
    char list[400];
    int n = 0;
    snprintf(list, sizeof list, "%s", hth_ftype_list());
    for (char *name = list; name; n++) {
        char *comma = strstr(name, ", ");
        if (comma) *comma = '\0';
        const hth_ftype *ftype = hth_ftype_find(name);
        if (CHECK(ftype != NULL)) CHECK(strcmp(ftype->name, name) == 0);
        name = comma ? comma + 2 : NULL;
    }
    CHECK_INT(n, 34);
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
    m = (hth_ftype_model){.n_layer = 80, .n_gqa = 8, .is_70b = true};
    CHECK_INT(count("Q4_K_S", m, "attn_v", HTH_TYPE_Q5_K), 80);
}

TEST(the_head_has_a_type_of_its_own)
{
    hth_ftype_model untied = {.n_layer = 2, .n_gqa = 1}, tied = {.n_layer = 2, .n_gqa = 1, .tied = true};
    hth_ftype_model pure = {.n_layer = 2, .n_gqa = 1, .pure = true}, falcon = {.n_layer = 2, .is_falcon = true};
    CHECK(type_of("Q4_0", untied, "output.weight", 4096) == HTH_TYPE_Q6_K);
    CHECK(type_of("Q4_0", untied, "token_embd.weight", 4096) == HTH_TYPE_Q4_0);
    CHECK(type_of("Q4_0", tied, "token_embd.weight", 4096) == HTH_TYPE_Q6_K);
    CHECK(type_of("Q4_0", tied, "token_embd.weight", 288) == HTH_TYPE_Q8_0);
    CHECK(type_of("Q8_0", tied, "token_embd.weight", 4096) == HTH_TYPE_Q8_0);
    CHECK(type_of("Q4_K_M", pure, "output.weight", 4096) == HTH_TYPE_Q4_K);
    CHECK(type_of("Q4_K_M", falcon, "output.weight", 4096) == HTH_TYPE_Q8_0);
    CHECK(type_of("F16", untied, "output.weight", 4096) == HTH_TYPE_F16);
}

TEST(rows_that_fit_no_block_get_another_type)
{
    static const struct {
        const char *mix;
        hth_type type;
    } cases[] = {{"Q2_K", HTH_TYPE_Q4_0},    {"Q3_K", HTH_TYPE_Q4_0}, {"Q4_K", HTH_TYPE_Q5_0}, {"Q5_K", HTH_TYPE_Q5_1},
                 {"IQ4_XS", HTH_TYPE_IQ4_NL}, {"Q6_K", HTH_TYPE_Q8_0}, {"Q4_0", HTH_TYPE_Q4_0}};
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
    CHECK(!hth_ftype_is_matrix(text("blk.3.ssm_conv1d.weight"), 2) &&
          !hth_ftype_is_matrix(text("blk.3.shortconv.conv.weight"), 2));
    CHECK(hth_ftype_is_matrix(text("blk.3.shortconv.in_proj.weight"), 2) &&
          hth_ftype_is_matrix(text("blk.3.ffn_gate_inp_shexp.weight"), 2));
}

TEST(tiny_types_need_an_importance_matrix)
{
    static const struct {
        const char *mix, *name;
        hth_type type;
        bool needs;
    } cases[] = {{"IQ2_XXS", "blk.0.ffn_up.weight", HTH_TYPE_IQ2_XXS, true},
                 {"IQ2_XXS", "blk.0.attn_v.weight", HTH_TYPE_Q2_K, false},
                 {"IQ2_XXS", "token_embd.weight", HTH_TYPE_IQ2_XXS, false},
                 {"IQ2_XXS", "output.weight", HTH_TYPE_IQ2_XXS, false},
                 {"Q2_K_S", "blk.0.ffn_up.weight", HTH_TYPE_Q2_K, true},
                 {"Q2_K", "blk.0.ffn_up.weight", HTH_TYPE_Q2_K, false},
                 {"IQ3_S", "blk.0.ffn_up.weight", HTH_TYPE_IQ3_S, false},
                 {"IQ3_XXS", "blk.0.ffn_up.weight", HTH_TYPE_IQ3_XXS, true},
                 {"IQ4_XS", "blk.0.ffn_up.weight", HTH_TYPE_IQ4_XS, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(hth_ftype_needs_imatrix(hth_ftype_find(cases[i].mix), text(cases[i].name), cases[i].type),
                  cases[i].needs);
}

/* ---- the choices of llama-quantize ---------------------------------------------------------------- */

enum { MAX_ROLE = 24, MAX_LAYER = 96 };

/* A kind of matrix: of these layers, or of none. */
typedef struct role {
    char name[40];
    uint32_t n_col, n_layer, layers[MAX_LAYER];
} role;

typedef struct mix_model {
    char name[40], arch[40];
    uint32_t n_layer, n_head, n_kv, n_expert, n_role;
    role roles[MAX_ROLE];
    gguf_bytes bytes;
    hth_gguf *file;
} mix_model;

static void read_role(mix_model *m, const char *line)
{
    role *r = &m->roles[m->n_role++];
    int at = 0, more = 0;
    uint32_t first, last;
    *r = (role){0};
    if (!CHECK(sscanf(line, "tensor %39s %u%n", r->name, &r->n_col, &at) == 2)) return;
    for (line += at; sscanf(line, " %u-%u%n", &first, &last, &more) == 2; line += more)
        for (uint32_t i = first; i <= last; i++) r->layers[r->n_layer++] = i;
}

static void full_name(const role *r, uint32_t i, char name[80])
{
    if (r->n_layer == 0) snprintf(name, 80, "%s.weight", r->name);
    else snprintf(name, 80, "blk.%u.%s.weight", r->layers[i], r->name);
}

static void put_count(gguf_bytes *b, const mix_model *m, const char *key, uint32_t value)
{
    char full[120];
    snprintf(full, sizeof full, "%s.%s", m->arch, key);
    gguf_pair_u32(b, full, value);
}

/* A file of these matrices, of one row each, the last ones first. */
static void open_file(mix_model *m)
{
    uint64_t n_tensor = 0, offset = 0;
    char name[80];
    for (uint32_t i = 0; i < m->n_role; i++) n_tensor += m->roles[i].n_layer ? m->roles[i].n_layer : 1;
    gguf_header(&m->bytes, 3, n_tensor, 5);
    gguf_pair_text(&m->bytes, "general.architecture", m->arch);
    put_count(&m->bytes, m, "block_count", m->n_layer);
    put_count(&m->bytes, m, "attention.head_count", m->n_head);
    put_count(&m->bytes, m, "attention.head_count_kv", m->n_kv);
    put_count(&m->bytes, m, "expert_count", m->n_expert);
    for (uint32_t i = 0; i < m->n_role; i++)
        for (uint32_t n = m->roles[i].n_layer ? m->roles[i].n_layer : 1; n-- > 0;) {
            full_name(&m->roles[i], n, name);
            uint64_t n_matrix = strstr(name, "_exps") ? 2 : 1;
            gguf_info(&m->bytes, name, 3, (const uint64_t[]){m->roles[i].n_col, 1, n_matrix}, HTH_TYPE_F16, offset);
            offset += (2 * n_matrix * m->roles[i].n_col + 31) / 32 * 32;
        }
    gguf_pad(&m->bytes, 32);
    gguf_zeros(&m->bytes, offset);
    CHECK_OK(hth_gguf_open_memory(m->bytes.data, m->bytes.n, m->name, &m->file, err));
}

static void close_file(mix_model *m)
{
    hth_gguf_close(m->file);
    gguf_free(&m->bytes);
    *m = (mix_model){0};
}

static hth_type type_of_code(char c)
{
    return (hth_type)(c <= '9' ? c - '0' : c >= 'a' ? c - 'a' + 10 : c - 'A' + 36);
}

/* A line "Q4_K_M - c e ...": returns the number of matrices. */
static uint32_t check_mix(const mix_model *m, char *line)
{
    char *rest = line, *mix = strtok_r(line, " \n", &rest), *with = strtok_r(NULL, " \n", &rest), name[80];
    const hth_ftype *ftype = hth_ftype_find(mix);
    uint32_t n = 0, n_wrong = 0;
    hth_ftype_model model;
    if (!CHECK(ftype != NULL)) return 0;
    CHECK_OK(hth_ftype_open_model(m->file, &model, err));
    model.has_imatrix = strcmp(with, "imatrix") == 0;
    for (uint32_t i = 0; i < m->n_role; i++) {
        const role *r = &m->roles[i];
        const char *codes = strtok_r(NULL, " \n", &rest);
        for (uint32_t k = 0; k < (r->n_layer ? r->n_layer : 1); k++, n++) {
            full_name(r, k, name);
            hth_type expected = type_of_code(codes[1] ? codes[k] : codes[0]),
                     type = hth_ftype_type(ftype, &model, text(name), r->n_col, NULL);
            if (type == expected || n_wrong++) continue;
            test_fail(__FILE__, __LINE__, "%s: %s %s: %s is %s, not %s", m->name, mix, with, name,
                      hth_type_find(type)->name, hth_type_find(expected)->name);
        }
    }
    hth_ftype_close_model(&model);
    return n;
}

TEST(mixes_are_those_of_llama_quantize)
{
    static mix_model m;
    char line[2000];
    uint32_t n = 0, n_mix = 0;
    const char *path = test_data("golden/mixes.txt");
    FILE *f = path ? fopen(path, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model ", 6) == 0) {
            close_file(&m);
            CHECK(sscanf(line, "model %39s %39s %u %u %u %u", m.name, m.arch, &m.n_layer, &m.n_head, &m.n_kv, &m.n_expert) == 6);
        } else if (strncmp(line, "tensor ", 7) == 0) {
            read_role(&m, line);
        } else if (line[0] != '#') {
            if (!m.file) open_file(&m);
            if (m.file) n += check_mix(&m, line), n_mix++;
        }
    }
    close_file(&m);
    if (f) fclose(f);
    CHECK_INT(n_mix, 11 * 30 * 2);
    printf("     %u matrices in %u mixes\n", n, n_mix);
}
