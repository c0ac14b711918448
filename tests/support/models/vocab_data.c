/* Vocabularies of the test data and the checks of vectors: see vocab_data.h. */
#include "support/models/vocab_data.h"

#include "support/test.h"

bool vocab_data_open(vocab_data *v, const char *name)
{
    char path[200];
    static const char *const with_spaces[] = {"llama", "llama-plain", "llama-few-bytes", "phi-3", "t5", "t5-bytes",
                                              "nomic-bert-moe", "bert", "bert-cased", "bert-accents", "bert-strip"};
    *v = (vocab_data){.name = name};
    for (size_t i = 0; i < sizeof with_spaces / sizeof *with_spaces; i++)
        v->drops_space |= strcmp(name, with_spaces[i]) == 0;
    snprintf(path, sizeof path, "tokenizers/%s.gguf", name);
    const char *found = test_data(path);
    if (!found) return false;
    CHECK_OK(hth_gguf_open(found, &v->file, err));
    if (v->file) CHECK_OK(hth_tokenizer_open(v->file, &v->tok, err));
    if (!v->tok) vocab_data_close(v);
    return v->tok != NULL;
}

void vocab_data_close(vocab_data *v)
{
    hth_tokenizer_close(v->tok);
    hth_gguf_close(v->file);
    *v = (vocab_data){0};
}

char *vocab_data_read(const char *relative, size_t *n)
{
    char path[200];
    snprintf(path, sizeof path, "tokenizers/%s", relative);
    const char *found = test_data(path);
    return found ? test_read_file(found, n) : NULL;
}

/* ---- checks -------------------------------------------------------------------------------------- */

bool vocab_check_ids(const vocab_data *v, const char *text, size_t n, unsigned flags, const int32_t *expected,
                     size_t n_expected, size_t *lost, const char *what, int line)
{
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    size_t n_lost = 1;
    CHECK_OK(hth_tokenize(v->tok, text, n, flags, &ids, &n_lost, err));
    bool same = ids.n == n_expected && (lost || n_lost == 0);
    for (size_t i = 0; same && i < n_expected; i++) same = ids.id[i] == expected[i];
    if (!same)
        test_fail(__FILE__, __LINE__, "%s, %s line %d: %zu ids, expected %zu; %zu bytes lost", v->name, what,
                  line, ids.n, n_expected, n_lost);
    if (lost) *lost = n_lost;
    return same;
}

void vocab_check_round_trip(const vocab_data *v, const char *text, size_t n, const char *what, int line)
{
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    hth_detok d;
    CHECK_OK(hth_tokenize(v->tok, text, n, 0, &ids, NULL, err));
    FREED char *out = malloc((ids.n + 1) * hth_detok_max_bytes(v->tok));
    size_t n_out = 0, n_pieces = 0;
    hth_detok_init(&d, v->tok, false, true);
    for (size_t i = 0; i < ids.n; i++) n_out += hth_detok_push(&d, ids.id[i], out + n_out);
    n_out += hth_detok_flush(&d, out + n_out);
    if (n_out != n || memcmp(out, text, n) != 0)
        test_fail(__FILE__, __LINE__, "%s, %s line %d: does not come back", v->name, what, line);
    for (size_t i = 0; i < ids.n && !v->drops_space; i++) { /* these drop a space in front */
        size_t n_chunk;
        const char *piece = hth_token_piece(v->tok, ids.id[i], false, &n_chunk);
        if (n_pieces + n_chunk > n || memcmp(piece, text + n_pieces, n_chunk) != 0) {
            test_fail(__FILE__, __LINE__, "%s, %s line %d: piece %zu differs", v->name, what, line, i);
            break;
        }
        n_pieces += n_chunk;
    }
}
