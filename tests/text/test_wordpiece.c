/* text/wordpiece.c: what BERT's normalisation does, which words are unknown, what is put around a text, and what is
 * refused. The ids of many texts are in test_vectors.c. */
#include "support/models/vocab_case.h"
#include "text/unicode.h"

#define MARK "\xE2\x96\x81"

enum { UNK, CLS, SEP, THE, CAFE, S, RE, ING, DOT, LETTER_I, ZHONG, A_UMLAUT, HANGUL_G, HANGUL_A, DOLLAR, X, CONT_X };

static bool has_characters(void)
{
    char engine[100];
    if (hth_unicode_engine(engine, sizeof engine)) return true;
    test_skip("built without utf8proc");
    return false;
}

static void begin(void)
{
    static const char *const words[] = {MARK "the",
                                        MARK "cafe",
                                        "s",
                                        MARK "re",
                                        "ing",
                                        MARK ".",
                                        MARK "i",
                                        MARK "\xE4\xB8\xAD",
                                        MARK "\xC3\xA4",
                                        MARK "\xE1\x84\x80",
                                        "\xE1\x85\xA1",
                                        MARK "$",
                                        MARK "x",
                                        "x"};
    memset(&f, 0, sizeof f);
    vocab_file_put_text(&f, "tokenizer.ggml.model", "bert");
    f.without = "tokenizer.ggml.eos_token_id";
    vocab_file_add(&f, "[UNK]", 5, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "[CLS]", 5, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "[SEP]", 5, 0.0f, HTH_TOKEN_CONTROL);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) vocab_file_add_word(&f, words[i], 0.0f);
    vocab_file_put_u32(&f, "tokenizer.ggml.unknown_token_id", UNK);
    vocab_file_put_u32(&f, "tokenizer.ggml.cls_token_id", CLS);
    vocab_file_put_u32(&f, "tokenizer.ggml.seperator_token_id", SEP);
}

bool vocab_begin(void)
{
    if (!has_characters()) return false;
    begin();
    return true;
}

static void refuse(const char *part, const char *other)
{
    vocab_expect_refused(HEARTH_ERROR_FORMAT, part, other);
}
static void none(const char *text) { vocab_expect_ids(text, strlen(text), 0, 0, NULL, 0, __LINE__); }

