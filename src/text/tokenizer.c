/* The tokenizer object: opening, which reads the vocabulary and builds the tables, and properties of its tokens.
 * tokenize.c encodes text. A tokenizer never changes after opening. */
#include "text/tokenizer.h"

#include "text/internal.h"
#include "text/vocab_index.h"

#include <stdio.h>
#include <string.h>

/* ---- opening -------------------------------------------------------------- */

typedef struct kind {
    const char *name; /* in `tokenizer.ggml.model` */
    hth_text_algorithm algorithm;
    const char *pre; /* its pre-tokenizer, or NULL: the file names it */
} kind;

static const kind kinds[] = {
    {"llama", HTH_TEXT_SPM, NULL},      {"gpt2", HTH_TEXT_BPE, NULL},
    {"t5", HTH_TEXT_UNIGRAM, NULL},     {"bert", HTH_TEXT_WORDPIECE, NULL},
    {"gemma4", HTH_TEXT_BPE, "gemma4"}, {"whitespace", HTH_TEXT_BPE, "whitespace"},
};

enum { N_KIND = sizeof kinds / sizeof *kinds };

static hearth_status read_kind(const hth_gguf *file, const kind **out, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.model";
    hth_str name = {0};
    bool found = false;
    hearth_status status = hth_gguf_get_text(file, key, &name, &found, err);
    if (status != HEARTH_OK) return status;
    if (!found) return hth_gguf_missing(file, key, "the tokenizer", err);
    char shown[64], known[100] = "";
    for (size_t i = 0; i < N_KIND; i++) {
        if (hth_str_eq(name, kinds[i].name)) {
            *out = &kinds[i];
            return HEARTH_OK;
        }
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s\"%s\"", i == 0 ? "" : i + 1 < N_KIND ? ", " : " and ", kinds[i].name);
    }
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s is \"%s\"; this version has tokenizers of kinds %s",
                    hth_gguf_path(file), key, hth_escape(shown, sizeof shown, name.bytes, name.n), known);
}

/* Reads the tables that the algorithm needs beside the vocabulary. */
static hearth_status read_tables(hth_tokenizer *tok, const hth_gguf *file, hearth_error *err)
{
    switch (tok->algorithm) {
    case HTH_TEXT_BPE: return hth_text_read_merges(tok, file, err);
    case HTH_TEXT_UNIGRAM: return hth_text_read_unigram(tok, file, err);
    case HTH_TEXT_WORDPIECE: return hth_text_read_wordpiece(tok, file, err);
    default: return hth_text_build_merges(tok, err);
    }
}

hearth_status hth_tokenizer_open(const hth_gguf *file, hth_tokenizer **out, hearth_error *err)
{
    *out = NULL;
    const kind *k = NULL;
    hearth_status status = read_kind(file, &k, err);
    if (status != HEARTH_OK) return status;
    hth_tokenizer *tok = hth_alloc(1, sizeof *tok);
    if (!tok) return hth_fail_memory(err, sizeof *tok, "the tokenizer");

    tok->model = k->name;
    tok->algorithm = k->algorithm;
    tok->drops_white = k->pre && strcmp(k->pre, "whitespace") == 0;
    status = hth_text_read_vocab(tok, file, err);
    if (status == HEARTH_OK && tok->algorithm == HTH_TEXT_BPE) status = hth_text_read_pre(tok, file, k->pre, err);
    if (status == HEARTH_OK) status = hth_vocab_read_special(tok, file, err);
    if (status == HEARTH_OK) status = hth_text_index(tok, file, err);
    if (status == HEARTH_OK) status = read_tables(tok, file, err);
    if (status == HEARTH_OK) *out = tok;
    else hth_tokenizer_close(tok);
    return status;
}

