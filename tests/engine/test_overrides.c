/* hearth_model_options.overrides: what the caller gives instead of the metadata of a file counts as if the file had it. */
#include "support/models/tiny_model.h"
#include "support/test.h"

enum { N_TOKEN = 24, N_LOGIT = TINY_VOCAB };

typedef struct opened {
    gguf_bytes file;
    hearth_model *model;
} opened;

static void close_opened(opened *o)
{
    hearth_model_close(o->model);
    gguf_free(&o->file);
}

static hearth_status open_with(opened *o, tiny_model *from, const char *const *overrides, size_t n,
                               hearth_error *err)
{
    hearth_model_options options = hearth_model_defaults();
    options.overrides = overrides, options.n_override = n;
    o->file = tiny_write(from);
    return hearth_model_open_memory(o->file.data, o->file.n, "tiny", &options, &o->model, err);
}

/* The logits behind N_TOKEN tokens, whose positions are far enough for any scaling to show. */
static bool logits_of(const hearth_model *model, float *logits)
{
    hearth_error err;
    CLOSED(hearth_session) *session = NULL;
    int32_t ids[N_TOKEN];
    for (int i = 0; i < N_TOKEN; i++) ids[i] = 3 + 7 * i;
    if (hearth_session_open(model, NULL, &session, &err) != HEARTH_OK ||
        hearth_session_eval(session, ids, N_TOKEN, &err) != HEARTH_OK)
        return false;
    memcpy(logits, hearth_session_logits(session), N_LOGIT * sizeof *logits);
    return true;
}

static void check_same(tiny_model *by_file, const char *const *overrides, size_t n)
{
    CLEANUP(tiny_free) tiny_model plain_file = tiny_new();
    CLEANUP(close_opened) opened plain = {0}, by_key = {0}, by_override = {0};
    float a[N_LOGIT], b[N_LOGIT], c[N_LOGIT];
    CHECK_OK(open_with(&plain, &plain_file, NULL, 0, err));
    CHECK_OK(open_with(&by_key, by_file, NULL, 0, err));
    CHECK_OK(open_with(&by_override, &plain_file, overrides, n, err));
    CHECK(logits_of(plain.model, a) && logits_of(by_key.model, b) && logits_of(by_override.model, c));
    CHECK(memcmp(b, c, sizeof b) == 0);
    CHECK(memcmp(a, b, sizeof a) != 0);
}

TEST(overrides_give_the_bits_of_a_file_that_has_them)
{
    CLEANUP(tiny_free) tiny_model base = tiny_new(), yarn = tiny_new();
    tiny_set_f32(&base, "llama.rope.freq_base", 500.0f);
    check_same(&base, (const char *[]){"llama.rope.freq_base=float:500"}, 1);
    check_same(&base, (const char *[]){".rope.freq_base=float:400", ".rope.freq_base=float:500"}, 2);
    tiny_set_text(&yarn, "llama.rope.scaling.type", "yarn");
    tiny_set_f32(&yarn, "llama.rope.scaling.factor", 4.0f);
    tiny_set_u32(&yarn, "llama.rope.scaling.original_context_length", 16);
    check_same(&yarn,
               (const char *[]){".rope.scaling.type=str:yarn", ".rope.scaling.factor=float:4",
                                ".rope.scaling.original_context_length=int:16"},
               3);
}

TEST(overrides_are_part_of_the_metadata)
{
    CLEANUP(tiny_free) tiny_model file = tiny_new();
    CLEANUP(close_opened) opened o = {0};
    hearth_metadata found = {.size = sizeof found};
    size_t n = 0;
    const char *const overrides[] = {"llama.context_length=int:32", "tests.told=bool:true",
                                     ".told=str:a=b:c"};
    CHECK_OK(open_with(&o, &file, overrides, 3, err));
    if (!o.model) return;
    CHECK_INT(test_model_info(o.model).n_ctx_train, 32);
    for (size_t i = 0; hearth_model_get_metadata(o.model, i, &found) == HEARTH_OK; i++) {
        if (found.n_key == 20 && memcmp(found.key, "llama.context_length", 20) == 0)
            n += found.as_unsigned == 32;
        if (found.n_key == 10 && memcmp(found.key, "tests.told", 10) == 0) n += found.as_bool;
        if (found.n_key == 10 && memcmp(found.key, "llama.told", 10) == 0)
            n += found.n == 5 && memcmp(found.as_string, "a=b:c", 5) == 0;
    }
    CHECK_INT(n, 3);
}

