/* Profiles of models at work: the figures are those of a naive recount through the same observation
 * point, and depend neither on threads nor batches nor on where a run was interrupted. */
#include "measure/profile.h"
#include "base/bits.h"
#include "engine/engine.h"
#include "measure/chunks.h"
#include "support/models/small_model.h"
#include "support/test.h"

/* A text of some hundred tokens that does not repeat itself at once. */
static char *make_text(size_t *n)
{
    static const char *const words[] = {"Once",  "upon",  "a time", "there", "was",     "a dog",
                                        "who",   "liked", "to",     "play",  "in",      "the",
                                        "park.", "He",    "saw",    "Lily",  "and",     "said,",
                                        "\"Hi!", "Can",   "we",     "be",    "friends", "?\"\n"};
    test_random r = {11};
    char *text = calloc(1, 8000);
    *n = 0;
    for (uint32_t i = 0; i < 700; i++)
        *n += (size_t)snprintf(text + *n, 8000 - *n, "%s ", words[(i + test_random_below(&r, 5)) % 24]);
    return text;
}

/* A model, and what it is profiled with. */
typedef struct setting {
    uint32_t n_ctx, n_thread, n_batch, n_sample;
} setting;

typedef struct bench_model {
    hearth_model *model;
    gguf_bytes bytes;
    char *text;
    size_t n;
} bench_model;

/* Storyteller (dReLU, 768 neurons), or a small one of SiLU whose 100 neurons are no whole blocks. */
static bench_model open_bench(bool storyteller)
{
    bench_model made = {0}, *b = &made;
    b->text = make_text(&b->n);
    b->model = small_model_open(storyteller, &b->bytes);
    return made;
}

static void close_bench(bench_model *b)
{
    hearth_model_close(b->model);
    gguf_free(&b->bytes);
    free(b->text);
}

static hearth_session *open_session(const bench_model *b, const setting *s)
{
    return small_model_session(b->model, s->n_ctx, s->n_batch, s->n_thread);
}

/* Stops at the n-th look; 0: never. */
static bool stop_at(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    return *left == 0 || --*left > 0;
}

static hearth_status run_profile(const bench_model *b, const setting *s, const char *out, int stop,
                                 hth_profile **p, hearth_error *err)
{
    CLOSED(hearth_session) *session = open_session(b, s);
    hth_profile_options o = {.out = out, .n_sample = s->n_sample, .settings = "kv f16",
                             .save_ns = HTH_PROFILE_SAVE_NS, .progress = stop_at, .progress_user = &stop};
    *p = NULL;
    hearth_status st =
        session ? hth_measure_profile(b->model, session, b->text, b->n, &o, p, err) : HEARTH_ERROR_MEMORY;
    return st;
}

/* ---- the naive recount ----------------------------------------------------------------------- */

/* Everything that was seen: [layer][token][neuron]. */
typedef struct seen_all {
    float *hidden[8], *gate[8], *up[8];
    size_t n[8]; /* tokens */
} seen_all;

static float *append(float *all, size_t n, const float *more, size_t n_more)
{
    all = realloc(all, (n + n_more) * sizeof *all);
    memcpy(all + n, more, n_more * sizeof *all);
    return all;
}

static void remember(void *user, const hth_ffn_probe *seen)
{
    seen_all *a = user;
    uint32_t i = seen->i_layer;
    size_t n = a->n[i] * seen->d_ff, n_more = seen->n_tok * seen->d_ff;
    a->hidden[i] = append(a->hidden[i], n, seen->hidden, n_more);
    a->gate[i] = append(a->gate[i], n, seen->gate, n_more);
    a->up[i] = append(a->up[i], n, seen->up, n_more);
    a->n[i] += seen->n_tok;
}

static void look(const bench_model *b, const setting *s, seen_all *a)
{
    CLEANUP(hth_chunks_close) hth_chunks w;
    CLOSED(hearth_session) *session = open_session(b, s);
    hth_step_set_probe(hth_session_step(session), remember, a);
    CHECK_OK(hth_chunks_open(&w, b->model, b->text, b->n, s->n_ctx, err));
    for (size_t i = 0; i < w.n_chunk; i++) {
        CHECK_OK(hearth_session_truncate(session, 0, err));
        CHECK_OK(hearth_session_eval(session, hth_chunks_at(&w, i), s->n_ctx, err));
    }
}

static float size_of(float x) { return x < 0.0f ? -x : x; }

static size_t slot_of(float x)
{
    size_t i = 0;
    if (x <= 0.0f) return 0;
    while (i + 1 < HTH_PROFILE_N_BIN && hth_profile_bin_edge(i + 1) <= x) i++;
    return i;
}

