/* Writes vocabulary-only GGUF files for tests/text; see vocab_file.h. */
#include "support/vocab_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
    char *bytes;
    size_t n;
} buffer;

static void put(buffer *b, const void *bytes, size_t n)
{
    b->bytes = realloc(b->bytes, b->n + n + 1);
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

static void put_u32(buffer *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(buffer *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_text(buffer *b, const char *text, size_t n)
{
    put_u64(b, n);
    put(b, text, n);
}

void vocab_file_begin(vocab_file *f, bool byte_tokens)
{
    memset(f, 0, sizeof *f);
    vocab_file_add(f, "<unk>", 5, 0.0f, HTH_TOKEN_UNKNOWN);
    vocab_file_add(f, "<s>", 3, 0.0f, HTH_TOKEN_CONTROL);
    vocab_file_add(f, "</s>", 4, 0.0f, HTH_TOKEN_CONTROL);
    for (unsigned b = 0; b < 256 && byte_tokens; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        vocab_file_add(f, text, 6, 0.0f, HTH_TOKEN_BYTE);
    }
}

void vocab_file_add(vocab_file *f, const char *text, size_t n, float score, int kind)
{
    vocab_token *t = &f->token[f->n_token++];
    memcpy(t->text, text, n);
    t->n = (uint32_t)n;
    t->score = score;
    t->kind = kind;
}

void vocab_file_add_word(vocab_file *f, const char *text, float score)
{
    vocab_file_add(f, text, strlen(text), score, HTH_TOKEN_NORMAL);
}

void vocab_file_put(vocab_file *f, const char *key, hth_gguf_type type, const void *value, size_t n)
{
    buffer b = {f->more, f->n_more};
    put_text(&b, key, strlen(key));
    put_u32(&b, (uint32_t)type);
    put(&b, value, n);
    f->more = b.bytes;
    f->n_more = b.n;
    f->n_more_pair++;
    f->without = key;
}

void vocab_file_put_u32(vocab_file *f, const char *key, uint32_t value)
{
    vocab_file_put(f, key, HTH_GGUF_U32, &value, sizeof value);
}

void vocab_file_put_bool(vocab_file *f, const char *key, bool value)
{
    char byte = value;
    vocab_file_put(f, key, HTH_GGUF_BOOL, &byte, 1);
}

void vocab_file_put_text(vocab_file *f, const char *key, const char *value)
{
    buffer b = {0};
    put_text(&b, value, strlen(value));
    vocab_file_put(f, key, HTH_GGUF_TEXT, b.bytes, b.n);
    free(b.bytes);
}

/* Opens a pair unless it is the one to leave out. */
static bool begin_pair(const vocab_file *f, buffer *b, uint64_t *n_pair, const char *key,
                       hth_gguf_type type)
{
    if (f->without && strcmp(f->without, key) == 0) return false;
    put_text(b, key, strlen(key));
    put_u32(b, (uint32_t)type);
    (*n_pair)++;
    return true;
}

static bool begin_array(const vocab_file *f, buffer *b, uint64_t *n_pair, const char *key,
                        hth_gguf_type type)
{
    if (!begin_pair(f, b, n_pair, key, HTH_GGUF_ARRAY)) return false;
    put_u32(b, (uint32_t)type);
    put_u64(b, f->n_token);
    return true;
}

static void make(vocab_file *f)
{
    buffer pairs = {0}, whole = {0};
    uint64_t n_pair = f->n_more_pair;
    if (begin_pair(f, &pairs, &n_pair, "tokenizer.ggml.model", HTH_GGUF_TEXT))
        put_text(&pairs, "llama", 5);
    if (begin_pair(f, &pairs, &n_pair, "tokenizer.ggml.eos_token_id", HTH_GGUF_U32))
        put_u32(&pairs, 2);
    if (begin_array(f, &pairs, &n_pair, "tokenizer.ggml.tokens", HTH_GGUF_TEXT))
        for (uint32_t i = 0; i < f->n_token; i++)
            put_text(&pairs, f->token[i].text, f->token[i].n);
    if (begin_array(f, &pairs, &n_pair, "tokenizer.ggml.scores", HTH_GGUF_F32))
        for (uint32_t i = 0; i < f->n_token; i++) put(&pairs, &f->token[i].score, 4);
    if (begin_array(f, &pairs, &n_pair, "tokenizer.ggml.token_type", HTH_GGUF_I32))
        for (uint32_t i = 0; i < f->n_token; i++) put(&pairs, &f->token[i].kind, 4);
    put(&whole, "GGUF", 4);
    put_u32(&whole, 3);
    put_u64(&whole, 0);
    put_u64(&whole, n_pair);
    put(&whole, pairs.bytes, pairs.n);
    if (f->n_more > 0) put(&whole, f->more, f->n_more);
    free(pairs.bytes);
    free(f->bytes);
    f->bytes = whole.bytes;
    f->n_byte = whole.n;
}

hearth_status vocab_file_open(vocab_file *f, hth_gguf **file, hth_tokenizer **tok, hearth_error *err)
{
    make(f);
    *tok = NULL;
    hearth_status status = hth_gguf_open_memory(f->bytes, f->n_byte, "vocab.gguf", file, err);
    return status == HEARTH_OK ? hth_tokenizer_open(*file, tok, err) : status;
}

void vocab_file_free(vocab_file *f)
{
    free(f->bytes);
    free(f->more);
    f->bytes = f->more = NULL;
}
