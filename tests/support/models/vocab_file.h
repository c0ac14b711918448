/* Vocabularies for tests: a GGUF in memory that holds nothing else, well formed
 * unless a test asks for one wrong thing. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_VOCAB_FILE_H
#define HEARTH_TESTS_SUPPORT_MODELS_VOCAB_FILE_H

#include "text/tokenizer.h"

typedef struct vocab_token {
    char text[64];
    uint32_t n;
    float score;
    int32_t kind;
} vocab_token;

typedef struct vocab_merge {
    char line[64];
    uint32_t n;
} vocab_merge;

typedef struct vocab_file {
    bool is_bpe; /* kind "gpt2", with merges instead of scores and the pre-tokenizer gpt-2 */
    vocab_merge merge[1200];
    uint32_t n_merge;
    vocab_token token[1200];
    uint32_t n_token;
    char *more; /* further metadata pairs, ready-made */
    size_t n_more;
    uint64_t n_more_pair;
    const char *without; /* a key to leave out, or NULL */
    char *bytes;         /* the file, by vocab_file_make */
    size_t n_byte;
} vocab_file;

/* <unk>, <s>, </s> as ids 0 to 2, then 256 byte tokens if asked for. */
void vocab_file_begin(vocab_file *f, bool byte_tokens);
/* The same for byte-level BPE: <|endoftext|> as id 0, then the 256 characters of bytes. */
void vocab_file_begin_bpe(vocab_file *f);
/* A word of bytes (mapped here) as the last token, and the merge that makes it of its
 * first n_evicted bytes and the rest; without the merge where n_evicted is 0. */
void vocab_file_add_merge(vocab_file *f, const char *bytes, size_t n, size_t n_left);
/* A line of merges as it is. */
void vocab_file_add_line(vocab_file *f, const char *line, size_t n);
void vocab_file_add(vocab_file *f, const char *text, size_t n, float score, int kind);
void vocab_file_add_word(vocab_file *f, const char *text, float score);
/* A further pair; it also takes the place of one that would be written. */
void vocab_file_put(vocab_file *f, const char *key, hth_gguf_type type, const void *value, size_t n);
void vocab_file_put_u32(vocab_file *f, const char *key, uint32_t value);
void vocab_file_put_bool(vocab_file *f, const char *key, bool value);
void vocab_file_put_text(vocab_file *f, const char *key, const char *value);
/* Makes the bytes and opens them; *file is closed by the caller. */
hearth_status vocab_file_open(vocab_file *f, hth_gguf **file, hth_tokenizer **tok, hearth_error *err);
void vocab_file_free(vocab_file *f);

#endif
