/* Ten thousand small files, each damaged in one seeded way: refused with a line, or run
 * for a token; never a crash, a hang or a leak. At least four of five damages lie in
 * header, metadata and tensor infos. HEARTH_SEED chooses others, HEARTH_LONG=1 makes a
 * hundred times as many (with the thread sanitizer, whose loads take ten times as long, ten). */
#include "file/gguf.h"
#include "support/kernels/proof.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#include <time.h>

#if defined(__SANITIZE_THREAD__)
enum { LONG_FACTOR = 10 };
#else
enum { LONG_FACTOR = 100 };
#endif
enum { N_MUTATION = 10000, MAX_SEED_FILE = 32, MAX_SECONDS_EACH = 20 };

typedef struct seed_file {
    const char *name;
    uint8_t *bytes;
    size_t n, n_directory; /* bytes before the first tensor's data */
} seed_file;

static seed_file files[MAX_SEED_FILE];
static size_t n_file;

static void add_file(const char *name, const void *bytes, size_t n)
{
    seed_file *f = &files[n_file];
    hth_gguf *file = OPENED_BY(hth_gguf_open_memory, hth_gguf, bytes, n, name);
    if (!file || n_file == MAX_SEED_FILE) return;
    *f = (seed_file){.name = name, .bytes = malloc(n), .n = n, .n_directory = n};
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) {
        uint64_t at = hth_gguf_tensor_at(file, i)->offset;
        if (at < f->n_directory) f->n_directory = (size_t)at;
    }
    memcpy(f->bytes, bytes, n);
    hth_gguf_close(file);
    n_file++;
}

/* One small model of each family, a packed one, and the golden ones with other vocabularies, or with
 * experts. */
static void collect_files(void)
{
    static const char *const families[] = {"llama",  "bamboo", "qwen2",  "qwen3", "gemma2",
                                           "gemma3", "phi3",   "falcon", "opt",   "packed",
                                           "lfm2",   "qwen35", "deepseek2", "gemma4", "mamba2", "falcon-h1",
                                           "nemotron_h", "jamba", "plamo2"};
    static const char *const golden[] = {"golden/arch/falcon.gguf", "golden/arch/llama3-rope_freqs.gguf",
                                         "golden/arch/opt.gguf",    "golden/files/tiny.gguf",
                                         "golden/arch/gpt-oss.gguf", "golden/arch/qwen2moe.gguf",
                                         "golden/arch/smallthinker-21b.gguf"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        CLEANUP(tiny_free) tiny_model m = tiny_new();
        if (i > 0 && strcmp(families[i], "packed") != 0) tiny_become(&m, families[i]);
        else if (i > 0) tiny_pack(&m);
        CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
        add_file(families[i], b.data, b.n);
    }
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        size_t n;
        const char *path = test_data(golden[i]);
        FREED char *bytes = path ? test_read_file(path, &n) : NULL;
        if (bytes) add_file(golden[i], bytes, n);
    }
}

/* ---- damages --------------------------------------------------------------------------- */

static const uint64_t edges[] = {
    0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000u, 0xffffffffu, 0x100000000u, 1ull << 40,
    1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 7, 0x7fc00000u, 13, 8, 9, 32, 4096, 65537,
};
enum { N_EDGE = sizeof edges / sizeof *edges };

static size_t below(test_random *r, size_t n) { return n ? test_random_below(r, (uint32_t)n) : 0; }

/* Changes *bytes (with space for 64 more) and *n in one way, at a place before `end`. */
static void damage(test_random *r, uint8_t *bytes, size_t *n, size_t end)
{
    size_t at = below(r, end), left = *n - at, size = (size_t)1 << test_random_below(r, 4);
    size_t run = 1 + below(r, 64), from = below(r, end);
    if (size > left) size = left;
    if (run > left) run = left;
    if (run > *n - from) run = *n - from;
    switch (test_random_below(r, 8)) {
    case 0: bytes[at] ^= (uint8_t)(1u << test_random_below(r, 8)); break;
    case 1: bytes[at] = (uint8_t)test_random_below(r, 256); break;
    case 2:
    case 3: memcpy(bytes + at, &edges[below(r, N_EDGE)], size); break; /* little-endian */
    case 4: memmove(bytes + at, bytes + from, run); break;
    case 5: /* taken out */
        memmove(bytes + at, bytes + at + run, *n - at - run);
        *n -= run;
        break;
    case 6: /* put in */
        memmove(bytes + at + run, bytes + at, *n - at);
        for (size_t i = 0; i < run; i++) bytes[at + i] = (uint8_t)test_random_below(r, 256);
        *n += run;
        break;
    default: *n = at; break;
    }
}

/* ---- what must hold ------------------------------------------------------------------------- */

/* Two damages in three leave a file that is not a model; the rest must run, or fail with
 * a line, in every way that a program would use it. */
static bool use(const uint8_t *bytes, size_t n)
{
    hearth_error err = {0};
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_status st = hearth_model_open_memory(bytes, n, "mutant.gguf", NULL, &model, &err);
    if (st != HEARTH_OK) {
        CHECK(model == NULL && strstr(err.message, "mutant.gguf") != NULL);
        return false;
    }
    int32_t *ids = NULL, one = 0;
    size_t n_id = 0, n_text;
    if (hearth_tokenize(model, "a b\xffz", 5, 0, &ids, &n_id, &err) == HEARTH_OK) {
        hearth_detokenizer *decoder = NULL;
        const char *text;
        if (hearth_detokenizer_open(model, true, true, &decoder, &err) == HEARTH_OK)
            for (size_t i = 0; i < n_id; i++) hearth_detokenizer_push(decoder, ids[i], &text, &n_text, &err);
        hearth_detokenizer_close(decoder);
        if (n_id > 0) one = ids[n_id - 1];
    }
    hearth_free(ids);
    hearth_session_options o = {.n_ctx = 4, .n_batch = 2, .n_thread = 1, .kv = HEARTH_KV_F16};
    if (hearth_session_open(model, &o, &session, &err) == HEARTH_OK) {
        st = hearth_session_eval(session, &one, 1, &err);
        CHECK(st == HEARTH_OK || err.message[0] != '\0');
    }
    return true;
}

TEST(damaged_files_are_refused_or_run)
{
    test_random r = proof_random();
    size_t n_mutation = test_is_long() ? LONG_FACTOR * (size_t)N_MUTATION : N_MUTATION,
           n_directory = 0, n_run = 0;
    collect_files();
    if (!CHECK(n_file > 0)) return;
    for (size_t i = 0; i < n_mutation; i++) {
        const seed_file *f = &files[i % n_file];
        size_t n = f->n;
        uint8_t *bytes = malloc(n + 64);
        bool in_directory = test_random_below(&r, 20) < 17;
        memcpy(bytes, f->bytes, n);
        damage(&r, bytes, &n, in_directory ? f->n_directory : f->n);
        FREED uint8_t *exact = malloc(n ? n : 1); /* so that a byte too many is seen */
        memcpy(exact, bytes, n);
        free(bytes);
        alarm(MAX_SECONDS_EACH);
        n_directory += in_directory;
        n_run += use(exact, n);
        alarm(0);
    }
    printf("     %zu damages of %zu files, %zu %% in the directory; %zu still ran\n", n_mutation, n_file,
           100 * n_directory / n_mutation, n_run);
    CHECK(n_directory * 5 >= n_mutation * 4);
    CHECK(n_run > 0 && n_run < n_mutation);
    for (size_t i = 0; i < n_file; i++) free(files[i].bytes);
}
