/* text/unigram.c, text/unigram_vocab.c, text/charsmap.c: the best sum wins, what SentencePiece's normalisation does,
 * and which maps are refused. The ids of many texts are in test_vectors.c. */
#include "support/models/vocab_case.h"
#include "text/charsmap.h"

#include <math.h>

#define SPACE_MARK "\xE2\x96\x81"
static const char map_key[] = "tokenizer.ggml.precompiled_charsmap";

enum { UNK, BOS, EOS, SPACE, A, B, AB, BC, ABC_, XYZ, USER, PAD };

bool vocab_begin(void)
{
    vocab_file_begin(&f, false);
    vocab_file_put_text(&f, "tokenizer.ggml.model", "t5");
    vocab_file_put_u32(&f, "tokenizer.ggml.unknown_token_id", 0);
    vocab_file_put_bool(&f, "tokenizer.ggml.add_space_prefix", true);
    vocab_file_put_bool(&f, "tokenizer.ggml.remove_extra_whitespaces", true);
    vocab_file_add_word(&f, SPACE_MARK, -2.0f);
    vocab_file_add_word(&f, "a", -5.0f);
    vocab_file_add_word(&f, "b", -5.0f);
    vocab_file_add_word(&f, "ab", -3.0f);
    vocab_file_add_word(&f, "bc", -1.0f);
    vocab_file_add_word(&f, SPACE_MARK "abc", -9.0f);
    vocab_file_add_word(&f, "xyz", -4.0f);
    vocab_file_add(&f, "<user>", 6, -1.0f, HTH_TOKEN_USER);
    vocab_file_add(&f, "aa", 2, -0.5f, HTH_TOKEN_UNUSED);
    return true;
}

/* In place of what vocab_begin states. */
static void state_only_unknown(uint32_t id)
{
    f.n_more = f.n_more_pair = 0;
    vocab_file_put_text(&f, "tokenizer.ggml.model", "t5");
    vocab_file_put_u32(&f, "tokenizer.ggml.unknown_token_id", id);
}

static void refuse(const char *part, const char *other)
{
    vocab_expect_refused(HEARTH_ERROR_FORMAT, part, other);
}

