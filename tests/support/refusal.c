/* Opens malformed files and looks at what is said of them; see refusal.h. The one thing to
 * know: the bytes are copied to a block of their size, so that a sanitizer sees a read past it. */
#include "support/refusal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "file/gguf.h"
#include "support/test.h"

static struct {
    unsigned n;
    uint64_t slowest_ns;
    char id[60];
} seen;

hearth_status refusal_open(const gguf_bytes *b, const char *id, hearth_error *why)
{
    hth_gguf *file = NULL;
    uint64_t held = hth_alloc_in_use();
    /* a copy of its own, so that a read past the end is seen by the sanitizer */
    unsigned char *copy = malloc(b->n ? b->n : 1);
    if (b->n) memcpy(copy, b->data, b->n);
    uint64_t start = hth_clock_ns();
    hearth_status st = hth_gguf_open_memory(copy, b->n, "bad.gguf", &file, why);
    uint64_t time_ns = hth_clock_ns() - start;
    hth_gguf_close(file);
    CHECK_INT(hth_alloc_in_use(), held);
    free(copy);
    if (st == HEARTH_OK) return st;
    seen.n++;
    if (time_ns > seen.slowest_ns) {
        seen.slowest_ns = time_ns;
        snprintf(seen.id, sizeof seen.id, "%s", id);
    }
    return st;
}

void refusal_check(const gguf_bytes *b, hearth_status status, const char *id, const char *words)
{
    hearth_error why = {0};
    hearth_status got = refusal_open(b, id, &why);
    if (got != status)
        test_fail(__FILE__, __LINE__, "%s: status %s, expected %s: %s", id, hearth_status_name(got),
                  hearth_status_name(status), why.message);
    char all[200];
    snprintf(all, sizeof all, "bad.gguf: |%s", words);
    char *save = NULL;
    for (char *word = strtok_r(all, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (!strstr(why.message, word))
            test_fail(__FILE__, __LINE__, "%s: \"%s\" does not hold \"%s\"", id, why.message, word);
}

void refusal_check_accepted(const gguf_bytes *b, const char *id)
{
    CLOSED(hth_gguf) *file = NULL;
    hearth_error why = {0};
    if (hth_gguf_open_memory(b->data, b->n, "good.gguf", &file, &why) != HEARTH_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", id, why.message);
}

void refusal_report(void)
{
    printf("     %u malformed files, the slowest refused in %.2f ms (%s)\n", seen.n,
           (double)seen.slowest_ns / 1e6, seen.id);
}
