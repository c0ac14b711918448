/* Profiles as files: what is written comes back, and what does not fit its model, its version or itself
 * is refused with its place. The figures asked of one are counted again by hand. */
#include "sparse/profile.h"
#include "base/bits.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N_TOK = 96, N_SAMPLE = 40, D_FF = TINY_D_FF, TYPE_F32 = 0 };

/* A model of two layers of 64 neurons in memory; another one where `other`. */
typedef struct small {
    gguf_bytes bytes;
    hth_gguf *file;
    hth_model *model;
} small;

static small open_small(bool other, const char *activation)
{
    small made = {0}, *s = &made;
    tiny_model m = tiny_new();
    s->bytes = tiny_write(&m);
    if (other) s->bytes.data[tiny_data_at(&m, "blk.1.ffn_up.weight") + 5] ^= 1;
    tiny_free(&m);
    CHECK_OK(hth_gguf_open_memory(s->bytes.data, s->bytes.n, "tiny.gguf", &s->file, err));
    CHECK_OK(hth_model_open(s->file, &(hth_model_overrides){.activation = activation}, &s->model, err));
    return made;
}

static void close_small(small *s)
{
    hth_model_close(s->model);
    hth_gguf_close(s->file);
    gguf_free(&s->bytes);
}

/* Figures that agree with each other, of n_done of 96 tokens. */
static hth_profile *make(const small *s, uint32_t n_sample, uint64_t n_done)
{
    test_random r = {7};
    hth_profile *p = OPENED_BY(hth_profile_new, hth_profile, s->model, n_sample, true);
    p->n_tok = N_TOK, p->n_done = n_done, p->n_ctx = 32, p->text_hash = 12345;
    CHECK_OK(hth_model_hash(s->file, &p->model_hash, err));
    snprintf(p->activation, sizeof p->activation, "%s", hth_activation_name(s->model->hparams.activation));
    snprintf(p->settings, sizeof p->settings, "kv f16");
    for (uint32_t i = 0; i < p->n_layer; i++) {
        hth_profile_layer *l = &p->layers[i];
        l->bins[0] = n_done * D_FF;
        for (uint32_t j = 0; j < D_FF; j++) {
            l->n_fired[j] = test_random_below(&r, (uint32_t)n_done + 1);
            l->sum[j] = l->n_fired[j] * (0.125 + 0.001 * j);
            l->mean[j] = (float)(l->sum[j] / (double)n_done);
            l->bins[0] -= l->n_fired[j];
            l->bins[2 + test_random_below(&r, 256)] += l->n_fired[j];
            for (uint32_t k = 0, n = 0; k < n_sample && n < l->n_fired[j]; k += 2, n++)
                l->coact_bits[j * p->n_word + k / 32] |= 1u << k % 32;
        }
        l->largest = 1.5f;
        l->gate_fired = 3 + i, l->up_fired = 4;
    }
    return p;
}

static const char *path_of(void) { return test_scratch("p.profile"); }

static void check_equal(const hth_profile *a, const hth_profile *b)
{
    CHECK(a->model_hash == b->model_hash && a->text_hash == b->text_hash);
    CHECK(a->n_tok == b->n_tok && a->n_done == b->n_done && a->n_ctx == b->n_ctx);
    CHECK(a->n_sample == b->n_sample && a->n_word == b->n_word && a->n_layer == b->n_layer);
    CHECK(a->coact_is_top_decile == b->coact_is_top_decile);
    CHECK_TEXT(a->activation, b->activation);
    CHECK_TEXT(a->settings, b->settings);
    for (uint32_t i = 0; i < a->n_layer; i++) {
        const hth_profile_layer *x = &a->layers[i], *y = &b->layers[i];
        CHECK_INT(x->d_ff, y->d_ff);
        CHECK_BYTES(x->n_fired, y->n_fired, x->d_ff * sizeof *x->n_fired);
        CHECK_BYTES(x->mean, y->mean, x->d_ff * sizeof *x->mean);
        CHECK_BYTES(x->bins, y->bins, sizeof x->bins);
        CHECK((x->coact_bits == NULL) == (y->coact_bits == NULL));
        if (x->coact_bits) CHECK_BYTES(x->coact_bits, y->coact_bits, x->d_ff * a->n_word * sizeof *x->coact_bits);
        CHECK(hth_bits_of(x->largest) == hth_bits_of(y->largest));
        CHECK(x->gate_fired == y->gate_fired && x->up_fired == y->up_fired);
    }
}

