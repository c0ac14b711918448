/* text/vocab.c, text/vocab_special.c: what a vocabulary may say, what is refused with
 * which words, and what happens when memory runs out. */
#include "base/alloc.h"
#include "support/models/vocab_case.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

/* ---- opening ---------------------------------------------------------------------------- */

/* A valid small vocabulary, in which a case makes one thing wrong. */
bool vocab_begin(void)
{
    vocab_file_begin(&f, true);
    vocab_file_add_word(&f, "\xE2\x96\x81", -1.0f);
    vocab_file_add_word(&f, "a", -2.0f);
    vocab_file_add_word(&f, "b", -3.0f);
    vocab_file_add_word(&f, "ab", -4.0f);
    return true;
}

static void expect_warning(const char *part)
{
    vocab_expect_warning(part);
    vocab_again();
}

static void refuse(const char *part, const char *part_2) { vocab_expect_refused(HEARTH_ERROR_FORMAT, part, part_2); }

enum { SPACE = 259, A, B, AB };

TEST(a_small_vocabulary_works)
{
    if (vocab_open()) {
        CHECK_TEXT(warnings, "");
        CHECK_INT(hth_tokenizer_n_vocab(tok), 263);
        CHECK(hth_tokenizer_pretok_name(tok, NULL, 0) == NULL);
        CHECK_INT(hth_tokenizer_kind(tok, 1), HTH_TOKEN_CONTROL);
        CHECK_BYTES(hth_tokenizer_entry(tok, AB).bytes, "ab", 2);
        CHECK_INT(hth_tokenizer_bos(tok), 1);
        CHECK_INT(hth_tokenizer_eos(tok), 2);
        CHECK(hth_tokenizer_is_eog(tok, 2) && !hth_tokenizer_is_eog(tok, 1));
        CHECK(!hth_tokenizer_is_eog(tok, -1) && !hth_tokenizer_is_eog(tok, 263));
        IDS("ab ba", 0, SPACE, AB, SPACE, B, A);
        IDS("x<s>", 0, SPACE, 3 + 'x', 3 + '<', 3 + 's', 3 + '>');
        IDS("a<s>b", HEARTH_PARSE_SPECIAL, SPACE, A, 1, SPACE, B);
        IDS("", HEARTH_ADD_SPECIAL, 1);
        IDS("<0x41>", 0, SPACE, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>');
    }
}

/* ---- kind, texts, scores, types ----------------------------------------------------------- */

TEST(tokenizer_kinds_are_refused_by_name)
{
    vocab_file_put_text(&f, "tokenizer.ggml.model", "rwkv");
    vocab_expect_refused(HEARTH_ERROR_UNSUPPORTED, "tokenizer.ggml.model is \"rwkv\"",
                         "kinds \"llama\", \"gpt2\", \"t5\", \"bert\", \"gemma4\" and \"whitespace\"");
    f.without = "tokenizer.ggml.model";
    refuse("vocab.gguf", "tokenizer.ggml.model");
    vocab_file_put_u32(&f, "tokenizer.ggml.model", 1);
    refuse("vocab.gguf", "tokenizer.ggml.model");
}

/* An array of n equal elements instead of a key. */
static void put_array(const char *key, hth_gguf_type type, uint64_t n, const void *element,
                      size_t n_element)
{
    const uint32_t word = (uint32_t)type;
    FREED char *bytes = malloc(12 + n * n_element);
    memcpy(bytes, &word, 4);
    memcpy(bytes + 4, &n, 8);
    for (size_t i = 0; i < n; i++) memcpy(bytes + 12 + i * n_element, element, n_element);
    vocab_file_put(&f, key, HTH_GGUF_ARRAY, bytes, 12 + n * n_element);
}

TEST(token_arrays_of_wrong_shape_are_refused)
{
    static const char key[] = "tokenizer.ggml.tokens";
    const uint64_t empty_text = 0;
    f.without = key;
    refuse(key, "missing");
    for (uint64_t n = 0; n < 2; n++) {
        put_array(key, HTH_GGUF_TEXT, n, &empty_text, 8);
        refuse(key, "2 to 4194304");
    }
    put_array(key, HTH_GGUF_TEXT, (1 << 22) + 1, &empty_text, 8);
    refuse(key, "4194305");
    put_array(key, HTH_GGUF_I32, 263, &empty_text, 4);
    refuse(key, "vocab.gguf");
}

TEST(token_texts_that_are_too_long_are_refused)
{
    char text[8 + 1025];
    const uint64_t n = 1025;
    memset(text, 'x', sizeof text);
    memcpy(text, &n, 8);
    put_array("tokenizer.ggml.tokens", HTH_GGUF_TEXT, 2, text, sizeof text);
    refuse("token 0 has 1025 bytes", "1024");
}

/* As llama.cpp names them. */
TEST(empty_tokens_have_a_name)
{
    static const int kinds[] = {HTH_TOKEN_NORMAL, HTH_TOKEN_UNKNOWN, HTH_TOKEN_CONTROL, HTH_TOKEN_USER, HTH_TOKEN_UNUSED,
                                HTH_TOKEN_BYTE};
    for (int i = 0; i < 6; i++) vocab_file_add(&f, "", 0, 0.0f, kinds[i]);
    vocab_expect_warning("6 tokens are empty; they are named [EMPTY_id]");
    for (int32_t i = 0; tok && i < 6; i++) {
        char name[20];
        snprintf(name, sizeof name, "[EMPTY_%d]", 263 + (int)i);
        const hth_str entry = hth_tokenizer_entry(tok, 263 + i);
        CHECK(entry.n == strlen(name) && memcmp(entry.bytes, name, entry.n) == 0);
        CHECK_INT(hth_tokenizer_kind(tok, 263 + i), kinds[i]);
    }
    if (tok) IDS("ab[EMPTY_265]", HEARTH_PARSE_SPECIAL, SPACE, AB, 265);
}

/* Files of old converters have no types. */
TEST(without_types_byte_and_special_tokens_are_told_by_texts_and_ids)
{
    f.without = "tokenizer.ggml.token_type";
    if (!vocab_open()) return;
    CHECK_TEXT(warnings, "");
    IDS("a\xC3\xA9", 0, SPACE, A, 3 + 0xC3, 3 + 0xA9);
    IDS("a<s>b", HEARTH_PARSE_SPECIAL, SPACE, A, 1, SPACE, B);
    CHECK_INT(hth_tokenizer_kind(tok, 0), HTH_TOKEN_UNKNOWN);
    CHECK_INT(hth_tokenizer_kind(tok, 1), HTH_TOKEN_CONTROL);
    CHECK_INT(hth_tokenizer_kind(tok, 3 + 0xC3), HTH_TOKEN_BYTE);
    CHECK_INT(hth_tokenizer_kind(tok, AB), HTH_TOKEN_NORMAL);
    CHECK(hth_tokenizer_is_eog(tok, 2));
}

TEST(scores_missing_or_not_finite_are_refused)
{
    static const char key[] = "tokenizer.ggml.scores";
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        f.token[100].score = odd[i];
        refuse(key, "token 100 is not finite");
    }
    f.without = key;
    refuse(key, "missing");
    put_array(key, HTH_GGUF_F32, 262, &odd[0], 4);
    refuse(key, "263");
    put_array(key, HTH_GGUF_U8, 263, "", 1);
    refuse(key, "vocab.gguf");
}

