/* text: the ids of many texts under vocabularies of every kind, and the way back, beside
 * the plain rules of tests/data/token_rules.py. */
#include "base/clock.h"
#include "support/models/json_lines.h"
#include "support/test.h"
#include "support/models/vocab_data.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

/* How many texts come back from their ids, of the 1020 of each vocabulary; how many bytes the vocabulary cannot
 * hold (-1: the rules do not count them); how many texts have special tokens. A change of the generator changes
 * these. */
typedef struct known {
    const char *name;
    int n_round_trip, n_lost, n_special;
} known;

enum { N_TEXT = 1020 };

static const known sentence_pieces[] = {
    {"llama", 1014, 0, 57},
    {"llama-plain", 1014, 0, 99},
    {"llama-few-bytes", 934, 253, 99},
    {"phi-3", 999, 0, 123},
};

static const known unigrams[] = {
    {"t5", 308, 9391, 81},
    {"t5-plain", 350, 14314, 57},
    {"t5-bytes", 960, 0, 57},
    {"nomic-bert-moe", 310, 9391, 81},
};

static const known word_pieces[] = {
    {"bert", 77, -1, 81},
    {"bert-cased", 123, -1, 81},
    {"bert-accents", 97, -1, 69},
    {"bert-strip", 112, -1, 69},
};

static const known character_levels[] = {
    {"gemma4", 1014, 0, 93},
    {"sarvam-moe", 1014, 0, 69},
    {"whitespace", 196, 8422, 57},
    {"whitespace-cased", 260, 8459, 57},
};

static const known byte_levels[] = {
    {"gpt-2", 1020, 0, 33},
    {"llama-bpe", 1020, 0, 129},
    {"qwen2", 1020, 0, 93},
    {"falcon", 985, 133, 33},
    {"starcoder", 996, 107, 33},
    {"deepseek-llm", 996, 104, 129},
    {"deepseek-coder", 996, 104, 129},
    {"mpt", 1020, 0, 129},
    {"default", 1020, 0, 33},
    {"tekken", 1020, 0, 69},
    {"gpt-4o", 1020, 0, 57},
    {"deepseek-v3", 1020, 0, 45},
    {"bloom", 1020, 0, 45},
    {"viking", 1020, 0, 33},
    {"qwen35", 1020, 0, 57},
    {"minicpm5", 1020, 0, 45},
    {"chameleon", 1020, 0, 57},
    {"cohere2moe", 1020, 0, 33},
    {"jina-v2-code", 1020, 0, 57},
};

enum {
    N_SENTENCE_PIECE = sizeof sentence_pieces / sizeof *sentence_pieces,
    N_UNIGRAM = sizeof unigrams / sizeof *unigrams,
    N_WORD_PIECE = sizeof word_pieces / sizeof *word_pieces,
    N_CHARACTER_LEVEL = sizeof character_levels / sizeof *character_levels,
    N_BYTE_LEVEL = sizeof byte_levels / sizeof *byte_levels
};

static bool has_engine(void)
{
    char engine[100];
    if (hth_pretokenizer_engine(engine, sizeof engine)) return true;
    test_skip("built without PCRE2");
    return false;
}

static bool has_characters(void)
{
    char engine[100];
    if (hth_unicode_engine(engine, sizeof engine)) return true;
    test_skip("built without utf8proc");
    return false;
}

/* ---- plain text ------------------------------------------------------------------------ */

static void check_plain(const known *k)
{
    vocab_data v;
    char path[100];
    size_t n_bytes;
    int n_line = 0, n_true = 0, n_all_lost = 0;
    if (!vocab_data_open(&v, k->name)) return;
    snprintf(path, sizeof path, "%s.jsonl", k->name);
    char *lines = vocab_data_read(path, &n_bytes), *rest = lines;
    for (char *line; rest && (line = json_next_line(&rest));) {
        size_t n, n_ids, n_lost = 0, n_expected = strtoul(json_field(line, "lost"), NULL, 10);
        FREED char *text = json_base64(json_field(line, "b64"), &n);
        FREED int32_t *expected = json_ints(json_field(line, "ids"), &n_ids, NULL);
        vocab_check_ids(&v, text, n, 0, expected, n_ids, &n_lost, path, ++n_line);
        if (k->n_lost >= 0) CHECK_INT(n_lost, n_expected);
        n_all_lost += (int)n_lost;
        if (strncmp(json_field(line, "rt"), "true", 4) == 0) {
            vocab_check_round_trip(&v, text, n, path, n_line);
            n_true++;
        }
    }
    CHECK_INT(n_line, N_TEXT);
    CHECK_INT(n_true, k->n_round_trip);
    if (k->n_lost >= 0) CHECK_INT(n_all_lost, k->n_lost);
    printf("     %s: %d ids, %d round trips, %d bytes lost\n", path, n_line, n_true, n_all_lost);
    free(lines);
    vocab_data_close(&v);
}

