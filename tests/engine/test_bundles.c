/* Neurons that are read in bundles, from packed files and from files that are packed for storage: the bits of the model
 * in memory, with every selector, any number of tokens and threads, with the least memory and more. Files for storage
 * lie as they say, and what is not what its checksum says ends one evaluation, not the session. */
#include "base/alloc.h"
#include "base/hash.h"
#include "convert/pack.h"
#include "engine/engine.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { N_ID = 40, SMALL = 16 };

static volatile int cancel_flag;
static char packed[1024], stored[1024];

/* Packs a file again, for storage. */
static bool pack_for_storage(const char *in, uint32_t n_neuron, const char *out)
{
    hth_pack_result r;
    const hth_pack_options o = {.n_thread = 2, .for_storage = true, .n_bundle_neuron = n_neuron};
    CHECK_OK(hth_pack(in, out, &o, &r, err));
    return test_n_failed() == 0;
}

static void name_files(void)
{
    snprintf(packed, sizeof packed, "%s", test_scratch("packed.gguf"));
    snprintf(stored, sizeof stored, "%s", test_scratch("stored.gguf"));
}

static void draw_ids(int32_t ids[N_ID])
{
    test_random r = {3};
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)test_random_below(&r, 250);
}

/* ---- bits -------------------------------------------------------------------------------------------- */

static const uint32_t n_threads[] = {1, 2, 3, 7}, n_batches[] = {1, 5, 16, N_ID};

static void check_bits(const hearth_model *model, const int32_t *ids, const float *expected, size_t n_vocab)
{
    for (int k = 0; k < 4; k++) {
        engine_setting s = {.n_thread = n_threads[k], .n_batch = n_batches[k], .kv = HEARTH_KV_F32};
        FREED float *logits = engine_model_logits(model, &s, ids, N_ID);
        if (logits) CHECK_BYTES(logits, expected, N_ID * n_vocab * sizeof *logits);
    }
}

/* A file in memory, and the same or one with the same weights from storage. */
static void compare(const char *here, const char *there, hearth_selector selector)
{
    static const char *const io[] = {"auto", "sim:ufs4"};
    const engine_setting in_memory = {.n_thread = 2, .n_batch = 7, .kv = HEARTH_KV_F32, .selector = selector};
    int32_t ids[N_ID];
    size_t n_vocab = 0;
    draw_ids(ids);
    FREED float *expected = engine_logits(here, &in_memory, ids, N_ID, &n_vocab);
    for (int k = 0; expected && k < 2; k++) {
        CLOSED(hearth_model) *model = engine_open_streamed(there, io[k], k ? 65536 : 0, selector);
        if (!model) continue;
        CHECK(k > 0 || test_model_info(model).n_streamed_max < test_model_info(model).n_streamed);
        check_bits(model, ids, expected, n_vocab);
    }
}

static void compare_files(hearth_selector selector)
{
    compare(packed, packed, selector);
    compare(packed, stored, selector);
    compare(stored, stored, selector);
}

TEST(bundles_give_the_bits_of_neurons_in_memory)
{
    name_files();
    if (!hybrid_pack_powerinfer("opt", packed) || !pack_for_storage(packed, SMALL, stored)) return;
    for (int s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++)
        compare_files((hearth_selector)s);
    if (!hybrid_pack_storyteller("Q4_0", packed) || !pack_for_storage(packed, SMALL, stored)) return;
    for (int s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s += test_is_long() ? 1 : 2)
        compare_files((hearth_selector)s);
    if (hybrid_pack_floats("bamboo", packed) && pack_for_storage(packed, SMALL, stored))
        compare_files(HEARTH_SELECTOR_GATE);
}

TEST(mixtures_for_storage_have_the_bits_of_their_source)
{
    name_files();
    for (int i = 0; i < 3; i++) {
        static const char *const models[] = {"mixtral", "smallthinker-4b-downt", "gpt-oss"};
        CLEANUP(golden_close) golden g;
        if (!golden_open_arch(&g, models[i]) || !pack_for_storage(g.model, 0, stored)) continue;
        compare(g.model, stored, HEARTH_SELECTOR_AUTO);
        compare(stored, stored, HEARTH_SELECTOR_AUTO);
    }
}

