/* File types (ftype). The rules are those of llama-quantize of 2026. A rule selects a role, which is recognised by a
 * part of a tensor's name; tests/data/golden/mixes.txt holds what llama-quantize chooses. */
#include "convert/ftype.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* general.file_type of the format. */
enum {
    FT_F32 = 0,
    FT_F16 = 1,
    FT_Q4_0 = 2,
    FT_Q4_1 = 3,
    FT_Q8_0 = 7,
    FT_Q5_0 = 8,
    FT_Q5_1 = 9,
    FT_Q2_K = 10,
    FT_Q3_K_S = 11,
    FT_Q3_K_M = 12,
    FT_Q3_K_L = 13,
    FT_Q4_K_S = 14,
    FT_Q4_K_M = 15,
    FT_Q5_K_S = 16,
    FT_Q5_K_M = 17,
    FT_Q6_K = 18,
    FT_IQ2_XXS = 19,
    FT_IQ2_XS = 20,
    FT_Q2_K_S = 21,
    FT_IQ3_XS = 22,
    FT_IQ3_XXS = 23,
    FT_IQ1_S = 24,
    FT_IQ4_NL = 25,
    FT_IQ3_S = 26,
    FT_IQ3_M = 27,
    FT_IQ2_S = 28,
    FT_IQ2_M = 29,
    FT_IQ4_XS = 30,
    FT_IQ1_M = 31,
    FT_BF16 = 32,
    FT_TQ1_0 = 36,
    FT_TQ2_0 = 37,
    FT_MXFP4 = 38,
    FT_NVFP4 = 39,
};

/* Mixture in which matrices of experts are MXFP4 and others are Q8_0. Its file type has the same number as MXFP4. */
#define MXFP4_MOE "MXFP4_MOE"

static const hth_ftype ftypes[] = {
    {"F32", FT_F32, HTH_TYPE_F32},          {"F16", FT_F16, HTH_TYPE_F16},
    {"BF16", FT_BF16, HTH_TYPE_BF16},       {"Q8_0", FT_Q8_0, HTH_TYPE_Q8_0},
    {"Q6_K", FT_Q6_K, HTH_TYPE_Q6_K},       {"Q5_K_M", FT_Q5_K_M, HTH_TYPE_Q5_K},
    {"Q5_K_S", FT_Q5_K_S, HTH_TYPE_Q5_K},   {"Q5_1", FT_Q5_1, HTH_TYPE_Q5_1},
    {"Q5_0", FT_Q5_0, HTH_TYPE_Q5_0},       {"Q4_K_M", FT_Q4_K_M, HTH_TYPE_Q4_K},
    {"Q4_K_S", FT_Q4_K_S, HTH_TYPE_Q4_K},   {"IQ4_NL", FT_IQ4_NL, HTH_TYPE_IQ4_NL},
    {"IQ4_XS", FT_IQ4_XS, HTH_TYPE_IQ4_XS}, {"Q4_1", FT_Q4_1, HTH_TYPE_Q4_1},
    {"Q4_0", FT_Q4_0, HTH_TYPE_Q4_0},       {"Q3_K_L", FT_Q3_K_L, HTH_TYPE_Q3_K},
    {"Q3_K_M", FT_Q3_K_M, HTH_TYPE_Q3_K},   {"Q3_K_S", FT_Q3_K_S, HTH_TYPE_Q3_K},
    {"IQ3_M", FT_IQ3_M, HTH_TYPE_IQ3_S},    {"IQ3_S", FT_IQ3_S, HTH_TYPE_IQ3_S},
    {"IQ3_XS", FT_IQ3_XS, HTH_TYPE_IQ3_S},  {"IQ3_XXS", FT_IQ3_XXS, HTH_TYPE_IQ3_XXS},
    {"Q2_K", FT_Q2_K, HTH_TYPE_Q2_K},       {"Q2_K_S", FT_Q2_K_S, HTH_TYPE_Q2_K},
    {"IQ2_M", FT_IQ2_M, HTH_TYPE_IQ2_S},    {"IQ2_S", FT_IQ2_S, HTH_TYPE_IQ2_XS},
    {"IQ2_XS", FT_IQ2_XS, HTH_TYPE_IQ2_XS}, {"IQ2_XXS", FT_IQ2_XXS, HTH_TYPE_IQ2_XXS},
    {"IQ1_M", FT_IQ1_M, HTH_TYPE_IQ1_M},    {"IQ1_S", FT_IQ1_S, HTH_TYPE_IQ1_S},
    {"TQ2_0", FT_TQ2_0, HTH_TYPE_TQ2_0},    {"TQ1_0", FT_TQ1_0, HTH_TYPE_TQ1_0},
    {MXFP4_MOE, FT_MXFP4, HTH_TYPE_MXFP4},
    /* llama-quantize has no name for files of these alone. */
    {"MXFP4", FT_MXFP4, HTH_TYPE_MXFP4},    {"NVFP4", FT_NVFP4, HTH_TYPE_NVFP4},
};
enum { N_FTYPE = sizeof ftypes / sizeof *ftypes };

