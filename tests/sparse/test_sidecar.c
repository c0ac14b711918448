/* Predictors and thresholds as files: what does not fit its model, its version or its kind is refused with
 * file and place, cut anywhere or damaged at random too. Profiles: test_profile.c. */
#include "sparse/sidecar.h"
#include "base/alloc.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { F16 = 1, Q8_0 = 8, Q8_1 = 9, I32 = 26, BF16 = 30, U64 = 10, RANK = TINY_RANK };

/* The model to which all files here belong. */
static gguf_bytes model_bytes;
static hth_gguf *model_file;
static hth_model *model;
static uint64_t model_hash;

static void open_model(void)
{
    tiny_model m = tiny_new();
    tiny_set_text(&m, "hearth.ffn.activation", "reglu");
    model_bytes = tiny_take(&m);
    CHECK_OK(hth_gguf_open_memory(model_bytes.data, model_bytes.n, "tiny.gguf", &model_file, err));
    CHECK_OK(hth_model_open(model_file, &(hth_model_overrides){0}, &model, err));
    CHECK_OK(hth_model_hash(model_file, &model_hash, err));
}

static void close_model(void)
{
    hth_model_close(model);
    hth_gguf_close(model_file);
    gguf_free(&model_bytes);
}

/* ---- files that fit ------------------------------------------------------------------------------ */

static void set_head(tiny_model *m, const char *kind)
{
    char name[40];
    *m = (tiny_model){0};
    snprintf(name, sizeof name, "hearth.%s", kind);
    tiny_set_text(m, "general.architecture", name);
    tiny_set_u32(m, "hearth.sidecar.version", 1);
    tiny_set(m, "hearth.model.hash", U64, model_hash, 8);
}

static void add(tiny_model *m, int i_layer, const char *rest, uint64_t d0, uint64_t d1)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", i_layer, rest);
    tiny_add_tensor(m, name, 0, d1 ? 2 : 1, d0, d1 ? d1 : 1);
}

static void make_thresholds(tiny_model *m)
{
    set_head(m, "thresholds");
    for (int i = 0; i < TINY_LAYERS; i++) add(m, i, "ffn_floor.weight", TINY_D_FF, 0);
}

static void make_predictors(tiny_model *m)
{
    static const float thresholds[TINY_LAYERS] = {0.5f, -1.0f};
    set_head(m, "predictors");
    tiny_set_text(m, "hearth.predictor.input", "normed");
    tiny_set_floats(m, "hearth.predictor.threshold", thresholds, TINY_LAYERS);
    for (int i = 0; i < TINY_LAYERS; i++) {
        add(m, i, "fc1.weight", TINY_D_MODEL, RANK);
        add(m, i, "fc2.weight", RANK, TINY_D_FF);
        add(m, i, "fc2.bias", TINY_D_FF, 0);
    }
}

static gguf_bytes make_kind(bool predictors)
{
    CLEANUP(tiny_free) tiny_model m;
    if (predictors) make_predictors(&m);
    else make_thresholds(&m);
    gguf_bytes bytes = tiny_write(&m);
    return bytes;
}

/* ---- what is said of them --------------------------------------------------------------------------- */

/* words NULL: taken. Else a line that begins with the file's name and holds all words (parts separated by
 * '|'); nothing is kept. */
static void expect(const gguf_bytes *bytes, const char *kind, hearth_status status, const char *words,
                   int line)
{
    const char *path = test_scratch("side.gguf");
    hth_sidecar s;
    hearth_error why = {0};
    char all[200], *save = NULL;
    uint64_t held = hth_alloc_in_use();
    CHECK(test_write_file(path, bytes->data, bytes->n));
    hearth_status st = hth_sidecar_open(&s, path, kind, model, &why);
    bool named = !words || strstr(why.message, path) == why.message;
    snprintf(all, sizeof all, "%s", words ? words : "");
    for (char *word = strtok_r(all, "|", &save); word; word = strtok_r(NULL, "|", &save))
        named = named && strstr(why.message, word) != NULL;
    if (st != status || !named || (st == HEARTH_OK) != (s.file != NULL))
        test_fail(__FILE__, line, "status '%s', '%s'; expected '%s'", hearth_status_name(st), why.message,
                  words ? words : "ok");
    hth_sidecar_close(&s);
    CHECK_INT(hth_alloc_in_use(), held);
}