/* Bundles that no predictor names are not read; of those with a silent gate, up and down are not. */
TEST(what_is_not_active_is_not_read)
{
    uint64_t read[2] = {0};
    int32_t ids[N_ID];
    name_files();
    draw_ids(ids);
    if (!hybrid_pack_storyteller("Q4_0", packed) || !pack_for_storage(packed, SMALL, stored)) return;
    for (int k = 0; k < 2; k++) {
        hearth_storage_stats stats = {0};
        engine_setting s = {.n_thread = 1, .n_batch = 1, .kv = HEARTH_KV_F32};
        CLOSED(hearth_model) *model =
            engine_open_streamed(stored, "auto", 0, k ? HEARTH_SELECTOR_PREDICTOR : HEARTH_SELECTOR_DENSE);
        if (!model) return;
        free(engine_model_logits(model, &s, ids, N_ID));
        CHECK(hearth_model_get_storage(model, &stats));
        read[k] = stats.weight_bytes;
    }
    if (!CHECK(read[1] > 0 && read[1] < read[0] / 10 * 9))
        printf("     %llu, %llu\n", (unsigned long long)read[0], (unsigned long long)read[1]);
}

typedef struct canceller {
    hearth_model *model;
    uint64_t n_stall; /* before the evaluation */
    atomic_bool ends;
} canceller;

/* Cancels when the step has begun to wait for weights. */
static void *cancel_a_wait(void *arg)
{
    canceller *c = arg;
    hearth_storage_stats stats = {0};
    while (!c->ends && hearth_model_get_storage(c->model, &stats) && stats.n_stall == c->n_stall) usleep(200);
    __atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* The step waits for a disk that is slow; an evaluation after it has the bits of the model in memory. */
TEST(a_cancelled_step_leaves_a_session_that_goes_on)
{
    int32_t ids[N_ID];
    size_t n_vocab = 0;
    const engine_setting in_memory = {
        .n_thread = 1, .n_batch = 8, .kv = HEARTH_KV_F32, .selector = HEARTH_SELECTOR_GATE};
    hearth_model *model = NULL;
    name_files();
    draw_ids(ids);
    if (!hybrid_pack_storyteller("Q4_0", packed)) return;
    FREED float *expected = engine_logits(packed, &in_memory, ids, N_ID, &n_vocab);
    hth_engine_set_store_memory(0);
    const hearth_model_options o = {.ram = 1,
                                    .n_thread = 2,
                                    .selector = HEARTH_SELECTOR_GATE,
                                    .cancel = &cancel_flag,
                                    .io = "sim:sd",
                                    .gpu = {.n_ctx = 64}};
    CHECK_OK(hearth_model_open(packed, &o, &model, err));
    hth_engine_set_store_memory(UINT64_MAX);
    hearth_session *s =
        model ? OPENED(hearth_session, model,
                       &(hearth_session_options){.n_ctx = N_ID, .n_batch = 8, .kv = HEARTH_KV_F32})
              : NULL;
    for (int i = 0; s && i < 3; i++) {
        canceller c = {.model = model};
        hearth_storage_stats stats = {0};
        pthread_t thread;
        CHECK(hearth_model_get_storage(model, &stats));
        c.n_stall = stats.n_stall;
        pthread_create(&thread, NULL, cancel_a_wait, &c);
        CHECK_FAILS(hearth_session_eval(s, ids, N_ID, err), HEARTH_ERROR_CANCELLED, "interrupted");
        c.ends = true;
        pthread_join(thread, NULL);
        cancel_flag = 0;
        CHECK(hearth_model_get_storage(model, &stats) && stats.n_stall > c.n_stall);
        CHECK_INT(hearth_session_position(s), 0);
    }
    if (s) CHECK_OK(hearth_session_eval(s, ids, N_ID, err));
    if (s && expected)
        CHECK_BYTES(hearth_session_logits(s), expected + (N_ID - 1) * n_vocab, n_vocab * sizeof *expected);
    hearth_session_close(s);
    hearth_model_close(model);
}

/* ---- files -------------------------------------------------------------------------------------------- */

typedef struct opened {
    hth_gguf *file;
    hth_model *model;
} opened;

static void close_opened(opened *o)
{
    hth_model_close(o->model);
    if (o->file) hth_gguf_close(o->file);
}

static bool open_bare(const char *path, opened *o)
{
    *o = (opened){0};
    CHECK_OK(hth_gguf_open(path, &o->file, err));
    if (o->file) CHECK_OK(hth_model_open(o->file, &(hth_model_overrides){0}, &o->model, err));
    return o->model != NULL;
}

static uint8_t *read_tensor(const hth_gguf *file, const hth_gguf_tensor *t)
{
    uint8_t *bytes = malloc(t->size);
    if (!bytes) abort();
    CHECK_OK(hth_gguf_read(file, t, 0, t->size, bytes, err));
    return bytes;
}

static const hth_binding *binding_of(const hth_model *m, const hth_matrix *w)
{
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].matrix == w) return &m->bindings[i];
    return NULL;
}

