/* text: the ids that independent implementations agree on, and the way back. */
#include "base/clock.h"
#include "support/json_lines.h"
#include "support/test.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vocab {
    hth_gguf *file;
    hth_tokenizer *tok;
} vocab;

/* False, and the case is skipped or failed, when it cannot be opened. */
static bool open_vocab(vocab *v, const char *relative)
{
    const char *path = test_data(relative);
    *v = (vocab){0};
    if (!path) return false;
    CHECK_OK(hth_gguf_open(path, &v->file, err));
    if (v->file) CHECK_OK(hth_tokenizer_open(v->file, &v->tok, err));
    return v->tok != NULL;
}

static void close_vocab(vocab *v)
{
    hth_tokenizer_close(v->tok);
    hth_gguf_close(v->file);
}

static char *read_data(const char *relative, size_t *n)
{
    const char *path = test_data(relative);
    return path ? test_read_file(path, n) : NULL;
}

static bool ids_are(const vocab *v, const char *text, size_t n, unsigned flags,
                    const int32_t *expected, size_t n_expected, const char *what, int line)
{
    hth_ids ids = {0};
    size_t n_lost = 1;
    CHECK_OK(hth_tokenize(v->tok, text, n, flags, &ids, &n_lost, err));
    bool same = ids.n == n_expected && n_lost == 0;
    for (size_t i = 0; same && i < n_expected; i++) same = ids.id[i] == expected[i];
    if (!same) test_fail(__FILE__, __LINE__, "%s line %d: %zu ids, expected %zu", what, line, ids.n, n_expected);
    hth_ids_free(&ids);
    return same;
}

/* Decoded as a whole, and checked after every token to hold no cut character. */
static void check_round_trip(const vocab *v, const char *text, size_t n, const char *what, int line)
{
    hth_ids ids = {0};
    hth_detok d;
    CHECK_OK(hth_tokenize(v->tok, text, n, 0, &ids, NULL, err));
    char *out = malloc((ids.n + 1) * hth_detok_room(v->tok));
    size_t n_out = 0;
    hth_detok_init(&d, v->tok, false, true);
    for (size_t i = 0; i < ids.n; i++) n_out += hth_detok_push(&d, ids.id[i], out + n_out);
    n_out += hth_detok_flush(&d, out + n_out);
    if (n_out != n || memcmp(out, text, n) != 0)
        test_fail(__FILE__, __LINE__, "%s line %d: does not come back", what, line);
    free(out);
    hth_ids_free(&ids);
}

/* ---- upstream's .inp and .out ------------------------------------------------------ */

static void check_inp_out(const char *name)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[200];
    vocab v;
    size_t n_inp, n_out;
    snprintf(path, sizeof path, "tokenizers/vectors/ggml-vocab-%s.gguf", name);
    if (!open_vocab(&v, path)) return;
    strcat(path, ".inp");
    char *inp = read_data(path, &n_inp);
    strcpy(path + strlen(path) - 4, ".out");
    char *out = read_data(path, &n_out), *rest = out;
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
        ids_are(&v, text, (size_t)(end - text), 0, expected, n, path, ++n_line);
    }
    CHECK_INT(n_line, 46);
    CHECK(*rest == '\0');
    free(inp);
    free(out);
    close_vocab(&v);
}

TEST(llama_spm_gives_the_ids_of_upstream)
{
    check_inp_out("llama-spm");
}

TEST(phi_3_gives_the_ids_of_upstream)
{
    check_inp_out("phi-3");
}

/* ---- lines of JSON -------------------------------------------------------------------- */

static bool is_true(const char *value)
{
    return value && strncmp(value, "true", 4) == 0;
}

TEST(llama_gives_the_ids_that_four_implementations_agree_on)
{
    vocab v;
    size_t n_bytes;
    if (!open_vocab(&v, "tokenizers/vectors/ggml-vocab-llama-spm.gguf")) return;
    char *lines = read_data("tokenizers/vectors/hf/llama.jsonl", &n_bytes), *rest = lines;
    int n_line = 0, n_round_trip = 0;
    for (char *line; (line = json_next_line(&rest));) {
        size_t n, n_ids;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *expected = json_ints(json_field(line, "ids"), &n_ids, NULL);
        ids_are(&v, text, n, 0, expected, n_ids, "llama.jsonl", ++n_line);
        if (is_true(json_field(line, "rt"))) {
            check_round_trip(&v, text, n, "llama.jsonl", n_line);
            n_round_trip++;
        }
        free(expected);
        free(text);
    }
    CHECK_INT(n_line, 726);
    CHECK_INT(n_round_trip, 721);
    free(lines);
    close_vocab(&v);
}

