/* File types (ftype). The rules are those of llama-quantize of 2026 without an importance matrix, for dense
 * models. A rule selects a role, which is recognised by the end of a tensor's name. */
#include "convert/ftype.h"

#include "model/arch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The suffix of a K type: how many bits sensitive matrices get. */
typedef enum precision { PLAIN, SMALL, MEDIUM, LARGE } precision;

static const struct {
    hth_ftype ftype;
    precision level;
} ftypes[] = {
    {{"F32", 0, HTH_TYPE_F32}, PLAIN},
    {{"F16", 1, HTH_TYPE_F16}, PLAIN},
    {{"BF16", 32, HTH_TYPE_BF16}, PLAIN},
    {{"Q8_0", 7, HTH_TYPE_Q8_0}, PLAIN},
    {{"Q6_K", 18, HTH_TYPE_Q6_K}, PLAIN},
    {{"Q5_K_M", 17, HTH_TYPE_Q5_K}, MEDIUM},
    {{"Q5_K_S", 16, HTH_TYPE_Q5_K}, SMALL},
    {{"Q5_1", 9, HTH_TYPE_Q5_1}, PLAIN},
    {{"Q5_0", 8, HTH_TYPE_Q5_0}, PLAIN},
    {{"Q4_K_M", 15, HTH_TYPE_Q4_K}, MEDIUM},
    {{"Q4_K_S", 14, HTH_TYPE_Q4_K}, SMALL},
    {{"IQ4_NL", 25, HTH_TYPE_IQ4_NL}, PLAIN},
    {{"Q4_1", 3, HTH_TYPE_Q4_1}, PLAIN},
    {{"Q4_0", 2, HTH_TYPE_Q4_0}, PLAIN},
    {{"Q3_K_L", 13, HTH_TYPE_Q3_K}, LARGE},
    {{"Q3_K_M", 12, HTH_TYPE_Q3_K}, MEDIUM},
    {{"Q3_K_S", 11, HTH_TYPE_Q3_K}, SMALL},
    {{"Q2_K", 10, HTH_TYPE_Q2_K}, PLAIN},
    /* Only synth writes these. */
    {{"IQ4_XS", 30, HTH_TYPE_IQ4_XS}, PLAIN},
    {{"MXFP4", 38, HTH_TYPE_MXFP4}, PLAIN},
    {{"IQ3_S", 26, HTH_TYPE_IQ3_S}, PLAIN},
    {{"IQ3_XXS", 23, HTH_TYPE_IQ3_XXS}, PLAIN},
    {{"IQ2_S", 28, HTH_TYPE_IQ2_S}, PLAIN},
    {{"IQ2_XS", 20, HTH_TYPE_IQ2_XS}, PLAIN},
    {{"IQ2_XXS", 19, HTH_TYPE_IQ2_XXS}, PLAIN},
    {{"IQ1_M", 31, HTH_TYPE_IQ1_M}, PLAIN},
    {{"IQ1_S", 24, HTH_TYPE_IQ1_S}, PLAIN},
    {{"TQ2_0", 37, HTH_TYPE_TQ2_0}, PLAIN},
    {{"TQ1_0", 36, HTH_TYPE_TQ1_0}, PLAIN},
    {{"NVFP4", 39, HTH_TYPE_NVFP4}, PLAIN},
};
enum { N_FTYPE = sizeof ftypes / sizeof *ftypes };

static precision precision_of(const hth_ftype *ftype)
{
    for (int i = 0; i < N_FTYPE; i++)
        if (ftype == &ftypes[i].ftype) return ftypes[i].level;
    return PLAIN;
}

const hth_ftype *hth_ftype_find(const char *name)
{
    char medium[16];
    snprintf(medium, sizeof medium, "%.12s_M", name);
    for (int i = 0; i < N_FTYPE; i++)
        if (strcasecmp(ftypes[i].ftype.name, name) == 0) return &ftypes[i].ftype;
    for (int i = 0; i < N_FTYPE; i++)
        if (strcasecmp(ftypes[i].ftype.name, medium) == 0) return &ftypes[i].ftype;
    return NULL;
}

const char *hth_ftype_list(void)
{
    return "F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, IQ4_NL, Q4_1, Q4_0, "
           "Q3_K_L, Q3_K_M, Q3_K_S, Q2_K";
}

const char *hth_ftype_list_read_only(void)
{
    return "IQ4_XS, MXFP4, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S, TQ2_0, TQ1_0, NVFP4";
}