/* How many neurons of a token have a larger |hidden|, or the same and come before. */
static size_t rank_of(const float *h, size_t d_ff, size_t j)
{
    size_t n = 0;
    for (size_t k = 0; k < d_ff; k++) n += size_of(h[k]) > size_of(h[j]) || (k < j && size_of(h[k]) >= size_of(h[j]));
    return n;
}

static void check_neuron(const hth_profile *p, const hth_profile_layer *l, const seen_all *a,
                         uint32_t i_layer, size_t j)
{
    uint32_t n = 0;
    double sum = 0.0;
    for (size_t t = 0; t < a->n[i_layer]; t++) {
        float x = size_of(a->hidden[i_layer][t * l->d_ff + j]);
        n += x > 0.0f;
        sum += (double)x;
    }
    CHECK_INT(l->n_fired[j], n);
    CHECK(hth_bits_of(l->mean[j]) == hth_bits_of((float)(sum / (double)p->n_tok)));
}

static void check_samples(const hth_profile *p, const hth_profile_layer *l, const float *hidden)
{
    uint64_t n_wrong = 0;
    for (uint32_t i = 0; i < p->n_sample; i++) {
        const float *h = hidden + hth_profile_sample_at(p, i) * l->d_ff;
        for (size_t j = 0; j < l->d_ff; j++) {
            bool bit = l->coact_bits[j * p->n_word + i / 32] >> i % 32 & 1, fires = size_of(h[j]) > 0.0f;
            if (p->coact_is_top_decile) fires = fires && rank_of(h, l->d_ff, j) < (l->d_ff + 9) / 10;
            n_wrong += bit != fires;
        }
    }
    CHECK_INT(n_wrong, 0);
}

static void check_layer(const hth_profile *p, const seen_all *a, uint32_t i_layer)
{
    const hth_profile_layer *l = &p->layers[i_layer];
    uint64_t slots[HTH_PROFILE_N_BIN] = {0}, gate = 0, up = 0;
    float largest = 0.0f;
    for (size_t i = 0; i < a->n[i_layer] * l->d_ff; i++) {
        float x = size_of(a->hidden[i_layer][i]);
        if (x > largest) largest = x;
        slots[slot_of(x)]++;
        gate += a->gate[i_layer][i] > 0.0f;
        up += a->up[i_layer][i] > 0.0f;
    }
    CHECK_INT(a->n[i_layer], p->n_tok);
    CHECK(hth_bits_of(l->largest) == hth_bits_of(largest));
    CHECK_BYTES(l->bins, slots, sizeof slots);
    CHECK(l->gate_fired == gate && l->up_fired == up);
    for (size_t j = 0; j < l->d_ff; j++) check_neuron(p, l, a, i_layer, j);
    if (p->n_sample > 0) check_samples(p, l, a->hidden[i_layer]);
}

static void recount(bool storyteller, const setting *s)
{
    seen_all a = {0};
    const char *out = test_scratch("recount.profile");
    CLEANUP(close_bench) bench_model b = open_bench(storyteller);
    hth_profile *p = OPENED_BY(run_profile, hth_profile, &b, s, out, 0);
    look(&b, s, &a);
    CHECK_INT(p->coact_is_top_decile, !storyteller);
    for (uint32_t i = 0; p && i < p->n_layer; i++) check_layer(p, &a, i);
    if (p && storyteller) CHECK(hth_profile_live(p, 0) > 0.0 && hth_profile_live(p, 0) < 0.4);
    for (int i = 0; i < 8; i++) free(a.hidden[i]), free(a.gate[i]), free(a.up[i]);
    hth_profile_close(p);
    CHECK_OK(hth_profile_open(out, b.model->model, &p, err)); /* what was written passes all checks */
    hth_profile_close(p);
}

TEST(counts_are_those_of_a_naive_recount)
{
    recount(true, &(setting){.n_ctx = 64, .n_thread = 2, .n_batch = 256, .n_sample = 100});
    recount(true,
            &(setting){.n_ctx = 300, .n_thread = 1, .n_batch = 300, .n_sample = 65536}); /* all tokens */
}

