/* Generates lists of active neurons, all of them before a timing starts, so that returning one costs nothing.
 * hearth bench calls it. */
#include "measure/act_trace.h"

#include "base/status.h"
#include "kernels/vector/math.h"
#include "sample/random.h"

struct hth_act_trace {
    uint32_t n_layer, n_tok, i_tok;
    size_t *first; /* [n_tok * n_layer + 1] offsets in lists */
    int32_t *lists;
    size_t capacity;
    uint64_t n_neuron; /* neurons summed over layers and tokens, active or not */
};

/* ---- the distribution ------------------------------------------------------------------------- */

/* Sets chance[n] in proportion to (1 + u)^-zipf_s, with the mean spec->share. Values that would exceed 1 are
 * set to 1, and the others are scaled up. */
static void fill_chances(const hth_act_trace_spec *spec, double *chance, size_t n)
{
    double low = 0.0, high = 1e12;
    for (int step = 0; step < 200; step++) {
        double factor = low + (high - low) / 2.0, sum = 0.0;
        for (size_t u = 0; u < n; u++) {
            double c = factor * hth_pow_d((double)(u + 1), -spec->zipf_s);
            chance[u] = c < 1.0 ? c : 1.0;
            sum += chance[u];
        }
        if (sum < spec->share * (double)n) low = factor;
        else high = factor;
    }
}

/* ---- lists --------------------------------------------------------------------------------------- */

static bool add_run(hth_act_trace *f, size_t *n, uint32_t first, uint32_t end)
{
    if (*n + (end - first) > f->capacity) {
        size_t capacity = 2 * f->capacity + 65536;
        int32_t *larger = hth_realloc(f->lists, capacity, sizeof *larger);
        if (!larger) return false;
        f->lists = larger;
        f->capacity = capacity;
    }
    for (uint32_t i = first; i < end; i++) f->lists[(*n)++] = (int32_t)i;
    return true;
}

/* One token of one layer. fires[] holds the state of each run for the previous token. */
static bool draw_list(hth_act_trace *f, const hth_act_trace_spec *spec, uint32_t d_ff, const double *chance,
                      uint8_t *fires, hth_sample_random *random, size_t *n)
{
    for (uint32_t u = 0, first = 0; first < d_ff; u++, first += spec->block) {
        uint32_t end = d_ff - first < spec->block ? d_ff : first + spec->block;
        bool stays = f->i_tok > 0 && hth_sample_random_unit(random) < spec->correlation;
        if (!stays) fires[u] = hth_sample_random_unit(random) < chance[u];
        if (fires[u] && !add_run(f, n, first, end)) return false;
    }
    f->n_neuron += d_ff;
    return true;
}

static bool draw(hth_act_trace *f, const hth_model *m, const hth_act_trace_spec *spec, double *chance,
                 uint8_t *fires)
{
    size_t n = 0, d_ff_max = m->hparams.d_ff;
    hth_sample_random random;
    hth_sample_random_seed(&random, spec->seed);
    for (f->i_tok = 0; f->i_tok < f->n_tok; f->i_tok++)
        for (uint32_t l = 0; l < f->n_layer; l++) {
            uint32_t d_ff = m->layers[l].ffn.d_ff;
            f->first[(size_t)f->i_tok * f->n_layer + l] = n;
            if (f->i_tok == 0 || d_ff != m->layers[l ? l - 1 : f->n_layer - 1].ffn.d_ff)
                fill_chances(spec, chance, (d_ff + spec->block - 1) / spec->block);
            if (!draw_list(f, spec, d_ff, chance, fires + l * d_ff_max, &random, &n)) return false;
        }
    f->first[(size_t)f->n_tok * f->n_layer] = n;
    f->i_tok = 0;
    return true;
}

/* An empty trace; NULL if out of memory. */
static hth_act_trace *new_trace(uint32_t n_layer, uint32_t n_tok)
{
    hth_act_trace *f = hth_alloc(1, sizeof *f);
    if (!f) return NULL;
    *f = (hth_act_trace){.n_layer = n_layer, .n_tok = n_tok, .capacity = 1};
    f->first = hth_alloc((size_t)n_tok * n_layer + 1, sizeof *f->first);
    f->lists = hth_alloc(f->capacity, sizeof *f->lists); /* an empty list means no neurons, NULL means all */
    if (f->first && f->lists) return f;
    hth_act_trace_close(f);
    return NULL;
}

