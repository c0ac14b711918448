/* Programs and a shared library of different versions: each struct with a size is taken from programs that know fewer of
 * its fields, or more, and nothing is read or written behind what they have. */
#include "engine/struct_size.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <dlfcn.h>

/* ---- a struct that has grown ------------------------------------------------------------------------------ */

typedef struct grown {
    size_t size;
    uint64_t a;
    uint64_t b; /* since a later version */
} grown;

enum { OLD_SIZE = 16, MOST = 4096 };
static const hth_sized_struct grown_type = {"grown", OLD_SIZE, sizeof(grown)};

/* n bytes in memory of their own, the first ones from a struct. */
static void *exactly(const void *from, size_t n_from, size_t n)
{
    uint8_t *bytes = calloc(1, n);
    memcpy(bytes, from, n < n_from ? n : n_from);
    return bytes;
}

TEST(fields_that_an_older_program_lacks_count_as_zero)
{
    grown out;
    for (size_t size = 0; size <= OLD_SIZE; size += OLD_SIZE) {
        FREED void *old = exactly(&(grown){.size = size, .a = 7}, sizeof(grown), OLD_SIZE);
        memset(&out, 0xFF, sizeof out);
        CHECK_OK(hth_engine_read_options(&grown_type, old, &out, err));
        CHECK(out.size == sizeof out && out.a == 7 && out.b == 0);
    }
    CHECK_OK(hth_engine_read_options(&grown_type, &(grown){.size = sizeof out, .a = 7, .b = 8}, &out, err));
    CHECK(out.a == 7 && out.b == 8);
    CHECK_OK(hth_engine_read_options(&grown_type, NULL, &out, err));
    CHECK(out.size == sizeof out && out.a == 0 && out.b == 0);
}

TEST(results_end_where_an_older_program_says)
{
    const grown from = {.a = 7, .b = 8};
    for (size_t size = 0; size <= OLD_SIZE; size += OLD_SIZE) {
        grown to = {.size = size, .a = 1, .b = 99};
        CHECK(hth_engine_can_write_result(&grown_type, &to));
        hth_engine_write_result(&grown_type, &from, &to);
        CHECK(to.size == size && to.a == 7 && to.b == 99);
    }
    CHECK(!hth_engine_can_write_result(&grown_type, &(grown){.size = OLD_SIZE - 1}));
    CHECK(!hth_engine_can_write_result(&grown_type, &(grown){.size = MOST + 1}));
    CHECK(!hth_engine_can_write_result(&grown_type, NULL));
}

/* ---- the shared library -------------------------------------------------------------------------------------- */

#define FOR_EACH_FUNCTION(X)                                                                                 \
    X(hearth_model_open_memory)                                                                              \
    X(hearth_model_close)                                                                                    \
    X(hearth_model_get_info) X(hearth_model_get_storage) X(hearth_model_get_expert_stats) X(hearth_chat_open) X(hearth_chat_close)            \
        X(hearth_chat_render) X(hearth_free) X(hearth_answer_open) X(hearth_answer_close)                    \
            X(hearth_session_open) X(hearth_session_close) X(hearth_embedder_open) X(hearth_embedder_close) X(hearth_sampler_open) X(hearth_sampler_close)    \
                X(hearth_constraint_open) X(hearth_constraint_close) X(hearth_scheduler_open)                \
                    X(hearth_scheduler_close) X(hearth_scheduler_add) X(hearth_scheduler_get_stats)          \
                        X(hearth_scheduler_get_progress) X(hearth_model_get_metadata) X(hearth_model_get_token)   \
                            X(hearth_devices_open) X(hearth_devices_close) X(hearth_devices_get)     \
                                X(hearth_generate)

#define DECLARE_FUNCTION(F) static __typeof__(F) *lib_##F;
FOR_EACH_FUNCTION(DECLARE_FUNCTION)

static gguf_bytes file;
static hearth_model *model;
static hearth_chat *chat;
static hearth_scheduler *scheduler;
static uint64_t request_id;
static void *library;

static void ignore_text(void *user, hearth_answer_kind kind, const char *text, size_t n) {}
static bool ignore_event(void *user, const hearth_request_event *event) { return true; }

