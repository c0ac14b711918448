/* Functions of the files that read hyper-parameters: they read an architecture's keys and check their ranges. */
#ifndef HTH_MODEL_HPARAMS_INT_H
#define HTH_MODEL_HPARAMS_INT_H

#include "model/model.h"

/* 2 to 10 times above every known model. */
enum {
    HTH_MAX_HEAD = 4096,
    HTH_MAX_USED_EXPERT = HTH_MAX_CHAINS - 1, /* sums of the chosen experts and the shared one must fit */
    HTH_MAX_D_MODEL = 262144,
    HTH_MAX_D_HEAD = 65536,
    HTH_MAX_CONTEXT = 16777216,
};

typedef struct hth_hparams_reader {
    const hth_gguf *file;
    const char *arch;
    uint32_t n_block;      /* as hth_hparams: arrays by layer may have an entry for each */
    bool may_lack_tensors; /* as hth_model_overrides */
    bool of_mtp;           /* the block behind the layers is read; warnings were given when these were */
    /* of_mtp: a key whose array has entries for the layers alone, which may not hold for the block; "": none */
    char lacking[HTH_HPARAMS_KEY];
    char key[HTH_HPARAMS_KEY]; /* the last one that was read, for messages */
    hearth_error *err;
} hth_hparams_reader;

/* "ARCH.name". */
const char *hth_hparams_key(hth_hparams_reader *r, const char *name);
/* FORMAT: the last key is missing. */
hearth_status hth_hparams_missing(hth_hparams_reader *r);
/* A line of the log. */
void hth_hparams_warn(const hth_hparams_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An integer key, which is required if *value is 0 on entry. */
hearth_status hth_hparams_size(hth_hparams_reader *r, const char *name, uint64_t min, uint64_t max,
                               uint32_t *value);
/* An integer key that may be absent or 0. */
hearth_status hth_hparams_count(hth_hparams_reader *r, const char *name, uint64_t max, uint32_t *value);
/* found: NULL: not asked for. An absent key leaves *value. */
hearth_status hth_hparams_float(hth_hparams_reader *r, const char *name, double min, double max,
                                double *value, bool *found);

/* hparams_experts.c: counts and widths; then which layers have experts. */
hearth_status hth_hparams_read_experts(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes);
hearth_status hth_hparams_place_experts(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes);
/* FORMAT: the last key's value is not an array of flags, one for each layer. The block behind the layers may have none:
 * hth_hparams_n_entry tells how many of n_layer there are. */
hearth_status hth_hparams_check_flags(hth_hparams_reader *r, const hth_gguf_value *v, uint32_t n_layer);
static inline uint32_t hth_hparams_n_entry(const hth_gguf_value *v, uint32_t n_layer)
{
    return v->n_element < n_layer ? (uint32_t)v->n_element : n_layer;
}
/* hparams_recurrent.c: which layers are recurrent, after the counts of heads; their sizes. */
hearth_status hth_hparams_read_recurrent(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes);
/* hparams_latent.c: sizes of latent attention, in place of those of heads. */
hearth_status hth_hparams_read_latent(hth_hparams_reader *r, hth_hparams *h);
/* hparams_compressed.c: after the sizes of heads. */
hearth_status hth_hparams_read_compressed(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes);
/* hparams_rope.c: rotation, after the sizes of heads. */
hearth_status hth_hparams_read_rope(hth_hparams_reader *r, hth_hparams *h);

#endif