hearth_status hth_act_trace_open(const hth_model *model, const hth_act_trace_spec *spec, uint32_t n_tok,
                                 hth_act_trace **out, hearth_error *err)
{
    size_t d_ff_max = model->hparams.d_ff, n_layer = model->hparams.n_layer;
    *out = NULL;
    hearth_status st = hth_model_check_dense(model, "forced activity of neurons", err);
    if (st != HEARTH_OK) return st;
    hth_act_trace *f = new_trace((uint32_t)n_layer, n_tok);
    double *chance = hth_alloc(d_ff_max, sizeof *chance);
    uint8_t *fires = hth_alloc(n_layer, d_ff_max);
    bool ok = f && chance && fires && draw(f, model, spec, chance, fires);
    hth_free(chance);
    hth_free(fires);
    if (ok) {
        *out = f;
        return HEARTH_OK;
    }
    hth_act_trace_close(f);
    return hth_fail_memory(err, (uint64_t)n_tok * n_layer * d_ff_max, "active neuron lists");
}

/* ---- samples of a profile ------------------------------------------------------------------------- */

/* One token of one layer: the neurons whose bit of the sample is set. */
static bool replay_list(hth_act_trace *f, const hth_profile *p, uint32_t i_layer, uint32_t i_sample,
                        size_t *n)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    for (uint32_t j = 0; j < l->d_ff; j++)
        if (l->coact_bits[(size_t)j * p->n_word + i_sample / 32] >> (i_sample % 32) & 1)
            if (!add_run(f, n, j, j + 1)) return false;
    f->n_neuron += l->d_ff;
    return true;
}

static bool replay(hth_act_trace *f, const hth_profile *p, uint32_t first_sample)
{
    size_t n = 0;
    for (uint32_t t = 0; t < f->n_tok; t++)
        for (uint32_t l = 0; l < f->n_layer; l++) {
            f->first[(size_t)t * f->n_layer + l] = n;
            uint32_t i_sample = (uint32_t)(((uint64_t)first_sample + t) % p->n_sample);
            if (!replay_list(f, p, l, i_sample, &n)) return false;
        }
    f->first[(size_t)f->n_tok * f->n_layer] = n;
    return true;
}

hearth_status hth_act_trace_replay(const hth_profile *p, uint32_t first_sample, uint32_t n_tok,
                                   hth_act_trace **out, hearth_error *err)
{
    *out = NULL;
    if (p->n_sample == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "the profile has no co-activation samples: make it with some");
    if (first_sample >= p->n_sample)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "sample %u: the profile has %u", first_sample,
                        p->n_sample);
    hth_act_trace *f = new_trace(p->n_layer, n_tok);
    if (f && replay(f, p, first_sample)) {
        *out = f;
        return HEARTH_OK;
    }
    hth_act_trace_close(f);
    return hth_fail_memory(err, (uint64_t)n_tok * p->n_layer * sizeof(size_t), "active neuron lists");
}

uint32_t hth_act_trace_draw_sample(const hth_profile *p, uint64_t seed)
{
    hth_sample_random random;
    hth_sample_random_seed(&random, seed);
    return (uint32_t)(hth_sample_random_unit(&random) * (double)p->n_sample);
}

/* ---- reading lists ------------------------------------------------------------------------------ */

void hth_act_trace_close(hth_act_trace *f)
{
    if (!f) return;
    hth_free(f->first);
    hth_free(f->lists);
    hth_free(f);
}

double hth_act_trace_share(const hth_act_trace *f)
{
    return (double)f->first[(size_t)f->n_tok * f->n_layer] / (double)f->n_neuron;
}

hth_neuron_list hth_act_trace_next(void *fire, uint32_t i_layer, const float *input)
{
    hth_act_trace *f = fire;
    size_t at = (size_t)f->i_tok * f->n_layer + i_layer;
    (void)input;
    if (i_layer + 1 == f->n_layer) f->i_tok = (f->i_tok + 1) % f->n_tok;
    return (hth_neuron_list){f->lists + f->first[at], (uint32_t)(f->first[at + 1] - f->first[at])};
}
