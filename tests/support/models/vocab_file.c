/* Writes vocabulary-only GGUF files for tests/text; see vocab_file.h. */
#include "support/models/vocab_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
    char *bytes;
    size_t n, capacity;
} buffer;

static void put(buffer *b, const void *bytes, size_t n)
{
    if (b->n + n + 1 > b->capacity) {
        b->capacity = 2 * (b->n + n) + 64;
        b->bytes = realloc(b->bytes, b->capacity);
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

static void put_u32(buffer *b, uint32_t v) { put(b, &v, sizeof v); }

static void put_u64(buffer *b, uint64_t v) { put(b, &v, sizeof v); }

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

/* GPT-2's map, as its encoder.py makes it: bytes that print stand for themselves, the others for U+0100 and on. */
static size_t map_byte(unsigned byte, char *out)
{
    unsigned n_other = 0, cp = byte;
    for (unsigned b = 0; b <= byte; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte && !prints) cp = 256 + n_other;
        n_other += !prints;
    }
    if (cp < 128) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xC0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 63));
    return 2;
}

static size_t map_bytes(const char *bytes, size_t n, char *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) n_out += map_byte((unsigned char)bytes[i], out + n_out);
    return n_out;
}

void vocab_file_begin_bpe(vocab_file *f)
{
    memset(f, 0, sizeof *f);
    f->is_bpe = true;
    vocab_file_add(f, "<|endoftext|>", 13, 0.0f, HTH_TOKEN_CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        char text[2];
        vocab_file_add(f, text, map_byte(b, text), 0.0f, HTH_TOKEN_NORMAL);
    }
}

void vocab_file_add_line(vocab_file *f, const char *line, size_t n)
{
    memcpy(f->merge[f->n_merge].line, line, n);
    f->merge[f->n_merge++].n = (uint32_t)n;
}

void vocab_file_add_merge(vocab_file *f, const char *bytes, size_t n, size_t n_left)
{
    char text[130];
    size_t n_text = map_bytes(bytes, n, text);
    vocab_file_add(f, text, n_text, 0.0f, HTH_TOKEN_NORMAL);
    if (n_left == 0) return;
    size_t at = map_bytes(bytes, n_left, text);
    text[at++] = ' ';
    at += map_bytes(bytes + n_left, n - n_left, text + at);
    vocab_file_add_line(f, text, at);
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
    buffer b = {f->more, f->n_more, f->n_more};
    put_text(&b, key, strlen(key));
    put_u32(&b, (uint32_t)type);
    put(&b, value, n);
    f->more = b.bytes;
    f->n_more = b.n;
    f->n_more_pair++;
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

static bool was_put(const vocab_file *f, const char *key)
{
    buffer b = {0};
    bool found = false;
    put_text(&b, key, strlen(key));
    for (size_t i = 0; i + b.n <= f->n_more && !found; i++) found = memcmp(f->more + i, b.bytes, b.n) == 0;
    free(b.bytes);
    return found;
}

/* Opens a pair unless it is the one to leave out, or another is in its place. */
static bool begin_pair(const vocab_file *f, buffer *b, uint64_t *n_pair, const char *key, hth_gguf_type type)
{
    if ((f->without && strcmp(f->without, key) == 0) || was_put(f, key)) return false;
    put_text(b, key, strlen(key));
    put_u32(b, (uint32_t)type);
    (*n_pair)++;
    return true;
}

static bool begin_array(const vocab_file *f, buffer *b, uint64_t *n_pair, const char *key, hth_gguf_type type,
                        uint64_t n)
{
    if (!begin_pair(f, b, n_pair, key, HTH_GGUF_ARRAY)) return false;
    put_u32(b, (uint32_t)type);
    put_u64(b, n);
    return true;
}

static void make(vocab_file *f)
{
    buffer pairs = {0}, whole = {0};
    uint64_t n_pair = f->n_more_pair;
    if (begin_pair(f, &pairs, &n_pair, "tokenizer.ggml.model", HTH_GGUF_TEXT))
        put_text(&pairs, f->is_bpe ? "gpt2" : "llama", f->is_bpe ? 4 : 5);
    if (f->is_bpe && begin_pair(f, &pairs, &n_pair, "tokenizer.ggml.pre", HTH_GGUF_TEXT))
        put_text(&pairs, "gpt-2", 5);
    if (begin_pair(f, &pairs, &n_pair, "tokenizer.ggml.eos_token_id", HTH_GGUF_U32))
        put_u32(&pairs, f->is_bpe ? 0 : 2);
    if (begin_array(f, &pairs, &n_pair, "tokenizer.ggml.tokens", HTH_GGUF_TEXT, f->n_token))
        for (uint32_t i = 0; i < f->n_token; i++) put_text(&pairs, f->token[i].text, f->token[i].n);
    if (f->is_bpe && begin_array(f, &pairs, &n_pair, "tokenizer.ggml.merges", HTH_GGUF_TEXT, f->n_merge))
        for (uint32_t i = 0; i < f->n_merge; i++) put_text(&pairs, f->merge[i].line, f->merge[i].n);
    if (!f->is_bpe && begin_array(f, &pairs, &n_pair, "tokenizer.ggml.scores", HTH_GGUF_F32, f->n_token))
        for (uint32_t i = 0; i < f->n_token; i++) put(&pairs, &f->token[i].score, 4);
    if (begin_array(f, &pairs, &n_pair, "tokenizer.ggml.token_type", HTH_GGUF_I32, f->n_token))
        for (uint32_t i = 0; i < f->n_token; i++) put(&pairs, &f->token[i].kind, 4);
    put(&whole, "GGUF", 4);
    put_u32(&whole, 3);
    put_u64(&whole, 0);
    put_u64(&whole, n_pair);
    put(&whole, pairs.bytes, pairs.n);
    if (f->n_more > 0) put(&whole, f->more, f->n_more);
    free(pairs.bytes);
    free(f->bytes);
    f->bytes = realloc(whole.bytes, whole.n); /* exact, so that a sanitizer sees its end */
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
