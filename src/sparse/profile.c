/* Profiles in memory, and statistics of them for reports and placements. Files: profile_file.c; the collector:
 * measure/profile.c. */
#include "sparse/profile.h"

#include "base/bits.h"
#include "base/checked_math.h"
#include "base/random.h"

static hearth_status make_layer(hth_profile *p, hth_profile_layer *l, uint32_t d_ff, bool with_sums,
                                hearth_error *err)
{
    size_t capacity = ((size_t)d_ff + HTH_PROFILE_BLOCK - 1) / HTH_PROFILE_BLOCK * HTH_PROFILE_BLOCK,
           n_bit = 0;
    l->d_ff = d_ff;
    bool fits = hth_mul_size(d_ff, p->n_word, &n_bit);
    l->n_fired = hth_arena_alloc(&p->arena, capacity, sizeof *l->n_fired, 64);
    l->mean = hth_arena_alloc(&p->arena, capacity, sizeof *l->mean, 64);
    if (with_sums) l->sum = hth_arena_alloc(&p->arena, capacity, sizeof *l->sum, 64);
    if (fits && n_bit > 0) l->coact_bits = hth_arena_alloc(&p->arena, n_bit, sizeof *l->coact_bits, 64);
    if (fits && l->n_fired && l->mean && (l->sum || !with_sums) && (l->coact_bits || n_bit == 0))
        return HEARTH_OK;
    return hth_fail_memory(err, fits ? (capacity * 4 + n_bit) * 4 : SIZE_MAX, "a profile");
}

hearth_status hth_profile_new(const hth_model *model, uint32_t n_sample, bool with_sums, hth_profile **out,
                              hearth_error *err)
{
    const hth_hparams *h = &model->hparams;
    *out = NULL;
    if (n_sample > HTH_PROFILE_MAX_SAMPLE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u samples: a profile has 0 to %d", n_sample,
                        HTH_PROFILE_MAX_SAMPLE);
    hth_profile *p = hth_alloc(1, sizeof *p);
    if (!p) return hth_fail_memory(err, sizeof *p, "a profile");
    p->n_sample = n_sample;
    p->n_word = (n_sample + 31) / 32;
    p->n_layer = h->n_layer;
    p->coact_is_top_decile = !hth_activation_is_sparse(h->activation);
    hearth_status st = HEARTH_OK;
    p->layers = hth_arena_alloc(&p->arena, h->n_layer, sizeof *p->layers, 16);
    if (!p->layers) st = hth_fail_memory(err, h->n_layer * sizeof *p->layers, "a profile");
    for (uint32_t i = 0; st == HEARTH_OK && i < h->n_layer; i++)
        st = make_layer(p, &p->layers[i], model->layers[i].ffn.d_ff, with_sums, err);
    if (st == HEARTH_OK) *out = p;
    else hth_profile_close(p);
    return st;
}

void hth_profile_close(hth_profile *p)
{
    if (!p) return;
    hth_arena_free(&p->arena);
    hth_free(p);
}

void hth_profile_copy(hth_profile *to, const hth_profile *from)
{
    to->n_done = from->n_done;
    for (uint32_t i = 0; i < from->n_layer; i++) {
        hth_profile_layer *l = &to->layers[i];
        const hth_profile_layer counted = from->layers[i];
        memcpy(l->n_fired, counted.n_fired, l->d_ff * sizeof *l->n_fired);
        memcpy(l->mean, counted.mean, l->d_ff * sizeof *l->mean);
        if (l->coact_bits)
            memcpy(l->coact_bits, counted.coact_bits, (size_t)l->d_ff * to->n_word * sizeof *l->coact_bits);
        if (l->sum) memcpy(l->sum, counted.sum, l->d_ff * sizeof *l->sum);
        memcpy(l->bins, counted.bins, sizeof l->bins);
        l->largest = counted.largest;
        l->gate_fired = counted.gate_fired, l->up_fired = counted.up_fired;
    }
}

/* ---- samples ---------------------------------------------------------------------------------------- */

uint64_t hth_profile_sample_at(const hth_profile *p, uint32_t i)
{
    uint64_t from = i * p->n_tok / p->n_sample, to = ((uint64_t)i + 1) * p->n_tok / p->n_sample, seed = i;
    return from + hth_random_next(&seed) % (to - from);
}

/* ---- statistics --------------------------------------------------------------------------------------- */

double hth_profile_live(const hth_profile *p, uint32_t i_layer)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    double n = 0.0;
    for (uint32_t j = 0; j < l->d_ff; j++) n += (double)l->n_fired[j];
    return p->n_done > 0 ? n / ((double)p->n_done * l->d_ff) : 0.0;
}

/* Blocks of constant length are vectorised. */
static size_t count_from(const uint8_t *words, size_t n, int32_t min)
{
    size_t count = 0, i = 0;
    for (; i + HTH_PROFILE_BLOCK <= n; i += HTH_PROFILE_BLOCK) {
        int32_t x[HTH_PROFILE_BLOCK], some = 0;
        memcpy(x, words + 4 * i, sizeof x);
        for (size_t k = 0; k < HTH_PROFILE_BLOCK; k++) some += x[k] >= min;
        count += (size_t)some;
    }
    for (; i < n; i++) count += (int32_t)hth_load_u32(words + 4 * i) >= min;
    return count;
}

uint32_t hth_profile_kth(const void *x, size_t n, size_t k)
{
    int32_t kth = 0;
    for (int32_t bit = 1 << 30; bit > 0; bit >>= 1)
        if (count_from(x, n, kth | bit) >= k) kth |= bit;
    return (uint32_t)kth;
}

double hth_profile_cover(const hth_profile *p, uint32_t i_layer, double share)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    size_t k = (size_t)(share * l->d_ff + 0.5), n_above = 0;
    if (k < 1 || k > l->d_ff) return k < 1 ? 0.0 : 1.0;
    const void *keys = p->coact_is_top_decile ? (const void *)l->mean : l->n_fired;
    uint32_t kth = hth_profile_kth(keys, l->d_ff, k);
    double sum = 0.0, above = 0.0, at = 0.0;
    for (uint32_t j = 0; j < l->d_ff; j++) {
        uint32_t key = p->coact_is_top_decile ? hth_bits_of(l->mean[j]) : l->n_fired[j];
        double w = p->coact_is_top_decile ? (double)l->mean[j] : (double)l->n_fired[j];
        sum += w;
        if (key > kth) above += w, n_above++;
        if (key == kth) at = w;
    }
    return sum > 0.0 ? (above + (double)(k - n_above) * at) / sum : 0.0;
}

float hth_profile_bin_edge(size_t i)
{
    if (i < 2) return i == 0 ? 0.0f : 0x1p-149f;
    return hth_float_of(((127 - 24) * 8 + (uint32_t)i - 2) << 20);
}