TEST(counts_of_ragged_layers_without_zeros_are_those_of_a_recount)
{
    recount(false, &(setting){.n_ctx = 50, .n_thread = 2, .n_batch = 64, .n_sample = 33});
    recount(false, &(setting){.n_ctx = 7, .n_thread = 1, .n_batch = 3, .n_sample = 0});
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* The bytes of a profile; NULL after a failed check. */
static char *profile_bytes(const bench_model *b, const setting *s, size_t *n)
{
    const char *out = test_scratch("bytes.profile");
    hth_profile *p = OPENED_BY(run_profile, hth_profile, b, s, out, 0);
    hth_profile_close(p);
    char *bytes = test_read_file(out, n);
    remove(out);
    return bytes;
}

TEST(profiles_do_not_depend_on_threads_or_batches)
{
    static const setting settings[] = {{.n_ctx = 100, .n_thread = 1, .n_batch = 256, .n_sample = 50},
                                       {.n_ctx = 100, .n_thread = 2, .n_batch = 7, .n_sample = 50},
                                       {.n_ctx = 100, .n_thread = 3, .n_batch = 1, .n_sample = 50},
                                       {.n_ctx = 100, .n_thread = 2, .n_batch = 3, .n_sample = 50}};
    for (int storyteller = 0; storyteller < 2; storyteller++) {
        size_t n = 0, n_other = 0;
        CLEANUP(close_bench) bench_model b = open_bench(storyteller);
        FREED char *first = profile_bytes(&b, &settings[0], &n);
        for (size_t i = 1; first && i < sizeof settings / sizeof *settings; i++) {
            FREED char *other = profile_bytes(&b, &settings[i], &n_other);
            if (CHECK_INT(n, n_other)) CHECK_BYTES(first, other, n);
        }
    }
}

/* ---- interrupted runs ------------------------------------------------------------------------ */

static const char *resume_of(const char *out)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s.resume", out);
    return path;
}

/* Stopped after every few pieces until it ends; the file must be the one of a whole run. */
static void interrupt_and_compare(bool storyteller, const setting *s)
{
    size_t n = 0, n_other = 0;
    const char *out = test_scratch("resumed.profile");
    CLEANUP(close_bench) bench_model b = open_bench(storyteller);
    FREED char *whole = profile_bytes(&b, s, &n);
    hearth_status st = HEARTH_ERROR_CANCELLED;
    int n_stop = 0;
    for (; st == HEARTH_ERROR_CANCELLED && n_stop < 100; n_stop++) {
        CLOSED(hth_profile) *p = NULL;
        hearth_error why = {0};
        st = run_profile(&b, s, out, n_stop == 0 ? 1 : 2 + n_stop % 4, &p, &why);
        if (st == HEARTH_ERROR_CANCELLED) {
            CHECK(access(out, F_OK) != 0);
            CHECK(strstr(why.message, n_stop == 0 ? "nothing was kept" : "the same command goes on") != NULL);
            CHECK((access(resume_of(out), F_OK) == 0) == (n_stop > 0));
        }
    }
    CHECK_INT(st, HEARTH_OK);
    CHECK(n_stop >= 3);
    CHECK(access(resume_of(out), F_OK) != 0);
    FREED char *resumed = test_read_file(out, &n_other);
    if (CHECK_INT(n, n_other)) CHECK_BYTES(whole, resumed, n);
    remove(out);
}

TEST(an_interrupted_profile_goes_on_to_the_same_bits)
{
    interrupt_and_compare(true, &(setting){.n_ctx = 64, .n_thread = 2, .n_batch = 256, .n_sample = 70});
    /* Chunks longer than a piece: interrupted within them. */
    interrupt_and_compare(true, &(setting){.n_ctx = 400, .n_thread = 1, .n_batch = 100, .n_sample = 70});
    interrupt_and_compare(false, &(setting){.n_ctx = 600, .n_thread = 1, .n_batch = 64, .n_sample = 20});
}

TEST(the_state_of_another_run_is_refused_by_what_differs)
{
    static const setting s = {.n_ctx = 64, .n_thread = 1, .n_batch = 64, .n_sample = 70};
    setting context = s, samples = s;
    hth_profile *p = NULL;
    hearth_error why = {0};
    const char *out = test_scratch("other.profile");
    CLEANUP(close_bench) bench_model b = open_bench(true), other = open_bench(false);
    CHECK_INT(run_profile(&b, &s, out, 3, &p, &why), HEARTH_ERROR_CANCELLED);
    size_t n_state = 0;
    char *state = test_read_file(resume_of(out), &n_state);
    context.n_ctx = 32, samples.n_sample = 71;
    CHECK_FAILS(run_profile(&b, &context, out, 0, &p, err), HEARTH_ERROR_ARGUMENT,
                ".resume: the state of a run with another ");
    CHECK_FAILS(run_profile(&b, &samples, out, 0, &p, err), HEARTH_ERROR_ARGUMENT,
                "another number of samples; remove it to start over");
    b.text[0] ^= 1;
    CHECK_FAILS(run_profile(&b, &s, out, 0, &p, err), HEARTH_ERROR_ARGUMENT, "another text");
    b.text[0] ^= 1;
    CHECK_FAILS(run_profile(&other, &s, out, 0, &p, err), HEARTH_ERROR_ARGUMENT,
                "the profile of another model|remove it to start over");
    /* A damaged one, and what is none. */
    CHECK(test_write_file(resume_of(out), state, n_state / 2));
    CHECK_INT(run_profile(&b, &s, out, 0, &p, &why), HEARTH_ERROR_FORMAT);
    CHECK(test_write_file(resume_of(out), "x", 1));
    CHECK_INT(run_profile(&b, &s, out, 0, &p, &why), HEARTH_ERROR_FORMAT);
    CHECK(strstr(why.message, "remove it to start over") != NULL && access(out, F_OK) != 0);
    /* And all of that left it so that it can be gone on from. */
    CHECK(test_write_file(resume_of(out), state, n_state));
    CHECK_OK(run_profile(&b, &s, out, 0, &p, err));
    hth_profile_close(p);
    free(state);
}

