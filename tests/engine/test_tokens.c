/* A token's text, bytes, score and attributes, tokens by their texts, and tokens with a purpose. */
#include "support/models/tiny_model.h"
#include "support/models/vocab_file.h"
#include "support/test.h"

static vocab_file f;

static bool begin(void)
{
    f = (vocab_file){0};
    return true;
}
static void end(void) { vocab_file_free(&f); }
__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = begin, test_after_each = end;
}

static hearth_model *open_vocabulary(void)
{
    hth_gguf *file = NULL;
    hth_tokenizer *tok = NULL;
    CHECK_OK(vocab_file_open(&f, &file, &tok, err)); /* makes the bytes */
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    return OPENED_BY(hearth_model_open_memory, hearth_model, f.bytes, f.n_byte, "vocab.gguf",
                     &(hearth_model_options){.vocab_only = true});
}

static void check_token(const hearth_model *m, int32_t id, const char *text, const char *bytes, float score,
                        unsigned attributes)
{
    hearth_token_info t = {.size = sizeof t};
    CHECK_INT(hearth_model_get_token(m, id, &t), HEARTH_OK);
    if (CHECK_INT(t.n_text, strlen(text))) CHECK_BYTES(t.text, text, t.n_text);
    if (CHECK_INT(t.n_bytes, strlen(bytes))) CHECK_BYTES(t.bytes, bytes, t.n_bytes);
    CHECK(t.score == score);
    CHECK_INT(t.attributes, attributes);
}

TEST(tokens_have_texts_bytes_scores_and_attributes)
{
    vocab_file_begin(&f, true);
    vocab_file_add_word(&f,
                        "\xe2\x96\x81"
                        "a",
                        -1.5f);
    vocab_file_add(&f, "<tool>", 6, 0, HTH_TOKEN_USER);
    vocab_file_add(&f, "old", 3, 3.0f, HTH_TOKEN_UNUSED);
    vocab_file_add(&f, "<|im_end|>", 10, 0, HTH_TOKEN_CONTROL);
    CLOSED(hearth_model) *m = open_vocabulary();
    if (!m) return;
    check_token(m, 0, "<unk>", "<unk>", 0, HEARTH_TOKEN_UNKNOWN);
    check_token(m, 1, "<s>", "<s>", 0, HEARTH_TOKEN_CONTROL);
    check_token(m, 2, "</s>", "</s>", 0, HEARTH_TOKEN_CONTROL | HEARTH_TOKEN_END);
    check_token(m, 3 + 'A', "<0x41>", "A", 0, HEARTH_TOKEN_BYTE);
    check_token(m, 259,
                "\xe2\x96\x81"
                "a",
                " a", -1.5f, HEARTH_TOKEN_NORMAL);
    check_token(m, 260, "<tool>", "<tool>", 0, HEARTH_TOKEN_USER_DEFINED);
    check_token(m, 261, "old", "old", 3.0f, HEARTH_TOKEN_UNUSED);
    check_token(m, 262, "<|im_end|>", "<|im_end|>", 0, HEARTH_TOKEN_CONTROL | HEARTH_TOKEN_END);
}

TEST(byte_level_tokens_have_bytes)
{
    vocab_file_begin_bpe(&f);
    vocab_file_add_merge(&f, " a", 2, 1);
    CLOSED(hearth_model) *m = open_vocabulary();
    if (!m) return;
    check_token(m, 257,
                "\xc4\xa0"
                "a",
                " a", 0, HEARTH_TOKEN_NORMAL);
    CHECK_INT(hearth_token_find(m,
                                "\xc4\xa0"
                                "a",
                                3),
              257);
    CHECK_INT(hearth_token_find(m, " a", 2), -1);
    check_token(m, hearth_token_special(m, HEARTH_SPECIAL_NEWLINE), "\xc4\x8a", "\n", 0, HEARTH_TOKEN_NORMAL);
}

/* Rows of the model behind the vocabulary. */
TEST(padding_is_told)
{
    tiny_model t = tiny_new();
    tiny_find(&t, "token_embd.weight")->dim[1] = TINY_VOCAB + 3;
    tiny_find(&t, "output.weight")->dim[1] = TINY_VOCAB + 3;
    CLEANUP(gguf_free) gguf_bytes b = tiny_take(&t);
    for (int i = 0; i < 2; i++) {
        const hearth_model_options o = {.vocab_only = i == 1};
        CLOSED(hearth_model) *m =
            OPENED_BY(hearth_model_open_memory, hearth_model, b.data, b.n, "tiny.gguf", &o);
        hearth_token_info info = {.size = sizeof info, .score = 5};
        if (!m) continue;
        CHECK_INT(hearth_model_n_vocab(m), TINY_VOCAB + 3);
        check_token(m, TINY_VOCAB - 1, "abc", "abc", -8.0f, HEARTH_TOKEN_NORMAL);
        check_token(m, TINY_VOCAB, "", "", 0, HEARTH_TOKEN_PADDING);
        check_token(m, TINY_VOCAB + 2, "", "", 0, HEARTH_TOKEN_PADDING);
        CHECK_INT(hearth_model_get_token(m, TINY_VOCAB + 3, &info), HEARTH_ERROR_ARGUMENT);
        CHECK(!info.text && info.n_text == 0 && info.score == 0 && info.attributes == 0);
        CHECK_INT(hearth_model_get_token(m, -1, &info), HEARTH_ERROR_ARGUMENT);
        CHECK_INT(hearth_token_find(m, "", 0), -1);
    }
}

