/* A fuzz target for JSON schemas and GBNF grammars: the first byte picks the kind and the way, the rest is the source.
 * What is promised of every source: it is refused with a line, or texts can be drawn from it, whose masks allow what is
 * accepted; the complete texts of a schema are JSON. With clang (preset fuzz) a libFuzzer program, with
 * tests/fuzz/corpus/constraint as its corpus; test_constraint.c replays that and mutations of it. */
#include "base/random.h"
#include "constrain/constraint.h"
#include "text/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_VOCAB = 260, N_STEP = 60 };

static hth_token_trie *vocabulary(void)
{
    static const char *const words[] = {"\":", "true", "abc"};
    static uint8_t bytes[256];
    static hth_str pieces[N_VOCAB];
    hth_token_trie *trie;
    hearth_error why;
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i, pieces[i] = (hth_str){(const char *)&bytes[i], 1};
    for (int i = 0; i < 3; i++) pieces[256 + i] = (hth_str){words[i], strlen(words[i])};
    pieces[259] = (hth_str){"", 0};
    if (hth_token_trie_open_pieces(pieces, N_VOCAB, &trie, &why) != HEARTH_OK) abort();
    return trie;
}

static void check_json(const char *text, size_t n)
{
    hth_arena arena = {NULL, 0, 0};
    hth_json *value;
    hearth_error why;
    if (hth_json_read(&arena, text, n, NULL, &value, &why) != HEARTH_OK) abort();
    hth_arena_free(&arena);
}

/* Draws allowed tokens. The status of the last call. */
static hearth_status draw(hearth_constraint *c, uint64_t seed, bool is_json)
{
    static float logits[N_VOCAB];
    char text[4 * N_STEP];
    size_t n_text = 0;
    for (int step = 0; step < N_STEP && hearth_constraint_get_end(c) != HEARTH_CONSTRAINT_COMPLETE; step++) {
        hearth_error why = {.status = HEARTH_OK};
        int32_t chosen = -1, banned = -1;
        memset(logits, 0, sizeof logits);
        hearth_status st = hearth_constraint_mask(c, logits, &why);
        if (st != HEARTH_OK) {
            if (st != HEARTH_ERROR_UNSUPPORTED || !why.message[0] || strstr(why.message, "vocabulary"))
                abort();
            return st;
        }
        uint32_t start = (uint32_t)hth_random_next(&seed) % N_VOCAB;
        for (uint32_t i = 0; i < N_VOCAB; i++) {
            int32_t id = (int32_t)((start + i) % N_VOCAB);
            if (logits[id] == 0.0f && chosen < 0) chosen = id;
            if (logits[id] == -INFINITY) banned = id;
        }
        if (chosen < 0) abort();
        if (banned >= 0 && hearth_constraint_accept(c, banned, NULL) == HEARTH_OK) abort();
        st = hearth_constraint_accept(c, chosen, &why);
        if (st == HEARTH_ERROR_UNSUPPORTED) return st;
        if (st != HEARTH_OK) abort();
        if (chosen < 256) text[n_text++] = (char)chosen;
        else if (chosen < 259)
            n_text += (size_t)snprintf(text + n_text, 5, "%s",
                                       chosen == 256   ? "\":"
                                       : chosen == 257 ? "true"
                                                       : "abc");
        if (is_json && hearth_constraint_get_end(c) != HEARTH_CONSTRAINT_INCOMPLETE) check_json(text, n_text);
    }
    return HEARTH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hearth_constraint *c = NULL;
    hearth_error why = {.status = HEARTH_OK};
    if (n == 0) return 0;
    uint64_t held = hth_alloc_in_use();
    hth_token_trie *trie = vocabulary();
    bool is_schema = data[0] & 1;
    hearth_constraint_options o = {.kind =
                                       is_schema ? HEARTH_CONSTRAINT_JSON_SCHEMA : HEARTH_CONSTRAINT_GRAMMAR,
                                   .text = (const char *)data + 1,
                                   .n = n - 1};
    hearth_status st = hth_constraint_open(trie, &o, NULL, &c, &why);
    bool known = st == HEARTH_OK || st == HEARTH_ERROR_FORMAT || st == HEARTH_ERROR_UNSUPPORTED ||
                 st == HEARTH_ERROR_ARGUMENT;
    if (!known ||
        (st != HEARTH_OK && (c || why.status != st || !why.message[0] || strchr(why.message, '\n'))))
        abort();
    for (uint64_t seed = data[0]; c && seed < data[0] + 2u; seed++) {
        hearth_constraint *copy = NULL;
        if (hearth_constraint_copy(c, &copy, &why) != HEARTH_OK) abort();
        st = draw(copy, seed, is_schema);
        hearth_constraint_close(copy);
        if (st != HEARTH_OK) break;
    }
    hearth_constraint_close(c);
    hth_token_trie_close(trie);
    if (hth_alloc_in_use() != held) abort();
    return 0;
}