static void lost(const char *text, size_t n_lost, const int32_t *ids, size_t n)
{
    vocab_expect_ids(text, strlen(text), 0, n_lost, ids, n, __LINE__);
}
#define LOST(TEXT, N_LOST, ...)                                                                              \
    lost(TEXT, N_LOST, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

static void none(const char *text) { vocab_expect_ids(text, strlen(text), 0, 0, NULL, 0, __LINE__); }

/* ---- the best sum --------------------------------------------------------------------------------------- */

TEST(the_best_sum_wins_and_not_the_longest_piece)
{
    if (!vocab_open()) return;
    CHECK_TEXT(warnings, "");
    IDS("ab", 0, SPACE, AB);
    IDS("abc", 0, SPACE, A, BC); /* -2 -5 -1 is better than -9 and than -3 with an unknown c */
    IDS("xyzabab", 0, SPACE, XYZ, AB, AB);
    IDS("aaa", 0, SPACE, A, A, A); /* unused pieces are none */
    none("");
    IDS("", HEARTH_ADD_SPECIAL, EOS);
    IDS("ab<s>ab", HEARTH_PARSE_SPECIAL | HEARTH_ADD_SPECIAL, SPACE, AB, BOS, SPACE, AB, EOS);
    IDS("a<user>b", 0, SPACE, A, USER, SPACE, B);
}

TEST(of_equal_sums_the_piece_that_begins_first_stays)
{
    vocab_file_add_word(&f, "bb", -5.0f); /* with b as good as b with bb */
    if (vocab_open()) IDS("bbb", 0, SPACE, B, PAD + 1);
}

TEST(neighbouring_unknown_characters_are_one_token)
{
    if (!vocab_open()) return;
    LOST("qqq", 3, SPACE, UNK);
    LOST("aqqb", 2, SPACE, A, UNK, B);
    LOST("q ab q", 2, SPACE, UNK, SPACE, AB, SPACE, UNK);
    LOST("\xE4\xB8\xAD", 3, SPACE, UNK);
    LOST("a\xFFz", 4, SPACE, A, UNK); /* U+FFFD and z */
}

TEST(all_byte_tokens_stand_in_for_unknown_characters)
{
    vocab_file_free(&f);
    vocab_file_begin(&f, true);
    vocab_file_put_text(&f, "tokenizer.ggml.model", "t5");
    vocab_file_put_u32(&f, "tokenizer.ggml.unknown_token_id", 0);
    vocab_file_add_word(&f, "a", -1.0f);
    if (vocab_open())
        IDS("a\xC3\xA9"
            "a",
            0, 259, 3 + 0xC3, 3 + 0xA9, 259);
}

TEST(spaces_are_merged_where_the_file_says_so)
{
    if (!vocab_open()) return;
    IDS("  ab   ab ", 0, SPACE, AB, SPACE, AB);
    none("   ");
    vocab_again();
    state_only_unknown(0);
    if (vocab_open()) IDS(" ab  ab ", 0, SPACE, AB, SPACE, SPACE, AB, SPACE);
}

TEST(the_space_before_a_text_is_dropped_again)
{
    char out[100];
    hth_detok d;
    if (!vocab_open()) return;
    hth_detok_init(&d, tok, false, true);
    size_t n = 0;
    const int32_t ids[] = {SPACE, AB, SPACE, XYZ, UNK, EOS};
    for (size_t i = 0; i < 6; i++) n += hth_detok_push(&d, ids[i], out + n);
    out[n] = '\0';
    CHECK_TEXT(out, "ab xyz");
}

/* ---- what is refused ------------------------------------------------------------------------------------ */

TEST(vocabularies_without_pieces_or_unknown_token_are_refused)
{
    f.token[SPACE].kind = f.token[A].kind = f.token[B].kind = f.token[AB].kind = f.token[BC].kind =
        HTH_TOKEN_UNUSED;
    f.token[ABC_].kind = f.token[XYZ].kind = HTH_TOKEN_UNUSED;
    refuse("tokenizer.ggml.token_type", "no token has type 1");
    state_only_unknown(UINT32_MAX);
    refuse("tokenizer.ggml.unknown_token_id", "states no token");
    f.token[A].score = NAN;
    refuse("tokenizer.ggml.scores", "token 4 is not finite");
    f.without = "tokenizer.ggml.scores";
    refuse("tokenizer.ggml.scores", "missing");
}

TEST(whole_numbers_are_scores_too)
{
    static const int32_t scores[] = {0, 0, 0, -2, -5, -5, -3, -1, -9, -4, -1, 0};
    char bytes[12 + sizeof scores];
    const uint32_t type = HTH_GGUF_I32;
    const uint64_t n = 12;
    memcpy(bytes, &type, 4);
    memcpy(bytes + 4, &n, 8);
    memcpy(bytes + 12, scores, sizeof scores);
    vocab_file_put(&f, "tokenizer.ggml.scores", HTH_GGUF_ARRAY, bytes, sizeof bytes);
    if (vocab_open()) IDS("abc", 0, SPACE, A, BC);
}

/* ---- the map ---------------------------------------------------------------------------------------------- */

enum { N_UNIT = 256, MAP_BYTES = 4 + 4 * N_UNIT + 6 };

typedef struct map {
    uint32_t size, unit[N_UNIT];
    char texts[6];
} map;

static uint32_t unit(unsigned byte, bool ends, unsigned at, unsigned base)
{
    return byte | (uint32_t)ends << 8 | (at ^ base) << 10;
}

/* "C" becomes nothing, "D" becomes "x", "DE" becomes " z". */
static map small_map(void)
{
    map m = {.size = 4 * N_UNIT, .texts = "x\0 z\0"};
    m.unit[0] = unit(0, false, 0, 0x80);
    m.unit[0x80 ^ 'C'] = unit('C', true, 0x80 ^ 'C', 0x30);
    m.unit[0x30] = UINT32_C(1) << 31 | 5;
    m.unit[0x80 ^ 'D'] = unit('D', true, 0x80 ^ 'D', 0x10);
    m.unit[0x10] = UINT32_C(1) << 31 | 0;
    m.unit[0x10 ^ 'E'] = unit('E', true, 0x10 ^ 'E', 0x20);
    m.unit[0x20] = UINT32_C(1) << 31 | 2;
    return m;
}

static void put_map(const map *m, size_t n, hth_gguf_type type)
{
    char bytes[12 + MAP_BYTES];
    const uint32_t word = (uint32_t)type;
    const uint64_t length = n;
    memcpy(bytes, &word, 4);
    memcpy(bytes + 4, &length, 8);
    memcpy(bytes + 12, &m->size, 4);
    memcpy(bytes + 16, m->unit, sizeof m->unit);
    memcpy(bytes + 16 + sizeof m->unit, m->texts, 6);
    vocab_file_put(&f, map_key, HTH_GGUF_ARRAY, bytes, 12 + n);
}

TEST(a_map_replaces_the_longest_prefix)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        map m = small_map();
        put_map(&m, MAP_BYTES, is_signed ? HTH_GGUF_I8 : HTH_GGUF_U8);
        if (vocab_open()) {
            IDS("aCb", 0, SPACE, AB);
            IDS("Dyz", 0, SPACE, XYZ);
            LOST("aDEb", 1, SPACE, A, SPACE, UNK, B);
            LOST("E", 1, SPACE, UNK);
            none("CCC");
        }
        vocab_again();
    }
    map m = small_map();
    put_map(&m, 0, HTH_GGUF_U8); /* an empty one replaces nothing */
    if (vocab_open()) LOST("C", 1, SPACE, UNK);
}

