/* text: the ids that independent implementations agree on, and the way back. Every
 * vector is run for which there is a vocabulary. */
#include "base/clock.h"
#include "support/json_lines.h"
#include "support/test.h"
#include "support/vocab_data.h"
#include "text/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False, and the case is skipped, in a build without PCRE2 (or without data). */
static bool open_bpe(vocab_data *v, const char *name)
{
    char engine[100];
    if (hth_text_cutter_engine(engine, sizeof engine)) return vocab_data_open(v, name);
    test_skip("built without PCRE2");
    return false;
}

/* ---- upstream's .inp and .out ------------------------------------------------------ */

static void check_inp_out(const vocab_data *v, int n_expected)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[200];
    size_t n_inp, n_out;
    snprintf(path, sizeof path, "ggml-vocab-%s.gguf.inp", v->name);
    char *inp = vocab_data_read(path, &n_inp);
    strcpy(path + strlen(path) - 4, ".out");
    char *out = vocab_data_read(path, &n_out), *rest = out;
    int n_line = 0;
    for (char *text = inp, *end; (end = strstr(text, separator)); text = end + strlen(separator)) {
        char *line = json_next_line(&rest);
        if (!CHECK(line != NULL)) break;
        int32_t expected[1000];
        size_t n = 0;
        for (char *p = line, *behind; *p; p = behind) {
            expected[n] = (int32_t)strtol(p, &behind, 10);
            if (behind == p) break;
            n++;
        }
        vocab_check_ids(v, text, (size_t)(end - text), 0, expected, n, NULL, path, ++n_line);
    }
    CHECK_INT(n_line, n_expected);
    CHECK(*rest == '\0');
    printf("     %s: %d\n", v->name, n_line);
    free(inp);
    free(out);
}

TEST(sentencepiece_vocabularies_give_the_ids_of_upstream)
{
    static const char *const names[] = {"llama-spm", "phi-3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vocab_data v;
        if (!vocab_data_open(&v, names[i])) return;
        check_inp_out(&v, 46);
        vocab_data_close(&v);
    }
}

TEST(byte_level_vocabularies_give_the_ids_of_upstream)
{
    static const char *const names[] = {"gpt-2", "deepseek-coder",   "starcoder",    "falcon",
                                        "mpt",   "refact",           "deepseek-llm", "llama-bpe",
                                        "qwen2", "deepseek-r1-qwen", "qwen35"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vocab_data v;
        if (!open_bpe(&v, names[i])) return;
        check_inp_out(&v, strcmp(names[i], "qwen35") == 0 ? 50 : 46);
        vocab_data_close(&v);
    }
}

/* ---- lines of JSON -------------------------------------------------------------------- */

static bool is_true(const char *value) { return value && strncmp(value, "true", 4) == 0; }

static void check_hf(const vocab_data *v, const char *path, int n_round_trip)
{
    size_t n_bytes;
    char *lines = vocab_data_read(path, &n_bytes), *rest = lines;
    int n_line = 0, n_true = 0;
    for (char *line; (line = json_next_line(&rest));) {
        size_t n, n_ids;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *expected = json_ints(json_field(line, "ids"), &n_ids, NULL);
        vocab_check_ids(v, text, n, 0, expected, n_ids, NULL, path, ++n_line);
        if (is_true(json_field(line, "rt"))) {
            vocab_check_round_trip(v, text, n, path, n_line);
            n_true++;
        }
        free(expected);
        free(text);
    }
    CHECK_INT(n_line, 726);
    CHECK_INT(n_true, n_round_trip);
    printf("     %s: %d ids, %d round trips\n", path, n_line, n_true);
    free(lines);
}

TEST(llama_gives_the_ids_that_four_implementations_agree_on)
{
    vocab_data v;
    if (!vocab_data_open(&v, "llama-spm")) return;
    check_hf(&v, "hf/llama.jsonl", 721);
    vocab_data_close(&v);
}

TEST(byte_level_gives_the_ids_that_many_implementations_agree_on)
{
    static const char *const names[][2] = {
        {"gpt-2", "hf/gpt2.jsonl"}, {"llama-3.2", "hf/llama-3.2.jsonl"}, {"qwen2.5", "hf/qwen2.5.jsonl"}};
    for (size_t i = 0; i < 3; i++) {
        vocab_data v;
        if (!open_bpe(&v, names[i][0])) return;
        check_hf(&v, names[i][1], 726);
        vocab_data_close(&v);
    }
}