/* A file of that kind with a change, which may use m. */
#define EXPECT(KIND, CHANGE, STATUS, WORDS)                                                                  \
    do {                                                                                                     \
        tiny_model m;                                                                                        \
        make_##KIND(&m);                                                                                     \
        CHANGE;                                                                                              \
        gguf_bytes bytes = tiny_write(&m);                                                                   \
        expect(&bytes, #KIND, STATUS, WORDS, __LINE__);                                                      \
        gguf_free(&bytes);                                                                                   \
        tiny_free(&m);                                                                                       \
    } while (0)

/* Word i (of SIZE bytes) of a tensor that has that TYPE is another one. */
#define EXPECT_DATA(KIND, TENSOR, TYPE, I, VALUE, SIZE, WORDS)                                               \
    do {                                                                                                     \
        const char *words_ = WORDS;                                                                          \
        tiny_model m;                                                                                        \
        make_##KIND(&m);                                                                                     \
        tiny_find(&m, TENSOR)->type = TYPE;                                                                  \
        gguf_bytes bytes = tiny_write(&m);                                                                   \
        gguf_patch(&bytes, tiny_data_at(&m, TENSOR) + (size_t)(SIZE) * (I), VALUE, SIZE);                    \
        expect(&bytes, #KIND, words_ ? HEARTH_ERROR_FORMAT : HEARTH_OK, words_, __LINE__);                   \
        gguf_free(&bytes);                                                                                   \
        tiny_free(&m);                                                                                       \
    } while (0)

TEST(files_that_fit_are_taken)
{
    open_model();
    EXPECT(thresholds, (void)0, HEARTH_OK, NULL);
    EXPECT(predictors, (void)0, HEARTH_OK, NULL);
    EXPECT(predictors, tiny_set_text(&m, "hearth.predictor.input", "residual"), HEARTH_OK, NULL);
    EXPECT(predictors, tiny_find(&m, "blk.1.fc2.bias")->gone = true, HEARTH_OK, NULL);
    close_model();
}

TEST(heads_that_do_not_fit_are_refused)
{
    open_model();
    EXPECT(
        thresholds, tiny_set_text(&m, "general.architecture", "hearth.predictors"), HEARTH_ERROR_UNSUPPORTED,
        "general.architecture at |is 'hearth.predictors', not 'hearth.thresholds'|which hearth thresholds makes");
    EXPECT(predictors, tiny_set_text(&m, "general.architecture", "hearth.profile"), HEARTH_ERROR_UNSUPPORTED,
           "general.architecture at |is 'hearth.profile', not 'hearth.predictors'|which hearth predictors makes");
    EXPECT(predictors, tiny_set_text(&m, "general.architecture", "llama\x1b"), HEARTH_ERROR_UNSUPPORTED,
           "is 'llama\\x1b'");
    EXPECT(thresholds, tiny_drop_key(&m, "general.architecture"), HEARTH_ERROR_FORMAT,
           "general.architecture missing|every hearth.thresholds");
    EXPECT(thresholds, tiny_set_u32(&m, "general.architecture", 1), HEARTH_ERROR_FORMAT, "expected text");
    EXPECT(thresholds, tiny_set_u32(&m, "hearth.sidecar.version", 2), HEARTH_ERROR_UNSUPPORTED,
           "hearth.sidecar.version at |is 2: this version reads 1; make the thresholds again");
    EXPECT(predictors, tiny_set_u32(&m, "hearth.sidecar.version", 0), HEARTH_ERROR_UNSUPPORTED, "is 0");
    EXPECT(predictors, tiny_drop_key(&m, "hearth.sidecar.version"), HEARTH_ERROR_FORMAT,
           "hearth.sidecar.version missing|every hearth.predictors");
    EXPECT(predictors, tiny_set(&m, "hearth.model.hash", U64, model_hash ^ 1, 8), HEARTH_ERROR_ARGUMENT,
           "the predictors of another model: hearth.model.hash at |tiny.gguf has ");
    EXPECT(thresholds, tiny_set(&m, "hearth.model.hash", U64, model_hash + 1, 8), HEARTH_ERROR_ARGUMENT,
           "the thresholds of another model: hearth.model.hash at ");
    EXPECT(thresholds, tiny_drop_key(&m, "hearth.model.hash"), HEARTH_ERROR_FORMAT, "hearth.model.hash missing");
    EXPECT(thresholds, tiny_set_text(&m, "hearth.model.hash", "1"), HEARTH_ERROR_FORMAT,
           "hearth.model.hash|expected an integer");
    close_model();
}

TEST(a_model_is_no_sidecar)
{
    open_model();
    expect(&model_bytes, "predictors", HEARTH_ERROR_UNSUPPORTED, "is 'llama', not 'hearth.predictors'", __LINE__);
    expect(&model_bytes, "thresholds", HEARTH_ERROR_UNSUPPORTED, "is 'llama', not 'hearth.thresholds'", __LINE__);
    close_model();
}

TEST(a_sidecar_is_no_model)
{
    open_model();
    for (int kind = 0; kind < 2; kind++) {
        CLEANUP(gguf_free) gguf_bytes bytes = make_kind(kind);
        hearth_model *m = NULL;
        hearth_error why = {0};
        CHECK_INT(hearth_model_open_memory(bytes.data, bytes.n, "side.gguf", NULL, &m, &why),
                  HEARTH_ERROR_UNSUPPORTED);
        CHECK(m == NULL && strstr(why.message, "side.gguf: ") == why.message);
        CHECK(strstr(why.message, kind ? "predictors, not a model (general.architecture at "
                                       : "thresholds, not a model (general.architecture at ") != NULL);
    }
    close_model();
}

TEST(keys_of_predictors_that_do_not_fit_are_refused)
{
    static const char key[] = "hearth.predictor.threshold";
    static const float three[] = {0.0f, 0.0f, 0.0f}, nan_first[] = {NAN, 0.0f},
                       inf_second[] = {0.0f, INFINITY};
    static const uint32_t words[] = {0, 0};
    open_model();
    EXPECT(predictors, tiny_drop_key(&m, key), HEARTH_ERROR_FORMAT, "hearth.predictor.threshold missing");
    EXPECT(predictors, tiny_set_floats(&m, key, three, 3), HEARTH_ERROR_FORMAT, "3 elements, expected 2");
    EXPECT(predictors, tiny_set_floats(&m, key, three, 1), HEARTH_ERROR_FORMAT, "1 elements, expected 2");
    EXPECT(predictors, tiny_set_array(&m, key, words, 2), HEARTH_ERROR_FORMAT, "expected array of f32");
    EXPECT(predictors, tiny_set_f32(&m, key, 0.5f), HEARTH_ERROR_FORMAT, "expected array of f32");
    EXPECT(predictors, tiny_set_floats(&m, key, nan_first, 2), HEARTH_ERROR_FORMAT,
           "hearth.predictor.threshold at |value 0 is nan");
    EXPECT(predictors, tiny_set_floats(&m, key, inf_second, 2), HEARTH_ERROR_FORMAT, "value 1 is inf");
    EXPECT(predictors, tiny_drop_key(&m, "hearth.predictor.input"), HEARTH_ERROR_FORMAT,
           "hearth.predictor.input missing");
    EXPECT(predictors, tiny_set_text(&m, "hearth.predictor.input", "raw\n"), HEARTH_ERROR_UNSUPPORTED,
           "hearth.predictor.input at |is 'raw\\x0a'; known: residual, normed");
    close_model();
}

/* One tensor has another type or shape. */
static void change(tiny_model *m, const char *name, uint32_t type, uint64_t d0, uint64_t d1)
{
    tiny_tensor *t = tiny_find(m, name);
    t->type = type, t->dim[0] = d0, t->dim[1] = d1;
    t->n_dim = d1 > 1 ? 2 : 1;
}

TEST(tensors_that_do_not_fit_are_refused)
{
    open_model();
    EXPECT(predictors, tiny_find(&m, "blk.1.fc1.weight")->gone = true, HEARTH_ERROR_FORMAT,
           "'blk.1.fc1.weight' is missing");
    EXPECT(predictors, tiny_find(&m, "blk.0.fc2.weight")->gone = true, HEARTH_ERROR_FORMAT,
           "'blk.0.fc2.weight' is missing");
    EXPECT(thresholds, tiny_find(&m, "blk.1.ffn_floor.weight")->gone = true, HEARTH_ERROR_FORMAT,
           "'blk.1.ffn_floor.weight' is missing");
    EXPECT(predictors, change(&m, "blk.0.fc1.weight", 0, 31, RANK), HEARTH_ERROR_FORMAT,
           "'blk.0.fc1.weight' (info at byte |is [31, 8, 1, 1]|, expected [32, 8]");
    EXPECT(predictors, change(&m, "blk.0.fc1.weight", 0, TINY_D_MODEL, 1), HEARTH_ERROR_FORMAT,
           "'blk.0.fc2.weight' (info at byte |is [8, 64, 1, 1]|, expected [1, 64]");
    EXPECT(predictors, change(&m, "blk.0.fc1.weight", 0, TINY_D_MODEL, 65537), HEARTH_ERROR_FORMAT,
           "'blk.0.fc1.weight' (info at byte |has 65537 rows; a predictor has up to 65536");
    EXPECT(predictors, change(&m, "blk.1.fc2.weight", 0, RANK, 65), HEARTH_ERROR_FORMAT,
           "'blk.1.fc2.weight' (info at byte |is [8, 65, 1, 1]");
    EXPECT(predictors, change(&m, "blk.1.fc2.bias", 0, 63, 1), HEARTH_ERROR_FORMAT,
           "'blk.1.fc2.bias' (info at byte |is [63, 1, 1, 1]|, expected [64, 1]");
    EXPECT(predictors, change(&m, "blk.1.fc2.bias", F16, 64, 1), HEARTH_ERROR_FORMAT,
           "'blk.1.fc2.bias' (info at byte |has type F16|expected F32");
    EXPECT(predictors, change(&m, "blk.0.fc1.weight", I32, TINY_D_MODEL, RANK), HEARTH_ERROR_FORMAT,
           "'blk.0.fc1.weight' (info at byte |has type I32, which cannot be used");
    EXPECT(predictors, change(&m, "blk.0.fc1.weight", Q8_1, TINY_D_MODEL, RANK), HEARTH_ERROR_FORMAT,
           "has type Q8_1");
    EXPECT(thresholds, change(&m, "blk.0.ffn_floor.weight", 0, TINY_D_FF, 2), HEARTH_ERROR_FORMAT,
           "'blk.0.ffn_floor.weight' (info at byte |is [64, 2, 1, 1]");
    EXPECT(thresholds, change(&m, "blk.0.ffn_floor.weight", Q8_0, TINY_D_FF, 1), HEARTH_ERROR_FORMAT,
           "has type Q8_0|expected F32");
    close_model();
}

TEST(foreign_tensors_are_refused)
{
    open_model();
    EXPECT(thresholds, add(&m, 2, "ffn_floor.weight", TINY_D_FF, 0), HEARTH_ERROR_FORMAT,
           "'blk.2.ffn_floor.weight' (info at byte |does not belong to the thresholds of 2 layers");
    EXPECT(thresholds, add(&m, 0, "fc1.weight", TINY_D_MODEL, RANK), HEARTH_ERROR_FORMAT,
           "'blk.0.fc1.weight' (info at byte ");
    EXPECT(predictors, add(&m, 0, "ffn_floor.weight", TINY_D_FF, 0), HEARTH_ERROR_FORMAT,
           "'blk.0.ffn_floor.weight' (info at byte |does not belong to the predictors");
    EXPECT(predictors, tiny_add_tensor(&m, "blk.00.fc1.weight", 0, 2, TINY_D_MODEL, RANK),
           HEARTH_ERROR_FORMAT, "'blk.00.fc1.weight'");
    EXPECT(predictors, tiny_add_tensor(&m, "token_embd\x1b", 0, 1, 8, 1), HEARTH_ERROR_FORMAT, "'token_embd\\x1b'");
    close_model();
}

TEST(values_that_are_no_numbers_are_refused)
{
    const char *floors = "blk.1.ffn_floor.weight", *in = "blk.1.fc1.weight", *bias = "blk.0.fc2.bias";
    open_model();
    EXPECT_DATA(thresholds, floors, 0, 5, 0x7fc00000u, 4,
                "'blk.1.ffn_floor.weight' at |value 5 is nan|expected a finite number from 0 on");
    EXPECT_DATA(thresholds, floors, 0, 63, 0xbf800000u, 4, "value 63 is -1|expected a finite number from 0 on");
    EXPECT_DATA(thresholds, floors, 0, 0, 0x7f800000u, 4, "value 0 is inf");
    EXPECT_DATA(thresholds, floors, 0, 0, 0x80000000u, 4, NULL); /* -0 */
    EXPECT_DATA(predictors, bias, 0, 9, 0xff800000u, 4, "'blk.0.fc2.bias' at |value 9 is -inf");
    EXPECT_DATA(predictors, bias, 0, 9, 0xbf800000u, 4, NULL);
    EXPECT_DATA(predictors, in, 0, 3 * 32 + 31, 0x7fc00000u, 4, "'blk.1.fc1.weight' at |row 3 holds");
    EXPECT_DATA(predictors, in, F16, 7 * 32, 0xfc00, 2, "row 7 holds");
    EXPECT_DATA(predictors, in, F16, 7 * 32, 0xfbff, 2, NULL);
    EXPECT_DATA(predictors, in, BF16, 0, 0x7f80, 2, "row 0 holds");
    EXPECT_DATA(predictors, in, BF16, 0, 0x7f7f, 2, NULL);
    EXPECT_DATA(predictors, in, Q8_0, 2 * 17, 0x7e00, 2, "row 2 holds a weight that is not finite");
    EXPECT_DATA(predictors, in, Q8_0, 2 * 17, 0x7bff, 2, NULL);
    close_model();
}

/* ---- damage -------------------------------------------------------------------------------------------- */

TEST(sidecars_cut_anywhere_are_refused)
{
    open_model();
    for (int kind = 0; kind < 2; kind++) {
        CLEANUP(gguf_free) gguf_bytes whole = make_kind(kind);
        const char *path = test_scratch("side.gguf");
        for (size_t cut = 0; cut < whole.n; cut += cut < 1000 || cut + 70 > whole.n ? 1 : 13) {
            CLEANUP(hth_sidecar_close) hth_sidecar s;
            hearth_error why = {0};
            CHECK(test_write_file(path, whole.data, cut));
            hearth_status st = hth_sidecar_open(&s, path, kind ? "predictors" : "thresholds", model, &why);
            if (st == HEARTH_OK || strstr(why.message, path) != why.message)
                test_fail(__FILE__, __LINE__, "cut at %zu of %zu: '%s'", cut, whole.n, why.message);
        }
    }
    close_model();
}

TEST(mutated_sidecars_are_taken_or_refused)
{
    test_random r = {11};
    uint32_t n_run = 4000, n_refused = 0;
    uint64_t held = 0;
    open_model();
    held = hth_alloc_in_use();
    for (uint32_t i = 0; i < n_run; i++) {
        gguf_bytes bytes = make_kind(i % 2);
        const char *path = test_scratch("side.gguf");
        hth_sidecar s;
        hearth_error why = {0};
        /* Half of the damage goes into the directory, which is the smaller part. */
        uint32_t capacity = i % 4 < 2 ? (uint32_t)bytes.n : 500;
        for (uint32_t k = 0; k < 1 + i % 3; k++)
            bytes.data[test_random_below(&r, capacity)] = (unsigned char)test_random_next(&r);
        CHECK(test_write_file(path, bytes.data, bytes.n));
        hearth_status st = hth_sidecar_open(&s, path, i % 2 ? "predictors" : "thresholds", model, &why);
        n_refused += st != HEARTH_OK;
        if (st != HEARTH_OK) CHECK(s.file == NULL && strstr(why.message, path) == why.message);
        hth_sidecar_close(&s);
        gguf_free(&bytes);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
    printf("     %u mutated files, %u refused\n", n_run, n_refused);
    CHECK(n_refused > n_run / 4 && n_refused < n_run);
    close_model();
}