/* Each unit of each matrix of a layer begins where it should, and has its checksum. */
static void check_layer(const opened *o, const hth_layer *l)
{
    const hth_matrix *all[HTH_CHECKED_MATRICES];
    size_t rows[HTH_CHECKED_MATRICES], n = hth_layer_checked_matrices(l, all, rows), i_sum = 0;
    if (!CHECK(l->checksums != NULL)) return;
    FREED uint8_t *sums = read_tensor(o->file, l->checksums);
    for (size_t k = 0; k < n; k++) {
        const hth_gguf_tensor *t = binding_of(o->model, all[k])->tensor;
        FREED uint8_t *bytes = read_tensor(o->file, t);
        CHECK_INT(t->offset % HTH_STORAGE_ALIGNMENT, 0);
        for (size_t r = 0; r < all[k]->n_row; r += rows[k], i_sum++) {
            size_t left = all[k]->n_row - r, size = (left < rows[k] ? left : rows[k]) * all[k]->row_size;
            uint64_t found = hth_hash(bytes + r * all[k]->row_size, size);
            CHECK_BYTES(sums + 8 * i_sum, &found, sizeof found);
        }
    }
    if (l->n_bundle_neuron > 0) {
        const hth_binding *b = o->model->bindings;
        while (b->vector != &l->ffn.scales) b++;
        FREED uint8_t *scales = read_tensor(o->file, b->tensor);
        uint64_t found = hth_hash(scales, (size_t)b->tensor->size);
        CHECK_BYTES(sums + 8 * i_sum++, &found, sizeof found);
    }
    CHECK_INT(i_sum * 8, l->checksums->size);
}

TEST(files_for_storage_have_pages_and_checksums)
{
    name_files();
    CLEANUP(close_opened) opened dense, mixture;
    CLEANUP(golden_close) golden g;
    bool ok = hybrid_pack_storyteller("Q4_0", packed) && pack_for_storage(packed, 32, stored) &&
              open_bare(stored, &dense);
    for (uint32_t i = 0; ok && i < dense.model->hparams.n_layer; i++) {
        const hth_layer *l = &dense.model->layers[i];
        CHECK_INT(l->n_bundle_neuron, 32);
        check_layer(&dense, l);
    }
    if (!golden_open_arch(&g, "mixtral") || !pack_for_storage(g.model, 0, packed) ||
        !open_bare(packed, &mixture))
        return;
    for (uint32_t i = 0; i < mixture.model->hparams.n_layer; i++)
        check_layer(&mixture, &mixture.model->layers[i]);
}