TEST(tokens_are_found_by_their_whole_texts)
{
    vocab_file_begin(&f, true);
    vocab_file_add_word(&f, "ab", -1);
    vocab_file_add_word(&f, "a\0b", -2);
    vocab_file_add(&f, "a\0b", 3, -3, HTH_TOKEN_NORMAL);
    vocab_file_add_word(&f, "ab", -4);
    CLOSED(hearth_model) *m = open_vocabulary();
    if (!m) return;
    CHECK_INT(hearth_token_find(m, "<unk>", 5), 0);
    CHECK_INT(hearth_token_find(m, "</s>", 4), 2);
    CHECK_INT(hearth_token_find(m, "<0x0A>", 6), 3 + 10);
    CHECK_INT(hearth_token_find(m, "ab", 2), 259); /* the first of two */
    CHECK_INT(hearth_token_find(m, "a\0b", 3), 261);
    CHECK_INT(hearth_token_find(m, "a", 1), 260);
    CHECK_INT(hearth_token_find(m, "abc", 3), -1);
    CHECK_INT(hearth_token_find(m, "", 0), -1);
}

/* ---- tokens with a purpose ------------------------------------------------------------------------------- */

enum { LAST = HEARTH_SPECIAL_FIM_FILE, N_KIND = LAST + 1 };

/* expected[N_KIND]: by hearth_special_token. */
static void check_special(const hearth_model *m, const int32_t *expected)
{
    for (int i = 0; i < N_KIND; i++)
        if (hearth_token_special(m, (hearth_special_token)i) != expected[i])
            test_fail(__FILE__, __LINE__, "special token %d is %d, not %d", i,
                      hearth_token_special(m, (hearth_special_token)i), expected[i]);
    CHECK_INT(hearth_token_bos(m), expected[HEARTH_SPECIAL_BOS]);
    CHECK_INT(hearth_token_eos(m), expected[HEARTH_SPECIAL_EOS]);
}

TEST(what_a_vocabulary_lacks_is_none)
{
    vocab_file_begin(&f, true);
    CLOSED(hearth_model) *m = open_vocabulary();
    const int32_t expected[N_KIND] = {1, 2, -1, -1, 0, -1, -1, -1, -1, 3 + 10, -1, -1, -1, -1, -1, -1};
    if (m) check_special(m, expected);
    CHECK_INT(hearth_token_special(m, (hearth_special_token)N_KIND), -1);
    CHECK_INT(hearth_token_special(m, (hearth_special_token)-1), -1);
}

TEST(keys_name_tokens)
{
    static const struct {
        const char *key;
        hearth_special_token kind;
    } keys[] = {{"bos", HEARTH_SPECIAL_BOS},
                {"eos", HEARTH_SPECIAL_EOS},
                {"eot", HEARTH_SPECIAL_EOT},
                {"eom", HEARTH_SPECIAL_EOM},
                {"unknown", HEARTH_SPECIAL_UNKNOWN},
                {"seperator", HEARTH_SPECIAL_SEPARATOR},
                {"cls", HEARTH_SPECIAL_CLASS},
                {"padding", HEARTH_SPECIAL_PADDING},
                {"mask", HEARTH_SPECIAL_MASK},
                {"fim_pre", HEARTH_SPECIAL_FIM_PREFIX},
                {"fim_suf", HEARTH_SPECIAL_FIM_SUFFIX},
                {"fim_mid", HEARTH_SPECIAL_FIM_MIDDLE},
                {"fim_pad", HEARTH_SPECIAL_FIM_PADDING},
                {"fim_rep", HEARTH_SPECIAL_FIM_REPOSITORY},
                {"fim_sep", HEARTH_SPECIAL_FIM_FILE}};
    enum { N_KEY = sizeof keys / sizeof *keys, FIRST = 20 };
    int32_t expected[N_KIND];
    expected[HEARTH_SPECIAL_NEWLINE] = 3 + 10;
    vocab_file_begin(&f, true);
    for (uint32_t i = 0; i < N_KEY; i++) {
        char key[60];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i].key);
        vocab_file_put_u32(&f, key, FIRST + i);
        expected[keys[i].kind] = (int32_t)(FIRST + i);
    }
    CLOSED(hearth_model) *m = open_vocabulary();
    if (m) check_special(m, expected);
    vocab_file_free(&f);
    f = (vocab_file){0};
    vocab_file_begin(&f, true);
    vocab_file_put_u32(&f, "tokenizer.ggml.prefix_token_id", 30); /* the older names */
    vocab_file_put_u32(&f, "tokenizer.ggml.suffix_token_id", 31);
    vocab_file_put_u32(&f, "tokenizer.ggml.middle_token_id", 32);
    CLOSED(hearth_model) *older = open_vocabulary();
    CHECK_INT(hearth_token_special(older, HEARTH_SPECIAL_FIM_PREFIX), 30);
    CHECK_INT(hearth_token_special(older, HEARTH_SPECIAL_FIM_SUFFIX), 31);
    CHECK_INT(hearth_token_special(older, HEARTH_SPECIAL_FIM_MIDDLE), 32);
}

TEST(texts_name_tokens_where_no_key_does)
{
    static const char *const texts[] = {"<|endoftext|>",  "<|im_end|>",    "<|eom_id|>",
                                        "<|fim_prefix|>", "<fim_suffix>",  "<|fim_middle|>",
                                        "<|fim_pad|>",    "<|repo_name|>", "<|file_sep|>"};
    vocab_file_begin(&f, true);
    for (size_t i = 0; i < 9; i++) vocab_file_add(&f, texts[i], strlen(texts[i]), 0, HTH_TOKEN_CONTROL);
    CLOSED(hearth_model) *m = open_vocabulary();
    /* Of two that may end a turn, it is the one of chats. */
    const int32_t expected[N_KIND] = {1,  2,      260, 261, 0,   -1,  -1,  -1,
                                      -1, 3 + 10, 262, 263, 264, 265, 266, 267};
    if (m) check_special(m, expected);
}
