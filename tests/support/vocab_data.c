/* See vocab_data.h. The lists of texts are described in the README beside them. */
#define _POSIX_C_SOURCE 200809L
#include "support/vocab_data.h"

#include "support/gguf_build.h"
#include "support/json_lines.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of texts ---------------------------------------------------------------------- */

typedef struct list {
    const char *name, *folder, *special, *pre;
    uint32_t n_token, bos, eos, eot; /* UINT32_MAX: none */
} list;

static const list lists[] = {
    {"llama-bpe", "llama3", "special-3.0.tsv", "llama-bpe", 128256, 128000, 128001, 128009},
    {"llama-3.2", "llama3", "special-3.2.tsv", "llama-bpe", 128256, 128000, 128009, 128009},
    {"qwen2", "qwen2.5", "special.tsv", "qwen2", 151936, UINT32_MAX, 151643, 151645},
    {"qwen2.5", "qwen2.5", "special.tsv", "qwen2", 151936, UINT32_MAX, 151645, 151645},
    {"deepseek-r1-qwen", "qwen2.5", "special.tsv", "deepseek-r1-qwen", 151936, UINT32_MAX, 151643,
     UINT32_MAX},
    {"qwen35", "qwen2.5", "special.tsv", "qwen35", 151936, UINT32_MAX, 151645, 151645},
};

static char *read_list(const list *l, const char *name, size_t *n)
{
    char path[200];
    snprintf(path, sizeof path, "tokenizers/%s/%s", l->folder, name);
    const char *found = test_data(path);
    return found ? test_read_file(found, n) : NULL;
}