/* ---- what is written comes back -------------------------------------------------------------- */

TEST(a_profile_comes_back_with_and_without_samples_and_a_model)
{
    static const uint32_t n_samples[] = {0, 1, 32, 33, N_SAMPLE};
    CLEANUP(close_small) small s = open_small(false, NULL);
    for (size_t i = 0; i < sizeof n_samples / sizeof *n_samples; i++) {
        hth_profile *p = make(&s, n_samples[i], N_TOK), *with = NULL, *without = NULL;
        CHECK_OK(hth_profile_write(p, path_of(), err));
        CHECK_OK(hth_profile_open(path_of(), s.model, &with, err));
        CHECK_OK(hth_profile_open(path_of(), NULL, &without, err));
        if (with) check_equal(p, with);
        if (without) check_equal(p, without);
        if (with) CHECK(with->layers[0].sum == NULL);
        hth_profile_close(p);
        hth_profile_close(with);
        hth_profile_close(without);
    }
}

TEST(an_unfinished_state_is_no_profile_and_keeps_every_bit)
{
    hth_profile *p, *back = NULL;
    hearth_error why = {0};
    CLEANUP(close_small) small s = open_small(false, NULL);
    p = make(&s, N_SAMPLE, 50);
    CHECK_OK(hth_profile_write(p, path_of(), err));
    CHECK_INT(hth_profile_open(path_of(), s.model, &back, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(back == NULL && strstr(why.message, "not finished: 50 of 96 tokens"));
    CHECK_OK(hth_profile_open_state(path_of(), s.model, &back, err));
    if (back) check_equal(p, back);
    for (uint32_t i = 0; back && i < p->n_layer; i++)
        CHECK_BYTES(p->layers[i].sum, back->layers[i].sum, D_FF * sizeof(double));
    hth_profile_close(back);
    hth_profile_close(p);
    p = make(&s, N_SAMPLE, N_TOK);
    CHECK_OK(hth_profile_write(p, path_of(), err));
    CHECK_FAILS(hth_profile_open_state(path_of(), s.model, &back, err), HEARTH_ERROR_ARGUMENT, "a finished profile");
    hth_profile_close(p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Opens what lies at the path: refused with a line that names the file and holds `words`. */
static void expect_refused(const small *s, hearth_status status, const char *words, int line)
{
    CLOSED(hth_profile) *p = NULL;
    hearth_error why = {0};
    hearth_status st = hth_profile_open(path_of(), s->model, &p, &why);
    if (st != status || p || strstr(why.message, path_of()) != why.message || !strstr(why.message, words))
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message, words);
}

/* One figure of a profile is wrong. */
#define EXPECT_WRONG(CHANGE, WORDS)                                                                          \
    do {                                                                                                     \
        hth_profile *p = make(&s, N_SAMPLE, N_TOK);                                                          \
        hth_profile_layer *l = &p->layers[1];                                                                \
        CHANGE;                                                                                              \
        CHECK_OK(hth_profile_write(p, path_of(), err));                                                      \
        expect_refused(&s, HEARTH_ERROR_FORMAT, WORDS, __LINE__);                                            \
        hth_profile_close(p);                                                                                \
    } while (0)

TEST(figures_that_cannot_be_are_refused)
{
    CLEANUP(close_small) small s = open_small(false, NULL);
    EXPECT_WRONG(l->n_fired[9] = N_TOK + 1, "'blk.1.fired' at ");
    EXPECT_WRONG(l->n_fired[9] = UINT32_MAX, "neuron 9: it fired more often than there are tokens");
    EXPECT_WRONG(l->mean[3] = NAN, "'blk.1.size' at ");
    EXPECT_WRONG(l->mean[3] = -1.0f, "neuron 3: its mean size");
    EXPECT_WRONG(l->mean[3] = INFINITY, "neuron 3: its mean size");
    EXPECT_WRONG(l->mean[3] = 1.6f, "neuron 3: its mean size");
    EXPECT_WRONG((l->n_fired[5] = 0, l->mean[5] = 0.5f), "neuron 5: it has a size though it never fired");
    EXPECT_WRONG(l->largest = NAN, "hearth.ffn.largest_hidden at ");
    EXPECT_WRONG(l->largest = -1.0f, "value 1 is -1");
    EXPECT_WRONG(l->largest = INFINITY, "value 1 is inf");
    EXPECT_WRONG(l->gate_fired = N_TOK * D_FF + 1, "hearth.profile.gate_fired at ");
    EXPECT_WRONG(l->up_fired = UINT64_MAX, "hearth.profile.up_fired at ");
    EXPECT_WRONG(l->bins[0]++, "hearth.profile.size_counts at ");
    EXPECT_WRONG(l->bins[258]++, "layer 1: its sizes or its largest value");
    EXPECT_WRONG(l->bins[258] = UINT64_MAX - 5, "layer 1: its sizes");
    EXPECT_WRONG(l->n_fired[0] ^= 1, "layer 1: its sizes");
    EXPECT_WRONG(l->coact_bits[2 * 4 + 1] = 1u << 8, "neuron 4: a bit behind the last sample");
    EXPECT_WRONG((l->n_fired[6] = 1, l->mean[6] = 0.0f, l->coact_bits[2 * 6] = 3),
                 "neuron 6: it fired at more samples");
}

/* Overwrites the value of a key, or a word `skip` bytes behind a name. */
static void patch(const char *name, size_t skip, uint64_t value, size_t size)
{
    size_t n, n_name = strlen(name);
    char *bytes = test_read_file(path_of(), &n);
    for (size_t i = 0; bytes && i + n_name + skip + size <= n; i++) {
        if (memcmp(bytes + i, name, n_name) != 0) continue;
        memcpy(bytes + i + n_name + skip, &value, size);
        CHECK(test_write_file(path_of(), bytes, n));
        free(bytes);
        return;
    }
    test_fail(__FILE__, __LINE__, "no %s", name);
    free(bytes);
}

#define EXPECT_PATCHED(NAME, SKIP, VALUE, SIZE, STATUS, WORDS)                                               \
    do {                                                                                                     \
        hth_profile *p = make(&s, N_SAMPLE, N_TOK);                                                          \
        CHECK_OK(hth_profile_write(p, path_of(), err));                                                      \
        patch(NAME, SKIP, VALUE, SIZE);                                                                      \
        expect_refused(&s, STATUS, WORDS, __LINE__);                                                         \
        hth_profile_close(p);                                                                                \
    } while (0)

TEST(keys_and_shapes_that_do_not_fit_are_refused)
{
    enum { VALUE = 4, DIM = 4, TYPE = 4 + 8 };
    CLEANUP(close_small) small s = open_small(false, NULL);
    EXPECT_PATCHED("hearth.sidecar.version", VALUE, 2, 4, HEARTH_ERROR_UNSUPPORTED, "is 2: this version reads 1");
    EXPECT_PATCHED("hearth.sidecar.versio", 0, 'x', 1, HEARTH_ERROR_FORMAT, "hearth.sidecar.version");
    EXPECT_PATCHED("hearth.model.hash", VALUE, 99, 8, HEARTH_ERROR_ARGUMENT, "the profile of another model");
    EXPECT_PATCHED("hearth.profile.tokens", VALUE, 0, 8, HEARTH_ERROR_FORMAT, "hearth.profile.tokens");
    EXPECT_PATCHED("hearth.profile.tokens", VALUE, 97, 8, HEARTH_ERROR_FORMAT, "not whole chunks of 32");
    EXPECT_PATCHED("hearth.profile.tokens", VALUE, UINT64_C(1) << 31, 8, HEARTH_ERROR_FORMAT,
                   "hearth.profile.tokens");
    EXPECT_PATCHED("hearth.profile.samples", VALUE, 97, 4, HEARTH_ERROR_FORMAT, "hearth.profile.samples");
    EXPECT_PATCHED("hearth.profile.samples", VALUE, 65, 4, HEARTH_ERROR_FORMAT, "'blk.0.together' at ");
    EXPECT_PATCHED("hearth.profile.context", VALUE, 0, 4, HEARTH_ERROR_FORMAT, "hearth.profile.context");
    EXPECT_PATCHED("hearth.profile.activation", VALUE + 8, 'x', 1, HEARTH_ERROR_UNSUPPORTED, "which is not known");
    EXPECT_PATCHED("hearth.profile.activation", VALUE + 8, 0, 1, HEARTH_ERROR_FORMAT, "none of them 0");
    EXPECT_PATCHED("hearth.profile.settings", VALUE + 8, 0, 1, HEARTH_ERROR_FORMAT, "hearth.profile.settings at ");
    EXPECT_PATCHED("hearth.ffn.largest_hidden", VALUE, 5, 4, HEARTH_ERROR_FORMAT, "hearth.ffn.largest_hidden");
    EXPECT_PATCHED("hearth.profile.up_fire", 0, 'x', 1, HEARTH_ERROR_FORMAT, "hearth.profile.up_fired");
    EXPECT_PATCHED("hearth.profile.size_count", 0, 'x', 1, HEARTH_ERROR_FORMAT, "hearth.profile.size_counts");
    EXPECT_PATCHED("hearth.profil", 0, 'x', 1, HEARTH_ERROR_UNSUPPORTED,
                   "is 'hearth.profilx', not 'hearth.profile'"); /* the architecture */
    EXPECT_PATCHED("blk.1.fired", DIM, 63, 8, HEARTH_ERROR_FORMAT, "but I32 of 1, 64 x 1, is expected");
    EXPECT_PATCHED("blk.1.fired", TYPE, TYPE_F32, 4, HEARTH_ERROR_FORMAT, "'blk.1.fired' at ");
    EXPECT_PATCHED("blk.1.siz", 0, 'x', 1, HEARTH_ERROR_FORMAT, "'blk.1.size' is missing");
    EXPECT_PATCHED("blk.0.together", DIM, 1, 8, HEARTH_ERROR_FORMAT, "but I32 of 2, 2 x 64, is expected");
}

TEST(other_models_are_refused)
{
    CLEANUP(close_small) small s = open_small(false, NULL);
    CLEANUP(close_small) small other = open_small(true, NULL);
    CLEANUP(close_small) small relu = open_small(false, "reglu");
    hth_profile *p = make(&s, N_SAMPLE, N_TOK);
    CHECK_OK(hth_profile_write(p, path_of(), err));
    expect_refused(&other, HEARTH_ERROR_ARGUMENT, "the profile of another model: hearth.model.hash at ", __LINE__);
    expect_refused(&relu, HEARTH_ERROR_ARGUMENT, "hearth.profile.activation at ", __LINE__);
    hth_profile_close(p);
}

TEST(a_model_is_no_profile_and_a_profile_no_model)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    CLEANUP(close_small) small s = open_small(false, NULL);
    CHECK(test_write_file(path_of(), s.bytes.data, s.bytes.n));
    expect_refused(&s, HEARTH_ERROR_UNSUPPORTED, "is 'llama', not 'hearth.profile'", __LINE__);
    CHECK(test_write_file(path_of(), "", 0));
    expect_refused(&s, HEARTH_ERROR_FORMAT, "", __LINE__);
    CLOSED(hth_profile) *p = make(&s, N_SAMPLE, N_TOK);
    CHECK_OK(hth_profile_write(p, path_of(), err));
    CHECK_INT(hearth_model_open(path_of(), NULL, &model, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(model == NULL && strstr(why.message, "a profile, not a model") != NULL);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* A profile, then a state: any of them may be damaged. */
static char *written(const small *s, uint64_t n_done, size_t *n)
{
    hth_profile *p = make(s, N_SAMPLE, n_done);
    CHECK_OK(hth_profile_write(p, path_of(), err));
    hth_profile_close(p);
    return test_read_file(path_of(), n);
}

TEST(a_file_cut_anywhere_is_refused)
{
    size_t n = 0;
    CLEANUP(close_small) small s = open_small(false, NULL);
    FREED char *whole = written(&s, N_TOK, &n);
    for (size_t cut = 0; whole && cut < n; cut += cut + 70 < n ? 11 : 1) {
        CLOSED(hth_profile) *p = NULL;
        hearth_error why = {0};
        CHECK(test_write_file(path_of(), whole, cut));
        if (hth_profile_open(path_of(), s.model, &p, &why) == HEARTH_OK || !why.message[0])
            test_fail(__FILE__, __LINE__, "cut at %zu of %zu: '%s'", cut, n, why.message);
    }
}

TEST(mutated_files_are_taken_or_refused)
{
    test_random r = {3};
    uint32_t n_refused = 0, n_run = 4000;
    CLEANUP(close_small) small s = open_small(false, NULL);
    for (int kind = 0; kind < 2; kind++) {
        size_t n = 0;
        char *whole = written(&s, kind ? 50 : N_TOK, &n), *bytes = malloc(n);
        for (uint32_t i = 0; whole && bytes && i < n_run / 2; i++) {
            CLOSED(hth_profile) *p = NULL;
            hearth_error why = {0};
            memcpy(bytes, whole, n);
            /* Half of the damage goes into the directory, which is the smaller part. */
            size_t capacity = i % 2 ? n : 1200;
            for (uint32_t k = 0, max = 1 + i % 3; k < max; k++)
                bytes[test_random_below(&r, (uint32_t)capacity)] = (char)test_random_next(&r);
            CHECK(test_write_file(path_of(), bytes, n));
            const hth_model *model = i % 4 < 2 ? s.model : NULL;
            hearth_status st = kind ? hth_profile_open_state(path_of(), model, &p, &why)
                                    : hth_profile_open(path_of(), model, &p, &why);
            n_refused += st != HEARTH_OK;
            if (st != HEARTH_OK) CHECK(why.message[0] && p == NULL);
        }
        free(whole);
        free(bytes);
    }
    printf("     %u mutated files, %u refused\n", n_run, n_refused);
    CHECK(n_refused > n_run / 4);
}

/* ---- figures --------------------------------------------------------------------------------- */

TEST(the_hottest_neurons_cover_what_they_cover)
{
    CLEANUP(close_small) small s = open_small(false, NULL);
    CLEANUP(close_small) small relu = open_small(false, "reglu");
    hth_profile *p = NULL, *tops = NULL;
    CHECK_OK(hth_profile_new(relu.model, 0, true, &p, err));
    p->n_tok = p->n_done = 100;
    /* 6 of 64 neurons (10 %) are active 100 times, 1 is active 40 times, the others once each. */
    for (uint32_t j = 0; j < D_FF; j++) p->layers[0].n_fired[j] = j % 10 == 3 && j < 60 ? 100 : j == 5 ? 40 : 1;
    double all = 6 * 100 + 40 + 57;
    CHECK(fabs(hth_profile_cover(p, 0, 0.1) - 600 / all) < 1e-12);
    CHECK(fabs(hth_profile_cover(p, 0, 0.2) - (640 + 6) / all) < 1e-12);
    CHECK(fabs(hth_profile_cover(p, 0, 1.0) - 1.0) < 1e-12);
    CHECK(hth_profile_cover(p, 0, 0.0) <= 0.0 && hth_profile_cover(p, 1, 0.5) <= 0.0);
    CHECK(fabs(hth_profile_live(p, 0) - all / (100.0 * D_FF)) < 1e-12);
    /* Where nothing is zero, by size. */
    CHECK_OK(hth_profile_new(s.model, 0, true, &tops, err));
    CHECK(tops->coact_is_top_decile && !p->coact_is_top_decile);
    for (uint32_t j = 0; j < D_FF; j++) tops->layers[0].mean[j] = j == 50 ? 32.5f : 0.5f;
    CHECK(fabs(hth_profile_cover(tops, 0, 1.0 / D_FF) - 32.5 / 64.0) < 1e-12);
    hth_profile_close(p);
    hth_profile_close(tops);
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

TEST(the_kth_largest_is_that_of_a_sort)
{
    test_random r = {5};
    for (int round = 0; round < 50; round++) {
        uint32_t x[77], sorted[77];
        for (int i = 0; i < 77; i++) x[i] = test_random_below(&r, round % 2 ? 9 : 1u << 31);
        memcpy(sorted, x, sizeof x);
        qsort(sorted, 77, sizeof *sorted, descending);
        for (size_t k = 1; k <= 77; k++) CHECK_INT(hth_profile_kth(x, 77, k), sorted[k - 1]);
    }
}

TEST(samples_are_spread_over_the_text_and_over_the_chunk)
{
    /* Stretches of exactly a chunk: a plain stride would always meet the same place in it. */
    hth_profile p = {.n_tok = 1024 * 512, .n_sample = 1024};
    uint64_t n_first_half = 0;
    for (uint32_t i = 0; i < p.n_sample; i++) {
        uint64_t at = hth_profile_sample_at(&p, i);
        CHECK(at >= i * 512u && at < (i + 1) * 512u);
        n_first_half += at % 512 < 256;
    }
    CHECK(n_first_half > 400 && n_first_half < 624);
    p = (hth_profile){.n_tok = 7, .n_sample = 7};
    for (uint32_t i = 0; i < 7; i++) CHECK_INT(hth_profile_sample_at(&p, i), i);
    p = (hth_profile){.n_tok = INT32_MAX, .n_sample = HTH_PROFILE_MAX_SAMPLE};
    CHECK(hth_profile_sample_at(&p, HTH_PROFILE_MAX_SAMPLE - 1) < INT32_MAX);
}

TEST(bins_cut_octaves_into_eight)
{
    CHECK(hth_profile_bin_edge(0) <= 0.0f && hth_profile_bin_edge(1) > 0.0f);
    CHECK(hth_profile_bin_edge(2) == 0x1p-24f && hth_profile_bin_edge(10) == 0x1p-23f);
    CHECK(hth_profile_bin_edge(2 + 24 * 8) == 1.0f && hth_profile_bin_edge(3 + 24 * 8) == 1.125f);
    CHECK(hth_profile_bin_edge(HTH_PROFILE_N_BIN - 1) == 256.0f);
    for (size_t i = 1; i < HTH_PROFILE_N_BIN; i++) CHECK(hth_profile_bin_edge(i) > hth_profile_bin_edge(i - 1));
}

TEST(too_many_samples_are_refused)
{
    hth_profile *p = NULL;
    hearth_error why = {0};
    CLEANUP(close_small) small s = open_small(false, NULL);
    CHECK_INT(hth_profile_new(s.model, HTH_PROFILE_MAX_SAMPLE + 1, false, &p, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(p == NULL && strstr(why.message, "65536") != NULL);
}