/* ids_add: as the model asks, which for Qwen and GPT-2 is nothing. */
static void check_specials(const vocab_data *v, const char *path, int n_expected)
{
    size_t n_bytes;
    char *lines = vocab_data_read(path, &n_bytes), *rest = lines;
    int n_line = 0;
    for (char *line; (line = json_next_line(&rest));) {
        size_t n, n_ids, n_add;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *ids = json_ints(json_field(line, "ids"), &n_ids, NULL);
        int32_t *add = json_ints(json_field(line, "ids_add"), &n_add, NULL);
        const unsigned parse = HEARTH_PARSE_SPECIAL;
        vocab_check_ids(v, text, n, parse, ids, n_ids, NULL, path, ++n_line);
        vocab_check_ids(v, text, n, parse | HEARTH_ADD_SPECIAL, add, n_add, NULL, path, n_line);
        free(add);
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, n_expected);
    printf("     %s: %d\n", path, n_line);
    free(lines);
}

TEST(llama_and_phi_3_recognise_special_tokens)
{
    vocab_data v;
    if (!vocab_data_open(&v, "llama-spm")) return;
    check_specials(&v, "special/llama.jsonl", 42);
    vocab_data_close(&v);
    if (!vocab_data_open(&v, "phi-3")) return;
    check_specials(&v, "special/phi-3.jsonl", 60);
    vocab_data_close(&v);
}

TEST(byte_level_vocabularies_recognise_special_tokens)
{
    static const struct {
        const char *name, *path;
        int n;
    } known[] = {
        {"gpt-2", "special/gpt2.jsonl", 34},
        {"llama-3.2", "special/llama-3.2.jsonl", 59},
        {"qwen2.5", "special/qwen2.5.jsonl", 60},
    };
    for (size_t i = 0; i < 3; i++) {
        vocab_data v;
        if (!open_bpe(&v, known[i].name)) return;
        check_specials(&v, known[i].path, known[i].n);
        vocab_data_close(&v);
    }
}

/* ---- the reference strings under seven vocabularies ------------------------------------ */

/* Where a text does not come back, bytes must have been counted as lost (or, for
 * "llama", a U+2581 was a space). */
static void check_reference_strings(const vocab_data *v, int n_round_trip)
{
    char path[100];
    size_t n_bytes;
    snprintf(path, sizeof path, "pretok/ids-%s.jsonl", v->name);
    char *texts = vocab_data_read("pretok/texts.jsonl", &n_bytes), *rest = texts;
    char *answers = vocab_data_read(path, &n_bytes), *rest_answers = answers;
    int n_line = 0, n_true = 0;
    for (char *line; (line = json_next_line(&rest)); n_line++) {
        char *answer = json_next_line(&rest_answers);
        size_t n, n_ids, n_lost = 0;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *ids = json_ints(json_field(answer, "ids"), &n_ids, NULL);
        bool comes_back = is_true(json_field(answer, "rt"));
        vocab_check_ids(v, text, n, 0, ids, n_ids, &n_lost, path, n_line + 1);
        CHECK_INT(n_lost > 0, !comes_back && !v->is_spm);
        if (comes_back) vocab_check_round_trip(v, text, n, path, n_line + 1);
        n_true += comes_back;
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, 262);
    CHECK_INT(n_true, n_round_trip);
    printf("     %s: %d ids, %d round trips\n", path, n_line, n_true);
    free(texts);
    free(answers);
}

TEST(phi_3_gives_the_ids_of_the_reference_strings)
{
    vocab_data v;
    if (!vocab_data_open(&v, "phi-3")) return;
    check_reference_strings(&v, 261);
    vocab_data_close(&v);
}

TEST(byte_level_gives_the_ids_of_the_reference_strings)
{
    static const char *const names[] = {"deepseek-coder", "deepseek-llm", "falcon", "mpt",
                                        "refact",         "starcoder"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vocab_data v;
        if (!open_bpe(&v, names[i])) return;
        check_reference_strings(&v, strcmp(names[i], "falcon") == 0 ? 256 : 262);
        vocab_data_close(&v);
    }
}

/* ---- long runs ------------------------------------------------------------------------- */

/* prefix, then unit repeated, then suffix. */
static char *expand(const char *line, size_t *n)
{
    size_t n_prefix, n_unit, n_suffix;
    char *prefix = json_text(json_field(line, "prefix"), &n_prefix);
    char *unit = json_text(json_field(line, "unit"), &n_unit);
    char *suffix = json_text(json_field(line, "suffix"), &n_suffix);
    size_t repeat = strtoul(json_field(line, "repeat"), NULL, 10);
    *n = n_prefix + n_unit * repeat + n_suffix;
    char *out = malloc(*n + 1), *p = out;
    memcpy(p, prefix, n_prefix);
    p += n_prefix;
    for (size_t i = 0; i < repeat; i++, p += n_unit) memcpy(p, unit, n_unit);
    memcpy(p, suffix, n_suffix);
    free(prefix);
    free(unit);
    free(suffix);
    return out;
}

