/* Seconds of products of a token, by layer, from calibrated rates: of one alone, or of one among many. storage_plan.c
 * replays tokens with them. */
#ifndef HTH_MEASURE_STORAGE_COST_H
#define HTH_MEASURE_STORAGE_COST_H

#include "measure/storage_plan.h"

typedef struct hth_layer_cost {
    double always;                  /* seconds of all but the items of a store */
    double position;                /* seconds of attention to one position, for a prompt token */
    uint32_t window;                /* positions that it attends to; 0: all */
    double network;                 /* seconds of the items that a token uses, if they stayed in memory */
    double of_byte[HTH_MAX_EXTENT]; /* seconds of a byte of each extent of an item */
    double of_down;                 /* seconds of a byte of items from first_down on, which have one extent */
    uint32_t first_down;
    /* The layer's bundles (hth_ffn_bundles), or NULL. */
    const hth_ffn_bundles *bundles;
    double *live;   /* [n] share of the neurons that is active */
    double *wanted; /* [n] the chance that any neuron is */
    bool names;     /* a predictor names bundles; else the first half of each is read */
    double of_live; /* seconds of a byte of rows that are computed one by one */
} hth_layer_cost;

typedef struct hth_storage_cost {
    hth_layer_cost *layers; /* [n_layer] */
    double head;
    double *numbers; /* memory of live and wanted of all layers */
} hth_storage_cost;

/* hth_storage_cost_free frees it, also on failure. MEMORY. */
hearth_status hth_storage_cost_open(hth_storage_cost *cost, const hearth_model *model,
                                    const hth_memory_division *division, const hth_storage_machine *machine,
                                    const hth_storage_tokens *tokens, hearth_error *err);
void hth_storage_cost_free(hth_storage_cost *cost);

/* Seconds of an item of the layer. */
double hth_layer_cost_item(const hth_layer_cost *layer, const hth_weight_items *items, uint32_t i_item);
/* Seconds of attention of n_tok tokens from a position on. */
double hth_layer_cost_attention(const hth_layer_cost *layer, uint64_t position, uint32_t n_tok);
/* Seconds of each of n_tok tokens, if all weights are in memory. */
double hth_storage_cost_resident(const hth_storage_cost *cost, uint32_t n_layer, uint32_t n_tok);

#endif