TEST(sentencepiece_vocabularies_give_the_ids_of_the_rules)
{
    for (size_t i = 0; i < N_SENTENCE_PIECE; i++) check_plain(&sentence_pieces[i]);
}

TEST(unigram_vocabularies_give_the_ids_of_the_rules)
{
    for (size_t i = 0; i < N_UNIGRAM; i++) check_plain(&unigrams[i]);
}

TEST(wordpiece_vocabularies_give_the_ids_of_the_rules)
{
    if (!has_characters()) return;
    for (size_t i = 0; i < N_WORD_PIECE; i++) check_plain(&word_pieces[i]);
}

TEST(bpe_of_characters_gives_the_ids_of_the_rules)
{
    if (!has_engine() || !has_characters()) return;
    for (size_t i = 0; i < N_CHARACTER_LEVEL; i++) check_plain(&character_levels[i]);
}

TEST(byte_level_vocabularies_give_the_ids_of_the_rules)
{
    if (!has_engine()) return;
    for (size_t i = 0; i < N_BYTE_LEVEL; i++) check_plain(&byte_levels[i]);
}

/* ---- special tokens ---------------------------------------------------------------------- */

/* plain: nothing recognised but user-defined tokens; ids: all are; ids_add: and what the
 * vocabulary puts around a text. */
static void check_specials(const known *k)
{
    static const struct {
        const char *field;
        unsigned flags;
    } ways[] = {
        {"plain", 0}, {"ids", HEARTH_PARSE_SPECIAL}, {"ids_add", HEARTH_PARSE_SPECIAL | HEARTH_ADD_SPECIAL}};
    vocab_data v;
    char path[100];
    size_t n_bytes;
    int n_line = 0;
    if (!vocab_data_open(&v, k->name)) return;
    snprintf(path, sizeof path, "%s.special.jsonl", k->name);
    char *lines = vocab_data_read(path, &n_bytes), *rest = lines;
    for (char *line; rest && (line = json_next_line(&rest));) {
        size_t n, n_ids, n_lost;
        FREED char *text = json_base64(json_field(line, "b64"), &n);
        n_line++;
        for (int i = 0; i < 3; i++) {
            FREED int32_t *ids = json_ints(json_field(line, ways[i].field), &n_ids, NULL);
            vocab_check_ids(&v, text, n, ways[i].flags, ids, n_ids, &n_lost, path, n_line);
        }
    }
    CHECK_INT(n_line, k->n_special);
    free(lines);
    vocab_data_close(&v);
}

TEST(sentencepiece_vocabularies_recognise_special_tokens)
{
    for (size_t i = 0; i < N_SENTENCE_PIECE; i++) check_specials(&sentence_pieces[i]);
}

TEST(unigram_vocabularies_recognise_special_tokens)
{
    for (size_t i = 0; i < N_UNIGRAM; i++) check_specials(&unigrams[i]);
}

TEST(wordpiece_vocabularies_recognise_special_tokens)
{
    if (!has_characters()) return;
    for (size_t i = 0; i < N_WORD_PIECE; i++) check_specials(&word_pieces[i]);
}

TEST(bpe_of_characters_recognises_special_tokens)
{
    if (!has_engine() || !has_characters()) return;
    for (size_t i = 0; i < N_CHARACTER_LEVEL; i++) check_specials(&character_levels[i]);
}

TEST(byte_level_vocabularies_recognise_special_tokens)
{
    if (!has_engine()) return;
    for (size_t i = 0; i < N_BYTE_LEVEL; i++) check_specials(&byte_levels[i]);
}

/* ---- long runs ------------------------------------------------------------------------- */

/* prefix, then unit repeated, then suffix. */
static char *expand(const char *line, size_t *n)
{
    size_t n_prefix, n_unit, n_suffix;
    FREED char *prefix = json_text_of(json_field(line, "prefix"), &n_prefix);
    FREED char *unit = json_text_of(json_field(line, "unit"), &n_unit);
    FREED char *suffix = json_text_of(json_field(line, "suffix"), &n_suffix);
    size_t repeat = strtoul(json_field(line, "repeat"), NULL, 10);
    *n = n_prefix + n_unit * repeat + n_suffix;
    char *out = malloc(*n + 1), *p = out;
    memcpy(p, prefix, n_prefix);
    p += n_prefix;
    for (size_t i = 0; i < repeat; i++, p += n_unit) memcpy(p, unit, n_unit);
    memcpy(p, suffix, n_suffix);
    return out;
}

