/* Masks of vocabularies: that of each state has the tokens whose bytes can follow, however it is computed; ends of
 * generation; vocabularies that lack bytes; copies; the sampler behind a mask. */
#include "constrain/token_trie.h"
#include "support/test.h"
#include "support/texts.h"

#include <pthread.h>

TEST_CLOSED(hth_token_trie)

/* A made-up vocabulary: bytes, words, runs of characters that JSON strings may hold, pieces of JSON, halves of
 * characters; id 0 ends. */
enum { N_VOCAB = 4000, MAX_PIECE = 48 };
static char made_bytes[N_VOCAB][MAX_PIECE];
static hth_str made[N_VOCAB];

static void make_vocabulary(uint64_t seed)
{
    static const char *const parts[] = {"a",
                                        "b",
                                        "true",
                                        "null",
                                        " ",
                                        "\"",
                                        "\",",
                                        "\": ",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "1",
                                        "0.5",
                                        "e",
                                        "-",
                                        "\\",
                                        "\\n",
                                        "\n",
                                        "\xC3\xA9",
                                        "\xE2\x82\xAC",
                                        "\xF0\x9F\x98\x80",
                                        "\xC3",
                                        "\x98",
                                        "\x80",
                                        "the",
                                        "x\"y",
                                        "id",
                                        "name",
                                        "\x7F",
                                        "\x01"};
    test_random r = {seed};
    made[0] = (hth_str){"", 0};
    for (int i = 1; i < N_VOCAB; i++) {
        size_t n = 0;
        if (i <= 256) made_bytes[i][n++] = (char)(i - 1);
        else
            for (uint32_t k = 1 + test_random_below(&r, 5); k > 0 && n < MAX_PIECE - 8; k--) {
                const char *part = parts[test_random_below(&r, sizeof parts / sizeof *parts)];
                memcpy(made_bytes[i] + n, part, strlen(part));
                n += strlen(part);
            }
        if (i == 300) n = (size_t)snprintf(made_bytes[i], MAX_PIECE, "%040d", 0); /* longer than plain ones */
        made[i] = (hth_str){made_bytes[i], n};
    }
}

static bool follows(const hearth_constraint *c, hth_str piece)
{
    hearth_constraint *copy = NULL;
    CHECK_OK(hearth_constraint_copy(c, &copy, err));
    bool ok = hth_constraint_accept_bytes(copy, piece.bytes, piece.n);
    hearth_constraint_close(copy);
    return ok;
}

/* A random text of the constraint, of which every mask is compared with what copies take. */
static void walk(const hth_token_trie *trie, const hearth_constraint_options *o, test_random *r, int n_step)
{
    static float logits[N_VOCAB];
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, o, NULL);
    for (int step = 0; c && step < n_step && hearth_constraint_get_end(c) != HEARTH_CONSTRAINT_COMPLETE; step++) {
        for (int i = 0; i < N_VOCAB; i++) logits[i] = 1.0f;
        CHECK_OK(hearth_constraint_mask(c, logits, err));
        int32_t n = 0, chosen = -1;
        for (int32_t i = 0; i < N_VOCAB; i++) {
            bool expected =
                i == 0 ? hearth_constraint_get_end(c) != HEARTH_CONSTRAINT_INCOMPLETE : follows(c, made[i]);
            bool allowed = logits[i] == 1.0f;
            if (allowed != expected || (!allowed && logits[i] != -INFINITY))
                test_fail(__FILE__, __LINE__, "%s: step %d token %d '%.*s': %d", o->text, step, i,
                          (int)made[i].n, made[i].bytes, allowed);
            if (allowed && i > 0 && test_random_below(r, (uint32_t)++n) == 0) chosen = i;
        }
        if (chosen < 0) break;
        CHECK_OK(hearth_constraint_accept(c, chosen, err));
        CHECK_INT(hearth_constraint_accept(c, 0, NULL) == HEARTH_OK &&
                      hearth_constraint_get_end(c) == HEARTH_CONSTRAINT_INCOMPLETE,
                  0);
        if (hearth_constraint_get_end(c) == HEARTH_CONSTRAINT_COMPLETE) break;
    }
}

TEST(masks_are_the_tokens_that_can_follow)
{
    static const char *const schemas[] = {
        "{}",
        "{\"type\":\"string\"}",
        "{\"type\":\"string\",\"maxLength\":7}",
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}",
        "{\"properties\":{\"name\":{},\"id\":{}},\"required\":[\"id\"],\"additionalProperties\":true}",
        "{\"type\":\"string\",\"minLength\":90,\"maxLength\":150}",
        "{\"type\":\"string\",\"pattern\":\"^[^a]{0,44}[a-z ]{60,}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^((a|the){2,50}b?){40,90}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[^a]*$\"}",
        "{\"type\":\"string\",\"pattern\":\"\\u00e9.$\"}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"maxItems\":4}"};
    make_vocabulary(7);
    CLOSED(hth_token_trie) *trie = OPENED_BY(hth_token_trie_open_pieces, hth_token_trie, made, N_VOCAB);
    test_random r = {20261127};
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        for (int k = 0; k < (test_is_long() ? 40 : 4); k++) {
            hearth_constraint_options o = {
                .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = schemas[i], .n = strlen(schemas[i])};
            walk(trie, &o, &r, 40);
        }
    static const char gbnf[] = "root ::= ([^\"\\\\]* \"\\n\")* | .* \"!\"";
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_GRAMMAR, .text = gbnf, .n = strlen(gbnf)};
    walk(trie, &o, &r, 12);
}

