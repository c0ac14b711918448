/* text/bpe/bpe.c, text/bpe/bpe_vocab.c: byte-level BPE on small vocabularies: what a file may say,
 * what is refused with which words, and merging beside a plain loop that does the same. */
#include "base/alloc.h"
#include "support/models/vocab_data.h"
#include "support/models/vocab_case.h"
#include "text/pretokenizer.h"
#include "text/internal.h"

#include <pthread.h>

/* ---- opening ---------------------------------------------------------------------------- */

enum { END = 0, BYTE = 1, AB = 257, SP_AB, ABC, BC, E_ACUTE };

/* A small vocabulary that is right; a case then makes one thing wrong. False, and the case
 * is skipped, in a build without PCRE2. */
bool vocab_begin(void)
{
    char engine[100];
    if (!hth_pretokenizer_engine(engine, sizeof engine)) {
        test_skip("built without PCRE2");
        return false;
    }
    vocab_file_begin_bpe(&f);
    vocab_file_add_merge(&f, "ab", 2, 1);
    vocab_file_add_merge(&f, " ab", 3, 1);
    vocab_file_add_merge(&f, "abc", 3, 1); /* of a and bc: never reached, as ab comes first */
    vocab_file_add_merge(&f, "bc", 2, 1);
    vocab_file_add_merge(&f, "\xC3\xA9", 2, 1);
    return true;
}

TEST(a_small_vocabulary_works)
{
    if (vocab_open()) {
        CHECK_TEXT(warnings, "");
        char engine[100];
        CHECK_TEXT(hth_tokenizer_pretok_name(tok, engine, sizeof engine), "gpt-2");
        CHECK(strncmp(engine, "PCRE2 10.", 9) == 0 && strstr(engine, "Unicode ") != NULL);
        CHECK_INT(hth_tokenizer_bos(tok), -1);
        CHECK_INT(hth_tokenizer_eos(tok), END);
        CHECK(hth_tokenizer_is_eog(tok, END) && !hth_tokenizer_is_eog(tok, AB));
        IDS("ab ab", 0, AB, SP_AB);
        IDS("abc", 0, AB, BYTE + 'c');
        IDS("bcab", 0, BC, AB);
        IDS("ababab", 0, AB, AB, AB);
        IDS(" ab", HEARTH_ADD_SPECIAL, SP_AB); /* nothing in front, neither BOS nor a space */
        IDS("\xC3\xA9", 0, E_ACUTE);
        IDS("a\xA9\xC3", 0, BYTE + 'a', BYTE + 0xA9, BYTE + 0xC3);
        IDS("a\0b", 0, BYTE + 'a', BYTE + 0, BYTE + 'b');
        IDS("<|endoftext|>", HEARTH_PARSE_SPECIAL, END);
        IDS("ab<|endoftext|> ab", HEARTH_PARSE_SPECIAL, AB, END, SP_AB);
        vocab_expect_ids("", 0, HEARTH_ADD_SPECIAL, 0, NULL, 0, __LINE__);
    }
}

/* ---- what a file says -------------------------------------------------------------------- */

TEST(unknown_pre_tokenizers_are_refused_with_the_known_ones)
{
    vocab_file_put_text(&f, "tokenizer.ggml.pre", "gpt-2\nx");
    vocab_expect_refused(HEARTH_ERROR_UNSUPPORTED,
              "tokenizer.ggml.pre is \"gpt-2\\x0ax\"; known are default, gpt-2, llama-bpe", "deepseek-v3");
    vocab_file_put_u32(&f, "tokenizer.ggml.pre", 1);
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "vocab.gguf", "tokenizer.ggml.pre");
}

TEST(no_pre_tokenizer_is_the_default_one_with_a_warning)
{
    f.without = "tokenizer.ggml.pre";
    vocab_expect_warning("tokenizer.ggml.pre missing; \"default\" is taken");
    if (tok) {
        char engine[100];
        CHECK_TEXT(hth_tokenizer_pretok_name(tok, engine, sizeof engine), "default");
    }
}

/* The merges of a line each, instead of the right ones. */
static void with_lines(const char *a, const char *b)
{
    f.n_merge = 0;
    vocab_file_add_line(&f, a, strlen(a));
    if (b) vocab_file_add_line(&f, b, strlen(b));
}