/* [[ids, count], ...] written out. */
static int32_t *expand_segments(const char *p, size_t n_ids)
{
    int32_t *out = malloc((n_ids + 1) * sizeof *out);
    size_t n = 0;
    for (p++; *p == '['; p += *p == ',') {
        size_t n_part;
        FREED int32_t *part = json_ints(p + 1, &n_part, &p);
        char *end;
        unsigned long count = strtoul(p + 1, &end, 10);
        p = end + 1;
        for (unsigned long i = 0; i < count; i++)
            for (size_t k = 0; k < n_part && n < n_ids; k++) out[n++] = part[k];
    }
    CHECK_INT(n, n_ids);
    return out;
}

static void check_long_runs(const char *name)
{
    vocab_data v;
    char wanted[40];
    size_t n_bytes;
    int n_line = 0;
    if (!vocab_data_open(&v, name)) return;
    snprintf(wanted, sizeof wanted, "\"tok\":\"%s\"", name);
    char *lines = vocab_data_read("long_runs.jsonl", &n_bytes), *rest = lines;
    uint64_t start = hth_clock_ns();
    for (char *line; rest && (line = json_next_line(&rest));) {
        if (!strstr(line, wanted)) continue;
        size_t n, n_ids = strtoul(json_field(line, "n_ids"), NULL, 10);
        FREED char *text = expand(line, &n);
        FREED int32_t *ids = expand_segments(json_field(line, "segments"), n_ids);
        vocab_check_ids(&v, text, n, 0, ids, n_ids, NULL, "long_runs.jsonl", ++n_line);
    }
    CHECK_INT(n_line, 16);
    printf("     long runs, %s: %d, %.1f s\n", name, n_line, (double)(hth_clock_ns() - start) * 1e-9);
    free(lines);
    vocab_data_close(&v);
}

TEST(long_runs_give_the_ids_of_sentencepiece) { check_long_runs("llama"); }

TEST_LONG_IF_SANITIZED(long_runs_give_the_ids_of_byte_level_bpe)
{
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2"};
    if (!has_engine()) return;
    for (size_t i = 0; i < 3; i++) check_long_runs(names[i]);
}

/* ---- whole texts --------------------------------------------------------------------------- */

static char *read_text(const char *relative, size_t *n)
{
    const char *path = test_data(relative);
    return path ? test_read_file(path, n) : NULL;
}

static void check_english(const char *name, size_t n_expected)
{
    vocab_data v;
    char path[100];
    size_t n = 0, n_bytes = 0;
    if (!vocab_data_open(&v, name)) return;
    snprintf(path, sizeof path, "%s.english.ids", name);
    char *text = read_text("text/english.txt", &n), *ids = vocab_data_read(path, &n_bytes);
    if (text && ids) {
        CHECK_INT(n_bytes / sizeof(int32_t), n_expected);
        vocab_check_ids(&v, text, n, 0, (const int32_t *)(const void *)ids, n_bytes / sizeof(int32_t), NULL, path, 1);
        vocab_check_round_trip(&v, text, n, path, 1);
    }
    free(ids);
    free(text);
    vocab_data_close(&v);
}

TEST(a_book_has_the_ids_of_the_rules)
{
    check_english("llama", 113225);
    if (!has_engine()) return;
    check_english("gpt-2", 113803);
    check_english("llama-bpe", 108336);
    check_english("qwen2", 108369);
}

TEST(texts_have_the_known_number_of_tokens)
{
    static const struct {
        const char *model;
        size_t n_stories, n_english;
    } models[] = {
        {HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf", 61759, 149111},
        {"models/stories260K/stories260K-f32.gguf", 107423, 218063},
        {"models/babyllama-tok361/babyllama-tok361-f32.gguf", 219674, 390793},
    };
    for (int i = 0; i < 3; i++) {
        CLEANUP(vocab_data_close) vocab_data v = {.name = models[i].model, .drops_space = true};
        const char *path = i == 0 ? models[i].model : test_data(models[i].model);
        if (!path) return;
        CHECK_OK(hth_gguf_open(path, &v.file, err));
        CHECK_OK(hth_tokenizer_open(v.file, &v.tok, err));
        if (!v.tok) return;
        for (int k = 0; k < 2; k++) {
            size_t n;
            CLEANUP(hth_ids_free) hth_ids ids = {0};
            FREED char *text = read_text(k == 0 ? "text/stories.txt" : "text/english.txt", &n);
            if (!text) break;
            if (n > 0 && text[n - 1] == '\n') n--;
            uint64_t start = hth_clock_ns();
            CHECK_OK(hth_tokenize(v.tok, text, n, HEARTH_ADD_SPECIAL, &ids, NULL, err));
            printf("     %s, %zu bytes: %.1f ms\n", models[i].model, n, (double)(hth_clock_ns() - start) * 1e-6);
            CHECK_INT(ids.n, k == 0 ? models[i].n_stories : models[i].n_english);
            vocab_check_round_trip(&v, text, n, path, k);
        }
    }
}
