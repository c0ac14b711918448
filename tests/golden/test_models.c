/* Trained models: greedy texts and ids of references that share no code with this. */
#include "support/engine.h"
#include "support/models/json_lines.h"
#include "support/test.h"

enum { N_GREEDY = 200 };

static const engine_setting plain = {.n_thread = 2, .n_batch = 64, .kv = HEARTH_KV_F32};

static hearth_model *open_model(const char *relative)
{
    hearth_model *model = NULL;
    const char *path = test_data(relative);
    if (path) CHECK_OK(hearth_model_open(path, NULL, &model, err));
    return model;
}

/* ---- texts -------------------------------------------------------------------------------- */

/* The tokens as a text that they begin; freed with free. */
static char *decode(const hearth_model *model, const int32_t *ids, size_t n, size_t *n_text)
{
    const char *piece;
    size_t n_chunk;
    char *text = calloc(64 * n + 64, 1);
    *n_text = 0;
    CLOSED(hearth_detokenizer) *d = OPENED(hearth_detokenizer, model, true, false);
    for (size_t i = 0; d && i < n; i++) {
        CHECK_OK(hearth_detokenizer_push(d, ids[i], &piece, &n_chunk, err));
        memcpy(text + *n_text, piece, n_chunk);
        *n_text += n_chunk;
    }
    return text;
}

/* "Once upon a time" and as many greedy tokens as make 200 after BOS. */
static void check_text(const char *file, const char *golden)
{
    static const char prompt[] = "Once upon a time";
    CLOSED(hearth_model) *model = open_model(file);
    const char *path = test_data(golden);
    int32_t *prompt_ids = NULL, ids[N_GREEDY + 1];
    size_t n_prompt = 0, n_text, n_expected;
    if (model && path) {
        CHECK_OK(hearth_tokenize(model, prompt, strlen(prompt), HEARTH_ADD_SPECIAL, &prompt_ids, &n_prompt, err));
        if (CHECK(n_prompt > 1 && n_prompt <= N_GREEDY)) {
            memcpy(ids, prompt_ids, n_prompt * sizeof *ids);
            engine_greedy(model, &plain, prompt_ids, n_prompt, ids + n_prompt, N_GREEDY + 1 - n_prompt);
            char *text = decode(model, ids, N_GREEDY + 1, &n_text), *expected = test_read_file(path, &n_expected);
            text[n_text++] = '\n';
            if (CHECK_INT(n_text, n_expected)) CHECK_BYTES(text, expected, n_text);
            free(text);
            free(expected);
        }
    }
    hearth_free(prompt_ids);
}

TEST(stories260K_tells_the_golden_text)
{
    check_text("models/stories260K/stories260K-f32.gguf", "golden/greedy-stories260K.txt");
}

TEST(babyllama_tells_the_golden_text)
{
    check_text("models/babyllama-tok361/babyllama-tok361-f32.gguf", "golden/greedy-babyllama-tok361.txt");
}

/* ---- storyteller -------------------------------------------------------------------------- */

/* Largest difference to an array of JSON numbers, over the largest of them. */
static double distance_to(const char *numbers, const float *x, size_t n)
{
    FREED float *expected = malloc(n * sizeof *expected);
    char *at = (char *)(uintptr_t)numbers + 1;
    for (size_t i = 0; i < n; i++) {
        expected[i] = strtof(at, &at);
        at += *at == ',';
    }
    double error = engine_max_error(x, expected, n);
    return error;
}

static void check_story(const hearth_model *model, const char *object)
{
    size_t n_prompt, n_ids, n_text, n = 0;
    hearth_model_info info = test_model_info(model);
    int32_t *tokens = NULL, ours[N_GREEDY];
    FREED int32_t *prompt = json_ints(json_field(object, "prompt_ids"), &n_prompt, NULL);
    FREED int32_t *expected = json_ints(json_field(object, "ids"), &n_ids, NULL);
    FREED char *text = json_text_of(json_field(object, "prompt"), &n_text);
    if (CHECK_INT(n_ids, n_prompt + N_GREEDY)) {
        CHECK_OK(hearth_tokenize(model, text, n_text, HEARTH_ADD_SPECIAL, &tokens, &n, err));
        if (CHECK_INT(n, n_prompt)) CHECK_BYTES(tokens, prompt, n * sizeof *prompt);
        float *last = engine_last_logits(model, &plain, prompt, n_prompt);
        double error = last ? distance_to(json_field(object, "prompt_last_logits"), last, info.n_vocab) : 1.0;
        printf("     \"%s\": %.2e\n", text, error);
        CHECK(error <= 1e-4);
        free(last);
        if (engine_greedy(model, &plain, prompt, n_prompt, ours, N_GREEDY))
            CHECK_BYTES(ours, expected + n_prompt, sizeof ours);
    }
    hearth_free(tokens);
}

/* Behind the object that begins at its opening brace. */
static char *end_of_object(char *p)
{
    int depth = 0;
    for (bool quoted = false; *p; p++) {
        if (*p == '\\') p++;
        else if (*p == '"') quoted = !quoted;
        else if (!quoted) depth += (*p == '{') - (*p == '}');
        if (depth == 0) return p + 1;
    }
    return p;
}

TEST(storyteller_tells_the_five_golden_stories)
{
    CLOSED(hearth_model) *model = open_model("models/storyteller-drelu/storyteller-drelu-f32.gguf");
    const char *path = test_data("models/storyteller-drelu/golden.json");
    FREED char *json = path ? test_read_file(path, NULL) : NULL;
    int n = 1;
    if (model && json) {
        check_story(model, json);
        const char *more = json_field(json, "more");
        for (char *at = (char *)(uintptr_t)more + 1; *at == '{'; n++) {
            char *end = end_of_object(at), after = *end;
            *end = '\0';
            check_story(model, at);
            *end = after;
            at = end + strspn(end, ", ");
        }
        CHECK_INT(n, 5);
    }
}

TEST(storyteller_ids_are_the_same_on_every_level)
{
    const char *levels[ENGINE_MAX_LEVELS], *path = test_data("models/storyteller-drelu/storyteller-drelu-f32.gguf");
    static const int32_t prompt[] = {1, 421, 434, 261, 399};
    int32_t first[24], ours[24];
    size_t n_level = path ? engine_levels(levels) : 0;
    for (size_t l = 0; l < n_level; l++) {
        engine_set_cpu(levels[l]);
        CLOSED(hearth_model) *model = OPENED(hearth_model, path, NULL);
        engine_set_cpu(NULL);
        engine_setting s = {.n_thread = 2, .n_batch = 4, .kv = HEARTH_KV_F16};
        if (model && engine_greedy(model, &s, prompt, 5, l ? ours : first, 24) && l) CHECK_BYTES(ours, first, sizeof ours);
    }
}