static void lost(const char *text, size_t n_lost, const int32_t *ids, size_t n)
{
    vocab_expect_ids(text, strlen(text), 0, n_lost, ids, n, __LINE__);
}
#define LOST(TEXT, N_LOST, ...)                                                                              \
    lost(TEXT, N_LOST, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

TEST(words_are_written_by_their_longest_pieces)
{
    if (!vocab_open()) return;
    CHECK_TEXT(warnings, "");
    IDS("the cafes", 0, THE, CAFE, S);
    IDS("reing.the", 0, RE, ING, DOT, THE);
    IDS("the$the", 0, THE, DOLLAR, THE); /* ASCII symbols are words of their own */
    LOST("thebes the", 6, UNK, THE);     /* no half of a word */
    LOST("cafe" MARK "re", 9, UNK);      /* a piece that starts a word goes on in none */
    IDS("the", HEARTH_ADD_SPECIAL, CLS, THE, SEP);
    IDS("", HEARTH_ADD_SPECIAL, CLS, SEP);
    IDS("the[SEP]the", HEARTH_PARSE_SPECIAL, THE, SEP, THE);
    LOST("[SEP]", 5, UNK, UNK, UNK);
    none("");
}

TEST(texts_are_normalised_as_bert_has_it)
{
    if (!vocab_open()) return;
    IDS("THE\tCaf\xC3\xA9\n\xC2\xA0the", 0, THE, CAFE, THE);
    IDS("CAFE\xCC\x81S", 0, CAFE, S);
    IDS("t\x01h\x7F\xC2\xAD\xE2\x80\x8B"
        "e\xEE\x80\x80",
        0, THE); /* control, format and private characters */
    LOST("the\x0Bthe\x0C the\xC2\x85", 6, UNK, THE);
    IDS("\xEF\xBF\xBDthe\xFF the", 0, THE, THE); /* U+FFFD, an ill-formed byte */
    IDS("\xE4\xB8\xADthe\xE4\xB8\xAD\xE4\xB8\xAD", 0, ZHONG, THE, ZHONG, ZHONG);
    IDS("\xEA\xB0\x80", 0, HANGUL_G, HANGUL_A); /* a Hangul syllable as letters */
    IDS("\xC4\xB0", 0, LETTER_I);               /* U+0130: I and a dot */
    none(" \t\r\n\x01\xCC\x81");
}

TEST(capitals_and_accents_stay_where_the_file_says_so)
{
    vocab_file_put_bool(&f, "tokenizer.ggml.normalizer.lowercase", false);
    if (vocab_open()) LOST("The cafe \xC3\xA4", 3, UNK, CAFE, A_UMLAUT);
    vocab_again();
    vocab_file_put_bool(&f, "tokenizer.ggml.normalizer.strip_accents", false);
    if (vocab_open()) LOST("The Caf\xC3\xA9 \xC3\x84 \xC4\xB0", 7, THE, UNK, A_UMLAUT, UNK);
    vocab_again();
    vocab_file_put_u32(&f, "tokenizer.ggml.normalizer.lowercase", 1);
    refuse("tokenizer.ggml.normalizer.lowercase", "bool");
}

TEST(words_of_more_than_100_characters_are_unknown)
{
    char text[104];
    if (!vocab_open()) return;
    memset(text, 'x', sizeof text);
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    size_t n_lost;
    CHECK_OK(hth_tokenize(tok, text, 100, 0, &ids, &n_lost, err));
    CHECK_INT(ids.n, 100);
    CHECK_INT(ids.id[0], X);
    CHECK_INT(ids.id[99], CONT_X);
    CHECK_INT(n_lost, 0);
    ids.n = 0;
    CHECK_OK(hth_tokenize(tok, text, 101, 0, &ids, &n_lost, err));
    CHECK_INT(ids.n, 1);
    CHECK_INT(ids.id[0], UNK);
    CHECK_INT(n_lost, 101);
}

TEST(a_text_is_put_between_cls_and_sep)
{
    vocab_file_put_bool(&f, "tokenizer.ggml.add_eos_token", false);
    if (vocab_open()) IDS("the", HEARTH_ADD_SPECIAL, CLS, THE);
    vocab_again();
    vocab_file_put_bool(&f, "tokenizer.ggml.add_bos_token", false);
    vocab_file_put_u32(&f, "tokenizer.ggml.bos_token_id", X);
    if (vocab_open()) IDS("the", HEARTH_ADD_SPECIAL, THE, SEP);
    vocab_again();
    vocab_file_put_u32(&f, "tokenizer.ggml.bos_token_id", X); /* before cls_token_id */
    if (vocab_open()) IDS("the", HEARTH_ADD_SPECIAL, X, THE, SEP);
}

TEST(the_space_before_the_first_word_is_dropped)
{
    static const int32_t ids[] = {CLS, THE, CAFE, S, DOT, SEP};
    char out[100];
    hth_detok d;
    size_t n = 0;
    if (!vocab_open()) return;
    hth_detok_init(&d, tok, false, true);
    for (size_t i = 0; i < 6; i++) n += hth_detok_push(&d, ids[i], out + n);
    out[n] = '\0';
    CHECK_TEXT(out, "the cafes .");
}

TEST(vocabularies_without_what_wordpiece_needs_are_refused)
{
    f.n_more = f.n_more_pair = 0;
    vocab_file_put_text(&f, "tokenizer.ggml.model", "bert"); /* 100 is past the end */
    refuse("tokenizer.ggml.unknown_token_id states no token", "17 tokens have no token 100");
    for (uint32_t i = THE; i <= CONT_X; i++) f.token[i].text[0] = 'y';
    refuse("tokenizer.ggml.tokens", "no token of type 1 starts a word");
    f.n_more = f.n_more_pair = 0;
    vocab_file_put_text(&f, "tokenizer.ggml.model", "bert");
    vocab_file_put_u32(&f, "tokenizer.ggml.unknown_token_id", 17); /* as if it were absent */
    refuse("tokenizer.ggml.unknown_token_id states no token", "17 tokens have no token 100");
}

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    if (vocab_open()) vocab_fail_allocations("the cafes. [SEP] \xE4\xB8\xAD \xFF reingx", 27, 5, 2);
}

TEST(a_megabyte_takes_a_time_in_proportion)
{
    static const char *const units[] = {"the ",         "x",    ".",        "\xCC\x81", "\xEA\xB0\x80", " ",
                                        "\xE4\xB8\xAD", "\xFF", "x\xCC\x81"};
    if (vocab_open()) vocab_expect_proportion(units, sizeof units / sizeof *units);
}
