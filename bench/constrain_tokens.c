/* What a constrained token costs: masking and accepting, over a synthetic vocabulary.
 *
 *     constrain_tokens [N_VOCAB]
 *
 * The vocabulary (default: 152,000 entries) is made up: bytes, words with and without a space before them, words of
 * other scripts, numbers, runs of spaces and pieces of code, in shares like those of published ones. Texts are drawn from
 * the tokens that are allowed; each schema begins without anything computed. Microseconds for each token: median, 99th
 * percentile, largest; and what opening takes. It is CPU time of the one thread, so that other work counts little. */
#define _GNU_SOURCE
#include "base/random.h"
#include "constrain/constraint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_TOKEN = 4000, MAX_PIECE = 40 };

static uint64_t state = 1;
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t below(uint32_t n) { return (uint32_t)(hth_random_next(&state) >> 33) % n; }

static size_t add_letters(char *out, uint32_t n, char first)
{
    for (uint32_t i = 0; i < n; i++) out[i] = (char)(first + (char)below(26));
    return n;
}

/* 55 % words, 15 % of other scripts, 15 % code, 10 % with quotes and escapes, 5 % numbers and spaces. */
static size_t make_piece(char *out)
{
    static const char *const code[] = {"();", "->",  "=\"", "\":", "\", \"", "},\n", "\n\n", "\t\t",
                                       "{\"", "\\n", "\"]", " = ", "//",     "!=",   ".h"};
    uint32_t kind = below(100);
    size_t n = 0;
    if (kind < 55) {
        if (below(100) < 60) out[n++] = ' ';
        n += add_letters(out + n, 1 + below(9), below(4) ? 'a' : 'A');
    } else if (kind < 70) {
        for (uint32_t k = 1 + below(4); k > 0; k--) {
            out[n++] = (char)(0xE3 + (char)below(6));
            out[n++] = (char)(0x80 + (char)below(64));
            if (below(20) > 0 || k > 1)
                out[n++] = (char)(0x80 + (char)below(64)); /* some end in the midst of a character */
        }
    } else if (kind < 85) {
        n += add_letters(out, 1 + below(5), 'a');
        out[n++] = "_.(/:-"[below(6)];
        n += add_letters(out + n, 1 + below(5), 'a');
    } else if (kind < 95) {
        if (below(2)) n += add_letters(out, below(5), 'a');
        const char *piece = code[below(sizeof code / sizeof *code)];
        memcpy(out + n, piece, strlen(piece));
        n += strlen(piece);
        if (below(2)) n += add_letters(out + n, below(4), 'a');
    } else if (kind < 98) {
        for (uint32_t k = 1 + below(3); k > 0; k--) out[n++] = (char)('0' + (char)below(10));
    } else {
        for (uint32_t k = 1 + below(MAX_PIECE - 2); k > 0; k--) out[n++] = ' ';
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int32_t draw(const float *logits, int32_t n)
{
    int32_t start = (int32_t)below((uint32_t)n);
    for (int32_t i = 0; i < n; i++)
        if (logits[(start + i) % n] == 0.0f) return (start + i) % n;
    return -1;
}

static bool measure(const hth_token_trie *trie, const char *name, const hearth_constraint_options *o)
{
    static double us[N_TOKEN];
    float *logits = malloc((size_t)trie->n_vocab * sizeof *logits);
    hearth_constraint *all = NULL, *c = NULL;
    hearth_error err;
    uint64_t start = cpu_ns();
    hearth_status st = logits ? hth_constraint_open(trie, o, NULL, &all, &err) : HEARTH_ERROR_MEMORY;
    double open_us = (double)(cpu_ns() - start) * 1e-3;
    int n = 0, n_text = 0;
    while (st == HEARTH_OK && n < N_TOKEN) {
        if (!c || hearth_constraint_get_end(c) == HEARTH_CONSTRAINT_COMPLETE) {
            hearth_constraint_close(c);
            st = hearth_constraint_copy(all, &c, &err);
            n_text++;
            if (st != HEARTH_OK) break;
        }
        memset(logits, 0, (size_t)trie->n_vocab * sizeof *logits);
        start = cpu_ns();
        st = hearth_constraint_mask(c, logits, &err);
        uint64_t masked = cpu_ns() - start;
        int32_t id = st == HEARTH_OK ? draw(logits, trie->n_vocab) : 0;
        start = cpu_ns();
        if (st == HEARTH_OK) st = hearth_constraint_accept(c, id, &err);
        us[n++] = (double)(masked + cpu_ns() - start) * 1e-3;
    }
    if (st == HEARTH_OK) {
        qsort(us, N_TOKEN, sizeof *us, by_size);
        printf("| %s | %.0f | %d | %llu | %.1f | %.1f | %.1f |\n", name, open_us, n_text,
               (unsigned long long)hth_constraint_n_mask(all), us[N_TOKEN / 2], us[N_TOKEN * 99 / 100],
               us[N_TOKEN - 1]);
    } else {
        fprintf(stderr, "%s: %s\n", name, err.message);
    }
    hearth_constraint_close(c);
    hearth_constraint_close(all);
    free(logits);
    return st == HEARTH_OK;
}

static const struct {
    const char *name, *schema;
} schemas[] = {
    {"flat object", "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
                    "\"integer\"},\"ok\":{\"type\":\"boolean\"}},\"required\":[\"name\",\"age\",\"ok\"]}"},
    {"strings of at most 200", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":200}}"},
    {"strings of at most 20",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":20}}"},
    {"counted patterns",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[^@]{1,200}@[a-z]{1,50}$\"}}"},
    {"patterns", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[^@]+@[a-z.]+$\"}}"},
    {"dates and enums", "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"d\":{"
                        "\"format\":\"date-time\"},\"k\":{\"enum\":[\"alpha\",\"beta\",\"gamma\"]}}}}"},
    {"recursive tree", "{\"$ref\":\"#/$defs/"
                       "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\"}"
                       ",\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}}}}}"},
    {"free names beside named ones", "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},"
                                     "\"title\":{\"type\":\"string\"}},\"additionalProperties\":true}"},
};

int main(int argc, char **argv)
{
    int32_t n_vocab = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 152000;
    if (n_vocab < 300) return 2;
    hth_str *pieces = calloc((size_t)n_vocab, sizeof *pieces);
    char *bytes = malloc((size_t)n_vocab * (MAX_PIECE + 8));
    hth_token_trie *trie = NULL;
    hearth_error err;
    if (!pieces || !bytes) return 1;
    for (int32_t i = 1; i < n_vocab; i++) { /* 0 is the end of generation */
        char *p = bytes + (size_t)i * (MAX_PIECE + 8);
        *p = (char)(i - 1);
        pieces[i] = (hth_str){p, i <= 256 ? 1 : make_piece(p)};
    }
    uint64_t start = cpu_ns();
    if (hth_token_trie_open_pieces(pieces, n_vocab, &trie, &err) != HEARTH_OK) return 1;
    printf("synthetic vocabulary of %d entries: %u nodes, %.1f MB, made in %.0f ms\n\n", (int)n_vocab,
           trie->all.n_node, (double)trie->size * 1e-6, (double)(cpu_ns() - start) * 1e-6);
    printf("| constraint | opened, us | texts | masks | median, us | p99, us | largest, us "
           "|\n|---|---|---|---|---|---|---|\n");
    const hearth_constraint_options any = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT};
    bool ok = measure(trie, "any JSON object", &any);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        const hearth_constraint_options o = {
            .kind = HEARTH_CONSTRAINT_JSON_SCHEMA, .text = schemas[i].schema, .n = strlen(schemas[i].schema)};
        ok &= measure(trie, schemas[i].name, &o);
    }
    hth_token_trie_close(trie);
    free(pieces);
    free(bytes);
    return ok ? 0 : 1;
}
