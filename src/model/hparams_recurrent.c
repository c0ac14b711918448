/* Hyper-parameters of recurrent layers: which layers they are, and their sizes. */
#include "model/hparams_int.h"

#include <string.h>

/* Published models have 128. */
enum { MAX_STATE = 1024 };

static hearth_status fail_state(hth_hparams_reader *r, uint32_t value, const char *why)
{
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %u: %s", hth_gguf_path(r->file), r->key,
                    value, why);
}

static hearth_status read_delta_net(hth_hparams_reader *r, hth_recurrent_sizes *s)
{
    uint32_t inner = 0;
    hearth_status st = hth_hparams_size(r, "ssm.conv_kernel", 1, HTH_MAX_TAP, &s->n_tap);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "ssm.time_step_rank", 1, HTH_MAX_HEAD, &s->n_head);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "ssm.group_count", 1, HTH_MAX_HEAD, &s->n_head_key);
    if (st != HEARTH_OK) return st;
    if (s->n_head % s->n_head_key != 0)
        return fail_state(r, s->n_head_key, "it does not divide ssm.time_step_rank");
    if ((st = hth_hparams_size(r, "ssm.state_size", 1, MAX_STATE, &s->d_state)) != HEARTH_OK) return st;
    if (s->d_state % 16 != 0) return fail_state(r, s->d_state, "only multiples of 16 are supported");
    if ((st = hth_hparams_size(r, "ssm.inner_size", 1, HTH_MAX_HEAD * MAX_STATE, &inner)) != HEARTH_OK)
        return st;
    if (inner != s->n_head * s->d_state)
        return fail_state(r, inner, "only ssm.time_step_rank times ssm.state_size is supported");
    return HEARTH_OK;
}

/* As many heads as the layers with attention have. */
static hearth_status read_kda(hth_hparams_reader *r, hth_hparams *h)
{
    hth_recurrent_sizes *s = &h->recurrent;
    s->n_head = h->n_head;
    hearth_status st = hth_hparams_size(r, "ssm.conv_kernel", 1, HTH_MAX_TAP, &s->n_tap);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "kda.head_dim", 1, MAX_STATE, &s->d_state);
    if (st != HEARTH_OK || s->d_state % 16 == 0) return st;
    return fail_state(r, s->d_state, "only multiples of 16 are supported");
}

/* A flag for each layer, or the distance of the layers that are not recurrent. */
static hearth_status read_pattern(hth_hparams_reader *r, const hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, "attention.recurrent_layers"));
    if (v && v->type == HTH_GGUF_ARRAY) {
        hearth_status st = hth_hparams_check_flags(r, v, h->n_layer);
        for (uint32_t i = 0; st == HEARTH_OK && i < h->n_layer; i++)
            sizes[i].recurrent = hth_gguf_element_uint(v, i) != 0;
        return st;
    }
    uint64_t step = 4;
    hearth_status st = hth_gguf_get_uint(r->file, hth_hparams_key(r, "full_attention_interval"), 1,
                                         HTH_MAX_LAYER, &step, NULL, r->err);
    for (uint32_t i = 0; i < h->n_layer; i++) sizes[i].recurrent = (i + 1) % step != 0;
    return st;
}

hearth_status hth_hparams_read_recurrent(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_recurrent_rule *rule = &h->arch->recurrent;
    hearth_status st = HEARTH_OK;
    uint32_t n = 0;
    if (rule->mixer == HTH_MIXER_ATTENTION) return HEARTH_OK;
    if (!rule->without_kv_heads) st = read_pattern(r, h, sizes);
    if (st != HEARTH_OK) return st;
    h->n_head = h->n_head_kv = 0;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        if (rule->without_kv_heads) sizes[i].recurrent = sizes[i].n_head_kv == 0;
        if (sizes[i].recurrent) sizes[i].n_head = sizes[i].n_head_kv = 0, n++;
        if (sizes[i].n_head > h->n_head) h->n_head = sizes[i].n_head;
        if (sizes[i].n_head_kv > h->n_head_kv) h->n_head_kv = sizes[i].n_head_kv;
    }
    if (rule->without_kv_heads) hth_hparams_key(r, "attention.head_count_kv");
    if (n == h->n_layer)
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s: no layer has attention",
                        hth_gguf_path(r->file), r->key);
    if (n == 0) return HEARTH_OK;
    if (rule->mixer == HTH_MIXER_DELTA_NET) return read_delta_net(r, &h->recurrent);
    if (rule->mixer == HTH_MIXER_KDA) return read_kda(r, h);
    return hth_hparams_size(r, "shortconv.l_cache", 1, HTH_MAX_TAP, &h->recurrent.n_tap);
}