TEST(malformed_merges_are_refused)
{
    static const char *const wrong[] = {"ab", "", " ", "a ", " b", "a  b", "a b c", "a b "};
    static const char two = 2;
    f.without = "tokenizer.ggml.merges";
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "key tokenizer.ggml.merges missing", "gpt2");
    vocab_file_put(&f, "tokenizer.ggml.merges", HTH_GGUF_U8, &two, 1);
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "vocab.gguf", "tokenizer.ggml.merges");
    f.n_merge = 0;
    vocab_expect_refused(HEARTH_ERROR_FORMAT, "tokenizer.ggml.merges", "0 merges");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        with_lines("a b", wrong[i]);
        vocab_expect_refused(HEARTH_ERROR_FORMAT, "tokenizer.ggml.merges at ", "merge 1 is \"");
    }
}

TEST(merges_of_what_is_no_token_are_left_out)
{
    static const char *const unknown[] = {"ab x",           "xx b",  "a zz", "\xC3\xA9\xC3\xA9\xC3\xA9 b",
                                          "\xE4\xB8\xAD b", "\xFF b"};
    vocab_again();
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        with_lines(unknown[i], "a b");
        vocab_expect_warning("1 of 2 merges are of texts that are no tokens");
        if (tok) IDS("ab", 0, AB);
        vocab_again();
    }
}

TEST(of_equal_merges_the_first_counts)
{
    f.n_merge = 0;
    vocab_file_add_line(&f, "b c", 3);
    vocab_file_add_line(&f, "a b", 3);
    vocab_file_add_line(&f, "b c", 3);
    if (vocab_open()) IDS("abc", 0, BYTE + 'a', BC);
    vocab_again();
    with_lines("a b", "b c");
    vocab_file_add_line(&f, "a b", 3);
    if (vocab_open()) IDS("abc", 0, AB, BYTE + 'c');
}

TEST(there_may_be_more_merges_than_tokens)
{
    f.n_merge = 0;
    while (f.n_merge < 2 * f.n_token) vocab_file_add_line(&f, "a b", 3);
    vocab_file_add_line(&f, "b c", 3);
    if (vocab_open()) IDS("abcbc", 0, AB, BYTE + 'c', BC);
}

TEST(of_equal_words_the_first_counts_and_both_decode)
{
    vocab_file_add_word(&f, "ab", 0.0f);
    vocab_expect_warning("1 words repeat the text of another");
    if (tok) {
        size_t n;
        IDS("ab", 0, AB);
        CHECK_BYTES(hth_token_piece(tok, E_ACUTE + 1, false, &n), "ab", 2);
    }
}

/* Words are merged for a byte whose own token is missing; alone it is lost. */
TEST(bytes_without_a_token_are_counted)
{
    f.token[BYTE + 'b'].text[0] = '\x01'; /* now a character that stands for no byte */
    vocab_expect_warning("no token for 1 of 256 bytes");
    if (tok) {
        static const int32_t ids[] = {AB, BYTE + 'a', BYTE + 'c'};
        CHECK(strstr(warnings, "1 words hold characters that stand for no byte") != NULL);
        vocab_expect_ids("abacbbb", 7, 0, 3, ids, 3, __LINE__);
    }
    vocab_again();
    f.token[BYTE + 0xFF].text[0] = '\x01'; /* this one is in no well-formed text */
    f.token[BYTE + 0xFF].n = 1;
    if (vocab_open()) {
        CHECK(strstr(warnings, "no token for") == NULL);
        vocab_expect_ids("\xFF", 1, 0, 1, NULL, 0, __LINE__);
    }
}

TEST(byte_tokens_stand_in_for_missing_characters)
{
    f.token[BYTE + 'b'].text[0] = '\x01';
    vocab_file_add(&f, "<0x62>", 6, 0.0f, HTH_TOKEN_BYTE);
    if (vocab_open()) {
        size_t n;
        IDS("abb", 0, AB, E_ACUTE + 1);
        CHECK_BYTES(hth_token_piece(tok, E_ACUTE + 1, false, &n), "b", 1);
        CHECK_INT(n, 1);
    }
}

