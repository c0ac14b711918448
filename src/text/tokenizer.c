/* The tokenizer object: opening, which reads the vocabulary and builds the tables, and properties of its tokens.
 * tokenize.c encodes text. A tokenizer never changes after opening. */
#include "text/tokenizer.h"

#include "text/internal.h"
#include "text/vocab_index.h"

#include <string.h>

/* ---- opening -------------------------------------------------------------- */

static hearth_status read_kind(const hth_gguf *file, bool *is_bpe, hearth_error *err)
{
    static const char key[] = "tokenizer.ggml.model";
    hth_str kind = {0};
    bool found = false;
    hearth_status status = hth_gguf_get_text(file, key, &kind, &found, err);
    if (status != HEARTH_OK) return status;
    if (!found) return hth_gguf_missing(file, key, "the tokenizer", err);
    *is_bpe = kind.n == 4 && memcmp(kind.bytes, "gpt2", 4) == 0;
    if (*is_bpe || (kind.n == 5 && memcmp(kind.bytes, "llama", 5) == 0)) return HEARTH_OK;
    char shown[64];
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s is \"%s\"; this version has tokenizers of kinds \"llama\" and \"gpt2\"",
                    hth_gguf_path(file), key, hth_escape(shown, sizeof shown, kind.bytes, kind.n));
}

hearth_status hth_tokenizer_open(const hth_gguf *file, hth_tokenizer **out, hearth_error *err)
{
    *out = NULL;
    bool is_bpe = false;
    hearth_status status = read_kind(file, &is_bpe, err);
    if (status != HEARTH_OK) return status;
    hth_tokenizer *tok = hth_alloc(1, sizeof *tok);
    if (!tok) return hth_fail_memory(err, sizeof *tok, "the tokenizer");

    tok->is_bpe = is_bpe;
    status = hth_text_read_vocab(tok, file, err);
    if (status == HEARTH_OK && is_bpe) status = hth_text_read_pre(tok, file, err);
    if (status == HEARTH_OK) status = hth_vocab_read_special(tok, file, err);
    if (status == HEARTH_OK) status = hth_text_index(tok, file, err);
    if (status == HEARTH_OK)
        status = is_bpe ? hth_text_read_merges(tok, file, err) : hth_text_build_merges(tok, err);
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

const char *hth_tokenizer_pretok_name(const hth_tokenizer *tok, char *engine, size_t n_engine)
{
    if (!tok->is_bpe) return NULL;
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
