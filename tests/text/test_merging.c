/* text/spm.c, text/special.c against slow definitions over small random
 * vocabularies, and over long runs of one character. */
#include "base/clock.h"
#include "support/test.h"
#include "support/models/vocab_file.h"
#include "text/internal.h"
#include "text/utf8.h"

/* ---- the definitions, without structures ------------------------------------------------ */

typedef struct part {
    char bytes[600];
    size_t n;
} part;

static int find_word(const vocab_file *f, const char *bytes, size_t n)
{
    for (uint32_t i = 0; i < f->n_token; i++) {
        int kind = f->token[i].kind;
        if (kind != HTH_TOKEN_NORMAL && kind != HTH_TOKEN_USER && kind != HTH_TOKEN_UNUSED) continue;
        if (f->token[i].n == n && memcmp(f->token[i].text, bytes, n) == 0) return (int)i;
    }
    return -1;
}

/* The whole text as parts, then always the best pair of all, the leftmost among equals. */
static void slow_spm(const vocab_file *f, const char *text, size_t n, hth_ids *ids)
{
    static part parts[300];
    static char escaped[900];
    size_t n_escaped = 0, n_part = 0;
    if (n == 0) return;
    for (size_t i = 0; i <= n; i++) { /* a space in front */
        if (i == 0 || text[i - 1] == ' ') {
            memcpy(escaped + n_escaped, "\xE2\x96\x81", 3);
            n_escaped += 3;
        } else {
            escaped[n_escaped++] = text[i - 1];
        }
    }
    for (size_t i = 0; i < n_escaped; i += parts[n_part++].n) {
        uint32_t cp;
        size_t length = hth_text_utf8_decode(escaped + i, n_escaped - i, &cp);
        parts[n_part].n = length ? length : 1;
        memcpy(parts[n_part].bytes, escaped + i, parts[n_part].n);
    }
    for (;;) {
        size_t best = n_part;
        float score = 0.0f;
        for (size_t i = 0; i + 1 < n_part; i++) {
            part joined = parts[i];
            memcpy(joined.bytes + joined.n, parts[i + 1].bytes, parts[i + 1].n);
            int id = find_word(f, joined.bytes, joined.n + parts[i + 1].n);
            if (id < 0 || (best < n_part && f->token[id].score <= score)) continue;
            best = i;
            score = f->token[id].score;
        }
        if (best == n_part) break;
        memcpy(parts[best].bytes + parts[best].n, parts[best + 1].bytes, parts[best + 1].n);
        parts[best].n += parts[best + 1].n;
        memmove(parts + best + 1, parts + best + 2, (n_part - best - 2) * sizeof *parts);
        n_part--;
    }
    for (size_t i = 0; i < n_part; i++) {
        int id = find_word(f, parts[i].bytes, parts[i].n);
        if (id >= 0) CHECK_OK(hth_ids_push(ids, id, err));
        for (size_t k = 0; id < 0 && k < parts[i].n; k++)
            CHECK_OK(hth_ids_push(ids, 3 + (unsigned char)parts[i].bytes[k], err));
    }
}

/* The longest token takes all its places in raw text, then the next longest. */
static void slow_tokenize(const vocab_file *f, const char *text, size_t n, bool parse, hth_ids *ids)
{
    int owner[300]; /* the token that begins at a byte; -1 raw, -2 inside one */
    for (size_t i = 0; i < n; i++) owner[i] = -1;
    for (uint32_t length = 64; length > 0; length--)
        for (uint32_t id = 0; id < f->n_token; id++) {
            const vocab_token *t = &f->token[id];
            bool special = t->kind == HTH_TOKEN_USER ||
                           (parse && (t->kind == HTH_TOKEN_CONTROL || t->kind == HTH_TOKEN_UNKNOWN));
            if (t->n != length || !special) continue;
            for (size_t at = 0; at + length <= n; at++) {
                bool match = memcmp(text + at, t->text, length) == 0;
                for (size_t k = 0; k < length; k++) match = match && owner[at + k] == -1;
                if (!match) continue;
                for (size_t k = 0; k < length; k++) owner[at + k] = k == 0 ? (int)id : -2;
            }
        }
    for (size_t at = 0; at < n;) {
        if (owner[at] >= 0) {
            CHECK_OK(hth_ids_push(ids, owner[at], err));
            at += f->token[owner[at]].n;
            continue;
        }
        size_t end = at;
        while (end < n && owner[end] == -1) end++;
        slow_spm(f, text + at, end - at, ids);
        at = end;
    }
}