TEST(words_that_are_tokens_are_not_merged_where_the_name_says_so)
{
    vocab_file_put_text(&f, "tokenizer.ggml.pre", "llama-bpe");
    if (vocab_open()) {
        IDS("abc", 0, ABC);
        IDS("abcabc", 0, AB, BYTE + 'c', AB, BYTE + 'c');
        IDS(" ab abc", 0, SP_AB, SP_AB, BYTE + 'c'); /* " abc" is none */
        char longer[2000];
        memset(longer, 'x', sizeof longer);
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        CHECK_OK(hth_tokenize(tok, longer, sizeof longer, 0, &ids, NULL, err));
        CHECK_INT(ids.n, sizeof longer);
    }
    vocab_again();
    vocab_file_put_text(&f, "tokenizer.ggml.pre", "smaug-bpe"); /* the same cuts */
    if (vocab_open()) IDS("abc", 0, AB, BYTE + 'c');
}

/* A word that is a control token's text, or an added one's, is not taken for it. */
TEST(plain_text_never_becomes_a_control_token)
{
    vocab_file_put_text(&f, "tokenizer.ggml.pre", "llama-bpe");
    vocab_file_add(&f, "xy", 2, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(&f, "x y", 3, 0.0f, HTH_TOKEN_UNKNOWN);
    if (vocab_open()) {
        IDS("xy", 0, BYTE + 'x', BYTE + 'y');
        IDS("xy", HEARTH_PARSE_SPECIAL, E_ACUTE + 1);
        IDS("x y", HEARTH_PARSE_SPECIAL, E_ACUTE + 2);
    }
}

/* ---- BOS, EOS, white space ----------------------------------------------------------------- */

static void check_bos(const char *pre, int stated, int32_t expected_bos, bool expected_add)
{
    vocab_file_put_text(&f, "tokenizer.ggml.pre", pre);
    vocab_file_put_u32(&f, "tokenizer.ggml.bos_token_id", AB);
    if (stated >= 0) vocab_file_put_bool(&f, "tokenizer.ggml.add_bos_token", stated);
    if (vocab_open()) {
        CHECK_INT(hth_tokenizer_bos(tok), expected_bos);
        if (expected_add) IDS("x", HEARTH_ADD_SPECIAL, AB, BYTE + 'x');
        else IDS("x", HEARTH_ADD_SPECIAL, BYTE + 'x');
    }
    vocab_again();
}

TEST(bos_is_added_where_file_or_name_say_so)
{
    vocab_again();
    check_bos("gpt-2", -1, AB, false);
    check_bos("gpt-2", 1, AB, true);
    check_bos("llama-bpe", -1, AB, true);
    check_bos("llama-bpe", 0, AB, false);
    check_bos("tekken", -1, AB, true);
    check_bos("dbrx", -1, AB, false);
    check_bos("chatglm-bpe", 1, -1, false);
    vocab_file_put_bool(&f, "tokenizer.ggml.add_eos_token", true);
    if (vocab_open()) IDS("x", HEARTH_ADD_SPECIAL, BYTE + 'x', END);
    vocab_again();
    f.without = "tokenizer.ggml.eos_token_id";
    vocab_expect_warning("no EOS");
    if (tok) CHECK_INT(hth_tokenizer_eos(tok), -1);
}

TEST(ids_past_the_vocabulary_are_warned_of)
{
    vocab_again();
    vocab_file_put_u32(&f, "tokenizer.ggml.eot_token_id", E_ACUTE + 1);
    vocab_expect_warning("tokenizer.ggml.eot_token_id at ");
}

TEST(a_space_in_front_is_never_put)
{
    vocab_file_put_bool(&f, "tokenizer.ggml.add_space_prefix", true);
    vocab_expect_warning("tokenizer.ggml.add_space_prefix is ignored");
    if (tok) {
        char out[40];
        hth_detok d;
        IDS("ab", 0, AB);
        hth_detok_init(&d, tok, false, true);
        CHECK_INT(hth_detok_push(&d, SP_AB, out), 3); /* nor taken away */
    }
}

TEST(masks_drop_the_white_space_before_them)
{
    vocab_file_put_text(&f, "tokenizer.ggml.pre", "jina-v2-es");
    vocab_file_add(&f, "<mask>", 6, 0.0f, HTH_TOKEN_CONTROL);
    const int32_t mask = E_ACUTE + 1;
    if (vocab_open()) {
        IDS("ab \t\n<mask> ab", HEARTH_PARSE_SPECIAL, AB, mask, SP_AB);
        IDS("  <mask>", HEARTH_PARSE_SPECIAL, mask);
        IDS("<mask> <mask>", HEARTH_PARSE_SPECIAL, mask, mask);
        IDS(" <|endoftext|>", HEARTH_PARSE_SPECIAL, BYTE + ' ', END);
    }
    vocab_again();
    vocab_file_add(&f, "<mask>", 6, 0.0f, HTH_TOKEN_CONTROL); /* elsewhere it is like any other */
    if (vocab_open()) IDS(" <mask>", HEARTH_PARSE_SPECIAL, BYTE + ' ', mask);
}

TEST(phi_3_drops_the_white_space_behind_its_special_tokens)
{
    vocab_file_put_text(&f, "general.name", "Phi-3-small");
    vocab_file_add(&f, "<|end|>", 7, 0.0f, HTH_TOKEN_CONTROL);
    if (vocab_open()) IDS("ab<|end|>\n ab", HEARTH_PARSE_SPECIAL, AB, E_ACUTE + 1, AB);
}

/* ---- back to text ------------------------------------------------------------------------------ */

TEST(pieces_are_bytes)
{
    static const struct {
        const char *entry;
        int kind;
        bool show;
        const char *piece;
    } known[] = {
        {"\xC4\xA0x\xC4\x8A", HTH_TOKEN_NORMAL, false, " x\n"},
        {"\xC4\xA0x", HTH_TOKEN_UNUSED, false, " x"},
        {"\xC4\xA0x", HTH_TOKEN_USER, false, "\xC4\xA0x"}, /* stands as it is */
        {"\xC4\xA0x", HTH_TOKEN_CONTROL, false, ""},
        {"\xC4\xA0x", HTH_TOKEN_CONTROL, true, "\xC4\xA0x"},
        {"y \xE4\xB8\xAD\xC4\xA0", HTH_TOKEN_NORMAL, false, "y \xE4\xB8\xAD "}, /* what is not mapped */
        {"\xC5\x83\xFF", HTH_TOKEN_NORMAL, false, "\xAD\xFF"},
        {"", HTH_TOKEN_UNUSED, false, "[EMPTY_269]"},
    };
    enum { N = sizeof known / sizeof *known };
    for (int i = 0; i < N; i++) vocab_file_add(&f, known[i].entry, strlen(known[i].entry), 0.0f, known[i].kind);
    if (vocab_open()) {
        for (int i = 0; i < N; i++) {
            size_t n;
            const char *piece = hth_token_piece(tok, E_ACUTE + 1 + i, known[i].show, &n);
            if (CHECK_INT(n, strlen(known[i].piece))) CHECK_BYTES(piece, known[i].piece, n);
        }
        for (unsigned b = 0; b < 256; b++) {
            size_t n;
            const char *piece = hth_token_piece(tok, (int32_t)(BYTE + b), false, &n);
            if (CHECK_INT(n, 1)) CHECK_INT((unsigned char)piece[0], b);
        }
    }
}

TEST(streams_hold_back_what_is_not_yet_a_character)
{
    if (vocab_open()) {
        char out[64];
        hth_detok d;
        hth_detok_init(&d, tok, false, true);
        CHECK_INT(hth_detok_push(&d, BYTE + 0xE4, out), 0);
        CHECK_INT(hth_detok_push(&d, BYTE + 0xB8, out), 0);
        CHECK_INT(hth_detok_push(&d, BYTE + 0xAD, out), 3);
        CHECK_BYTES(out, "\xE4\xB8\xAD", 3);
        CHECK_INT(hth_detok_push(&d, BYTE + 0xC3, out), 0);
        CHECK_INT(hth_detok_push(&d, AB, out), 3); /* it can become none */
        CHECK_INT(hth_detok_push(&d, BYTE + 0xF0, out), 0);
        CHECK_INT(hth_detok_flush(&d, out), 1);
    }
}

/* ---- merging, beside a plain loop ---------------------------------------------------------------- */

enum { MAX_WORD = 40 };

/* Whether the merge of that rank is of the texts [at, mid) and [mid, end) of a word. */
static bool is_merge(const vocab_merge *m, const char *word, size_t at, size_t mid, size_t end)
{
    return m->n == end - at + 1 && memcmp(m->line, word + at, mid - at) == 0 && m->line[mid - at] == ' ' &&
           memcmp(m->line + (mid - at) + 1, word + mid, end - mid) == 0;
}

/* Merges the first pair of the best rank; false when there is none. Part i of the word ends at end[i]. */
static bool merge_best(const vocab_file *v, const char *word, size_t *end, size_t *n_part)
{
    for (uint32_t rank = 0; rank < v->n_merge; rank++) {
        for (size_t i = 0, at = 0; i + 1 < *n_part; at = end[i++]) {
            if (!is_merge(&v->merge[rank], word, at, end[i], end[i + 1])) continue;
            memmove(end + i, end + i + 1, (*n_part - i - 1) * sizeof *end);
            (*n_part)--;
            return true;
        }
    }
    return false;
}

/* The ids of a word of ASCII by scanning all pairs again and again. */
static size_t merge_plainly(const vocab_file *v, const char *word, size_t n, int32_t *ids)
{
    size_t end[MAX_WORD], n_part = n;
    for (size_t i = 0; i < n; i++) end[i] = i + 1;
    while (merge_best(v, word, end, &n_part)) {
    }
    for (size_t i = 0, at = 0; i < n_part; at = end[i++]) {
        uint32_t k = 0;
        while (v->token[k].n != end[i] - at || memcmp(v->token[k].text, word + at, end[i] - at) != 0) k++;
        ids[i] = (int32_t)k;
    }
    return n_part;
}

/* A character, or one of the words so far that is not too long. */
static const vocab_token *random_half(test_random *r)
{
    uint32_t n_word = f.n_token - AB, k = test_random_below(r, 3 * n_word + 3);
    const vocab_token *t = &f.token[k < n_word ? AB + k : BYTE + 'a' + k % 3];
    return t->n > 20 ? &f.token[BYTE + 'a'] : t;
}

static void make_random_vocabulary(test_random *r)
{
    vocab_file_begin_bpe(&f);
    for (int i = 0; i < 40; i++) {
        const vocab_token *a = random_half(r), *b = random_half(r);
        char text[64];
        memcpy(text, a->text, a->n);
        memcpy(text + a->n, b->text, b->n);
        vocab_file_add_merge(&f, text, a->n + b->n, a->n);
    }
    for (uint32_t i = 0; i < f.n_merge; i++) { /* ranks need not follow the lengths */
        vocab_merge m = f.merge[i];
        uint32_t k = test_random_below(r, f.n_merge);
        f.merge[i] = f.merge[k];
        f.merge[k] = m;
    }
}

TEST(random_vocabularies_merge_as_a_plain_loop_does)
{
    vocab_again();
    const int n_vocab = test_is_long() ? 1000 : 40;
    size_t n_merged = 0;
    for (int seed = 0; seed < n_vocab; seed++) {
        test_random r = {(uint64_t)seed + 7};
        make_random_vocabulary(&r);
        if (!vocab_open()) break;
        for (int round = 0; round < 100; round++) {
            char word[MAX_WORD];
            int32_t ids[MAX_WORD];
            size_t n = 1 + test_random_below(&r, MAX_WORD - 1);
            for (size_t i = 0; i < n; i++) word[i] = (char)('a' + test_random_below(&r, 3));
            size_t n_ids = merge_plainly(&f, word, n, ids);
            vocab_expect_ids(word, n, 0, 0, ids, n_ids, __LINE__);
            n_merged += n - n_ids;
        }
        vocab_again();
    }
    CHECK(n_merged > 500 * (size_t)n_vocab);
}

/* ---- cost ------------------------------------------------------------------------------------------ */

/* What bounds the time: every symbol queues one pair, every merge two. */
TEST(candidates_stay_below_three_per_byte)
{
    static const char *const units[] = {"a", " ", "=", "ab", "abc", "\xE4\xB8\xAD", "\xFF", "0"};
    vocab_again();
    vocab_data v;
    if (!vocab_data_open(&v, "gpt-2")) return;
    enum { N = 1 << 18 };
    char *text = malloc(N);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        for (size_t k = 0; k < N; k++) text[k] = units[i][k % strlen(units[i])];
        CLEANUP(hth_tokenize_scratch_free) hth_tokenize_scratch work = {0};
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        CHECK_OK(hth_text_bpe_encode(v.tok, &work, text, N, &ids, err));
        CHECK(work.heap.n_pushed <= 3 * (uint64_t)N && ids.n <= N);
    }
    free(text);
    vocab_data_close(&v);
}

