/* text/bpe/bpe.c where characters are merged and not bytes: Gemma 4, Sarvam, "whitespace". Which tokens the files of these
 * models make an end of generation. The ids of many texts are in test_vectors.c. */
#include "support/models/vocab_case.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

#define MARK "\xE2\x96\x81"

enum { UNK, BOS, EOS, BYTE_0, SPACE = 259, A, B, AB, SPACE_A, E_ACUTE, LINE, LINES, LINES_9, USER };

static bool has_engine(void)
{
    char engine[100];
    if (hth_pretokenizer_engine(engine, sizeof engine)) return true;
    test_skip("built without PCRE2");
    return false;
}

static void add_line(const char *line) { vocab_file_add_line(&f, line, strlen(line)); }

/* The state of a case, with this kind and pre-tokenizer. */
static void begin(const char *kind, const char *pre)
{
    vocab_file_begin(&f, true);
    f.is_bpe = true;
    vocab_file_put_text(&f, "tokenizer.ggml.model", kind);
    vocab_file_put_text(&f, "tokenizer.ggml.pre", pre);
    vocab_file_put_u32(&f, "tokenizer.ggml.bos_token_id", BOS);
    vocab_file_put_u32(&f, "tokenizer.ggml.eos_token_id", EOS);
    vocab_file_add_word(&f, MARK, 0.0f);
    vocab_file_add_word(&f, "a", 0.0f);
    vocab_file_add_word(&f, "b", 0.0f);
    vocab_file_add_word(&f, "ab", 0.0f);
    vocab_file_add_word(&f, MARK "a", 0.0f);
    vocab_file_add_word(&f, "\xC3\xA9", 0.0f);
    vocab_file_add_word(&f, "\n", 0.0f);
    vocab_file_add_word(&f, "\n\n", 0.0f);
    vocab_file_add_word(&f, "\n\n\n\n\n\n\n\n\n", 0.0f);
    vocab_file_add(&f, "<u>", 3, 0.0f, HTH_TOKEN_USER);
    add_line(MARK " a");
    add_line("a b");
    add_line("\n \n");
}

bool vocab_begin(void)
{
    if (!has_engine()) return false;
    begin("gemma4", "default"); /* the kind implies its pre-tokenizer */
    return true;
}

static void again_as(const char *kind, const char *pre)
{
    vocab_again();
    vocab_file_free(&f);
    begin(kind, pre);
}

TEST(characters_merge_by_rank_with_spaces_as_a_mark)
{
    if (!vocab_open()) return;
    CHECK_TEXT(warnings, "");
    CHECK_TEXT(hth_tokenizer_pretok_name(tok, NULL, 0), "gemma4");
    IDS("ab ab", 0, AB, SPACE_A, B); /* the merge of the mark and a comes first */
    IDS("  a", 0, SPACE, SPACE_A);
    IDS("\xC3\xA9"
        "b",
        0, E_ACUTE, B);
    IDS("a<u>b", 0, A, USER, B);
    IDS("x\xE4\xB8\xAD", 0, BYTE_0 + 'x', BYTE_0 + 0xE4, BYTE_0 + 0xB8, BYTE_0 + 0xAD);
    IDS("a\xC3"
        "b\xFF",
        0, A, BYTE_0 + 0xC3, B, BYTE_0 + 0xFF);
    IDS(MARK, 0, SPACE); /* a literal mark is a space */
}

TEST(runs_of_line_ends_are_looked_up_whole)
{
    if (!vocab_open()) return;
    IDS("a\nb", 0, A, LINE, B);
    IDS("\n\n\n", 0, LINES, LINE);
    IDS("\n\n\n\n\n\n\n\n\n", 0, LINES_9); /* no merges lead to it */
    IDS("\n \n", 0, LINE, SPACE, LINE);
    again_as("gpt2", "sarvam-moe"); /* which does not */
    if (vocab_open()) IDS("\n\n\n\n\n\n\n\n\n", 0, LINES, LINES, LINES, LINES, LINE);
    again_as("gpt2", "granite-embed-multi-311m");
    if (vocab_open()) IDS("\n\n\n\n\n\n\n\n\n a", 0, LINES_9, SPACE_A);
}

TEST(gemma_4_always_has_bos)
{
    vocab_file_put_bool(&f, "tokenizer.ggml.add_bos_token", false);
    if (vocab_open()) IDS("a", HEARTH_ADD_SPECIAL, BOS, A);
    again_as("gpt2", "sarvam-moe");
    if (vocab_open()) IDS("a", HEARTH_ADD_SPECIAL, A);
}

