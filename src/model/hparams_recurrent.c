/* Hyper-parameters of recurrent layers: which layers they are, and their sizes. */
#include "model/hparams_int.h"

#include <string.h>

/* Published models have up to 256. */
enum { MAX_STATE = 1024 };

static hearth_status fail_state(hth_hparams_reader *r, uint32_t value, const char *why)
{
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %u: %s", hth_gguf_path(r->file), r->key,
                    value, why);
}

static hearth_status read_delta_net(hth_hparams_reader *r, hth_recurrent_sizes *s)
{
    uint32_t inner = 0;
    hearth_status st = hth_hparams_size(r, "ssm.conv_kernel", 1, HTH_MAX_TAP, &s->d_conv);
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
    s->d_inner = inner;
    return HEARTH_OK;
}

/* As many heads as the layers with attention have. */
static hearth_status read_kda(hth_hparams_reader *r, hth_hparams *h)
{
    hth_recurrent_sizes *s = &h->recurrent;
    s->n_head = h->n_head;
    hearth_status st = hth_hparams_size(r, "ssm.conv_kernel", 1, HTH_MAX_TAP, &s->d_conv);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "kda.head_dim", 1, MAX_STATE, &s->d_state);
    s->d_inner = s->n_head * s->d_state;
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

/* One divides the other, so that every part has as many. */
static hearth_status fail_division(hth_hparams_reader *r, const char *name, uint32_t value, const char *by, uint32_t n)
{
    return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is %u: it is no multiple of %s.%s, which is %u",
                    hth_gguf_path(r->file), hth_hparams_key(r, name), value, r->arch, by, n);
}

static hearth_status read_ssm(hth_hparams_reader *r, const hth_hparams *h, hth_recurrent_sizes *s)
{
    const hth_recurrent_rule *rule = &h->arch->recurrent;
    uint32_t rank = 0;
    bool of_channels = rule->ssm == HTH_SSM_CHANNELS;
    hearth_status st = hth_hparams_size(r, "ssm.conv_kernel", 1, HTH_MAX_TAP, &s->d_conv);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "ssm.inner_size", 1, HTH_MAX_HEAD * MAX_STATE, &s->d_inner);
    if (st == HEARTH_OK) st = hth_hparams_size(r, "ssm.state_size", 1, MAX_STATE, &s->d_state);
    if (st == HEARTH_OK)
        st = hth_hparams_size(r, "ssm.time_step_rank", 1, of_channels ? HTH_MAX_D_MODEL : HTH_MAX_HEAD, &rank);
    s->n_group = rule->ssm == HTH_SSM_HEADS ? 0 : 1;
    if (st == HEARTH_OK && s->n_group == 0) st = hth_hparams_size(r, "ssm.group_count", 1, HTH_MAX_HEAD, &s->n_group);
    s->norms_low = rule->norms_low;
    if (st == HEARTH_OK && rule->reads_low_norm)
        st = hth_gguf_get_bool(r->file, hth_hparams_key(r, "ssm.dt_b_c_rms"), &s->norms_low, NULL, r->err);
    if (st != HEARTH_OK) return st;
    s->n_head = of_channels ? s->d_inner : rank;
    /* The rank of PLaMo 2 has no key. */
    s->dt_rank = of_channels ? rank : rule->ssm == HTH_SSM_HEADS ? 0 : h->d_model / 16 < 64 ? 64 : h->d_model / 16;
    if (s->d_inner % s->n_head != 0)
        return fail_division(r, "ssm.inner_size", s->d_inner, "ssm.time_step_rank", s->n_head);
    if (s->n_head % s->n_group != 0)
        return fail_division(r, "ssm.time_step_rank", s->n_head, "ssm.group_count", s->n_group);
    return HEARTH_OK;
}

/* Which parts layer i has. */
static void place_parts(const hth_arch *a, hth_layer_sizes *s)
{
    const hth_recurrent_rule *rule = &a->recurrent;
    s->no_mixer = a->layers == HTH_LAYERS_EITHER && s->d_ff > 0;
    s->no_network = a->layers != HTH_LAYERS_FULL && s->d_ff == 0;
    if (rule->without_kv_heads) s->recurrent = s->n_head_kv == 0;
    if (rule->all || rule->parallel_mixer) s->recurrent = true;
    if (s->no_mixer) s->recurrent = false;
    if ((s->recurrent && !rule->parallel_mixer) || s->no_mixer) s->n_head = s->n_head_kv = 0;
}

hearth_status hth_hparams_read_recurrent(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_recurrent_rule *rule = &h->arch->recurrent;
    hearth_status st = HEARTH_OK;
    bool any = false;
    if (rule->mixer == HTH_MIXER_ATTENTION || r->of_mtp) return HEARTH_OK;
    if (!rule->without_kv_heads && !rule->all && !rule->parallel_mixer) st = read_pattern(r, h, sizes);
    if (st != HEARTH_OK) return st;
    h->n_head = h->n_head_kv = 0;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        place_parts(h->arch, &sizes[i]);
        any = any || sizes[i].recurrent;
        if (sizes[i].n_head > h->n_head) h->n_head = sizes[i].n_head;
        if (sizes[i].n_head_kv > h->n_head_kv) h->n_head_kv = sizes[i].n_head_kv;
    }
    if (!any) return HEARTH_OK;
    if (rule->mixer == HTH_MIXER_SSM) return read_ssm(r, h, &h->recurrent);
    if (rule->mixer == HTH_MIXER_DELTA_NET) return read_delta_net(r, &h->recurrent);
    if (rule->mixer == HTH_MIXER_KDA) return read_kda(r, h);
    return hth_hparams_size(r, "shortconv.l_cache", 1, HTH_MAX_TAP, &h->recurrent.d_conv);
}