/* ---- random vocabularies ------------------------------------------------------------------- */

static const char *const atoms[] = {"a",    "b",    "c",    " ",           "\xC3\xA9", "\xE4\xB8\xAD",
                                    "\xE4", "\xB8", "\xFF", "\xE2\x96\x81"};

/* Up to max atoms; spaces as they are, or as a vocabulary has them. */
static size_t random_text(char *out, uint32_t max, bool escaped, test_random *r)
{
    size_t n = 0;
    for (uint32_t k = 1 + test_random_below(r, max); k > 0; k--) {
        uint32_t i = test_random_below(r, escaped ? 10 : 9);
        if (escaped && i == 3) i = 9;
        memcpy(out + n, atoms[i], strlen(atoms[i]));
        n += strlen(atoms[i]);
    }
    return n;
}

static void fill_vocab(vocab_file *f, test_random *r)
{
    static const int kinds[] = {HTH_TOKEN_NORMAL, HTH_TOKEN_NORMAL, HTH_TOKEN_NORMAL,
                                HTH_TOKEN_NORMAL, HTH_TOKEN_UNUSED, HTH_TOKEN_NORMAL};
    vocab_file_begin(f, true);
    for (uint32_t i = test_random_below(r, 120); i > 0; i--) {
        char text[64];
        size_t n = random_text(text, 5, true, r);
        float score = (float)test_random_below(r, 6) * (test_random_below(r, 2) ? 1.0f : -1.0f);
        vocab_file_add(f, text, n, score, kinds[test_random_below(r, 6)]);
    }
    for (uint32_t i = test_random_below(r, 12); i > 0; i--) {
        char text[64];
        size_t n = random_text(text, 4, false, r);
        vocab_file_add(f, text, n, 0.0f, test_random_below(r, 2) ? HTH_TOKEN_USER : HTH_TOKEN_CONTROL);
    }
}

static void compare_texts(const vocab_file *f, const hth_tokenizer *tok, test_random *r)
{
    for (int i = 0; i < 60; i++) {
        char text[256];
        hth_ids fast = {0}, slow = {0};
        size_t n = random_text(text, 40, false, r);
        bool parse = i % 2 == 0;
        CHECK_OK(hth_tokenize(tok, text, n, parse ? HEARTH_PARSE_SPECIAL : 0, &fast, NULL, err));
        slow_tokenize(f, text, n, parse, &slow);
        if (CHECK_INT(fast.n, slow.n)) CHECK_BYTES(fast.id, slow.id, fast.n * sizeof *fast.id);
        hth_ids_free(&fast);
        hth_ids_free(&slow);
    }
}

TEST(random_vocabularies_give_the_ids_of_the_definition)
{
    static vocab_file f;
    test_random r = {2024};
    for (int i = 0; i < 100; i++) {
        hth_gguf *file = NULL;
        fill_vocab(&f, &r);
        hth_tokenizer *tok = OPENED_BY(vocab_file_open, hth_tokenizer, &f, &file);
        if (tok) compare_texts(&f, tok, &r);
        hth_tokenizer_close(tok);
        hth_gguf_close(file);
        vocab_file_free(&f);
    }
}

/* ---- a whole vocabulary ------------------------------------------------------------------------ */