const char *hth_ftype_unwritten_reason(hth_type type)
{
    switch (type) {
    case HTH_TYPE_IQ2_XXS:
    case HTH_TYPE_IQ2_XS:
    case HTH_TYPE_IQ2_S:
    case HTH_TYPE_IQ3_XXS:
    case HTH_TYPE_IQ3_S:
    case HTH_TYPE_IQ1_S:
    case HTH_TYPE_IQ1_M:
        return "this type is read, not written: it needs an importance matrix, which is not supported yet";
    default: return "this type is read, not written";
    }
}

/* ---- roles ----------------------------------------------------------------------- */

static bool ends_with(hth_str t, const char *end)
{
    size_t n = strlen(end);
    return t.n >= n && memcmp(t.bytes + t.n - n, end, n) == 0;
}

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

hth_ftype_model hth_ftype_read_model(const hth_gguf *file)
{
    hth_str arch_name = {0};
    bool named =
        hth_gguf_get_text(file, "general.architecture", &arch_name, NULL, NULL) == HEARTH_OK && arch_name.n > 0;
    const hth_arch *arch = named ? hth_arch_find(arch_name) : NULL;
    hth_ftype_model m = {.n_gqa = 1,
                       .tied = !hth_gguf_find_tensor(file, "output.weight"),
                       .parallel = arch && arch->parallel};
    if (!named) return m;
    m.n_layer = count_of(file, arch_name, "block_count", 0);
    uint32_t n_head = count_of(file, arch_name, "attention.head_count", 1);
    uint32_t n_kv = count_of(file, arch_name, "attention.head_count_kv", n_head);
    if (n_kv > 0 && n_head >= n_kv) m.n_gqa = n_head / n_kv;
    return m;
}

bool hth_ftype_is_matrix(hth_str name, uint32_t n_dim)
{
    /* Ends of names of small or sensitive tensors, which llama-quantize leaves too. */
    static const char *const left[] = {"_norm.weight",         "ffn_gate_inp.weight",   "position_embd.weight",
                                       "ssm_conv1d.weight",    "ssm_conv1d_q.weight",   "ssm_conv1d_k.weight",
                                       "ssm_conv1d_v.weight",  "shortconv.conv.weight", "per_layer_model_proj.weight",
                                       "indexer.k_proj.weight", "indexer.q_proj.weight"};
    bool matrix = n_dim >= 2 && ends_with(name, ".weight");
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) matrix = matrix && !ends_with(name, left[i]);
    return matrix;
}

bool hth_ftype_is_head(const hth_ftype_model *model, hth_str name)
{
    return hth_str_eq(name, model->tied ? "token_embd.weight" : "output.weight");
}

/* The layer in "blk.N.…"; 0 for other names. */
static uint32_t layer_of(hth_str name)
{
    uint32_t n = 0;
    if (name.n < 5 || memcmp(name.bytes, "blk.", 4) != 0) return 0;
    for (size_t i = 4; i < name.n && name.bytes[i] >= '0' && name.bytes[i] <= '9' && n < 100000; i++)
        n = 10 * n + (uint32_t)(name.bytes[i] - '0');
    return n;
}