const hth_ftype *hth_ftype_find(const char *name)
{
    char medium[16];
    snprintf(medium, sizeof medium, "%.12s_M", name);
    for (int i = 0; i < N_FTYPE; i++)
        if (strcasecmp(ftypes[i].name, name) == 0) return &ftypes[i];
    for (int i = 0; i < N_FTYPE; i++) {
        char number[12];
        snprintf(number, sizeof number, "%u", ftypes[i].file_type);
        if (strcmp(number, name) == 0) return &ftypes[i];
    }
    for (int i = 0; i < N_FTYPE; i++)
        if (strncasecmp(name, "IQ", 2) != 0 && strcasecmp(ftypes[i].name, medium) == 0) return &ftypes[i];
    return NULL;
}

const char *hth_ftype_list(void)
{
    return "F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, IQ4_NL, IQ4_XS, Q4_1, Q4_0, MXFP4, "
           "MXFP4_MOE, Q3_K_L, Q3_K_M, Q3_K_S, IQ3_M, IQ3_S, IQ3_XS, IQ3_XXS, Q2_K, Q2_K_S, IQ2_M, IQ2_S, IQ2_XS, "
           "IQ2_XXS, TQ2_0, IQ1_M, TQ1_0, IQ1_S";
}

/* ---- roles ----------------------------------------------------------------------- */

typedef enum role { HEAD, EMBEDDING, VALUES, KEYS, QUERIES, ATTN_OUTPUT, UP, GATE, DOWN, OTHER } role;
_Static_assert(OTHER + 1 == HTH_FTYPE_N_ROLE, "each role is counted");

/* The first that fits. Joined Q, K and V count as values. */
static const struct {
    const char *part;
    role role;
} roles[] = {{"attn_qkv.weight", VALUES}, {"attn_kv_b.weight", VALUES}, {"attn_v.weight", VALUES},
             {"attn_k.weight", KEYS},     {"attn_q.weight", QUERIES},   {"attn_output.weight", ATTN_OUTPUT},
             {"ffn_up", UP},              {"ffn_gate", GATE},           {"ffn_down", DOWN}};

static role role_of(const hth_ftype_model *m, hth_str name)
{
    bool is_embedding = hth_str_eq(name, "token_embd.weight") || hth_str_eq(name, "per_layer_token_embd.weight");
    if (hth_str_eq(name, "output.weight") || (m->tied && is_embedding)) return HEAD;
    if (is_embedding) return EMBEDDING;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (hth_str_contains(name, roles[i].part)) return roles[i].role;
    return OTHER;
}

bool hth_ftype_is_head(const hth_ftype_model *model, hth_str name)
{
    return hth_str_eq(name, model->tied ? "token_embd.weight" : "output.weight");
}

bool hth_ftype_is_matrix(hth_str name, uint32_t n_dim)
{
    /* Routers, taps of convolutions, tables of positions, and small matrices. */
    static const char *const kept[] = {
        "_norm.weight",       "ffn_gate_inp.weight",   "ffn_gate_tid2eid.weight", "ssm_conv1d",
        "shortconv.conv.weight", "position_embd",      "token_types.weight",      "attn_rel_b.weight",
        "altup",              "laurel",                "per_layer_model_proj",    "indexer.k_proj.weight",
        "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight",   "time_mix_w1.weight",
        "time_mix_w2.weight", "time_mix_v0.weight",    "time_mix_v1.weight",      "time_mix_v2.weight",
        "time_mix_a0.weight", "time_mix_a1.weight",    "time_mix_a2.weight",      "time_mix_g1.weight",
        "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight"};
    if (n_dim < 2 || !hth_str_ends(name, ".weight")) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (hth_str_contains(name, kept[i])) return false;
    return true;
}