TEST(random_bytes_come_back_with_complete_vocabularies)
{
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2"};
    vocab_again();
    for (int i = 0; i < 3; i++) {
        vocab_data v;
        if (!vocab_data_open(&v, names[i])) return;
        test_random r = {(uint64_t)i + 3};
        for (int round = 0; round < 2000; round++) {
            char text[80];
            size_t n = test_random_below(&r, sizeof text), n_ids = 0;
            for (size_t k = 0; k < n; k++)
                text[k] = round % 2 ? (char)test_random_next(&r) : (char)(0x20 + test_random_below(&r, 0x60));
            hth_ids ids = {0};
            CHECK_OK(hth_tokenize(v.tok, text, n, 0, &ids, &n_ids, err));
            CHECK_INT(n_ids, 0);
            hth_ids_free(&ids);
            vocab_check_round_trip(&v, text, n, "random bytes", round);
        }
        vocab_data_close(&v);
    }
}

static void *tokenize_often(void *text)
{
    static const int32_t expected[] = {AB, SP_AB, SP_AB, BYTE + 'c', SP_AB};
    for (int i = 0; i < 500; i++) {
        hth_ids ids = {0};
        hearth_error err = {0};
        bool right = hth_tokenize(tok, text, strlen(text), 0, &ids, NULL, &err) == HEARTH_OK && ids.n == 5 &&
                     memcmp(ids.id, expected, sizeof expected) == 0;
        hth_ids_free(&ids);
        if (!right) return text;
    }
    return NULL;
}