static bool open_llama(hth_gguf **file, hth_tokenizer **tok)
{
    const char *path = test_data("tokenizers/llama.gguf");
    *file = NULL;
    *tok = NULL;
    if (!path) return false;
    CHECK_OK(hth_gguf_open(path, file, err));
    uint64_t start = hth_clock_ns();
    if (*file) CHECK_OK(hth_tokenizer_open(*file, tok, err));
    printf("     opening llama: %.1f ms\n", (double)(hth_clock_ns() - start) * 1e-6);
    return *tok != NULL;
}

static void check_comes_back(const hth_tokenizer *tok, const hth_ids *ids, const char *text, size_t n)
{
    FREED char *out = malloc(ids->n * hth_detok_max_bytes(tok) + 4);
    size_t n_out = 0;
    hth_detok d;
    hth_detok_init(&d, tok, false, true);
    for (size_t i = 0; i < ids->n; i++) n_out += hth_detok_push(&d, ids->id[i], out + n_out);
    n_out += hth_detok_flush(&d, out + n_out);
    if (CHECK_INT(n_out, n)) CHECK_BYTES(out, text, n);
}

TEST(a_megabyte_of_one_character_comes_back)
{
    static const struct {
        const char *unit;
        size_t n;
    } units[] = {{"a", 1},    {" ", 1},        {"\n", 1},           {"\0", 1},
                 {"\xFF", 1}, {"\xC3\xA9", 2}, {"\xE4\xB8\xAD", 3}, {"=", 1}};
    enum { N = 1 << 20 };
    CLOSED(hth_gguf) *file = NULL;
    CLOSED(hth_tokenizer) *tok = NULL;
    if (!open_llama(&file, &tok)) return;
    FREED char *text = malloc(N);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = N / units[i].n * units[i].n;
        for (size_t k = 0; k < n; k++) text[k] = units[i].unit[k % units[i].n];
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        uint64_t start = hth_clock_ns();
        CHECK_OK(hth_tokenize(tok, text, n, 0, &ids, NULL, err));
        printf("     1 MiB of 0x%02x...: %zu ids, %.1f ms\n", (unsigned char)units[i].unit[0], ids.n,
               (double)(hth_clock_ns() - start) * 1e-6);
        check_comes_back(tok, &ids, text, n);
    }
}

/* What bounds the time: every character queues one pair, every merge two. */
TEST(candidates_stay_below_three_per_character)
{
    CLOSED(hth_gguf) *file = NULL;
    CLOSED(hth_tokenizer) *tok = NULL;
    if (!open_llama(&file, &tok)) return;
    static const char *const units[] = {"a", " ", "=", "ab", "the "};
    enum { N = 100000 };
    FREED char *text = malloc(N);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        for (size_t k = 0; k < N; k++) text[k] = units[i][k % strlen(units[i])];
        CLEANUP(hth_tokenize_scratch_free) hth_tokenize_scratch work = {0};
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        CHECK_OK(hth_text_spm_encode(tok, &work, text, N, &ids, err));
        CHECK(work.heap.n_pushed > N / 4 && work.heap.n_pushed <= 3 * (N + 1));
    }
}

TEST(random_strings_come_back)
{
    CLOSED(hth_gguf) *file = NULL;
    CLOSED(hth_tokenizer) *tok = NULL;
    if (!open_llama(&file, &tok)) return;
    test_random r = {99};
    for (int i = 0; i < 3000; i++) {
        char text[64];
        size_t n = test_random_below(&r, sizeof text);
        for (size_t k = 0; k < n; k++)
            text[k] = i % 3 == 0 ? (char)test_random_next(&r) : (char)(0x20 + test_random_below(&r, 0x60));
        if (i % 3 == 1)
            for (size_t k = 0; k + 1 < n; k += 2) memcpy(text + k, "\xC3\xA9", 2);
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        size_t n_lost = 1;
        CHECK_OK(hth_tokenize(tok, text, n, 0, &ids, &n_lost, err));
        CHECK_INT(n_lost, 0);
        check_comes_back(tok, &ids, text, n);
    }
}
