/* Opens the vocabularies of vocab_case.h. */
#include "support/models/vocab_case.h"

#include "base/alloc.h"
#include "base/clock.h"

vocab_file f;
hth_gguf *file;
hth_tokenizer *tok;
char warnings[4000];

static void finish(void)
{
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    vocab_file_free(&f);
    tok = NULL;
    file = NULL;
}

__attribute__((constructor)) static void set_up(void) { test_before_each = vocab_begin, test_after_each = finish; }

void vocab_again(void)
{
    finish();
    vocab_begin();
}

void vocab_keep_warning(void *user, hearth_log_level level, const char *line)
{
    strncat(warnings, line, sizeof warnings - strlen(warnings) - 2);
    strcat(warnings, "\n");
}

bool vocab_open(void)
{
    warnings[0] = '\0';
    hearth_log_set(vocab_keep_warning, NULL);
    CHECK_OK(vocab_file_open(&f, &file, &tok, err));
    hearth_log_set(NULL, NULL);
    return tok != NULL;
}

void vocab_expect_warning(const char *text)
{
    if (vocab_open() && !strstr(warnings, text)) CHECK_TEXT(warnings, text);
}

void vocab_expect_refused(hearth_status status, const char *text, const char *other)
{
    hearth_error err = {0};
    CHECK_INT(vocab_file_open(&f, &file, &tok, &err), status);
    CHECK(tok == NULL);
    if (!strstr(err.message, text)) CHECK_TEXT(err.message, text);
    if (!strstr(err.message, other)) CHECK_TEXT(err.message, other);
    vocab_again();
}

static hearth_status open_again(uint64_t n_fail)
{
    hth_tokenizer *second = NULL;
    hearth_error why = {0};
    hth_alloc_fail_at(n_fail, 0);
    hearth_status status = hth_tokenizer_open(file, &second, &why);
    hth_alloc_fail_at(0, 0);
    CHECK(status == HEARTH_OK || second == NULL);
    hth_tokenizer_close(second);
    return status;
}

static hearth_status tokenize_again(const char *text, size_t n, uint64_t n_fail)
{
    hth_ids ids = {0};
    hearth_error why = {0};
    CHECK_OK(hth_ids_push(&ids, 7, err));
    hth_alloc_fail_at(n_fail, 0);
    hearth_status status = hth_tokenize(tok, text, n, HEARTH_PARSE_SPECIAL, &ids, NULL, &why);
    hth_alloc_fail_at(0, 0);
    if (status != HEARTH_OK) CHECK_INT(ids.n, 1);
    hth_ids_free(&ids);
    return status;
}

void vocab_fail_allocations(const char *text, size_t n, int n_open, int n_tokenize)
{
    const uint64_t held = hth_alloc_in_use();
    for (int opens = 1; opens >= 0; opens--) {
        int n_failed = 0;
        uint64_t i = 1;
        for (bool reached = true; reached && i < 1000; i++) {
            const uint64_t before = hth_alloc_count();
            hearth_status status = opens ? open_again(i) : tokenize_again(text, n, i);
            reached = hth_alloc_count() - before >= i;
            CHECK_INT(hth_alloc_in_use(), held);
            /* without memory for machine code, expressions are interpreted */
            if (status != HEARTH_OK) CHECK_INT(status, HEARTH_ERROR_MEMORY);
            n_failed += status != HEARTH_OK;
        }
        if (n_failed < (opens ? n_open : n_tokenize) || i == 1000)
            test_fail(__FILE__, __LINE__, "%d allocations of %s failed", n_failed, opens ? "opening" : "tokenizing");
    }
}

void vocab_expect_proportion(const char *const *units, size_t n)
{
    enum { SIZE = 1 << 20 };
    FREED char *text = malloc(SIZE);
    uint64_t start = hth_clock_ns();
    for (size_t k = 0; k < n; k++) {
        const size_t n_unit = strlen(units[k]);
        CLEANUP(hth_ids_free) hth_ids ids = {0};
        for (size_t i = 0; i < SIZE; i++) text[i] = units[k][i % n_unit];
        CHECK_OK(hth_tokenize(tok, text, SIZE, 0, &ids, NULL, err));
    }
    printf("     %zu MiB: %.2f s\n", n, (double)(hth_clock_ns() - start) * 1e-9);
}

void vocab_expect_ids(const char *text, size_t n_text, unsigned flags, size_t n_lost, const int32_t *ids, size_t n,
                      int line)
{
    CLEANUP(hth_ids_free) hth_ids got = {0};
    size_t lost = 99;
    CHECK_OK(hth_tokenize(tok, text, n_text, flags, &got, &lost, err));
    bool same = got.n == n && lost == n_lost && (n == 0 || memcmp(got.id, ids, n * sizeof *ids) == 0);
    for (size_t i = 0; !same && i < got.n; i++) test_fail(__FILE__, line, "  %d", (int)got.id[i]);
    if (!same) test_fail(__FILE__, line, "%zu ids, expected %zu; %zu lost", got.n, n, lost);
}