TEST(threads_share_a_tokenizer)
{
    if (vocab_open()) {
        static char text[] = "ab ab abc ab";
        pthread_t thread[4];
        for (int i = 0; i < 4; i++) CHECK_INT(pthread_create(&thread[i], NULL, tokenize_often, text), 0);
        for (int i = 0; i < 4; i++) {
            void *wrong = text;
            CHECK_INT(pthread_join(thread[i], &wrong), 0);
            CHECK(wrong == NULL);
        }
    }
}

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    static const char text[] = "ab abx bb <|endoftext|>\xFF ab";
    vocab_file_add(&f, "bb", 2, 0.0f, HTH_TOKEN_USER);
    if (!vocab_open()) return;
    uint64_t held = hth_alloc_in_use(), n_before = hth_alloc_count(), n_all;
    int n_open = 0, n_interpreted = 0, n_tokenize = 0;
    hth_tokenizer *second = OPENED(hth_tokenizer, file);
    n_all = hth_alloc_count() - n_before;
    hth_tokenizer_close(second);
    for (uint64_t n = 1; n <= n_all; n++) {
        hearth_error refusal = {0};
        hth_alloc_fail_at(n, 0);
        hearth_status status = hth_tokenizer_open(file, &second, &refusal);
        hth_alloc_fail_at(0, 0);
        /* without memory for machine code, expressions are interpreted */
        if (status == HEARTH_OK) n_interpreted++;
        else if (CHECK_INT(status, HEARTH_ERROR_MEMORY) && CHECK(second == NULL)) n_open++;
        hth_tokenizer_close(second);
        CHECK_INT(hth_alloc_in_use(), held);
    }
    printf("     %llu allocations: %d errors, %d without machine code\n", (unsigned long long)n_all, n_open,
           n_interpreted);
    CHECK(n_open >= 12);
    for (uint64_t n = 1; n < 1000; n++) {
        const hth_text_part parts[] = {{text, 10, true}, {text + 10, sizeof text - 11, true}};
        hth_ids ids = {0};
        hearth_error refusal = {0};
        CHECK_OK(hth_ids_push(&ids, 7, err));
        hth_alloc_fail_at(n, 0);
        hearth_status status = hth_tokenize_parts(tok, parts, 2, 0, &ids, NULL, &refusal);
        hth_alloc_fail_at(0, 0);
        if (status != HEARTH_OK) CHECK_INT(ids.n, 1);
        hth_ids_free(&ids);
        CHECK_INT(hth_alloc_in_use(), held);
        if (status == HEARTH_OK) break;
        CHECK_INT(status, HEARTH_ERROR_MEMORY);
        n_tokenize++;
    }
    CHECK(n_tokenize > 5 && n_tokenize < 999);
}
