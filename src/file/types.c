/* The table of block types, indexed by type number of the format. Read by the GGUF reader (sizes) and by
 * everything that names a type. A row gives only the size of a block. `supported` means that kernels/ computes
 * with the type. */
#include "file/types.h"

#include "base/checked_math.h"

/* Names, weights and bytes per block as in ggml (ggml.h, ggml-common.h; ids 40 to 42 as of 2026). 4, 5, 31 to 33
 * and 36 to 38 were removed from the format. */
static const hth_type_info types[HTH_TYPE_LIMIT] = {
    [0] = {"F32", 1, 4, false, true},
    [1] = {"F16", 1, 2, false, true},
    [2] = {"Q4_0", 32, 18, true, true},
    [3] = {"Q4_1", 32, 20, true, true},
    [6] = {"Q5_0", 32, 22, true, true},
    [7] = {"Q5_1", 32, 24, true, true},
    [8] = {"Q8_0", 32, 34, true, true},
    [9] = {"Q8_1", 32, 36, true, false},
    [10] = {"Q2_K", 256, 84, true, true},
    [11] = {"Q3_K", 256, 110, true, true},
    [12] = {"Q4_K", 256, 144, true, true},
    [13] = {"Q5_K", 256, 176, true, true},
    [14] = {"Q6_K", 256, 210, true, true},
    [15] = {"Q8_K", 256, 292, true, false},
    [16] = {"IQ2_XXS", 256, 66, true, true},
    [17] = {"IQ2_XS", 256, 74, true, true},
    [18] = {"IQ3_XXS", 256, 98, true, true},
    [19] = {"IQ1_S", 256, 50, true, true},
    [20] = {"IQ4_NL", 32, 18, true, true},
    [21] = {"IQ3_S", 256, 110, true, true},
    [22] = {"IQ2_S", 256, 82, true, true},
    [23] = {"IQ4_XS", 256, 136, true, true},
    [24] = {"I8", 1, 1, false, false},
    [25] = {"I16", 1, 2, false, false},
    [26] = {"I32", 1, 4, false, false},
    [27] = {"I64", 1, 8, false, false},
    [28] = {"F64", 1, 8, false, false},
    [29] = {"IQ1_M", 256, 56, true, true},
    [30] = {"BF16", 1, 2, false, true},
    [34] = {"TQ1_0", 256, 54, true, true},
    [35] = {"TQ2_0", 256, 66, true, true},
    [39] = {"MXFP4", 32, 17, true, true},
    [40] = {"NVFP4", 64, 36, true, true},
    [41] = {"Q1_0", 128, 18, true, false},
    [42] = {"Q2_0", 64, 18, true, false},
};

const hth_type_info *hth_type_find(uint32_t id)
{
    return id < HTH_TYPE_LIMIT && types[id].name ? &types[id] : NULL;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool same_name(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return *a == '\0' && *b == '\0';
}

bool hth_type_by_name(const char *name, hth_type *type)
{
    for (uint32_t id = 0; id < HTH_TYPE_LIMIT; id++) {
        if (!types[id].name || !same_name(types[id].name, name)) continue;
        *type = (hth_type)id;
        return true;
    }
    return false;
}

size_t hth_type_row_size(hth_type type, size_t n_col)
{
    const hth_type_info *info = hth_type_find((uint32_t)type);
    size_t size = 0;
    if (!info || n_col % info->n_weight != 0) return 0;
    return hth_mul_size(n_col / info->n_weight, info->size, &size) ? size : 0;
}

uint32_t hth_type_act_block(hth_type type)
{
    const hth_type_info *info = hth_type_find((uint32_t)type);
    if (!info || !info->quantised) return 0;
    return info->n_weight == 256 ? 256 : 32;
}

const char *hth_type_supported_list(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS, "
           "IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4";
}