TEST(the_size_of_bundles_follows_their_rows)
{
    static const struct {
        uint32_t row_size, shift;
    } rows[] = {{2304, 4}, {1152, 5}, {2880, 4}, {4352, 4}, {18, 8}, {128, 7}, {8192, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(hth_bundle_shift(rows[i].row_size, false), rows[i].shift);
    CHECK_INT(hth_bundle_shift(2304, true), 8);
}

/* ---- damaged files ------------------------------------------------------------------------------------ */

/* Writes n bytes `from` on into the file. */
static void patch(const char *path, uint64_t at, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "r+b");
    if (!CHECK(f != NULL)) return;
    CHECK(fseek(f, (long)at, SEEK_SET) == 0 && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

/* Where the words are in the file for the first time, and `behind` them. */
static uint64_t find(const char *path, const char *words, size_t behind)
{
    size_t n = 0;
    FREED char *bytes = test_read_file(path, &n);
    char *at = bytes ? memmem(bytes, n, words, strlen(words)) : NULL;
    CHECK(at != NULL);
    return at ? (uint64_t)(at - bytes) + strlen(words) + behind : 0;
}

TEST(wrong_bytes_end_an_evaluation_and_no_session)
{
    int32_t ids[N_ID];
    opened o;
    uint8_t byte = 0;
    name_files();
    draw_ids(ids);
    if (!hybrid_pack_storyteller("Q4_0", packed) || !pack_for_storage(packed, SMALL, stored) ||
        !open_bare(stored, &o))
        return;
    const hth_ffn *f = &o.model->layers[1].ffn;
    const hth_gguf_tensor *t = binding_of(o.model, &f->gate)->tensor;
    uint64_t at = t->offset + 3 * SMALL * f->gate.row_size + 7;
    CHECK_OK(hth_gguf_read(o.file, t, at - t->offset, 1, &byte, err));
    close_opened(&o);
    const uint8_t wrong = byte ^ 16;
    const engine_setting in_memory = {
        .n_thread = 1, .n_batch = 8, .kv = HEARTH_KV_F32, .selector = HEARTH_SELECTOR_GATE};
    size_t n_vocab = 0;
    FREED float *expected = engine_logits(packed, &in_memory, ids, N_ID, &n_vocab);
    CLOSED(hearth_model) *model = engine_open_streamed(stored, "auto", 0, HEARTH_SELECTOR_GATE);
    hearth_session *s =
        model ? OPENED(hearth_session, model,
                       &(hearth_session_options){.n_ctx = N_ID, .n_batch = 8, .kv = HEARTH_KV_F32})
              : NULL;
    if (!s || !expected) return;
    patch(stored, at, &wrong, 1);
    char words[200];
    snprintf(words, sizeof words,
             "stored.gguf: layer 1, cluster 3: the bytes from %llu on have another checksum",
             (unsigned long long)(at - 7));
    for (int i = 0; i < 3; i++) CHECK_FAILS(hearth_session_eval(s, ids, N_ID, err), HEARTH_ERROR_IO, words);
    patch(stored, at, &byte, 1);
    CHECK_OK(hearth_session_eval(s, ids, N_ID, err));
    CHECK_BYTES(hearth_session_logits(s), expected + (N_ID - 1) * n_vocab, n_vocab * sizeof *expected);
    hearth_session_close(s);
}

static void check_refused(const hearth_model_options *options, hearth_status status, const char *words)
{
    hearth_model *model = NULL;
    CHECK_FAILS(hearth_model_open(stored, options, &model, err), (int)status, words);
    hearth_model_close(model);
}

/* Patches four bytes, opens the file, and restores it. */
static void check_patched_with(const hearth_model_options *options, uint64_t at, uint32_t value, hearth_status status, const char *words)
{
    size_t n = 0;
    FREED char *bytes = test_read_file(stored, &n);
    if (!bytes || !CHECK(at + 4 <= n)) return;
    patch(stored, at, &value, 4);
    check_refused(options, status, words);
    patch(stored, at, bytes + at, 4);
}

static void check_patched(uint64_t at, uint32_t value, hearth_status status, const char *words)
{
    check_patched_with(NULL, at, value, status, words);
}

TEST(files_that_are_not_what_they_say_are_refused)
{
    opened o;
    enum { TYPE = 4, ELEMENTS = 4 + 4 + 8 }; /* before a value, before the elements of an array */
    name_files();
    if (!hybrid_pack_storyteller("Q4_0", packed) || !pack_for_storage(packed, SMALL, stored) ||
        !open_bare(stored, &o))
        return;
    uint64_t scales = 0;
    for (size_t i = 0; i < o.model->n_binding; i++)
        if (o.model->bindings[i].vector == &o.model->layers[1].ffn.scales)
            scales = o.model->bindings[i].tensor->offset;
    close_opened(&o);
    check_patched(find(stored, HTH_KEY_STORAGE_VERSION, TYPE), 2, HEARTH_ERROR_UNSUPPORTED,
                  "hearth.storage.version at | is 2");
    static const uint32_t wrong[] = {0, 8, 24, 512, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_patched(find(stored, HTH_KEY_STORAGE_NEURONS, ELEMENTS), wrong[i], HEARTH_ERROR_FORMAT,
                      "hearth.storage.neurons at |value 0 is ");
    check_patched(find(stored, HTH_KEY_STORAGE_NEURONS, ELEMENTS), 2 * SMALL, HEARTH_ERROR_FORMAT,
                  "blk.0.ffn_checksum");
    check_patched(find(stored, HTH_KEY_STORAGE_NEURONS, TYPE + 4), 1, HEARTH_ERROR_FORMAT, "");
    check_patched(find(stored, "blk.1.ffn_checksum", 4 + 8), 5, HEARTH_ERROR_FORMAT, "blk.1.ffn_checksum");
    check_patched(find(stored, "blk.1.ffn_checksu", 0), 'x', HEARTH_ERROR_FORMAT, "");
    check_patched(scales, 0x7fc00000, HEARTH_ERROR_FORMAT,
                  "blk.1.ffn_down_t.scales|expected a finite number");
    check_patched(scales, 0x3f800000, HEARTH_ERROR_FORMAT,
                  "blk.1.ffn_down_t.scales|entry 0 is 1, but the largest");
    /* No row of down is there to compare with. */
    hth_engine_set_store_memory(0);
    check_patched_with(&(hearth_model_options){.ram = 1}, scales, 0x3f800000, HEARTH_ERROR_FORMAT,
                       "blk.1.ffn_down_t.scales|another checksum");
    hth_engine_set_store_memory(UINT64_MAX);
    CLOSED(hearth_model) *model = OPENED(hearth_model, stored, NULL);
    CHECK(model != NULL);
}

/* Another model's checksums: what they say of the first bundle that is read is wrong. */
TEST(checksums_of_another_model_are_found_when_they_are_used)
{
    char other[1024];
    int32_t ids[N_ID];
    opened a, b;
    name_files();
    draw_ids(ids);
    snprintf(other, sizeof other, "%s", test_scratch("other.gguf"));
    if (!hybrid_pack_storyteller("Q4_0", packed) || !pack_for_storage(packed, SMALL, stored)) return;
    if (!hybrid_pack_storyteller("Q4_1", packed) || !pack_for_storage(packed, SMALL, other)) return;
    if (!open_bare(stored, &a) || !open_bare(other, &b)) return;
    const hth_gguf_tensor *to = a.model->layers[0].checksums, *from = b.model->layers[0].checksums;
    CHECK_INT(to->size, from->size);
    FREED uint8_t *sums = read_tensor(b.file, from);
    uint64_t at = to->offset, n = from->size - sizeof(uint64_t); /* that of scales is compared at once */
    close_opened(&a), close_opened(&b);
    patch(stored, at, sums, n);
    CLOSED(hearth_model) *model = engine_open_streamed(stored, "auto", 0, HEARTH_SELECTOR_GATE);
    hearth_session *s =
        model ? OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = N_ID, .n_batch = 8}) : NULL;
    if (s)
        CHECK_FAILS(hearth_session_eval(s, ids, 4, err), HEARTH_ERROR_IO,
                    "layer 0, cluster |another checksum|the file is damaged, pack the model again");
    hearth_session_close(s);
}