TEST(white_space_is_no_text_where_the_kind_says_so)
{
    again_as("whitespace", "whitespace");
    if (vocab_open()) {
        IDS(" ab\t\n\xC2\xA0\xE3\x80\x80"
            "ab\v",
            0, AB, AB);
        IDS("AB", 0, BYTE_0 + 'A', BYTE_0 + 'B');
        vocab_expect_ids(" \n", 2, 0, 0, NULL, 0, __LINE__);
    }
    again_as("whitespace", "whitespace");
    vocab_file_put_bool(&f, "tokenizer.ggml.normalizer.lowercase", true);
    char engine[100];
    if (!hth_unicode_engine(engine, sizeof engine)) {
        vocab_expect_refused(HEARTH_ERROR_UNSUPPORTED, "tokenizer.ggml.normalizer.lowercase needs utf8proc",
                             "vocab.gguf");
    } else if (vocab_open()) {
        IDS("AB \xC3\x89 aB\xFF", 0, AB, E_ACUTE, AB, BYTE_0 + 0xFF);
        IDS("\xC8\xBA", 0, BYTE_0 + 0xE2, BYTE_0 + 0xB1,
            BYTE_0 + 0xA5); /* U+023A: its lower case is longer */
        IDS("\xC4\xB0", 0, BYTE_0 + 'i', BYTE_0 + 0xCC, BYTE_0 + 0x87);
    }
    again_as("whitespace", "whitespace");
    vocab_file_put_u32(&f, "tokenizer.ggml.normalizer.lowercase", 1);
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "tokenizer.ggml.normalizer.lowercase", "bool");
}

TEST(merges_are_needed_and_checked)
{
    f.without = "tokenizer.ggml.merges";
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "tokenizer.ggml.merges missing", "gemma4");
    add_line("a b c");
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "tokenizer.ggml.merges", "merge 3 is \"a b c\"");
    add_line("b q"); /* of what is no token */
    add_line("q a");
    if (vocab_open()) CHECK(strstr(warnings, "2 of 5 merges are of texts that are no tokens") != NULL);
}

TEST(pieces_are_text_with_spaces)
{
    size_t n;
    if (!vocab_open()) return;
    CHECK_BYTES(hth_token_piece(tok, SPACE_A, false, &n), " a", 2);
    CHECK_INT(n, 2);
    CHECK_BYTES(hth_token_piece(tok, BYTE_0 + 0xE4, false, &n), "\xE4", 1);
    CHECK_INT(n, 1);
    again_as("whitespace", "whitespace");
    if (vocab_open()) CHECK_BYTES(hth_token_piece(tok, SPACE_A, false, &n), MARK "a", 4);
}

/* A word of Gemma 4 is an end elsewhere; a message's end is not the reply's where other tokens end that. */
TEST(ends_of_generation_depend_on_their_neighbours)
{
    const int32_t end = USER + 1;
    vocab_file_add_word(&f, "</s>", 0.0f);
    f.token[EOS].text[0] = '['; /* the first </s> */
    if (vocab_open())
        CHECK(hth_tokenizer_is_eog(tok, end) && hth_tokenizer_kind(tok, end) == HTH_TOKEN_CONTROL);
    again_as("gemma4", "default");
    vocab_file_add_word(&f, "</s>", 0.0f);
    f.token[EOS].text[0] = '[';
    vocab_file_add_word(&f, "<|tool_response>", 0.0f);
    if (vocab_open()) {
        CHECK(!hth_tokenizer_is_eog(tok, end) && hth_tokenizer_kind(tok, end) == HTH_TOKEN_NORMAL);
        CHECK(hth_tokenizer_is_eog(tok, end + 1));
        IDS("</s>a", 0, BYTE_0 + '<', BYTE_0 + '/', BYTE_0 + 's', BYTE_0 + '>', A);
    }
    static const char *const others[][2] = {
        {"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"}, {"<|flush|>", "<|return|>"}};
    for (int i = 0; i < 3; i++) {
        again_as("gemma4", "default");
        vocab_file_add_word(&f, "<|end|>", 0.0f);
        vocab_file_add_word(&f, others[i][0], 0.0f);
        vocab_file_add_word(&f, others[i][1], 0.0f);
        if (!vocab_open()) return;
        CHECK_INT(hth_tokenizer_is_eog(tok, end), i == 2);
        CHECK(hth_tokenizer_is_eog(tok, end + 1) && hth_tokenizer_is_eog(tok, end + 2));
    }
}

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    if (vocab_open()) vocab_fail_allocations("ab ab \n\n <u>\xFF x\xE4\xB8\xAD", 17, 12, 3);
    again_as("whitespace", "whitespace");
    char engine[100];
    if (hth_unicode_engine(engine, sizeof engine))
        vocab_file_put_bool(&f, "tokenizer.ggml.normalizer.lowercase", true);
    if (vocab_open()) vocab_fail_allocations("AB ab \n\n <u>\xFF x\xE4\xB8\xAD", 17, 12, 3);
}

TEST(a_megabyte_takes_a_time_in_proportion)
{
    static const char *const units[] = {"ab ", "ab", "a", " ", "\n", "q", "\xFF", "a\n"};
    if (vocab_open()) vocab_expect_proportion(units, sizeof units / sizeof *units);
}