TEST(types_out_of_range_are_refused)
{
    static const char key[] = "tokenizer.ggml.token_type";
    static const int odd[] = {0, 7, -1, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        f.token[50].kind = odd[i];
        refuse(key, "token 50 has type");
    }
    put_array(key, HTH_GGUF_I32, 264, &odd[0], 4);
    refuse(key, "263");
    put_array(key, HTH_GGUF_F32, 263, &odd[0], 4);
    refuse(key, "vocab.gguf");
}

TEST(equal_texts_are_taken_by_the_lowest_id)
{
    vocab_file_add_word(&f, "ab", 5.0f);
    if (vocab_open()) {
        CHECK(strstr(warnings, "1 words repeat") != NULL);
        IDS("ab", 0, SPACE, AB);
        size_t n;
        CHECK_BYTES(hth_token_piece(tok, AB + 1, false, &n), "ab", 2); /* by id both come back */
        CHECK_INT(n, 2);
    }
}

/* Byte-level vocabularies: the other cases of theirs, in test_bpe.c, need PCRE2. */
TEST(without_pcre2_byte_level_vocabularies_are_refused_by_name)
{
    char engine[100];
    vocab_file_begin_bpe(&f);
    vocab_file_add_merge(&f, "ab", 2, 1);
    if (!hth_pretokenizer_engine(engine, sizeof engine))
        vocab_expect_refused(HEARTH_ERROR_UNSUPPORTED, "vocab.gguf: pre-tokenizer \"gpt-2\"", "built without");
    else if (vocab_open()) IDS("ab", 0, 257);
}