/* A flipped bit of a key, a name, a shape or a figure is refused. One of padding may pass: to the same profile. */
TEST(a_flipped_bit_of_a_state_is_seen)
{
    static const setting s = {.n_ctx = 64, .n_thread = 1, .n_batch = 64, .n_sample = 70};
    hearth_error why = {0};
    const char *out = test_scratch("flipped.profile");
    size_t n_whole = 0, n_state = 0, n_refused = 0, n_read = 0;
    CLEANUP(close_bench) bench_model b = open_bench(true);
    hth_profile *p = OPENED_BY(run_profile, hth_profile, &b, &s, out, 0);
    hth_profile_close(p);
    FREED char *whole = test_read_file(out, &n_whole);
    remove(out);
    CHECK_INT(run_profile(&b, &s, out, 3, &p, &why), HEARTH_ERROR_CANCELLED);
    FREED char *state = test_read_file(resume_of(out), &n_state);
    for (size_t i = 0; i < n_state; i += 97) {
        size_t n = 0;
        state[i] ^= (char)(1 << i % 8);
        CHECK(test_write_file(resume_of(out), state, n_state));
        state[i] ^= (char)(1 << i % 8);
        n_read++;
        if (run_profile(&b, &s, out, 0, &p, &why) != HEARTH_OK) {
            n_refused++;
            continue;
        }
        hth_profile_close(p);
        FREED char *made = test_read_file(out, &n);
        if (n != n_whole || memcmp(made, whole, n) != 0)
            test_fail(__FILE__, __LINE__, "bit %zu of byte %zu is flipped, and the profile is another", i % 8, i);
    }
    CHECK(n_read > 50 && n_refused > n_read * 9 / 10);
    remove(resume_of(out));
}

/* With a save after every piece, what lies on the disk at any moment is a state that goes on: a process
 * that is killed leaves no more than that. */
typedef struct copies {
    const char *resume;
    char *state[64];
    size_t size[64];
    int n;
} copies;

static bool copy_state(void *user, uint64_t done, uint64_t total)
{
    copies *c = user;
    if (c->n < 64 && access(c->resume, F_OK) == 0) {
        c->state[c->n] = test_read_file(c->resume, &c->size[c->n]);
        c->n++;
    }
    return true;
}

TEST(every_saved_state_goes_on_to_the_same_bits)
{
    static const setting s = {.n_ctx = 128, .n_thread = 1, .n_batch = 128, .n_sample = 70};
    size_t n = 0, n_other = 0;
    const char *out = test_scratch("saved.profile");
    copies c = {.resume = resume_of(out)};
    CLEANUP(close_bench) bench_model b = open_bench(true);
    hth_profile_options o = {.out = out, .n_sample = 70, .settings = "kv f16", .save_ns = 0, .progress = copy_state,
                             .progress_user = &c};
    hearth_session *session = open_session(&b, &s);
    hth_profile *p = OPENED_BY(hth_measure_profile, hth_profile, b.model, session, b.text, b.n, &o);
    hearth_session_close(session);
    hth_profile_close(p);
    FREED char *whole = test_read_file(out, &n);
    CHECK(c.n >= 4 && access(c.resume, F_OK) != 0);
    for (int i = 0; i < c.n; i++) {
        CHECK(test_write_file(c.resume, c.state[i], c.size[i]));
        CHECK_OK(run_profile(&b, &s, out, 0, &p, err));
        hth_profile_close(p);
        char *again = test_read_file(out, &n_other);
        if (CHECK_INT(n, n_other)) CHECK_BYTES(whole, again, n);
        free(again);
        free(c.state[i]);
    }
}

TEST(places_that_cannot_be_written_are_refused_before_the_work)
{
    static const setting s = {.n_ctx = 64, .n_thread = 1, .n_batch = 64, .n_sample = 1};
    hth_profile *p = NULL;
    hearth_error why = {0};
    CLEANUP(close_bench) bench_model b = open_bench(false);
    CHECK_FAILS(run_profile(&b, &s, "/no/such/folder/p", 1, &p, err), HEARTH_ERROR_IO, "/no/such/folder/p");
    CHECK_INT(run_profile(&b, &s, "/tmp", 1, &p, &why), HEARTH_ERROR_IO);
    b.n = 9;
    CHECK_INT(run_profile(&b, &s, test_scratch("short.profile"), 0, &p, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "a chunk needs 64") != NULL && p == NULL);
}