TEST(sessions_belong_to_overrides)
{
    CLEANUP(tiny_free) tiny_model file = tiny_new();
    CLEANUP(close_opened) opened plain = {0}, other = {0};
    const char *path = test_scratch("session");
    const int32_t ids[] = {3, 4, 5};
    hearth_error ignored;
    CHECK_OK(open_with(&plain, &file, NULL, 0, err));
    CHECK_OK(open_with(&other, &file, (const char *[]){".rope.freq_base=float:500"}, 1, err));
    CLOSED(hearth_session) *from = NULL, *to = NULL;
    CHECK_OK(hearth_session_open(other.model, NULL, &from, err));
    CHECK_OK(hearth_session_open(plain.model, NULL, &to, err));
    CHECK_OK(hearth_session_eval(from, ids, 3, err));
    CHECK_OK(hearth_session_save(from, path, err));
    CHECK(hearth_session_restore(to, path, &ignored) != HEARTH_OK);
    CHECK_OK(hearth_session_restore(from, path, err));
}

TEST(overrides_are_checked)
{
    static const struct {
        const char *text, *words;
        hearth_status status;
    } wrong[] = {
        {"", "expected KEY=TYPE:VALUE", HEARTH_ERROR_ARGUMENT},
        {"a.b", "expected KEY=TYPE:VALUE", HEARTH_ERROR_ARGUMENT},
        {"=int:1", "expected KEY=TYPE:VALUE", HEARTH_ERROR_ARGUMENT},
        {"a.b=1", "expected KEY=TYPE:VALUE", HEARTH_ERROR_ARGUMENT},
        {"a.b=u32:1", "int, float, bool, str", HEARTH_ERROR_ARGUMENT},
        {"a.b=int:1.5", "expected an integer", HEARTH_ERROR_ARGUMENT},
        {"a.b=int:", "expected an integer", HEARTH_ERROR_ARGUMENT},
        {"a.b=int:99999999999999999999", "expected an integer", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:nan", "expected a number", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:", "expected a number", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:1,5", "expected a number", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:0x10", "expected a number", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:1e39", "too large", HEARTH_ERROR_ARGUMENT},
        {"a.b=float:-1e999", "too large", HEARTH_ERROR_ARGUMENT},
        {"a.b=bool:1", "expected true or false", HEARTH_ERROR_ARGUMENT},
        {"llama.context_length=float:1", "is no f32 or f64", HEARTH_ERROR_ARGUMENT},
        {"llama.context_length=int:-1", "does not fit", HEARTH_ERROR_ARGUMENT},
        {"llama.context_length=int:4294967296", "does not fit", HEARTH_ERROR_ARGUMENT},
        {"general.architecture=int:1", "is no integer", HEARTH_ERROR_ARGUMENT},
        {"tokenizer.ggml.tokens=str:x", "is no text", HEARTH_ERROR_ARGUMENT},
        {".rope.scaling.type=str:other", "is not supported", HEARTH_ERROR_UNSUPPORTED},
        {NULL, "hearth_model_options.overrides", HEARTH_ERROR_ARGUMENT},
    };
    CLEANUP(tiny_free) tiny_model file = tiny_new();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CLEANUP(close_opened) opened o = {0};
        hearth_error error;
        hearth_status st = open_with(&o, &file, &wrong[i].text, 1, &error);
        test_check_failure((int)st, (int)wrong[i].status, error.message, wrong[i].words, __FILE__, __LINE__,
                           wrong[i].text ? wrong[i].text : "NULL");
        CHECK(!o.model);
    }
}