/* The layers that get more bits: the first and last eighth, and every third of those between. */
static bool use_more_bits(uint32_t i, uint32_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

/* ---- rules ------------------------------------------------------------------------- */

static hth_type type_of_head(hth_type type, const hth_ftype_model *m, uint64_t n_col)
{
    if (m->parallel || n_col % hth_type_find(type)->n_weight != 0) return HTH_TYPE_Q8_0;
    return type == HTH_TYPE_Q8_0 ? HTH_TYPE_Q8_0 : HTH_TYPE_Q6_K;
}

/* Type of V matrices, alone or fused with Q and K. */
static hth_type type_of_values(hth_type type, precision level, const hth_ftype_model *m, uint32_t i)
{
    bool shared = m->n_gqa >= 4;
    hth_type to = type;
    if (type == HTH_TYPE_Q2_K) to = shared ? HTH_TYPE_Q4_K : HTH_TYPE_Q3_K;
    else if (type == HTH_TYPE_Q3_K && level == MEDIUM) to = i < 2 ? HTH_TYPE_Q5_K : HTH_TYPE_Q4_K;
    else if (type == HTH_TYPE_Q3_K && level == LARGE) to = HTH_TYPE_Q5_K;
    else if ((type == HTH_TYPE_IQ4_NL || type == HTH_TYPE_IQ4_XS) && shared) to = HTH_TYPE_Q5_K;
    else if (level == MEDIUM && use_more_bits(i, m->n_layer)) to = HTH_TYPE_Q6_K;
    else if (type == HTH_TYPE_Q4_K && level == SMALL && i < 4) to = HTH_TYPE_Q5_K;
    /* 70B models share values among eight heads, so more bits cost little. */
    bool large = m->n_layer == 80 && m->n_gqa == 8;
    return large && (to == HTH_TYPE_Q3_K || to == HTH_TYPE_Q4_K) ? HTH_TYPE_Q5_K : to;
}

static hth_type type_of_down(hth_type type, precision level, const hth_ftype_model *m, uint32_t i)
{
    uint32_t n = m->n_layer;
    bool more = use_more_bits(i, n), first = i < n / 8, very_first = i < n / 16;
    switch (type) {
    case HTH_TYPE_Q2_K: return HTH_TYPE_Q3_K;
    case HTH_TYPE_Q3_K:
        if (level == LARGE) return m->parallel ? HTH_TYPE_Q4_K : HTH_TYPE_Q5_K;
        if (level != MEDIUM) return type;
        return very_first ? HTH_TYPE_Q5_K : !m->parallel || more ? HTH_TYPE_Q4_K : type;
    case HTH_TYPE_Q4_K:
        if (level == SMALL) return first && !m->parallel ? HTH_TYPE_Q5_K : type;
        if (m->parallel) return very_first ? HTH_TYPE_Q6_K : more ? HTH_TYPE_Q5_K : type;
        return more ? HTH_TYPE_Q6_K : type;
    case HTH_TYPE_Q5_K: return level == MEDIUM && more ? HTH_TYPE_Q6_K : type;
    case HTH_TYPE_IQ4_NL:
    case HTH_TYPE_IQ4_XS: return first ? HTH_TYPE_Q5_K : type;
    default: return type;
    }
}

static hth_type type_of_attention_output(hth_type type, precision level, const hth_ftype_model *m)
{
    if (type == HTH_TYPE_Q2_K && !m->parallel) return HTH_TYPE_Q3_K;
    if (type != HTH_TYPE_Q3_K) return type;
    if (level == LARGE) return m->parallel ? HTH_TYPE_Q4_K : HTH_TYPE_Q5_K;
    return level == MEDIUM && !m->parallel ? HTH_TYPE_Q4_K : type;
}

/* Fallback for rows that are not a multiple of 256: a type with blocks of 32 and about as many bits. */
static hth_type fallback_type(hth_type type)
{
    switch (type) {
    case HTH_TYPE_Q2_K:
    case HTH_TYPE_Q3_K:
    case HTH_TYPE_IQ4_XS:
    case HTH_TYPE_IQ2_XXS:
    case HTH_TYPE_IQ2_XS:
    case HTH_TYPE_IQ2_S:
    case HTH_TYPE_IQ3_XXS:
    case HTH_TYPE_IQ3_S:
    case HTH_TYPE_IQ1_S:
    case HTH_TYPE_IQ1_M: return HTH_TYPE_IQ4_NL;
    case HTH_TYPE_TQ1_0:
    case HTH_TYPE_TQ2_0:
    case HTH_TYPE_NVFP4: return HTH_TYPE_Q4_0;
    case HTH_TYPE_Q4_K: return HTH_TYPE_Q5_0;
    case HTH_TYPE_Q5_K: return HTH_TYPE_Q5_1;
    case HTH_TYPE_Q6_K: return HTH_TYPE_Q8_0;
    default: return type;
    }
}

static hth_type choose(const hth_ftype *ftype, const hth_ftype_model *m, hth_str name, uint64_t n_col)
{
    hth_type type = ftype->type;
    precision level = precision_of(ftype);
    uint32_t i = layer_of(name);
    if (m->pure || !hth_type_find(type)->quantised) return type;
    if (hth_ftype_is_head(m, name)) return type_of_head(type, m, n_col);
    if (ends_with(name, "attn_v.weight") || ends_with(name, "attn_qkv.weight"))
        return type_of_values(type, level, m, i);
    if (ends_with(name, "ffn_down.weight")) return type_of_down(type, level, m, i);
    if (ends_with(name, "attn_output.weight")) return type_of_attention_output(type, level, m);
    return type;
}

hth_type hth_ftype_type(const hth_ftype *ftype, const hth_ftype_model *model, hth_str name, uint64_t n_col,
                      hth_type *wanted)
{
    hth_type type = choose(ftype, model, name, n_col);
    if (wanted) *wanted = type;
    if (n_col % hth_type_find(type)->n_weight != 0) type = fallback_type(type);
    if (n_col % hth_type_find(type)->n_weight != 0) type = HTH_TYPE_F16;
    return type;
}
