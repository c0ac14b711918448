/* A fuzz target for text: the first byte picks a vocabulary and flags, the rest is text. Without special tokens in
 * it the text must come back, and the ids in parts must be those of the whole. Built with libFuzzer by the preset
 * `fuzz`; test_tokenize.c replays seeded strings. */
#include "support/test.h"
#include "support/models/vocab_file.h"
#include "text/pretokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_SPM = 8, N_VOCAB = 15, GEMMA = N_VOCAB - 1, WITH_SPECIAL = N_VOCAB - 2 };

static void add_random_words(vocab_file *f, test_random *r)
{
    static const char *const atoms[] = {"a", "b", "<", "\xC3\xA9", "\xE4\xB8\xAD", "\xE4", "\xFF", "\xE2\x96\x81"};
    vocab_file_add_word(f, "\xE2\x96\x81", -1.0f);
    for (int i = 0; i < 150; i++) {
        char text[64];
        size_t n = 0;
        for (uint32_t k = 1 + test_random_below(r, 5); k > 0; k--) {
            const char *atom = atoms[test_random_below(r, 8)];
            memcpy(text + n, atom, strlen(atom));
            n += strlen(atom);
        }
        vocab_file_add(f, text, n, (float)test_random_below(r, 9), HTH_TOKEN_NORMAL);
    }
}

static void add_random_merges(vocab_file *f, test_random *r)
{
    static const char *const atoms[] = {"a", "b", "<", " ", "\xA9", "\xC3", "\xE4", "\xFF"};
    for (int i = 0; i < 150; i++) {
        char text[8];
        size_t n = 0;
        for (uint32_t k = 2 + test_random_below(r, 4); k > 0; k--) text[n++] = *atoms[test_random_below(r, 8)];
        vocab_file_add_merge(f, text, n, 1 + test_random_below(r, (uint32_t)n - 1));
    }
}

/* Byte-level vocabularies: what is cut how, and whether whole words count. */
static void begin_bpe(vocab_file *f, unsigned i, test_random *r)
{
    static const char *const pres[GEMMA - N_SPM] = {"gpt-2", "llama-bpe", "tekken",
                                                      "deepseek-llm", "qwen35", "falcon"};
    vocab_file_begin_bpe(f);
    vocab_file_put_text(f, "tokenizer.ggml.pre", pres[i - N_SPM]);
    add_random_merges(f, r);
}

/* Characters are merged; what has no token becomes byte tokens. */
static void begin_gemma(vocab_file *f, test_random *r)
{
    static const char *const atoms[] = {"a", "b", "<", "\xC3\xA9", "\xE4\xB8\xAD", "\n", "\xE2\x96\x81", "\xFF"};
    vocab_file_begin(f, true);
    f->is_bpe = true;
    vocab_file_put_text(f, "tokenizer.ggml.model", "gemma4");
    vocab_file_add_word(f, "\xE2\x96\x81", 0.0f);
    for (int i = 0; i < 150; i++) {
        char text[64];
        size_t n = 0, left = 0;
        for (uint32_t k = 2 + test_random_below(r, 3); k > 0; k--) {
            const char *atom = atoms[test_random_below(r, 8)];
            memcpy(text + n, atom, strlen(atom));
            left = n;
            n += strlen(atom);
        }
        vocab_file_add(f, text, n, 0.0f, HTH_TOKEN_NORMAL);
        memmove(text + left + 1, text + left, n - left);
        text[left] = ' ';
        vocab_file_add_line(f, text, n + 1);
    }
}

/* Of the first eight the lower half has no special tokens but the first three; of the
 * others only one has one that is not <|endoftext|>. */
static bool may_come_back(unsigned i) { return i < N_SPM / 2 || (i >= N_SPM && i != WITH_SPECIAL); }

static const hth_tokenizer *vocabulary(unsigned i)
{
    static vocab_file f[N_VOCAB];
    static hth_gguf *file[N_VOCAB];
    static hth_tokenizer *tok[N_VOCAB];
    if (tok[i]) return tok[i];
    test_random r = {i};
    if (i == GEMMA) {
        begin_gemma(&f[i], &r);
    } else if (i >= N_SPM) {
        begin_bpe(&f[i], i, &r);
    } else {
        vocab_file_begin(&f[i], true);
        add_random_words(&f[i], &r);
    }
    if (!may_come_back(i)) {
        vocab_file_add(&f[i], "ab", 2, 0.0f, HTH_TOKEN_USER);
        vocab_file_add(&f[i], "bab", 3, 0.0f, HTH_TOKEN_CONTROL);
        vocab_file_put_text(&f[i], "general.name", "Phi-3");
    }
    if (vocab_file_open(&f[i], &file[i], &tok[i], NULL) != HEARTH_OK) abort();
    return tok[i];
}

static bool comes_back(const hth_tokenizer *tok, const hth_ids *ids, const char *text, size_t n)
{
    FREED char *out = malloc(ids->n * hth_detok_max_bytes(tok) + 4);
    size_t n_out = 0;
    hth_detok d;
    hth_detok_init(&d, tok, true, true);
    for (size_t i = 0; i < ids->n; i++) n_out += hth_detok_push(&d, ids->id[i], out + n_out);
    n_out += hth_detok_flush(&d, out + n_out);
    bool same = n_out == n && memcmp(out, text, n) == 0;
    return same;
}

/* U+2581 comes back as a space. */
static bool holds_escaped_space(const char *text, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(text + i, "\xE2\x96\x81", 3) == 0) return true;
    return false;
}

/* Cut at three places into frames, or into what people say. */
static void check_parts(const hth_tokenizer *tok, const char *text, size_t n, bool frames, const hth_ids *whole)
{
    hth_text_part parts[4];
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    for (size_t k = 0; k < 4; k++) parts[k] = (hth_text_part){text + n * k / 4, n * (k + 1) / 4 - n * k / 4, frames};
    if (hth_tokenize_parts(tok, parts, 4, 0, &ids, NULL, NULL) != HEARTH_OK) abort();
    if (ids.n != whole->n || (ids.n > 0 && memcmp(ids.id, whole->id, ids.n * sizeof *ids.id) != 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char engine[80];
    if (n == 0) return 0;
    const unsigned n_vocab = hth_pretokenizer_engine(engine, sizeof engine) ? N_VOCAB : N_SPM;
    const unsigned i = data[0] % n_vocab, flags = data[0] / n_vocab % 4;
    const hth_tokenizer *tok = vocabulary(i);
    const char *text = (const char *)data + 1;
    CLEANUP(hth_ids_free) hth_ids ids = {0};
    size_t n_lost;
    if (hth_tokenize(tok, text, n - 1, flags, &ids, &n_lost, NULL) != HEARTH_OK) abort();
    if (n_lost != 0) abort();
    if (may_come_back(i) && flags == 0 && ((i >= N_SPM && i != GEMMA) || !holds_escaped_space(text, n - 1)) &&
        !comes_back(tok, &ids, text, n - 1))
        abort();
    if (!(flags & HEARTH_ADD_SPECIAL)) check_parts(tok, text, n - 1, flags & HEARTH_PARSE_SPECIAL, &ids);
    return 0;
}
