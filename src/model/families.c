/* The family table, and the names of activations. */
#include "model/family.h"

static const hth_family families[] = {
    {.name = "llama",
     .rope = HTH_ROPE_NEIGHBOURS,
     .activation = HTH_ACTIVATION_SILU,
     .gated = true,
     .rope_freqs = true},
};

const hth_family *hth_family_find(hth_text name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (hth_text_is(name, families[i].name)) return &families[i];
    return NULL;
}

const char *hth_family_list(void) { return "llama"; }

/* Some names are those of gated forms and ask for a gate tensor; with the others the
 * tensors decide. */
static const struct {
    const char *name;
    hth_activation activation;
    bool needs_gate;
} activation_names[] = {
    {"swiglu", HTH_ACTIVATION_SILU, false}, {"silu", HTH_ACTIVATION_SILU, false},
    {"geglu", HTH_ACTIVATION_GELU, true},   {"gelu", HTH_ACTIVATION_GELU, false},
    {"reglu", HTH_ACTIVATION_RELU, true},   {"relu", HTH_ACTIVATION_RELU, false},
    {"drelu", HTH_ACTIVATION_DRELU, true},  {"relu2", HTH_ACTIVATION_RELU2, false},
};

bool hth_activation_by_name(hth_text name, hth_activation *activation, bool *needs_gate)
{
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++) {
        if (!hth_text_is(name, activation_names[i].name)) continue;
        *activation = activation_names[i].activation;
        *needs_gate = activation_names[i].needs_gate;
        return true;
    }
    return false;
}

const char *hth_activation_name(hth_activation activation)
{
    static const char *const names[HTH_N_ACTIVATION] = {"silu", "gelu", "relu", "relu2", "drelu"};
    return names[activation];
}

bool hth_activation_is_sparse(hth_activation activation)
{
    return activation == HTH_ACTIVATION_RELU || activation == HTH_ACTIVATION_RELU2 ||
           activation == HTH_ACTIVATION_DRELU;
}