static void check_specials(const char *name, int n_expected)
{
    char path[200];
    vocab v;
    size_t n_bytes;
    snprintf(path, sizeof path, "tokenizers/vectors/ggml-vocab-%s.gguf",
             strcmp(name, "llama") == 0 ? "llama-spm" : name);
    if (!open_vocab(&v, path)) return;
    snprintf(path, sizeof path, "tokenizers/vectors/special/%s.jsonl", name);
    char *lines = read_data(path, &n_bytes), *rest = lines;
    int n_line = 0;
    for (char *line; (line = json_next_line(&rest));) {
        size_t n, n_ids, n_add;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *ids = json_ints(json_field(line, "ids"), &n_ids, NULL);
        int32_t *add = json_ints(json_field(line, "ids_add"), &n_add, NULL);
        const unsigned parse = HEARTH_PARSE_SPECIAL;
        ids_are(&v, text, n, parse, ids, n_ids, path, ++n_line);
        ids_are(&v, text, n, parse | HEARTH_ADD_SPECIAL, add, n_add, path, n_line);
        free(add);
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, n_expected);
    free(lines);
    close_vocab(&v);
}

TEST(llama_recognises_special_tokens)
{
    check_specials("llama", 42);
}

TEST(phi_3_recognises_special_tokens)
{
    check_specials("phi-3", 60);
}

TEST(phi_3_gives_the_ids_of_the_reference_strings)
{
    vocab v;
    size_t n_bytes;
    if (!open_vocab(&v, "tokenizers/vectors/ggml-vocab-phi-3.gguf")) return;
    char *texts = read_data("tokenizers/vectors/pretok/texts.jsonl", &n_bytes), *rest = texts;
    char *answers = read_data("tokenizers/vectors/pretok/ids-phi-3.jsonl", &n_bytes);
    char *rest_answers = answers;
    int n_line = 0;
    for (char *line; (line = json_next_line(&rest));) {
        char *answer = json_next_line(&rest_answers);
        size_t n, n_ids;
        char *text = json_base64(json_field(line, "b64"), &n);
        int32_t *ids = json_ints(json_field(answer, "ids"), &n_ids, NULL);
        ids_are(&v, text, n, 0, ids, n_ids, "ids-phi-3.jsonl", ++n_line);
        if (is_true(json_field(answer, "rt")))
            check_round_trip(&v, text, n, "ids-phi-3.jsonl", n_line);
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, 262);
    free(texts);
    free(answers);
    close_vocab(&v);
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

TEST(long_runs_give_the_ids_of_sentencepiece)
{
    vocab v;
    size_t n_bytes;
    if (!open_vocab(&v, "tokenizers/vectors/ggml-vocab-llama-spm.gguf")) return;
    char *lines = read_data("tokenizers/vectors/hf/long_runs.jsonl", &n_bytes), *rest = lines;
    int n_line = 0;
    for (char *line; (line = json_next_line(&rest));) {
        if (!strstr(line, "\"tok\":\"llama\"")) continue;
        size_t n, n_ids = strtoul(json_field(line, "n_ids"), NULL, 10);
        char *text = expand(line, &n);
        int32_t *ids = expand_segments(json_field(line, "segments"), n_ids);
        ids_are(&v, text, n, 0, ids, n_ids, "long_runs.jsonl", ++n_line);
        free(ids);
        free(text);
    }
    CHECK_INT(n_line, 16);
    free(lines);
    close_vocab(&v);
}

/* ---- whole texts with real models ---------------------------------------------------------- */

TEST(texts_have_the_known_number_of_tokens)
{
    static const struct { const char *model; size_t n_stories, n_english; } known[] = {
        {"storyteller-drelu/storyteller-drelu", 61759, 149111},
        {"stories260K/stories260K", 107423, 218063},
        {"babyllama-tok361/babyllama-tok361", 219674, 390793},
    };
    for (int i = 0; i < 3; i++) {
        char path[200];
        vocab v;
        snprintf(path, sizeof path, "models/%s-f32.gguf", known[i].model);
        if (!open_vocab(&v, path)) return;
        for (int k = 0; k < 2; k++) {
            size_t n;
            hth_ids ids = {0};
            char *text = read_data(k == 0 ? "text/stories.txt" : "text/english.txt", &n);
            if (!text) break;
            if (n > 0 && text[n - 1] == '\n') n--;
            uint64_t start = hth_clock_ns();
            CHECK_OK(hth_tokenize(v.tok, text, n, HEARTH_ADD_SPECIAL, &ids, NULL, err));
            printf("     %s, %zu bytes: %.1f ms\n", known[i].model, n,
                   (double)(hth_clock_ns() - start) * 1e-6);
            CHECK_INT(ids.n, k == 0 ? known[i].n_stories : known[i].n_english);
            check_round_trip(&v, text, n, path, k);
            hth_ids_free(&ids);
            free(text);
        }
        close_vocab(&v);
    }
}

TEST_MAIN