static uint64_t count_lines(const char *text)
{
    uint64_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* Each line as a text of an array; the text is cut at its newlines. */
static void put_lines(gguf_bytes *b, char *text)
{
    for (char *line; (line = json_next_line(&text));) gguf_text(b, line);
}

/* texts and types of the tokens behind the ordinary ones. */
static void put_specials(const list *l, char *text, uint64_t n_word, gguf_bytes *texts, gguf_bytes *types)
{
    uint64_t id = n_word;
    for (char *line; (line = json_next_line(&text)); id++) {
        char *type, *name;
        CHECK_INT(strtoul(line, &type, 10), id);
        gguf_word(types, strtoul(type + 1, &name, 10), 4);
        gguf_text(texts, name + 1);
    }
    for (; id < l->n_token; id++) {
        char name[32];
        snprintf(name, sizeof name, "[PAD%u]", (unsigned)id);
        gguf_text(texts, name);
        gguf_word(types, HTH_TOKEN_UNUSED, 4);
    }
}

static void put_ids(const list *l, gguf_bytes *b, uint64_t *n_pair)
{
    static const char *const keys[3] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id"};
    const uint32_t ids[3] = {l->bos, l->eos, l->eot};
    for (int i = 0; i < 3; i++) {
        if (ids[i] == UINT32_MAX) continue;
        gguf_pair_u32(b, keys[i], ids[i]);
        (*n_pair)++;
    }
}

static char *make_file(const list *l, size_t *n)
{
    size_t n_bytes;
    gguf_bytes b = {0}, types = {0};
    char *tokens = read_list(l, "tokens.txt", &n_bytes);
    char *merges = read_list(l, "merges.txt", &n_bytes);
    char *special = read_list(l, l->special, &n_bytes);
    if (tokens && merges && special) {
        uint64_t n_word = count_lines(tokens), n_merge = count_lines(merges), n_pair = 5;
        gguf_header(&b, 3, 0, 0);
        gguf_pair_text(&b, "tokenizer.ggml.model", "gpt2");
        gguf_pair_text(&b, "tokenizer.ggml.pre", l->pre);
        put_ids(l, &b, &n_pair);
        gguf_array(&b, "tokenizer.ggml.merges", HTH_GGUF_TEXT, n_merge);
        put_lines(&b, merges);
        gguf_array(&b, "tokenizer.ggml.tokens", HTH_GGUF_TEXT, l->n_token);
        put_lines(&b, tokens);
        for (uint64_t i = 0; i < n_word; i++) gguf_word(&types, HTH_TOKEN_NORMAL, 4);
        put_specials(l, special, n_word, &b, &types);
        gguf_array(&b, "tokenizer.ggml.token_type", HTH_GGUF_I32, l->n_token);
        gguf_put(&b, types.data, types.n);
        gguf_patch(&b, 16, n_pair, 8);
    }
    gguf_free(&types);
    free(tokens);
    free(merges);
    free(special);
    *n = b.n;
    return (char *)b.data;
}

/* ---- files ------------------------------------------------------------------------------------ */

static char *unpack(const char *path, size_t *n)
{
    char command[1200], *bytes = NULL;
    size_t room = 0, got;
    *n = 0;
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    if (!CHECK(pipe != NULL)) return NULL;
    do {
        room = 2 * room + 65536;
        bytes = realloc(bytes, room);
        *n += got = fread(bytes + *n, 1, room - *n, pipe);
    } while (got > 0);
    CHECK_INT(pclose(pipe), 0);
    return bytes;
}

static bool is_there(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

static bool open_file(vocab_data *v)
{
    char path[200];
    size_t n;
    snprintf(path, sizeof path, "tokenizers/vectors/ggml-vocab-%s.gguf", v->name);
    const char *folder = test_data("tokenizers/vectors/hf");
    if (!folder) return false;
    char whole[1100];
    snprintf(whole, sizeof whole, "%.*stokenizers/vectors/ggml-vocab-%s.gguf",
             (int)(strlen(folder) - strlen("tokenizers/vectors/hf")), folder, v->name);
    if (is_there(whole)) {
        CHECK_OK(hth_gguf_open(whole, &v->file, err));
        return v->file != NULL;
    }
    strcat(whole, ".gz");
    v->bytes = unpack(whole, &n);
    if (v->bytes) CHECK_OK(hth_gguf_open_memory(v->bytes, n, v->name, &v->file, err));
    return v->file != NULL;
}

bool vocab_data_open(vocab_data *v, const char *name)
{
    static const char *const lossy[] = {"falcon",         "mpt",         "starcoder", "refact",
                                        "deepseek-coder", "deepseek-llm"};
    *v = (vocab_data){.name = name};
    const list *l = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(lists[i].name, name) == 0) l = &lists[i];
    if (l) {
        size_t n;
        v->bytes = make_file(l, &n);
        if (v->bytes) CHECK_OK(hth_gguf_open_memory(v->bytes, n, name, &v->file, err));
    } else {
        open_file(v);
    }
    if (v->file) CHECK_OK(hth_tokenizer_open(v->file, &v->tok, err));
    if (!v->tok) vocab_data_close(v);
    v->is_spm = strcmp(name, "llama-spm") == 0 || strcmp(name, "phi-3") == 0;
    for (size_t i = 0; i < sizeof lossy / sizeof *lossy; i++) v->loses_bytes |= strcmp(lossy[i], name) == 0;
    return v->tok != NULL;
}

void vocab_data_close(vocab_data *v)
{
    hth_tokenizer_close(v->tok);
    hth_gguf_close(v->file);
    free(v->bytes);
    *v = (vocab_data){0};
}

char *vocab_data_read(const char *relative, size_t *n)
{
    char path[200];
    snprintf(path, sizeof path, "tokenizers/vectors/%s", relative);
    const char *found = test_data(path);
    return found ? test_read_file(found, n) : NULL;
}

/* ---- checks -------------------------------------------------------------------------------------- */

bool vocab_check_ids(const vocab_data *v, const char *text, size_t n, unsigned flags, const int32_t *expected,
                     size_t n_expected, size_t *lost, const char *what, int line)
{
    hth_ids ids = {0};
    size_t n_lost = 1;
    CHECK_OK(hth_tokenize(v->tok, text, n, flags, &ids, &n_lost, err));
    bool same = ids.n == n_expected && (lost || n_lost == 0);
    for (size_t i = 0; same && i < n_expected; i++) same = ids.id[i] == expected[i];
    if (!same)
        test_fail(__FILE__, __LINE__, "%s, %s line %d: %zu ids, expected %zu; %zu bytes lost", v->name, what,
                  line, ids.n, n_expected, n_lost);
    if (lost) *lost = n_lost;
    hth_ids_free(&ids);
    return same;
}

void vocab_check_round_trip(const vocab_data *v, const char *text, size_t n, const char *what, int line)
{
    hth_ids ids = {0};
    hth_detok d;
    CHECK_OK(hth_tokenize(v->tok, text, n, 0, &ids, NULL, err));
    char *out = malloc((ids.n + 1) * hth_detok_room(v->tok));
    size_t n_out = 0, n_pieces = 0;
    hth_detok_init(&d, v->tok, false, true);
    for (size_t i = 0; i < ids.n; i++) n_out += hth_detok_push(&d, ids.id[i], out + n_out);
    n_out += hth_detok_flush(&d, out + n_out);
    if (n_out != n || memcmp(out, text, n) != 0)
        test_fail(__FILE__, __LINE__, "%s, %s line %d: does not come back", v->name, what, line);
    for (size_t i = 0; i < ids.n && !v->is_spm; i++) { /* these drop a space in front */
        size_t n_piece;
        const char *piece = hth_token_piece(v->tok, ids.id[i], false, &n_piece);
        if (n_pieces + n_piece > n || memcmp(piece, text + n_pieces, n_piece) != 0) {
            test_fail(__FILE__, __LINE__, "%s, %s line %d: piece %zu differs", v->name, what, line, i);
            break;
        }
        n_pieces += n_piece;
    }
    free(out);
    hth_ids_free(&ids);
}