TEST(masks_are_kept_per_state)
{
    make_vocabulary(7);
    static float logits[N_VOCAB];
    CLOSED(hth_token_trie) *trie = OPENED_BY(hth_token_trie_open_pieces, hth_token_trie, made, N_VOCAB);
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    CHECK(hth_constraint_accept_bytes(c, "{\"", 2));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(hearth_constraint_mask(c, logits, err));
        CHECK(hth_constraint_accept_bytes(c, "x", 1));
    }
    CHECK_INT(hth_constraint_n_mask(c), 1);
}

TEST(states_far_from_the_bounds_of_a_repetition_share_a_mask)
{
    make_vocabulary(7);
    static float logits[N_VOCAB];
    static const char source[] = "{\"type\":\"string\",\"pattern\":\"^[^@]{100,300}$\"}";
    CLOSED(hth_token_trie) *trie = OPENED_BY(hth_token_trie_open_pieces, hth_token_trie, made, N_VOCAB);
    hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    CHECK(hth_constraint_accept_bytes(c, "\"", 1));
    for (int i = 0; i < 300; i++) {
        CHECK_OK(hearth_constraint_mask(c, logits, err));
        CHECK(hth_constraint_accept_bytes(c, "x", 1));
    }
    printf("     %llu masks\n", (unsigned long long)hth_constraint_n_mask(c));
    CHECK(hth_constraint_n_mask(c) < 80);
}

TEST(copies_go_their_own_way_while_tables_are_renewed)
{
    static const char source[] = "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":1000000}}";
    static float logits[257];
    CLOSED(hth_token_trie) *trie = texts_bytes_trie();
    hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    hearth_constraint *copy = NULL;
    CHECK(hth_constraint_accept_bytes(c, "[\"a", 3));
    CHECK_OK(hearth_constraint_copy(c, &copy, err));
    for (int i = 0; i < 200000; i++) /* a state for each */
        if (!CHECK(hth_constraint_accept_bytes(c, "x", 1))) break;
    CHECK(hth_constraint_accept_bytes(copy, "b\"]", 3));
    CHECK_INT(hearth_constraint_get_end(copy), HEARTH_CONSTRAINT_COMPLETE);
    CHECK(!hth_constraint_accept_bytes(copy, "x", 1));
    CHECK_OK(hearth_constraint_mask(copy, logits, err));
    CHECK(logits[256] == 0.0f && logits['x'] == -INFINITY);
    hearth_constraint_close(copy);
    CHECK(hth_constraint_accept_bytes(c, "\"]", 2));
}

/* Draws a text of its own; writes it. */
typedef struct drawing {
    hearth_constraint *c;
    uint64_t seed;
    char text[400];
    size_t n;
    bool failed;
} drawing;

static void *draw(void *arg)
{
    drawing *d = arg;
    float logits[257];
    test_random r = {d->seed};
    while (d->n < sizeof d->text && hearth_constraint_get_end(d->c) != HEARTH_CONSTRAINT_COMPLETE && !d->failed) {
        memset(logits, 0, sizeof logits);
        d->failed = hearth_constraint_mask(d->c, logits, NULL) != HEARTH_OK;
        int32_t id = (int32_t)test_random_below(&r, 256);
        while (logits[id] != 0.0f && !d->failed) id = (id + 1) % 256;
        d->failed |= hearth_constraint_accept(d->c, id, NULL) != HEARTH_OK;
        d->text[d->n++] = (char)id;
    }
    return NULL;
}

TEST(copies_on_several_threads_draw_what_they_draw_alone)
{
    enum { N = 4 };
    CLOSED(hth_token_trie) *trie = texts_bytes_trie();
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    static drawing alone[N], beside[N];
    pthread_t threads[N];
    memset(alone, 0, sizeof alone), memset(beside, 0, sizeof beside);
    for (size_t i = 0; i < N; i++) {
        alone[i].seed = beside[i].seed = i;
        CHECK_OK(hearth_constraint_copy(c, &alone[i].c, err));
        CHECK_OK(hearth_constraint_copy(c, &beside[i].c, err));
        draw(&alone[i]);
    }
    for (size_t i = 0; i < N; i++) CHECK_INT(pthread_create(&threads[i], NULL, draw, &beside[i]), 0);
    for (size_t i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!alone[i].failed && !beside[i].failed && alone[i].n > 0);
        CHECK_INT(alone[i].n, beside[i].n);
        CHECK_BYTES(alone[i].text, beside[i].text, alone[i].n);
        hearth_constraint_close(alone[i].c);
        hearth_constraint_close(beside[i].c);
    }
}

