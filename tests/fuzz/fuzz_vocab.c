/* A fuzz target for vocabularies: the bytes are read as orders to add tokens, merges and keys to a file, which is
 * then opened; what opens must turn any text into ids, and ids into pieces, without a fault. Built with libFuzzer
 * by the preset `fuzz`; test_vocab.c replays seeded orders. */
#include "base/alloc.h"
#include "support/test.h"
#include "support/models/vocab_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct orders {
    const uint8_t *byte, *end;
} orders;

static unsigned next_byte(orders *o) { return o->byte < o->end ? *o->byte++ : 0; }

/* At most `most` bytes of the orders. */
static const char *next_bytes(orders *o, size_t max, size_t *n)
{
    const char *bytes = (const char *)o->byte;
    *n = next_byte(o) % (max + 1);
    if (o->byte < o->end || *n == 0) bytes = (const char *)o->byte;
    if (*n > (size_t)(o->end - o->byte)) *n = (size_t)(o->end - o->byte);
    o->byte += *n;
    return bytes;
}

static const char *const number_keys[] = {"tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
                                          "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
                                          "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.mask_token_id"};
static const char *const flag_keys[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
                                        "tokenizer.ggml.add_space_prefix"};
static const char *const pres[] = {"default",      "llama-bpe",  "qwen2",  "starcoder",
                                   "deepseek-llm", "tekken",     "gpt-4o", "deepseek-v3",
                                   "jina-v2-es",   "sarvam-moe", "gemma4"};
static const char *const kinds[] = {NULL, "t5", "bert", "gemma4", "whitespace", NULL, "t5", "bert"};
static const char *const texts[] = {"<mask>",   "<|endoftext|>", "<s>",          "<0x41>",   "<|end|>",
                                    "<|call|>", "<|return|>",    "\xE2\x96\x81", "\xC4\xA0", "</s>"};
static const char *const left_out[] = {"tokenizer.ggml.pre",        "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
                                       "tokenizer.ggml.tokens",     "tokenizer.ggml.model"};

#define PICK(LIST, I) (LIST)[(I) % (sizeof(LIST) / sizeof *(LIST))]

/* A key once only: the reader refuses doubles anyway. */
static void put_key(vocab_file *f, orders *o, uint32_t *put)
{
    unsigned k = next_byte(o) % 11, value = next_byte(o);
    if (*put >> k & 1) return;
    *put |= 1u << k;
    if (k < 6) vocab_file_put_u32(f, number_keys[k], value % 8 == 7 ? UINT32_MAX : value + f->n_token / 2);
    else if (k < 9) vocab_file_put_bool(f, flag_keys[k - 6], value & 1);
    else if (k == 9) vocab_file_put_text(f, "tokenizer.ggml.pre", PICK(pres, value));
    else vocab_file_put_text(f, "general.name", value & 1 ? "Phi-3" : "x");
}

static void obey(vocab_file *f, orders *o)
{
    uint32_t put = 0;
    for (unsigned order; (order = next_byte(o)) % 16 != 15 && o->byte < o->end;) {
        size_t n;
        const char *bytes;
        if (f->n_token >= 1000 || f->n_merge >= 1000) return;
        switch (order % 16) {
        case 0: put_key(f, o, &put); break;
        case 1: f->without = PICK(left_out, next_byte(o)); break;
        case 2:
            bytes = PICK(texts, next_byte(o));
            vocab_file_add(f, bytes, strlen(bytes), -1.0f, (int)(order / 16) % 8);
            break;
        case 3:
        case 4:
            bytes = next_bytes(o, 60, &n);
            vocab_file_add_line(f, bytes, n);
            break;
        case 5:
        case 6:
        case 7:
            bytes = next_bytes(o, 60, &n);
            vocab_file_add(f, bytes, n, (float)next_byte(o),
                           order / 16 < 8 ? HTH_TOKEN_NORMAL : (int)(order / 16) - 8);
            break;
        default:
            bytes = next_bytes(o, 12, &n);
            if (n > 1) vocab_file_add_merge(f, bytes, n, 1 + order / 16 % (n - 1 > 0 ? n - 1 : 1));
            break;
        }
    }
}