static void refuse_map(const map *m, size_t n, const char *says)
{
    put_map(m, n, HTH_GGUF_U8);
    refuse(map_key, says);
}

TEST(damaged_maps_are_refused_with_their_place)
{
    const map good = small_map();
    map m;
    for (size_t n = 1; n < 9; n++) refuse_map(&good, n, "a trie of");
    refuse_map(&good, 4 + 4 * N_UNIT - 1, "a trie of 1024 bytes is stated");
    refuse_map(&good, 4 + 4 * N_UNIT, "the last replacement has no end");
    refuse_map(&good, MAP_BYTES - 2, "the last replacement has no end");
    m = good, m.size = 0;
    refuse_map(&m, MAP_BYTES, "a trie of 0 bytes");
    m = good, m.size = 1022;
    refuse_map(&m, MAP_BYTES, "a trie of 1022 bytes");
    m = good, m.size = UINT32_MAX - 3;
    refuse_map(&m, MAP_BYTES, "a trie of 4294967292 bytes");
    m = good, m.unit[0x20] = UINT32_C(1) << 31 | 6;
    refuse_map(&m, MAP_BYTES, "unit 85 of the map names a replacement past the last one");
    m = good, m.unit[0x20] = 2;
    refuse_map(&m, MAP_BYTES, "unit 85 of the map has no value");
    m = good, m.unit[0x10 ^ 'E'] = unit('E', true, 0x10 ^ 'E', 0x500);
    refuse_map(&m, MAP_BYTES, "unit 85 of the map has its value outside of it");
    m = good, m.unit[0x10 ^ 'E'] = unit('E', false, 0x10 ^ 'E', 0x10); /* E after E after E */
    refuse_map(&m, MAP_BYTES, "unit 85 of the map leads back to itself");
    put_map(&good, 4, HTH_GGUF_F32);
    refuse(map_key, "vocab.gguf");
    vocab_file_put_u32(&f, map_key, 1);
    refuse(map_key, "vocab.gguf");
}

/* Whatever the units are: the map is refused, or no text leads out of it. */
TEST(random_maps_are_refused_or_stay_inside)
{
    test_random r = {21};
    int n_taken = 0;
    for (int round = 0; round < 2000; round++) {
        map m = small_map();
        for (uint32_t k = 1 + test_random_below(&r, 4); k > 0; k--) {
            const uint32_t at = test_random_below(&r, N_UNIT);
            const uint32_t near = (uint32_t[]){0, 0x80 ^ 'C', 0x80 ^ 'D', 0x10, 0x10 ^ 'E', 0x20}[at % 6];
            m.unit[round % 2 ? at : near] ^= UINT32_C(1) << test_random_below(&r, 32);
        }
        put_map(&m, MAP_BYTES, HTH_GGUF_U8);
        hearth_error why = {0};
        hearth_status status = vocab_file_open(&f, &file, &tok, &why);
        if (status == HEARTH_OK) {
            CLEANUP(hth_ids_free) hth_ids ids = {0};
            char text[40];
            for (size_t i = 0; i < sizeof text; i++) text[i] = (char)test_random_below(&r, i % 2 ? 256 : 'F');
            CHECK_OK(hth_tokenize(tok, text, sizeof text, 0, &ids, NULL, err));
            n_taken++;
        } else {
            CHECK_INT(status, HEARTH_ERROR_FORMAT);
        }
        vocab_again();
    }
    CHECK(n_taken > 200 && n_taken < 1900);
}

/* ---- memory, time -------------------------------------------------------------------------------------------- */

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    map m = small_map();
    put_map(&m, MAP_BYTES, HTH_GGUF_U8);
    if (vocab_open()) vocab_fail_allocations("ab Dabx <s>\xFF ab <user> ab ab abcabcabc xyzxyz", 44, 10, 5);
}

/* A run of one piece that always overlaps the next cannot be cut; words are. */
TEST(a_megabyte_takes_a_time_in_proportion)
{
    static const char *const units[] = {"ab ", "ab", "bc", "q", "a", " ", "\xFF", "xyz"};
    vocab_file_add_word(&f, "cb", -1.0f);
    if (vocab_open()) vocab_expect_proportion(units, sizeof units / sizeof *units);
}
