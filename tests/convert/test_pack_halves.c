/* Packed with a profile, dReLU's sparser half is computed first: gate and up change places where up is the
 * sparser one, and no logit changes a bit. */
#include "convert/pack.h"
#include "file/gguf.h"
#include "measure/profile.h"
#include "sparse/profile.h"
#include "support/engine.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_LAYER = 6, N_ID = 12 };
static const int32_t ids[N_ID] = {1, 45, 300, 17, 901, 233, 12, 77, 5, 640, 99, 1023};

/* A profile in which every other layer has a sparser up, or none. */
static void make_profile(const char *model_path, const char *path, bool sparser_ups)
{
    char text[3000];
    hearth_model_options mo = hearth_model_defaults();
    hearth_session_options so = {.n_ctx = 64, .n_batch = 64, .n_thread = 2, .selector = HEARTH_SELECTOR_DENSE};
    hth_profile_options o = {.out = path, .n_sample = 64, .settings = "kv f16", .save_ns = HTH_PROFILE_SAVE_NS};
    for (size_t i = 0; i < sizeof text; i++) text[i] = "Once upon a time there was a dog. "[i % 34];
    mo.selector = HEARTH_SELECTOR_DENSE;
    CLOSED(hearth_model) *model = OPENED(hearth_model, model_path, &mo);
    CLOSED(hearth_session) *session = OPENED(hearth_session, model, &so);
    CLOSED(hth_profile) *p = OPENED_BY(hth_measure_profile, hth_profile, model, session, text, sizeof text, &o);
    for (uint32_t i = 0; i < p->n_layer; i++)
        p->layers[i].up_fired = p->layers[i].gate_fired - (sparser_ups && i % 2 == 0);
    CHECK_OK(hth_profile_write(p, path, err));
}

static float *logits_of(const char *path, hearth_selector selector, size_t *n_vocab)
{
    engine_setting s = {.n_thread = 2, .n_batch = 5, .kv = HEARTH_KV_F16, .selector = selector};
    return engine_logits(path, &s, ids, N_ID, n_vocab);
}

/* A neuron's row of a tensor, as bytes; freed with free. */
static uint8_t *row_of(const hth_gguf *file, const char *name, uint64_t i, size_t *size)
{
    const hth_gguf_tensor *t = hth_gguf_find_tensor(file, name);
    if (!CHECK(t != NULL)) return NULL;
    *size = (size_t)(t->size / t->dim[1]);
    uint8_t *row = malloc(*size);
    CHECK_OK(hth_gguf_read(file, t, i * *size, *size, row, err));
    return row;
}

static void check_rows(const hth_gguf *packed, const hth_gguf *source, uint32_t i_layer, bool swapped)
{
    static const char *const halves[] = {"gate", "up"};
    int32_t order[768];
    char name[60], from[60];
    size_t n = 0, n_from = 0;
    snprintf(name, sizeof name, "blk.%u.ffn_order", i_layer);
    CHECK_OK(hth_gguf_read(packed, hth_gguf_find_tensor(packed, name), 0, sizeof order, order, err));
    for (int h = 0; h < 2; h++)
        for (uint64_t r = 0; r < 768; r += 131) {
            snprintf(name, sizeof name, "blk.%u.ffn_%s.weight", i_layer, halves[h]);
            snprintf(from, sizeof from, "blk.%u.ffn_%s.weight", i_layer, halves[swapped ? 1 - h : h]);
            uint8_t *row = row_of(packed, name, r, &n),
                    *same = row_of(source, from, (uint64_t)order[r], &n_from);
            if (row && same && CHECK_INT(n, n_from)) CHECK_BYTES(row, same, n);
            free(row);
            free(same);
        }
}

static uint32_t swapped_of(const hth_gguf *file, uint32_t i)
{
    const hth_gguf_value *v = NULL;
    CHECK_OK(hth_gguf_get_array(file, "hearth.pack.up_first", HTH_GGUF_U32, N_LAYER, &v, err));
    return v ? (uint32_t)hth_gguf_element_uint(v, i) : 0;
}

static void pack_with(const char *in, const char *out, const char *profile, uint32_t n_swapped)
{
    hth_pack_result r;
    hth_pack_options o = {.profile = profile, .n_thread = 2};
    CHECK_OK(hth_pack(in, out, &o, &r, err));
    CHECK_INT(r.n_swapped, n_swapped);
}

/* Once from the source, then from the packed file with a profile of its own: twice swapped is as before. */
TEST(the_sparser_half_of_drelu_becomes_the_gate_without_a_change_of_bits)
{
    hth_gguf *file = NULL, *source = NULL;
    size_t n_vocab = 0;
    const char *profile = test_scratch("halves.profile"), *packed = test_scratch("halves.gguf");
    const char *plain = test_scratch("plain.gguf"), *again = test_scratch("again.gguf");
    make_profile(STORYTELLER, profile, true);
    pack_with(STORYTELLER, packed, profile, 3);
    make_profile(STORYTELLER, profile, false);
    pack_with(STORYTELLER, plain, profile, 0);
    CHECK_OK(hth_gguf_open(packed, &file, err));
    CHECK_OK(hth_gguf_open(STORYTELLER, &source, err));
    for (uint32_t i = 0; i < N_LAYER; i++) {
        CHECK_INT(swapped_of(file, i), i % 2 == 0);
        check_rows(file, source, i, i % 2 == 0);
    }
    hth_gguf_close(file);
    make_profile(packed, profile, true);
    pack_with(packed, again, profile, 3);
    CHECK_OK(hth_gguf_open(again, &file, err));
    for (uint32_t i = 0; i < N_LAYER; i++) {
        CHECK_INT(swapped_of(file, i), 0);
        check_rows(file, source, i, false);
    }
    hth_gguf_close(file);
    hth_gguf_close(source);
    float *dense = logits_of(packed, HEARTH_SELECTOR_DENSE, &n_vocab),
          *gate = logits_of(packed, HEARTH_SELECTOR_GATE, &n_vocab),
          *other = logits_of(plain, HEARTH_SELECTOR_GATE, &n_vocab);
    if (dense && gate && other) {
        CHECK_BYTES(dense, gate, N_ID * n_vocab * sizeof *dense);
        CHECK_BYTES(gate, other, N_ID * n_vocab * sizeof *gate);
    }
    free(dense), free(gate), free(other);
    remove(profile), remove(packed), remove(plain), remove(again);
}
