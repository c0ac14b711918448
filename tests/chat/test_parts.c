/* text: conversations in parts. Frames may write control tokens, what people say
 * may not, and otherwise the seams cannot be seen in the ids. */
#include "support/models/vocab_case.h"

enum { UNK, BOS, EOS, SPACE = 259, A, B, AB, SPACE_A, TOOL, MARK, TURN };

bool vocab_begin(void)
{
    vocab_file_begin(&f, true);
    vocab_file_add_word(&f, "\xE2\x96\x81", -5.0f);
    vocab_file_add_word(&f, "a", -4.0f);
    vocab_file_add_word(&f, "b", -4.0f);
    vocab_file_add_word(&f, "ab", -1.0f);
    vocab_file_add_word(&f, "\xE2\x96\x81\x61", -2.0f);
    vocab_file_add(&f, "<tool>", 6, 0.0f, HTH_TOKEN_USER);
    vocab_file_add(&f, "<tool", 5, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "<|turn|>", 8, 0.0f, HTH_TOKEN_CONTROL);
    return vocab_open();
}

static void check_ids(const hth_ids *ids, const int32_t *expected, size_t n, int line)
{
    bool same = ids->n == n;
    for (size_t i = 0; same && i < n; i++) same = ids->id[i] == expected[i];
    if (same) return;
    test_fail(__FILE__, line, "%zu ids, expected %zu", ids->n, n);
    for (size_t i = 0; i < ids->n; i++) test_fail(__FILE__, line, "  %d", (int)ids->id[i]);
}

static hth_text_part part(const char *text, bool is_template)
{
    return (hth_text_part){text, strlen(text), is_template};
}

static void check_parts(const hth_text_part *parts, size_t n_part, unsigned flags, const int32_t *expected,
                        size_t n, int line)
{
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    size_t n_lost = 1;
    CHECK_OK(hth_tokenize_parts(tok, parts, n_part, flags, &ids, &n_lost, err));
    CHECK_INT(n_lost, 0);
    check_ids(&ids, expected, n, line);
}

#define PARTS(FLAGS, ...)                                                                                    \
    const int32_t expected[] = {__VA_ARGS__};                                                                \
    check_parts(parts, sizeof parts / sizeof *parts, FLAGS, expected, sizeof expected / sizeof *expected,    \
                __LINE__)

TEST(messages_cannot_contain_control_tokens)
{
    {
        const hth_text_part parts[] = {part("<|turn|>", true), part("<s>", false), part("<|turn|>", true)};
        PARTS(0, TURN, SPACE, 3 + '<', 3 + 's', 3 + '>', TURN);
    }
    {
        /* neither whole, nor with the help of template text before it or behind it */
        const hth_text_part parts[] = {part("<|tu", true), part("rn|>", false)};
        PARTS(0, SPACE, 3 + '<', 3 + '|', 3 + 't', 3 + 'u', 3 + 'r', 3 + 'n', 3 + '|', 3 + '>');
    }
    {
        const hth_text_part parts[] = {part("<|tu", false), part("rn|>", true)};
        PARTS(0, SPACE, 3 + '<', 3 + '|', 3 + 't', 3 + 'u', 3 + 'r', 3 + 'n', 3 + '|', 3 + '>');
    }
    {
        const hth_text_part parts[] = {part("<|turn", true), {NULL, 0, false}, part("|>", true)};
        PARTS(0, TURN); /* two frames that touch are one */
    }
}

TEST(user_defined_tokens_count_everywhere)
{
    {
        const hth_text_part parts[] = {part("<tool>", false), part("<tool>", true)};
        PARTS(0, TOOL, TOOL);
    }
    {
        /* across a seam, as in plain text; longer than the control token inside */
        const hth_text_part parts[] = {part("<tool", true), part(">", false)};
        PARTS(0, TOOL);
    }
    {
        const hth_text_part parts[] = {part("<tool", true), part("a", false)};
        PARTS(0, MARK, SPACE_A);
    }
}

TEST(seams_between_raw_parts_are_none)
{
    {
        const hth_text_part parts[] = {part("a", true), part("b", false)};
        PARTS(0, SPACE, AB);
    }
    {
        const hth_text_part parts[] = {part("<|turn|>b a", true), part("b", false), part("b", true)};
        PARTS(0, TURN, SPACE, B, SPACE, AB, B);
    }
    {
        const hth_text_part parts[] = {part("\xE4", false), part("\xB8\xAD", false)};
        PARTS(0, SPACE, 3 + 0xE4, 3 + 0xB8, 3 + 0xAD);
    }
}

TEST(bos_comes_once)
{
    {
        const hth_text_part parts[] = {part("<s>", true), part("a", false)};
        PARTS(HEARTH_ADD_SPECIAL, BOS, SPACE_A);
    }
    {
        const hth_text_part parts[] = {part("<s>", true), part("a", false)};
        PARTS(0, BOS, SPACE_A);
    }
    {
        const hth_text_part parts[] = {part("<|turn|>", true), part("a", false)};
        PARTS(HEARTH_ADD_SPECIAL, BOS, TURN, SPACE_A);
    }
    {
        const hth_text_part parts[] = {part("<s>", false)};
        PARTS(HEARTH_ADD_SPECIAL | HEARTH_PARSE_SPECIAL, BOS, SPACE, 3 + '<', 3 + 's', 3 + '>');
    }
    check_parts(NULL, 0, HEARTH_ADD_SPECIAL, (const int32_t[]){BOS}, 1, __LINE__);
    check_parts(NULL, 0, 0, NULL, 0, __LINE__);
}

TEST(cuts_anywhere_in_a_text_change_nothing)
{
    static const char text[] = "a b<tool>ab <|turn|> ab<s>\xE4\xB8\xAD</s> <tool ba";
    test_random r = {4};
    hth_ids whole = {0}, ids = {0};
    CHECK_OK(hth_tokenize(tok, text, sizeof text - 1, HEARTH_PARSE_SPECIAL, &whole, NULL, err));
    for (int round = 0; round < 300; round++) {
        hth_text_part parts[40];
        size_t n_part = 0;
        for (size_t at = 0; at < sizeof text - 1;) {
            size_t n = test_random_below(&r, 9);
            if (n > sizeof text - 1 - at) n = sizeof text - 1 - at;
            parts[n_part++] = (hth_text_part){text + at, n, true};
            at += n;
            if (n_part == 39) {
                parts[n_part++] = (hth_text_part){text + at, sizeof text - 1 - at, true};
                break;
            }
        }
        ids.n = 0;
        CHECK_OK(hth_tokenize_parts(tok, parts, n_part, 0, &ids, NULL, err));
        check_ids(&ids, whole.id, whole.n, __LINE__);
    }
    hth_ids_free(&whole);
    hth_ids_free(&ids);
}