/* WordPiece: its other cases, in test_wordpiece.c, need utf8proc. */
TEST(without_utf8proc_wordpiece_vocabularies_are_refused_by_name)
{
    char engine[100];
    vocab_file_put_text(&f, "tokenizer.ggml.model", "bert");
    vocab_file_add_word(&f, "\xE2\x96\x81\x61", 0.0f);
    if (!hth_unicode_engine(engine, sizeof engine))
        vocab_expect_refused(HEARTH_ERROR_UNSUPPORTED, "vocab.gguf: tokenizer.ggml.model is \"bert\"", "built without");
    else if (vocab_open()) IDS("a", 0, AB + 1);
}

/* ---- ids and flags ---------------------------------------------------------------------------- */

TEST(ids_outside_the_vocabulary_are_warned_of_and_count_as_absent)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.fim_pad_token_id",
                                       "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.middle_token_id",
                                       "tokenizer.ggml.mask_token_id", "tokenizer.ggml.seperator_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int32_t negative[] = {-2, INT32_MIN};
        const uint64_t wide[] = {263, UINT64_MAX - 1};
        for (int k = 0; k < 4; k++) {
            char says[120];
            if (k < 2) vocab_file_put(&f, keys[i], HTH_GGUF_I32, &negative[k], 4);
            else vocab_file_put(&f, keys[i], HTH_GGUF_U64, &wide[k - 2], 8);
            if (k < 2) snprintf(says, sizeof says, "is %d, but the vocabulary has tokens 0 to 262", (int)negative[k]);
            else snprintf(says, sizeof says, "is %llu, but the", (unsigned long long)wide[k - 2]);
            vocab_expect_warning(says);
            CHECK(strstr(warnings, keys[i]) != NULL);
            if (tok) CHECK(hth_tokenizer_bos(tok) == 1 && hth_tokenizer_eos(tok) == 2);
            if (tok) IDS("ab", HEARTH_ADD_SPECIAL, 1, SPACE, AB);
            vocab_again();
        }
        vocab_file_put_text(&f, keys[i], "1");
        refuse(keys[i], "vocab.gguf");
    }
}

/* The usual id of an end is that of another token here. */
TEST(an_end_outside_the_vocabulary_is_refused_if_there_is_no_other)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    for (int i = 0; i < 2; i++) {
        const int32_t none = -1;
        f.token[2].text[0] = 'x', f.token[2].kind = HTH_TOKEN_NORMAL; /* "</s>" */
        if (i > 0) vocab_file_put(&f, keys[0], HTH_GGUF_I32, &none, 4);
        vocab_file_put_u32(&f, keys[i], 263);
        refuse(keys[i], "no other token ends a text");
    }
    f.token[2].text[0] = 'x', f.token[2].kind = HTH_TOKEN_NORMAL;
    vocab_file_put_u32(&f, keys[0], 263);
    vocab_file_put_u32(&f, keys[1], AB);
    vocab_expect_warning("no EOS");
    if (tok) CHECK(hth_tokenizer_is_eog(tok, AB) && hth_tokenizer_eos(tok) == -1);
}