/* [[ids, count], ...] written out. */
static int32_t *expand_segments(const char *p, size_t n_ids)
{
    int32_t *out = malloc((n_ids + 1) * sizeof *out);
    size_t n = 0;
    for (p++; *p == '['; p += *p == ',') {
        size_t n_part;
        int32_t *part = json_ints(p + 1, &n_part, &p);
        char *end;
        unsigned long count = strtoul(p + 1, &end, 10);
        p = end + 1;
        for (unsigned long i = 0; i < count; i++)
            for (size_t k = 0; k < n_part && n < n_ids; k++) out[n++] = part[k];
        free(part);
    }
    CHECK_INT(n, n_ids);
    return out;
}

static void check_long_runs(const vocab_data *v, const char *name)
{
    char wanted[40];
    size_t n_bytes;
    snprintf(wanted, sizeof wanted, "\"tok\":\"%s\"", name);
    char *lines = vocab_data_read("hf/long_runs.jsonl", &n_bytes), *rest = lines;
    int n_line = 0;
    uint64_t start = hth_clock_ns();
    for (char *line; (line = json_next_line(&rest));) {
        if (!strstr(line, wanted)) continue;
        size_t n, n_ids = strtoul(json_field(line, "n_ids"), NULL, 10);
        char *text = expand(line, &n);
        int32_t *ids = expand_segments(json_field(line, "segments"), n_ids);
        vocab_check_ids(v, text, n, 0, ids, n_ids, NULL, "long_runs.jsonl", ++n_line);
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, 16);
    printf("     long runs, %s: %d, %.1f s\n", name, n_line, (double)(hth_clock_ns() - start) * 1e-9);
    free(lines);
}

TEST(long_runs_give_the_ids_of_sentencepiece)
{
    vocab_data v;
    if (!vocab_data_open(&v, "llama-spm")) return;
    check_long_runs(&v, "llama");
    vocab_data_close(&v);
}

TEST(long_runs_give_the_ids_of_byte_level_bpe)
{
    static const char *const names[][2] = {
        {"gpt-2", "gpt2"}, {"llama-3.2", "llama-3.2"}, {"qwen2.5", "qwen2.5"}};
    for (size_t i = 0; i < 3; i++) {
        vocab_data v;
        if (!open_bpe(&v, names[i][0])) return;
        check_long_runs(&v, names[i][1]);
        vocab_data_close(&v);
    }
}

/* ---- whole texts with real models ---------------------------------------------------------- */

static char *read_text(const char *relative, size_t *n)
{
    const char *path = test_data(relative);
    return path ? test_read_file(path, n) : NULL;
}

TEST(texts_have_the_known_number_of_tokens)
{
    static const struct {
        const char *model;
        size_t n_stories, n_english;
    } known[] = {
        {"storyteller-drelu/storyteller-drelu", 61759, 149111},
        {"stories260K/stories260K", 107423, 218063},
        {"babyllama-tok361/babyllama-tok361", 219674, 390793},
    };
    for (int i = 0; i < 3; i++) {
        char path[200];
        vocab_data v = {.name = known[i].model, .is_spm = true};
        snprintf(path, sizeof path, "models/%s-f32.gguf", known[i].model);
        const char *found = test_data(path);
        if (!found) return;
        CHECK_OK(hth_gguf_open(found, &v.file, err));
        CHECK_OK(hth_tokenizer_open(v.file, &v.tok, err));
        if (!v.tok) return;
        for (int k = 0; k < 2; k++) {
            size_t n;
            hth_ids ids = {0};
            char *text = read_text(k == 0 ? "text/stories.txt" : "text/english.txt", &n);
            if (!text) break;
            if (n > 0 && text[n - 1] == '\n') n--;
            uint64_t start = hth_clock_ns();
            CHECK_OK(hth_tokenize(v.tok, text, n, HEARTH_ADD_SPECIAL, &ids, NULL, err));
            printf("     %s, %zu bytes: %.1f ms\n", known[i].model, n,
                   (double)(hth_clock_ns() - start) * 1e-6);
            CHECK_INT(ids.n, k == 0 ? known[i].n_stories : known[i].n_english);
            vocab_check_round_trip(&v, text, n, path, k);
            hth_ids_free(&ids);
            free(text);
        }
        vocab_data_close(&v);
    }
}

TEST_MAIN