void hth_tokenizer_close(hth_tokenizer *tok)
{
    if (!tok) return;
    hth_free(tok->merge_id);
    hth_file_name_free(&tok->word_index);
    hth_pretokenizer_close(tok->pretokenizer);
    hth_merge_table_free(&tok->joins);
    hth_merge_table_free(&tok->merges);
    hth_free(tok->chars);
    hth_vocab_index_free(&tok->specials);
    hth_vocab_index_free(&tok->users);
    hth_vocab_index_free(&tok->words);
    hth_arena_free(&tok->arena);
    hth_free(tok->token);
    hth_free(tok);
}

/* ---- properties of a vocabulary -------------------------------------------- */

int32_t hth_tokenizer_n_vocab(const hth_tokenizer *tok)
{
    return tok->n_vocab;
}

hth_token_kind hth_tokenizer_kind(const hth_tokenizer *tok, int32_t id)
{
    return (hth_token_kind)tok->token[id].kind;
}

hth_str hth_tokenizer_entry(const hth_tokenizer *tok, int32_t id)
{
    return tok->token[id].entry;
}

int32_t hth_tokenizer_find(const hth_tokenizer *tok, const char *bytes, size_t n)
{
    for (int32_t i = 0; i < tok->n_vocab; i++) {
        const hth_str *entry = &tok->token[i].entry;
        if (entry->n == n && memcmp(entry->bytes, bytes, n) == 0) return i;
    }
    return -1;
}

/* In byte-level BPE a byte is a word. */
static int32_t newline_of(const hth_tokenizer *tok)
{
    if (tok->byte_id['\n'] >= 0 || tok->algorithm != HTH_TEXT_BPE) return tok->byte_id['\n'];
    uint32_t symbol = tok->byte_symbol['\n'];
    return symbol < HTH_TEXT_CHARS ? (int32_t)symbol : -1;
}

int32_t hth_tokenizer_special(const hth_tokenizer *tok, hearth_special_token which)
{
    return which == HEARTH_SPECIAL_NEWLINE ? newline_of(tok) : tok->special[which];
}

const char *hth_tokenizer_model(const hth_tokenizer *tok) { return tok->model; }

const char *hth_tokenizer_title(const hth_tokenizer *tok)
{
    switch (tok->algorithm) {
    case HTH_TEXT_BPE: return tok->flags & HTH_TEXT_CHARACTERS ? "BPE of characters" : "byte-level BPE";
    case HTH_TEXT_UNIGRAM: return "Unigram";
    case HTH_TEXT_WORDPIECE: return "WordPiece";
    default: return "SentencePiece";
    }
}

const char *hth_tokenizer_pretok_name(const hth_tokenizer *tok, char *engine, size_t n_engine)
{
    if (tok->algorithm != HTH_TEXT_BPE) return NULL;
    hth_pretokenizer_engine(engine, n_engine);
    return tok->pretok_type->name;
}

int32_t hth_tokenizer_bos(const hth_tokenizer *tok)
{
    return tok->bos;
}

int32_t hth_tokenizer_eos(const hth_tokenizer *tok)
{
    return tok->eos;
}

int32_t hth_tokenizer_end(const hth_tokenizer *tok) { return tok->last; }

bool hth_tokenizer_adds_bos(const hth_tokenizer *tok) { return tok->add_bos && tok->bos >= 0; }

bool hth_tokenizer_is_eog(const hth_tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->n_vocab && tok->token[id].is_eog;
}

/* ---- lists of ids ------------------------------------------------------------ */

void hth_ids_free(hth_ids *ids)
{
    hth_free(ids->id);
    *ids = (hth_ids){0};
}

hearth_status hth_ids_push(hth_ids *ids, int32_t id, hearth_error *err)
{
    void *list = ids->id;
    hearth_status status = hth_text_grow(&list, &ids->capacity, ids->n + 1, sizeof id, err);
    if (status != HEARTH_OK) return status;
    ids->id = list;
    ids->id[ids->n++] = id;
    return HEARTH_OK;
}