TEST(minus_one_means_that_there_is_no_such_token)
{
    const int32_t minus_one = -1;
    vocab_file_put(&f, "tokenizer.ggml.bos_token_id", HTH_GGUF_I32, &minus_one, 4);
    if (vocab_open()) {
        CHECK_INT(hth_tokenizer_bos(tok), -1);
        IDS("a", HEARTH_ADD_SPECIAL, SPACE, A);
    }
    vocab_again();
    static const uint64_t wide[] = {UINT32_MAX, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        vocab_file_put(&f, "tokenizer.ggml.bos_token_id", HTH_GGUF_U64, &wide[i], 8);
        if (vocab_open()) CHECK_INT(hth_tokenizer_bos(tok), -1);
        vocab_again();
    }
    vocab_file_put_u32(&f, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    if (vocab_open()) {
        CHECK_INT(hth_tokenizer_eos(tok), -1);
        CHECK(strstr(warnings, "no EOS") != NULL);
    }
}

TEST(odd_ids_are_warned_of)
{
    vocab_file_put_u32(&f, "tokenizer.ggml.bos_token_id", 2);
    expect_warning("token 2 is both BOS and EOS");
    f.without = "tokenizer.ggml.eos_token_id";
    expect_warning("eos_token_id missing; 2 is taken");
    vocab_file_put_u32(&f, "tokenizer.ggml.eos_token_id", A);
    expect_warning("token 260 is an ordinary word");
    vocab_file_put_u32(&f, "tokenizer.ggml.precompiled_charsmap", 0);
    expect_warning("precompiled_charsmap is ignored");
}

TEST(flags_do_what_they_say_and_must_be_bool)
{
    static const char *const keys[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
                                       "tokenizer.ggml.add_space_prefix"};
    for (int i = 0; i < 3; i++) {
        vocab_file_put_u32(&f, keys[i], 1);
        refuse(keys[i], "vocab.gguf");
        vocab_file_put_bool(&f, keys[i], i == 1);
        if (vocab_open()) {
            if (i == 0) IDS("a", HEARTH_ADD_SPECIAL, SPACE, A);
            if (i == 1) IDS("a", HEARTH_ADD_SPECIAL, 1, SPACE, A, 2);
            if (i == 2) IDS("a", HEARTH_ADD_SPECIAL, 1, A);
        }
        vocab_again();
    }
}

/* ---- byte tokens ------------------------------------------------------------------------------ */

TEST(texts_that_are_no_byte_are_no_byte_tokens)
{
    static const char *const odd[] = {"<0x-1>", "<0x1>", "<0xZZ>", "<0x100>", "< 0x1>", "<0xA >"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        vocab_file_add(&f, odd[i], strlen(odd[i]), 0.0f, HTH_TOKEN_BYTE);
        if (vocab_open()) {
            size_t n;
            CHECK(strstr(warnings, "1 byte tokens are not of the form") != NULL);
            const char *piece = hth_token_piece(tok, 263, false, &n);
            if (CHECK_INT(n, strlen(odd[i]))) CHECK_BYTES(piece, odd[i], n);
        }
        vocab_again();
    }
}

TEST(missing_byte_tokens_are_warned_of_and_counted)
{
    vocab_file_begin(&f, false);
    vocab_file_add_word(&f, "\xE2\x96\x81", -1.0f);
    vocab_file_add_word(&f, "a", -2.0f);
    vocab_file_add(&f, "<0x62>", 6, 0.0f, HTH_TOKEN_BYTE);
    if (vocab_open()) {
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        size_t n_lost = 0;
        CHECK(strstr(warnings, "254 of 256 byte tokens are missing") != NULL);
        CHECK_OK(hth_tokenize(tok, "ab\xC3\xA9", 4, 0, &ids, &n_lost, err));
        CHECK_INT(n_lost, 2);
        const int32_t expected[] = {3, 4, 5, 0, 0};
        if (CHECK_INT(ids.n, 5)) CHECK_BYTES(ids.id, expected, sizeof expected);
    }
}

/* ---- special tokens ------------------------------------------------------------------------------ */

TEST(ends_of_generation_are_found_by_key_and_by_text)
{
    vocab_file_add(&f, "<|im_end|>", 10, 0.0f, HTH_TOKEN_NORMAL);
    vocab_file_add(&f, "<|return|>", 10, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "<|end|>", 7, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_put_u32(&f, "tokenizer.ggml.eot_token_id", B);
    if (vocab_open()) {
        for (int32_t id = 0; id < 266; id++)
            CHECK_INT(hth_tokenizer_is_eog(tok, id), id == 2 || id == B || id >= 263);
        CHECK_INT(hth_tokenizer_kind(tok, 263), HTH_TOKEN_CONTROL);
        IDS("<|im_end|>a", HEARTH_PARSE_SPECIAL, 263, SPACE, A);
    }
    vocab_again();
    vocab_file_add(&f, "<|return|>", 10, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "<|call|>", 8, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "<|end|>", 7, 0.0f, HTH_TOKEN_CONTROL);
    if (vocab_open()) CHECK(hth_tokenizer_is_eog(tok, 264) && !hth_tokenizer_is_eog(tok, 265));
}

/* Of code models, by text; what a key states is not looked for. */
TEST(fill_in_the_middle_tokens_are_control_and_some_end_a_generation)
{
    static const char *const texts[] = {"<fim_prefix>", "<PRE>", "<|fim_suffix|>", "<MID>", "<fim_pad>", "[PAD]", "<reponame>",
                                        "<|file_sep|>"};
    enum { FIRST = 263 };
    for (int i = 0; i < 8; i++) vocab_file_add(&f, texts[i], strlen(texts[i]), 0.0f, HTH_TOKEN_USER);
    if (vocab_open()) {
        for (int32_t i = 0; i < 8; i++) {
            const bool second = i == 1 || i == 5; /* of the same role */
            CHECK_INT(hth_tokenizer_kind(tok, FIRST + i), second ? HTH_TOKEN_USER : HTH_TOKEN_CONTROL);
            CHECK_INT(hth_tokenizer_is_eog(tok, FIRST + i), i == 4 || i >= 6);
        }
        IDS("a<|fim_suffix|>", HEARTH_PARSE_SPECIAL, SPACE, A, FIRST + 2);
    }
    vocab_again();
    for (int i = 0; i < 8; i++) vocab_file_add(&f, texts[i], strlen(texts[i]), 0.0f, HTH_TOKEN_USER);
    vocab_file_put_u32(&f, "tokenizer.ggml.fim_pad_token_id", B);
    vocab_file_put_u32(&f, "tokenizer.ggml.prefix_token_id", A);
    if (vocab_open()) {
        CHECK(hth_tokenizer_is_eog(tok, B) && !hth_tokenizer_is_eog(tok, FIRST + 4));
        CHECK_INT(hth_tokenizer_kind(tok, FIRST), HTH_TOKEN_USER);
    }
}

TEST(control_texts_match_only_when_parsed_and_user_texts_always)
{
    vocab_file_add(&f, "aa", 2, 9.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "bb", 2, -9.0f, HTH_TOKEN_USER);
    if (vocab_open()) {
        IDS("aabb", 0, SPACE, A, A, 264);
        IDS("aabb", HEARTH_PARSE_SPECIAL, 263, 264);
    }
}

TEST(special_tokens_that_are_prefixes_of_others_match_longest_first)
{
    char text[64];
    memset(text, 'a', sizeof text);
    for (size_t n = 2; n <= 40; n++) vocab_file_add(&f, text, n, 0.0f, HTH_TOKEN_CONTROL);
    if (vocab_open()) {
        char run[40 + 17 + 1] = {0};
        memset(run, 'a', sizeof run - 1);
        IDS(run, HEARTH_PARSE_SPECIAL, 263 + 38, 263 + 15);
    }
}

TEST(a_second_bos_is_warned_of)
{
    if (vocab_open()) {
        hearth_log_set(vocab_keep_warning, NULL);
        IDS("<s>a", HEARTH_ADD_SPECIAL | HEARTH_PARSE_SPECIAL, 1, 1, SPACE, A);
        hearth_log_set(NULL, NULL);
        CHECK(strstr(warnings, "begins with the BOS token") != NULL);
    }
}

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    vocab_file_add(&f, "bb", 2, -9.0f, HTH_TOKEN_USER);
    if (vocab_open()) vocab_fail_allocations("ab abx bb <s>\xFF ab ab ab ab ab", 28, 12, 4);
}