TEST(ends_of_generation_are_possible_where_a_text_may_end)
{
    static const char source[] = "{\"type\":\"integer\",\"maximum\":12,\"minimum\":1}";
    float logits[257] = {0};
    CLOSED(hth_token_trie) *trie = texts_bytes_trie();
    hearth_constraint_options o = {
        .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = source, .n = strlen(source)};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    CHECK_FAILS(hearth_constraint_accept(c, 256, err), HEARTH_ERROR_ARGUMENT, "token 256 cannot follow");
    CHECK_FAILS(hearth_constraint_accept(c, 257, err), HEARTH_ERROR_ARGUMENT, "not in the vocabulary");
    CHECK_OK(hearth_constraint_mask(c, logits, err));
    CHECK(logits[256] == -INFINITY && logits['1'] == 0.0f);
    CHECK_OK(hearth_constraint_accept(c, '1', err));
    CHECK_INT(hearth_constraint_get_end(c), HEARTH_CONSTRAINT_ACCEPTING);
    memset(logits, 0, sizeof logits);
    CHECK_OK(hearth_constraint_mask(c, logits, err));
    CHECK(logits[256] == 0.0f && logits['2'] == 0.0f && logits['3'] == -INFINITY);
    CHECK_OK(hearth_constraint_accept(c, 256, err));
    CHECK_INT(hearth_constraint_get_end(c), HEARTH_CONSTRAINT_COMPLETE);
    CHECK_FAILS(hearth_constraint_mask(c, logits, err), HEARTH_ERROR_ARGUMENT, "has ended");
    CHECK_FAILS(hearth_constraint_accept(c, '1', err), HEARTH_ERROR_ARGUMENT, "cannot follow");
}

TEST(a_vocabulary_that_lacks_bytes_is_a_clear_error)
{
    const hth_str pieces[] = {{"{", 1}, {"a", 1}};
    float logits[2] = {0};
    CLOSED(hth_token_trie) *trie = OPENED_BY(hth_token_trie_open_pieces, hth_token_trie, pieces, 2);
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT};
    CLOSED(hearth_constraint) *c = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    CHECK_OK(hearth_constraint_accept(c, 0, err));
    CHECK_FAILS(hearth_constraint_mask(c, logits, err), HEARTH_ERROR_UNSUPPORTED,
                "no token with which the constrained text can go on");
    static const char *const choices[] = {"a"};
    o = (hearth_constraint_options){.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 1};
    CLOSED(hearth_constraint) *d = OPENED_BY(hth_constraint_open, hearth_constraint, trie, &o, NULL);
    CHECK_OK(hearth_constraint_accept(d, 1, err));
    CHECK_FAILS(hearth_constraint_mask(d, logits, err), HEARTH_ERROR_UNSUPPORTED, "must end here");
}

TEST(the_sampler_draws_no_masked_token)
{
    CLOSED(hearth_model) *model =
        OPENED(hearth_model, HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf", NULL);
    hearth_model_info info = test_model_info(model);
    FREED float *logits = malloc(info.n_vocab * sizeof *logits);
    static const char *const choices[] = {"yes", "no"};
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 2};
    for (uint64_t seed = 0; seed < 40; seed++) {
        /* penalties that raise what was seen, and a bias that would */
        const hearth_logit_bias bias = {.id = 5, .bias = 50.0f};
        hearth_sampler_options so = test_sampler_options();
        so.seed = seed;
        so.temperature = seed % 2 ? 2.0f : 0.0f;
        so.repeat_penalty = 0.1f, so.presence_penalty = -90.0f, so.repeat_last_n = -1;
        so.bias = &bias, so.n_bias = 1;
        CLOSED(hearth_sampler) *sampler = OPENED(hearth_sampler, model, &so);
        CLOSED(hearth_constraint) *c = OPENED(hearth_constraint, model, &o);
        CLOSED(hearth_detokenizer) *d = OPENED(hearth_detokenizer, model, false, false);
        char text[64] = "";
        test_random r = {seed};
        for (int32_t id = 0; id < (int32_t)info.n_vocab; id += 7) hearth_sampler_accept(sampler, id);
        for (int i = 0; c && i < 20 && hearth_constraint_get_end(c) != HEARTH_CONSTRAINT_COMPLETE; i++) {
            int32_t id = -1;
            const char *piece;
            size_t n;
            for (uint32_t k = 0; k < info.n_vocab; k++) logits[k] = 20.0f * test_random_float(&r);
            CHECK_OK(hearth_constraint_mask(c, logits, err));
            CHECK_OK(hearth_sampler_sample(sampler, logits, &id, err));
            CHECK_OK(hearth_constraint_accept(c, id, err));
            hearth_sampler_accept(sampler, id);
            CHECK_OK(hearth_detokenizer_push(d, id, &piece, &n, err));
            snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)n, piece);
        }
        CHECK(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);
    }
}
