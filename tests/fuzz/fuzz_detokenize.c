/* A fuzz target for tokens to text: the first byte picks a vocabulary and how it is shown, each further pair of
 * bytes is an id. The stream must be the pieces in a row, and must never stop inside a character that could still
 * be whole. test_detokenize.c replays seeded ids. */
#include "support/test.h"
#include "support/models/vocab_file.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const hth_tokenizer *vocabulary(bool bpe)
{
    static vocab_file f[2];
    static hth_gguf *file[2];
    static hth_tokenizer *tok[2];
    if (tok[bpe]) return tok[bpe];
    if (bpe) vocab_file_begin_bpe(&f[bpe]);
    else vocab_file_begin(&f[bpe], true);
    static const char *const words[] = {"\xE2\x96\x81x", "\xE4\xB8", "\xAD\xE4",    "\xF0\x9F",
                                        "\x99\x82 x",    "\xFF",     "\xE2\x96\x81"};
    for (int i = 0; i < 7; i++) {
        if (bpe) vocab_file_add_merge(&f[bpe], words[i], strlen(words[i]), i == 0 ? 3 : 0);
        else vocab_file_add_word(&f[bpe], words[i], -1.0f);
        vocab_file_add(&f[bpe], words[i], strlen(words[i]), 0.0f, i % 2 ? HTH_TOKEN_USER : HTH_TOKEN_CONTROL);
    }
    if (vocab_file_open(&f[bpe], &file[bpe], &tok[bpe], NULL) != HEARTH_OK) abort();
    return tok[bpe];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char engine[80], out[128];
    if (n < 1) return 0;
    const bool bpe = (data[0] & 1) && hth_pretokenizer_engine(engine, sizeof engine), show = data[0] & 2;
    const hth_tokenizer *tok = vocabulary(bpe);
    if (hth_detok_max_bytes(tok) > sizeof out) abort();
    char *stream = malloc(n * sizeof out + 4), *pieces = malloc(n * sizeof out + 4);
    size_t n_stream = 0, n_pieces = 0;
    hth_detok d;
    hth_detok_init(&d, tok, show, false);
    for (size_t i = 1; i + 1 < n; i += 2) {
        int32_t id = (int32_t)(data[i] << 8 | data[i + 1]) % (hth_tokenizer_n_vocab(tok) + 2) - 1;
        size_t n_chunk;
        const char *piece = hth_token_piece(tok, id, show, &n_chunk);
        memcpy(pieces + n_pieces, piece, n_chunk);
        n_pieces += n_chunk;
        n_stream += hth_detok_push(&d, id, stream + n_stream);
        if (n_stream > n_pieces || n_pieces - n_stream > 3) abort();
        if (n_stream != n_pieces - hth_text_utf8_tail(pieces, n_pieces)) abort();
    }
    n_stream += hth_detok_flush(&d, stream + n_stream);
    if (n_stream != n_pieces || memcmp(stream, pieces, n_stream) != 0) abort();
    free(stream);
    free(pieces);
    return 0;
}