/* ---- the model --------------------------------------------------------------------- */

/* A count of the architecture. Uses the first entry if layers differ. */
static uint32_t count_of(const hth_gguf *file, hth_str arch, const char *key, uint32_t absent)
{
    char name[160];
    snprintf(name, sizeof name, "%.*s.%s", arch.n < 64 ? (int)arch.n : 64, arch.bytes, key);
    const hth_gguf_value *v = hth_gguf_find(file, name);
    uint64_t n = absent;
    if (v && v->type == HTH_GGUF_ARRAY) {
        bool counts = v->element_type == HTH_GGUF_U32 || v->element_type == HTH_GGUF_I32;
        if (counts && v->n_element > 0) n = hth_gguf_element_uint(v, 0);
        return n <= UINT32_MAX ? (uint32_t)n : absent;
    }
    return hth_gguf_get_uint(file, name, 0, UINT32_MAX, &n, NULL, NULL) == HEARTH_OK ? (uint32_t)n : absent;
}

static bool is_70b(hth_str arch, uint32_t n_layer, bool shares_values)
{
    bool named = hth_str_eq(arch, "qwen2") || hth_str_eq(arch, "olmo") || hth_str_eq(arch, "deci");
    return n_layer == 80 && (named || (hth_str_eq(arch, "llama") && shares_values));
}

static void read_counts(const hth_gguf *file, hth_ftype_model *m)
{
    hth_str arch = {0};
    bool named = hth_gguf_get_text(file, "general.architecture", &arch, NULL, NULL) == HEARTH_OK && arch.n > 0;
    if (!named) return;
    m->n_layer = count_of(file, arch, "block_count", 0);
    m->n_expert = count_of(file, arch, "expert_count", 0);
    m->is_falcon = hth_str_eq(arch, "falcon");
    uint32_t n_head = count_of(file, arch, "attention.head_count", 1);
    uint32_t n_kv = count_of(file, arch, "attention.head_count_kv", n_head);
    if (n_kv > 0 && n_head >= n_kv) m->n_gqa = n_head / n_kv;
    m->is_70b = is_70b(arch, m->n_layer, n_head != n_kv);
}

/* ---- places of matrices ------------------------------------------------------------ */

typedef struct hth_ftype_place {
    const hth_gguf_tensor *tensor;
    uint32_t index; /* among the matrices of its role */
} place;

/* The layer in "blk.N.…"; -1 for other names. */
static int32_t layer_of(hth_str name)
{
    int32_t n = 0;
    if (name.n < 5 || memcmp(name.bytes, "blk.", 4) != 0) return -1;
    for (size_t i = 4; i < name.n && name.bytes[i] >= '0' && name.bytes[i] <= '9' && n < 100000; i++)
        n = 10 * n + name.bytes[i] - '0';
    return n;
}

/* The order in which llama-quantize comes to names: layer by layer, and by name in a layer. */
static int compare_names(hth_str a, hth_str b)
{
    int32_t la = layer_of(a), lb = layer_of(b);
    if (la != lb) return la < lb ? -1 : 1;
    return hth_str_compare(a, b);
}

static int by_name(const void *a, const void *b)
{
    return compare_names(((const place *)a)->tensor->name, ((const place *)b)->tensor->name);
}

static int name_at(const void *name, const void *p)
{
    return compare_names(*(const hth_str *)name, ((const place *)p)->tensor->name);
}

static const place *find_place(const hth_ftype_model *m, hth_str name)
{
    return m->places ? bsearch(&name, m->places, m->n_place, sizeof *m->places, name_at) : NULL;
}

hearth_status hth_ftype_open_model(const hth_gguf *file, hth_ftype_model *m, hearth_error *err)
{
    uint32_t n_matrix[HTH_FTYPE_N_ROLE] = {0};
    size_t n = hth_gguf_n_tensor(file);
    *m = (hth_ftype_model){.n_gqa = 1, .tied = !hth_gguf_find_tensor(file, "output.weight"), .n_place = n};
    read_counts(file, m);
    m->places = hth_alloc(n > 0 ? n : 1, sizeof *m->places);
    if (!m->places) return hth_fail_memory(err, n * sizeof *m->places, "the order of tensors");
    for (size_t i = 0; i < n; i++) m->places[i].tensor = hth_gguf_tensor_at(file, i);
    qsort(m->places, n, sizeof *m->places, by_name);
    for (size_t i = 0; i < n; i++) {
        const hth_gguf_tensor *t = m->places[i].tensor;
        role own = role_of(m, t->name);
        m->n_of_role[own]++;
        m->places[i].index = n_matrix[own];
        n_matrix[own] += hth_ftype_is_matrix(t->name, t->n_dim);
    }
    return HEARTH_OK;
}