/* A map of 64 units and two replacements, a few bytes of which the orders choose. */
static void put_map(vocab_file *f, orders *o)
{
    enum { N_UNIT = 64, N = 4 + 4 * N_UNIT + 6 };
    char bytes[12 + N] = {HTH_GGUF_U8, 0, 0, 0, (char)(N & 255), N >> 8};
    uint32_t units[N_UNIT] = {0}, size = 4 * N_UNIT;
    units[0] = 0x60 << 10; /* the child for 'a' is unit 1, that for 'b' unit 2 */
    units[1] = 'a' | 1 << 8 | 0x11 << 10; /* its value is in unit 16 */
    units[2] = 'b' | 1 << 8 | 0x1A << 10; /* in unit 24 */
    units[16] = UINT32_C(1) << 31 | 0;
    units[24] = UINT32_C(1) << 31 | 3;
    memcpy(bytes + 12, &size, 4);
    memcpy(bytes + 16, units, sizeof units);
    memcpy(bytes + 16 + sizeof units, "\xC3\xA9\0 \0", 6);
    for (unsigned k = next_byte(o) % 8; k > 0; k--) {
        const unsigned at = next_byte(o) << 8 | next_byte(o);
        bytes[12 + at % N] = (char)next_byte(o);
    }
    vocab_file_put(f, "tokenizer.ggml.precompiled_charsmap", HTH_GGUF_ARRAY, bytes, sizeof bytes);
}

/* What the first byte says beside the kind of file. */
static void put_kind(vocab_file *f, orders *o, unsigned choice)
{
    static const char *const flags[] = {"tokenizer.ggml.remove_extra_whitespaces",
                                        "tokenizer.ggml.normalizer.lowercase",
                                        "tokenizer.ggml.normalizer.strip_accents"};
    const char *kind = kinds[choice >> 2 & 7];
    if (!kind) return;
    vocab_file_put_text(f, "tokenizer.ggml.model", kind);
    f->is_bpe = kind[0] == 'g' || kind[0] == 'w';
    if (choice & 32) put_map(f, o);
    for (unsigned i = 0; i < 3 && choice & 64; i++) vocab_file_put_bool(f, flags[i], next_byte(o) & 1);
}

static void check_text(const hth_tokenizer *tok, const char *text, size_t n)
{
    char out[2048];
    if (hth_detok_max_bytes(tok) > sizeof out) return;
    for (unsigned flags = 0; flags < 4; flags++) {
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        size_t n_lost, n_chunk;
        hth_detok d;
        if (hth_tokenize(tok, text, n, flags, &ids, &n_lost, NULL) != HEARTH_OK) abort();
        /* a space, or one put in front, may take the three bytes of U+2581; a decomposed character has up to 18 */
        if (ids.n > 18 * n + 16 || n_lost > 18 * n + 16) abort();
        hth_detok_init(&d, tok, flags & 1, true);
        for (size_t i = 0; i < ids.n; i++) {
            if (ids.id[i] < 0 || ids.id[i] >= hth_tokenizer_n_vocab(tok)) abort();
            hth_token_piece(tok, ids.id[i], true, &n_chunk);
            if (hth_detok_push(&d, ids.id[i], out) > sizeof out) abort();
        }
        hth_detok_flush(&d, out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static vocab_file f;
    if (n < 2) return 0;
    orders o = {data + 1, data + n};
    const uint64_t held = hth_alloc_in_use();
    if (data[0] & 1) vocab_file_begin_bpe(&f);
    else vocab_file_begin(&f, data[0] & 2);
    put_kind(&f, &o, data[0]);
    obey(&f, &o);
    hth_gguf *file = NULL;
    hth_tokenizer *tok = NULL;
    hearth_error why = {0};
    hearth_status status = vocab_file_open(&f, &file, &tok, &why);
    if (status == HEARTH_OK) check_text(tok, (const char *)o.byte, (size_t)(o.end - o.byte));
    else if (status != HEARTH_ERROR_FORMAT && status != HEARTH_ERROR_UNSUPPORTED) abort();
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    vocab_file_free(&f);
    if (hth_alloc_in_use() != held) abort();
    return 0;
}
