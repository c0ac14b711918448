/* Lists of active neurons instead of those that a model finds: replayed ones are the samples of the profile, bit by
 * bit and in their order; drawn ones have the share and the runs that were asked for. */
#include "measure/act_trace.h"

#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N_SAMPLE = 45, D_FF = TINY_D_FF };

typedef struct small {
    gguf_bytes bytes;
    hth_gguf *file;
    hth_model *model;
    hth_profile *profile;
} small;

static bool bit_of(const hth_profile_layer *l, const hth_profile *p, uint32_t j, uint32_t i_sample)
{
    return l->coact_bits[j * p->n_word + i_sample / 32] >> (i_sample % 32) & 1;
}

/* A profile whose tokens are all sampled. Which neurons are active is drawn; sample 7 has none, sample 9 all. */
static small open_small(uint32_t n_sample)
{
    small made = {0}, *s = &made;
    test_random r = {5};
    tiny_model m = tiny_new();
    s->bytes = tiny_take(&m);
    CHECK_OK(hth_gguf_open_memory(s->bytes.data, s->bytes.n, "tiny.gguf", &s->file, err));
    CHECK_OK(hth_model_open(s->file, &(hth_model_overrides){0}, &s->model, err));
    CHECK_OK(hth_profile_new(s->model, n_sample, false, &s->profile, err));
    hth_profile *p = s->profile;
    p->n_tok = p->n_done = N_SAMPLE;
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t j = 0; j < D_FF; j++)
            for (uint32_t i = 0; i < n_sample; i++) {
                bool fires = i == 7 ? false : i == 9 ? true : test_random_below(&r, 5) == 0;
                p->layers[l].n_fired[j] += fires;
                if (fires) p->layers[l].coact_bits[j * p->n_word + i / 32] |= 1u << i % 32;
            }
    return made;
}

static void close_small(small *s)
{
    hth_profile_close(s->profile);
    hth_model_close(s->model);
    hth_gguf_close(s->file);
    gguf_free(&s->bytes);
}

static void check_list(const small *s, hth_act_trace *f, uint32_t i_layer, uint32_t i_sample)
{
    const hth_profile_layer *l = &s->profile->layers[i_layer];
    hth_neuron_list active = hth_act_trace_next(f, i_layer, NULL);
    uint32_t n = 0;
    for (uint32_t j = 0; j < l->d_ff; j++) {
        if (!bit_of(l, s->profile, j, i_sample)) continue;
        if (n >= active.n || active.list[n] != (int32_t)j) {
            test_fail(__FILE__, __LINE__, "layer %u, sample %u: neuron %u fires, but is not entry %u",
                      i_layer, i_sample, j, n);
            return;
        }
        n++;
    }
    CHECK(active.list != NULL); /* which would mean all */
    CHECK_INT(active.n, n);
}

TEST(replayed_lists_are_the_samples_in_order_and_wrap_round)
{
    static const uint32_t starts[] = {0, 31, 40, N_SAMPLE - 1},
                          lengths[] = {1, 20, N_SAMPLE, 2 * N_SAMPLE + 3};
    CLEANUP(close_small) small s = open_small(N_SAMPLE);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            CLOSED(hth_act_trace) *f = OPENED_BY(hth_act_trace_replay, hth_act_trace, s.profile, starts[i], lengths[k]);
            /* Twice and some more: after its last token it begins again. */
            for (uint32_t t = 0; f && t < 2 * lengths[k] + 2; t++)
                for (uint32_t l = 0; l < s.profile->n_layer; l++)
                    check_list(&s, f, l, (starts[i] + t % lengths[k]) % N_SAMPLE);
        }
}

TEST(all_samples_have_the_share_of_the_profile)
{
    CLEANUP(close_small) small s = open_small(N_SAMPLE);
    double live = 0.0;
    for (uint32_t l = 0; l < s.profile->n_layer; l++) live += hth_profile_live(s.profile, l);
    live /= s.profile->n_layer;
    CHECK(live > 0.1 && live < 0.4);
    hth_act_trace *f = OPENED_BY(hth_act_trace_replay, hth_act_trace, s.profile, 12, 2 * N_SAMPLE);
    if (f) CHECK(hth_act_trace_share(f) > live - 1e-12 && hth_act_trace_share(f) < live + 1e-12);
    hth_act_trace_close(f);
    CHECK_OK(hth_act_trace_replay(s.profile, 7, 1, &f, err));
    if (f) CHECK(hth_act_trace_share(f) == 0.0);
    hth_act_trace_close(f);
}

TEST(seeds_draw_samples_all_over_the_profile)
{
    bool drawn[N_SAMPLE] = {false};
    uint32_t n = 0;
    CLEANUP(close_small) small s = open_small(N_SAMPLE);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        uint32_t i = hth_act_trace_draw_sample(s.profile, seed);
        CHECK_INT(i, hth_act_trace_draw_sample(s.profile, seed));
        if (CHECK(i < N_SAMPLE)) drawn[i] = true;
    }
    for (uint32_t i = 0; i < N_SAMPLE; i++) n += drawn[i];
    CHECK_INT(n, N_SAMPLE);
}

TEST(a_profile_without_samples_cannot_be_replayed)
{
    hth_act_trace *f = NULL;
    hearth_error why = {0};
    small s = open_small(0);
    CHECK_INT(hth_act_trace_replay(s.profile, 0, 4, &f, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(f == NULL && strstr(why.message, "no co-activation samples"));
    close_small(&s);
    s = open_small(N_SAMPLE);
    CHECK_INT(hth_act_trace_replay(s.profile, N_SAMPLE, 4, &f, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(f == NULL && strstr(why.message, "sample 45: the profile has 45"));
    close_small(&s);
}

TEST(drawn_lists_have_the_share_and_the_runs)
{
    enum { RUN = 8, N = 4000 };
    uint64_t n = 0;
    hth_act_trace_spec spec = {.share = 0.3, .block = RUN, .seed = 3};
    CLEANUP(close_small) small s = open_small(N_SAMPLE);
    CLOSED(hth_act_trace) *f = OPENED(hth_act_trace, s.model, &spec, N);
    for (uint32_t i = 0; f && i < N * s.profile->n_layer; i++) {
        hth_neuron_list a = hth_act_trace_next(f, i % s.profile->n_layer, NULL);
        for (uint32_t k = 0; k < a.n; k++)
            if (a.list[k] % RUN != (int32_t)(k % RUN) || a.list[k] / RUN != a.list[k - k % RUN] / RUN) {
                test_fail(__FILE__, __LINE__, "list %u, entry %u: %d is not in a whole run", i, k, a.list[k]);
                break;
            }
        n += a.n;
    }
    double share = (double)n / ((double)N * s.profile->n_layer * D_FF);
    if (f) CHECK(share == hth_act_trace_share(f));
    CHECK(share > 0.29 && share < 0.31);
}