static bool open_all(void)
{
    static const int32_t prompt[] = {1, 60};
    hearth_error why = {0};
    library = dlopen(HEARTH_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!CHECK(library != NULL)) return false;
#define LOAD_FUNCTION(F)                                                                                     \
    {                                                                                                        \
        void *address = dlsym(library, #F);                                                                  \
        memcpy(&lib_##F, &address, sizeof address);                                                          \
        CHECK(address != NULL);                                                                              \
    }
    FOR_EACH_FUNCTION(LOAD_FUNCTION)
    tiny_model m = tiny_new();
    file = tiny_take(&m);
    CHECK_INT(lib_hearth_model_open_memory(file.data, file.n, "tiny", NULL, &model, &why), HEARTH_OK);
    CHECK_INT(lib_hearth_chat_open(model, "chatml", &chat, &why), HEARTH_OK);
    CHECK_INT(lib_hearth_scheduler_open(model, &(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1},
                                        &scheduler, &why),
              HEARTH_OK);
    const hearth_request r = {.tokens = prompt, .n_token = 2, .fn = ignore_event};
    CHECK_INT(lib_hearth_scheduler_add(scheduler, &r, &request_id, &why), HEARTH_OK);
    return test_n_failed() == 0;
}

static void close_all(void)
{
    lib_hearth_scheduler_close(scheduler);
    lib_hearth_chat_close(chat);
    lib_hearth_model_close(model);
    gguf_free(&file);
    scheduler = NULL, chat = NULL, model = NULL;
}

#define OPENS(NAME, OUT, CALL, CLOSE)                                                                        \
    static hearth_status NAME(const void *given, hearth_error *err)                                          \
    {                                                                                                        \
        OUT = NULL;                                                                                          \
        hearth_status st = CALL;                                                                             \
        if (CHECK((out != NULL) == (st == HEARTH_OK))) CLOSE;                                                \
        return st;                                                                                           \
    }
OPENS(by_model_options, hearth_model *out,
      lib_hearth_model_open_memory(file.data, file.n, "tiny", given, &out, err), lib_hearth_model_close(out))
OPENS(by_answer_options, hearth_answer *out, lib_hearth_answer_open(model, given, &out, err),
      lib_hearth_answer_close(out))
OPENS(by_session_options, hearth_session *out, lib_hearth_session_open(model, given, &out, err),
      lib_hearth_session_close(out))
OPENS(by_embedder_options, hearth_embedder *out, lib_hearth_embedder_open(model, given, &out, err),
      lib_hearth_embedder_close(out))
OPENS(by_sampler_options, hearth_sampler *out, lib_hearth_sampler_open(model, given, &out, err),
      lib_hearth_sampler_close(out))
OPENS(by_constraint_options, hearth_constraint *out, lib_hearth_constraint_open(model, given, &out, err),
      lib_hearth_constraint_close(out))
OPENS(by_scheduler_options, hearth_scheduler *out, lib_hearth_scheduler_open(model, given, &out, err),
      lib_hearth_scheduler_close(out))

static hearth_status by_chat_options(const void *given, hearth_error *err)
{
    const hearth_message message = {.role = "user", .content = "x", .n = 1};
    char *text = NULL;
    size_t n;
    hearth_status st = lib_hearth_chat_render(chat, &message, 1, given, &text, &n, err);
    CHECK((text != NULL) == (st == HEARTH_OK));
    lib_hearth_free(text);
    return st;
}

static hearth_status by_request(const void *given, hearth_error *err)
{
    uint64_t id = 1;
    hearth_status st = lib_hearth_scheduler_add(scheduler, given, &id, err);
    CHECK((id != 0) == (st == HEARTH_OK));
    return st;
}

static const int32_t one_token[] = {1};

static hearth_status generate_in_new_session(const void *options, void *usage, hearth_error *err)
{
    hearth_session *s = NULL;
    hearth_status st = lib_hearth_session_open(model, &(hearth_session_options){.n_ctx = 16, .n_thread = 1}, &s, err);
    if (st == HEARTH_OK) st = lib_hearth_generate(s, options, usage, err);
    lib_hearth_session_close(s);
    return st;
}

static hearth_status by_generate_options(const void *given, hearth_error *err)
{
    return generate_in_new_session(given, NULL, err);
}

/* Values with which each function succeeds; `size` comes first. */
static const hearth_model_options model_options = {.n_thread = 1};
static const hearth_chat_options chat_options = {.add_generation_prompt = true};
static const hearth_answer_options answer_options = {.fn = ignore_text};
static const hearth_session_options session_options = {.n_ctx = 16, .n_thread = 1};
static const hearth_embedder_options embedder_options = {.n_ctx = 16, .n_thread = 1, .n_batch = 4};
static const hearth_sampler_options sampler_options = {.temperature = 0.7f};
static const hearth_constraint_options constraint_options = {0};
static const hearth_scheduler_options scheduler_options = {.n_ctx = 16, .n_thread = 1};
static const hearth_generate_options generate_options = {.tokens = one_token, .n_token = 1, .max_token = 1};
static const hearth_request request = {.tokens = one_token, .n_token = 1, .fn = ignore_event};

static const struct taken {
    const char *name;
    const void *values;
    size_t size;
    hearth_status (*call)(const void *given, hearth_error *err);
} all_taken[] = {
    {"hearth_model_options", &model_options, sizeof model_options, by_model_options},
    {"hearth_chat_options", &chat_options, sizeof chat_options, by_chat_options},
    {"hearth_answer_options", &answer_options, sizeof answer_options, by_answer_options},
    {"hearth_session_options", &session_options, sizeof session_options, by_session_options},
    {"hearth_embedder_options", &embedder_options, sizeof embedder_options, by_embedder_options},
    {"hearth_sampler_options", &sampler_options, sizeof sampler_options, by_sampler_options},
    {"hearth_constraint_options", &constraint_options, sizeof constraint_options, by_constraint_options},
    {"hearth_scheduler_options", &scheduler_options, sizeof scheduler_options, by_scheduler_options},
    {"hearth_generate_options", &generate_options, sizeof generate_options, by_generate_options},
    {"hearth_request", &request, sizeof request, by_request}};
enum { N_TAKEN = sizeof all_taken / sizeof *all_taken };

/* Calls with n bytes in memory of exactly that size, of which the struct says `size`; the last one is `last`. */
static hearth_status call_with(const struct taken *t, size_t n, size_t size, uint8_t last, hearth_error *why)
{
    FREED uint8_t *bytes = exactly(t->values, t->size, n);
    memcpy(bytes, &size, sizeof size);
    if (n > t->size) bytes[n - 1] = last;
    *why = (hearth_error){0};
    return t->call(bytes, why);
}

TEST(options_of_older_and_newer_programs_are_taken)
{
    hearth_error why;
    if (!open_all()) return;
    for (int i = 0; i < N_TAKEN; i++) {
        const struct taken *t = &all_taken[i];
        const size_t more[] = {t->size + 1, t->size + 8, 1000, MOST};
        CHECK_INT(call_with(t, t->size, 0, 0, &why), HEARTH_OK);
        CHECK_INT(call_with(t, t->size, t->size, 0, &why), HEARTH_OK);
        for (int k = 0; k < 4; k++) CHECK_INT(call_with(t, more[k], more[k], 0, &why), HEARTH_OK);
        if (test_n_failed() > 0) test_fail(__FILE__, __LINE__, "%s", t->name);
    }
    close_all();
}

static void expect_refusal(const struct taken *t, hearth_status st, const hearth_error *why)
{
    if (!CHECK_INT(st, HEARTH_ERROR_ARGUMENT) || !CHECK_INT(why->status, st) ||
        !CHECK(strncmp(why->message, t->name, strlen(t->name)) == 0 && strstr(why->message, ".size is ")))
        test_fail(__FILE__, __LINE__, "%s: \"%s\"", t->name, why->message);
}

TEST(options_that_no_version_has_are_refused_by_name)
{
    hearth_error why;
    if (!open_all()) return;
    for (int i = 0; i < N_TAKEN; i++) {
        const struct taken *t = &all_taken[i];
        const size_t less[] = {1, sizeof(size_t), t->size - 1}, more[] = {t->size + 1, t->size + 8, MOST};
        for (int k = 0; k < 3; k++) {
            expect_refusal(t, call_with(t, t->size, less[k], 0, &why), &why);
            expect_refusal(t, call_with(t, more[k], more[k], 1, &why), &why);
        }
        expect_refusal(t, call_with(t, t->size, MOST + 1, 0, &why), &why); /* bytes that are not there */
        expect_refusal(t, call_with(t, t->size, SIZE_MAX, 0, &why), &why);
    }
    close_all();
}

/* ---- results ----------------------------------------------------------------------------------------------- */

static bool get_info(void *to) { return lib_hearth_model_get_info(model, to) == HEARTH_OK; }
/* The tiny model is in memory: a size that is taken is told by what is written. */
static bool get_storage(void *to)
{
    uint8_t first;
    memcpy(&first, (char *)to + sizeof(size_t), 1);
    (void)lib_hearth_model_get_storage(model, to);
    return first != ((uint8_t *)to)[sizeof(size_t)];
}
static bool get_experts(void *to)
{
    uint8_t first;
    memcpy(&first, (char *)to + sizeof(size_t), 1);
    (void)lib_hearth_model_get_expert_stats(model, to);
    return first != ((uint8_t *)to)[sizeof(size_t)];
}
static bool get_stats(void *to) { return lib_hearth_scheduler_get_stats(scheduler, to) == HEARTH_OK; }
static bool get_progress(void *to) { return lib_hearth_scheduler_get_progress(scheduler, request_id, to); }

static bool get_usage(void *to)
{
    hearth_error why;
    return generate_in_new_session(&generate_options, to, &why) == HEARTH_OK;
}
static bool get_metadata(void *to) { return lib_hearth_model_get_metadata(model, 0, to) == HEARTH_OK; }
static bool get_token(void *to) { return lib_hearth_model_get_token(model, 5, to) == HEARTH_OK; }
/* There may be none: a size that is taken is told by what is written. */
static bool get_device(void *to)
{
    hearth_devices *devices = NULL;
    uint8_t first;
    CHECK_OK(lib_hearth_devices_open(&devices, err));
    memcpy(&first, (char *)to + sizeof(size_t), 1);
    (void)lib_hearth_devices_get(devices, SIZE_MAX, to);
    lib_hearth_devices_close(devices);
    return first != ((uint8_t *)to)[sizeof(size_t)];
}

static const struct filled {
    const char *name;
    size_t size;
    bool (*get)(void *to);
} all_filled[] = {{"hearth_model_info", sizeof(hearth_model_info), get_info},
                  {"hearth_metadata", sizeof(hearth_metadata), get_metadata},
                  {"hearth_token_info", sizeof(hearth_token_info), get_token},
                  {"hearth_device_info", sizeof(hearth_device_info), get_device},
                  {"hearth_usage", sizeof(hearth_usage), get_usage},
                  {"hearth_storage_stats", sizeof(hearth_storage_stats), get_storage},
                  {"hearth_expert_stats", sizeof(hearth_expert_stats), get_experts},
                  {"hearth_scheduler_stats", sizeof(hearth_scheduler_stats), get_stats},
                  {"hearth_request_progress", sizeof(hearth_request_progress), get_progress}};

/* A result of n bytes that says `size`: what is written of it, or 0. All bytes are 0xA5 before. */
static size_t written(const struct filled *f, size_t n, size_t size, bool *tail_is_zero)
{
    FREED uint8_t *bytes = malloc(n);
    memset(bytes, 0xA5, n);
    memcpy(bytes, &size, sizeof size);
    bool is_taken = f->get(bytes);
    size_t end = n;
    while (end > sizeof size && bytes[end - 1] == 0xA5) end--;
    CHECK(memcmp(bytes, &size, sizeof size) == 0);
    CHECK(is_taken == (end > sizeof size));
    *tail_is_zero = true;
    for (size_t i = f->size; i < end; i++) *tail_is_zero = *tail_is_zero && bytes[i] == 0;
    return end > sizeof size ? end : 0;
}

TEST(results_are_written_as_far_as_the_program_says)
{
    bool zero;
    if (!open_all()) return;
    for (size_t i = 0; i < sizeof all_filled / sizeof *all_filled; i++) {
        const struct filled *f = &all_filled[i];
        CHECK_INT(written(f, f->size + 100, 0, &zero), f->size);
        CHECK_INT(written(f, f->size, f->size, &zero), f->size);
        CHECK_INT(written(f, f->size + 100, f->size + 8, &zero), f->size + 8);
        CHECK(zero);
        CHECK_INT(written(f, MOST, MOST, &zero), MOST);
        CHECK(zero);
        CHECK_INT(written(f, f->size, f->size - 1, &zero), 0);
        CHECK_INT(written(f, f->size, 1, &zero), 0);
        CHECK_INT(written(f, f->size, MOST + 1, &zero), 0);
        CHECK_INT(written(f, f->size, SIZE_MAX, &zero), 0);
        if (test_n_failed() > 0) test_fail(__FILE__, __LINE__, "%s", f->name);
    }
    close_all();
}

TEST(every_struct_with_a_size_is_tried)
{
#define TRY(T, first, last)                                                                                  \
    {                                                                                                        \
        bool found = false;                                                                                  \
        for (int i = 0; i < N_TAKEN; i++) found = found || strcmp(all_taken[i].name, #T) == 0;               \
        for (size_t i = 0; i < sizeof all_filled / sizeof *all_filled; i++)                                  \
            found = found || strcmp(all_filled[i].name, #T) == 0;                                            \
        if (!found) test_fail(__FILE__, __LINE__, "%s is in no list", #T);                                   \
    }
    HTH_FOR_EACH_SIZED_STRUCT(TRY)
}