void hth_ftype_close_model(hth_ftype_model *m)
{
    hth_free(m->places);
    m->places = NULL;
}

/* How many matrices of its role come before one. */
static uint32_t index_of(const hth_ftype_model *m, hth_str name)
{
    const place *p = find_place(m, name);
    int32_t i_layer = layer_of(name);
    return p ? p->index : i_layer < 0 ? 0 : (uint32_t)i_layer;
}

/* The first and the last eighth of n, and every third of those between. */
static bool use_more_bits(uint32_t i, uint32_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

/* ---- rules ------------------------------------------------------------------------- */

/* A matrix, and what the rules ask of it. */
typedef struct matrix {
    const hth_ftype_model *m;
    uint32_t ft;
    hth_type type; /* the type that most matrices of the file have */
    role role;
    hth_str name;
    uint64_t n_col;
    bool only_experts;
} matrix;

/* Whether a file type has one to two bits for each weight. */
static bool is_tiny(uint32_t ft)
{
    switch (ft) {
    case FT_IQ2_XXS:
    case FT_IQ2_XS:
    case FT_IQ2_S:
    case FT_IQ2_M:
    case FT_IQ1_S:
    case FT_IQ1_M: return true;
    default: return false;
    }
}

static bool is_iq2_s_or_m(uint32_t ft) { return ft == FT_IQ2_S || ft == FT_IQ2_M; }

static hth_type type_of_head(const matrix *x)
{
    if (x->m->is_falcon || x->n_col % hth_type_find(x->type)->n_weight != 0) return HTH_TYPE_Q8_0;
    if (is_tiny(x->ft) || x->ft == FT_IQ3_XXS) return HTH_TYPE_Q5_K;
    return x->type == HTH_TYPE_Q8_0 ? HTH_TYPE_Q8_0 : HTH_TYPE_Q6_K;
}

static hth_type type_of_embedding(const matrix *x)
{
    if (x->ft == FT_TQ1_0 || x->ft == FT_TQ2_0) return HTH_TYPE_Q4_K;
    if (is_iq2_s_or_m(x->ft) || x->ft == FT_IQ3_XXS) return HTH_TYPE_IQ3_S;
    return is_tiny(x->ft) ? HTH_TYPE_Q2_K : x->type;
}

/* The type of a matrix in a file of one to two bits. Models of eight experts have small attention matrices, which get
 * more bits. */
static hth_type type_in_tiny(const matrix *x)
{
    const hth_ftype_model *m = x->m;
    hth_type more = is_iq2_s_or_m(x->ft) ? HTH_TYPE_IQ3_S : HTH_TYPE_Q2_K;
    switch (x->role) {
    case VALUES: return m->n_gqa >= 4 || m->n_expert >= 4 ? HTH_TYPE_Q4_K : more;
    case KEYS: return m->n_expert == 8 ? HTH_TYPE_Q4_K : x->type;
    case DOWN: return index_of(m, x->name) < m->n_layer / 8 ? more : x->type;
    case ATTN_OUTPUT:
        if (m->n_expert == 8) return HTH_TYPE_Q5_K;
        if (x->ft == FT_IQ1_S || x->ft == FT_IQ1_M) return HTH_TYPE_IQ2_XXS;
        return is_iq2_s_or_m(x->ft) ? HTH_TYPE_IQ3_S : x->type;
    default: return x->type;
    }
}

static hth_type type_of_shared_values(const matrix *x)
{
    bool shared = x->m->n_gqa >= 4;
    switch (x->ft) {
    case FT_Q2_K: return shared ? HTH_TYPE_Q4_K : HTH_TYPE_Q3_K;
    case FT_Q2_K_S:
    case FT_IQ3_XS:
    case FT_IQ3_S: return shared ? HTH_TYPE_Q4_K : x->type;
    case FT_IQ3_XXS: return shared ? HTH_TYPE_Q4_K : x->m->has_imatrix ? HTH_TYPE_IQ3_XXS : HTH_TYPE_IQ3_S;
    case FT_IQ3_M: return HTH_TYPE_Q4_K;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return shared ? HTH_TYPE_Q5_K : x->type;
    case FT_Q3_K_L: return HTH_TYPE_Q5_K;
    case FT_Q3_K_M: return index_of(x->m, x->name) < 2 ? HTH_TYPE_Q5_K : HTH_TYPE_Q4_K;
    case FT_Q4_K_S: return index_of(x->m, x->name) < 4 ? HTH_TYPE_Q5_K : x->type;
    case FT_Q4_K_M:
    case FT_Q5_K_M:
        return use_more_bits(index_of(x->m, x->name), (x->m->places ? x->m->n_of_role[VALUES] : x->m->n_layer)) ? HTH_TYPE_Q6_K : x->type;
    default: return x->type;
    }
}

/* The fewer heads share values, or the smaller attention is beside the experts, the less more bits cost. */
static hth_type type_of_values(const matrix *x)
{
    if (x->m->n_expert == 8) return HTH_TYPE_Q8_0;
    hth_type type = type_of_shared_values(x);
    return x->m->is_70b && (type == HTH_TYPE_Q3_K || type == HTH_TYPE_Q4_K) ? HTH_TYPE_Q5_K : type;
}

static hth_type type_of_queries_or_keys(const matrix *x)
{
    if (x->role == KEYS && x->m->n_expert == 8) return HTH_TYPE_Q8_0;
    if (x->ft == FT_IQ3_XS) return HTH_TYPE_IQ3_XXS;
    return x->ft == FT_IQ3_XXS ? HTH_TYPE_IQ2_S : x->type;
}

/* Each layer of a mixture counts once, whatever it holds; else matrices are counted. */
static hth_type type_of_down(const matrix *x)
{
    const hth_ftype_model *m = x->m;
    uint32_t n = m->n_layer, i = index_of(m, x->name);
    if (m->n_expert > 1) i = layer_of(x->name) < 0 ? 0 : (uint32_t)layer_of(x->name);
    bool more = use_more_bits(i, n), first = i < n / 8, very_first = i < n / 16, falcon = m->is_falcon;
    switch (x->ft) {
    case FT_Q2_K: return HTH_TYPE_Q3_K;
    case FT_Q2_K_S: return first ? HTH_TYPE_Q4_K : x->type;
    case FT_IQ3_XXS: return m->has_imatrix ? x->type : first ? HTH_TYPE_Q4_K : HTH_TYPE_Q3_K;
    case FT_IQ3_M: return first || (m->n_expert == 8 && more) ? HTH_TYPE_Q4_K : x->type;
    case FT_Q3_K_M: return very_first ? HTH_TYPE_Q5_K : !falcon || more ? HTH_TYPE_Q4_K : x->type;
    case FT_Q3_K_L: return falcon ? HTH_TYPE_Q4_K : HTH_TYPE_Q5_K;
    case FT_Q4_K_M:
        if (falcon) return very_first ? HTH_TYPE_Q6_K : more ? HTH_TYPE_Q5_K : x->type;
        return more ? HTH_TYPE_Q6_K : x->type;
    case FT_Q4_K_S: return first && !falcon ? HTH_TYPE_Q5_K : x->type;
    case FT_Q5_K_M: return more ? HTH_TYPE_Q6_K : x->type;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return first && !m->has_imatrix ? HTH_TYPE_Q5_K : x->type;
    /* The search by importance may choose badly for the first layers, where few inputs are large. */
    case FT_Q4_0: return first && m->has_imatrix ? HTH_TYPE_Q4_1 : x->type;
    case FT_Q5_0: return first && m->has_imatrix ? HTH_TYPE_Q5_1 : x->type;
    default: return x->type;
    }
}

static hth_type type_of_attention_output(const matrix *x)
{
    if (x->m->is_falcon) return x->ft == FT_Q3_K_L ? HTH_TYPE_Q4_K : x->type;
    bool eight = x->m->n_expert == 8;
    switch (x->ft) {
    case FT_Q2_K: return eight ? HTH_TYPE_Q5_K : HTH_TYPE_Q3_K;
    case FT_IQ3_XXS: return eight ? HTH_TYPE_Q5_K : HTH_TYPE_IQ3_S;
    case FT_Q3_K_M:
    case FT_IQ3_M: return eight ? HTH_TYPE_Q5_K : HTH_TYPE_Q4_K;
    case FT_Q3_K_L: return eight ? x->type : HTH_TYPE_Q5_K;
    case FT_IQ3_XS:
    case FT_IQ3_S:
    case FT_Q3_K_S:
    case FT_Q4_K_S:
    case FT_Q4_K_M:
    case FT_IQ4_NL:
    case FT_IQ4_XS: return eight ? HTH_TYPE_Q5_K : x->type;
    default: return x->type;
    }
}

/* The type of gate and up. In IQ3_XS the layers between the first and the last eighth have IQ3_XXS. */
static hth_type type_of_gate_or_up(const matrix *x)
{
    uint32_t n = x->m->n_layer, i = index_of(x->m, x->name);
    if (x->m->n_expert > 1) i = layer_of(x->name) < 0 ? 0 : (uint32_t)layer_of(x->name);
    return x->ft == FT_IQ3_XS && i >= n / 8 && i < 7 * n / 8 ? HTH_TYPE_IQ3_XXS : x->type;
}

/* llama-quantize counts every matrix of three dimensions, of experts or not. */
static bool is_of_experts(const matrix *x)
{
    const place *p = find_place(x->m, x->name);
    return p ? p->tensor->dim[2] > 1 : hth_str_contains(x->name, "_exps.");
}

static hth_type choose(const matrix *x)
{
    if (x->m->pure || !hth_type_find(x->type)->quantised) return x->type;
    if (x->only_experts) return is_of_experts(x) ? x->type : HTH_TYPE_Q8_0;
    if (x->role == HEAD) return type_of_head(x);
    if (x->role == EMBEDDING) return type_of_embedding(x);
    if (is_tiny(x->ft)) return type_in_tiny(x);
    switch (x->role) {
    case VALUES: return type_of_values(x);
    case KEYS:
    case QUERIES: return type_of_queries_or_keys(x);
    case DOWN: return type_of_down(x);
    case ATTN_OUTPUT: return type_of_attention_output(x);
    case GATE:
    case UP: return type_of_gate_or_up(x);
    default: return x->type;
    }
}

/* Fallback for rows that are not a multiple of 256: a type with blocks of 32. */
static hth_type fallback_type(hth_type type)
{
    switch (type) {
    case HTH_TYPE_Q2_K:
    case HTH_TYPE_Q3_K:
    case HTH_TYPE_TQ1_0:
    case HTH_TYPE_TQ2_0:
    case HTH_TYPE_NVFP4: return HTH_TYPE_Q4_0;
    case HTH_TYPE_Q4_K: return HTH_TYPE_Q5_0;
    case HTH_TYPE_Q5_K: return HTH_TYPE_Q5_1;
    case HTH_TYPE_Q6_K: return HTH_TYPE_Q8_0;
    case HTH_TYPE_IQ1_S:
    case HTH_TYPE_IQ1_M:
    case HTH_TYPE_IQ2_XXS:
    case HTH_TYPE_IQ2_XS:
    case HTH_TYPE_IQ2_S:
    case HTH_TYPE_IQ3_XXS:
    case HTH_TYPE_IQ3_S:
    case HTH_TYPE_IQ4_XS: return HTH_TYPE_IQ4_NL;
    default: return type;
    }
}

hth_type hth_ftype_type(const hth_ftype *ftype, const hth_ftype_model *model, hth_str name, uint64_t n_col,
                      hth_type *wanted)
{
    const matrix x = {model, ftype->file_type, ftype->type, role_of(model, name), name, n_col,
                      strcmp(ftype->name, MXFP4_MOE) == 0};
    hth_type type = choose(&x);
    if (wanted) *wanted = type;
    if (n_col % hth_type_find(type)->n_weight != 0) type = fallback_type(type);
    if (n_col % hth_type_find(type)->n_weight != 0) type = HTH_TYPE_F16;
    return type;
}

bool hth_ftype_needs_imatrix(const hth_ftype *ftype, hth_str name, hth_type type)
{
    const hth_ftype_model tied = {.tied = true};
    if (role_of(&tied, name) == HEAD) return false;
    switch (type) {
    case HTH_TYPE_IQ1_S:
    case HTH_TYPE_IQ1_M:
    case HTH_TYPE_IQ2_XXS:
    case HTH_TYPE_IQ2_XS:
    case HTH_TYPE_IQ2_S:
    case HTH_TYPE_IQ3_XXS: return true;
    case HTH_TYPE_Q2_K: return ftype->file_type == FT_Q2_K_S;
    default: return false;
    }
}
