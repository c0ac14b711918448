/* A fuzz target for chat templates: the first byte says how it is used,
 * what follows up to a NUL is the template, the rest the contents of three messages, cut at
 * NULs. Whatever a template does, what came in as content never comes out as frame.
 * Built with libFuzzer by the preset `fuzz`; test_template.c replays the corpus and seeded mixtures. */
#include "base/alloc.h"
#include "support/test.h"
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* No UTF-8 text holds this byte, no escape of a template makes it: where it comes out it
 * came in. */
enum { MARK = 0xfe, N_MESSAGE = 3 };

/* The bytes up to the next NUL, which is passed over. */
static hth_text next_text(const char **at, const char *end)
{
    const char *from = *at, *nul = from < end ? memchr(from, 0, (size_t)(end - from)) : NULL;
    const char *to = nul ? nul : end;
    *at = nul ? nul + 1 : end;
    return (hth_text){from, (size_t)(to - from)};
}

static bool may_be(hearth_status st)
{
    return st == HEARTH_ERROR_FORMAT || st == HEARTH_ERROR_UNSUPPORTED || st == HEARTH_ERROR_ARGUMENT;
}

/* The parts are the text, whole and in order, and the mark lies in none that is frame. */
static void check_parts(const hth_rendered *r, bool marked_source)
{
    const char *at = r->text;
    for (size_t i = 0; i < r->n_part; i++) {
        const hth_text_part *p = &r->parts[i];
        if (p->text != at || (i > 0 && p->is_frame == r->parts[i - 1].is_frame)) abort();
        if (p->is_frame && !marked_source && p->n > 0 && memchr(p->text, MARK, p->n)) abort();
        at += p->n;
    }
    if (at != r->text + r->n) abort();
}

static void render(const hth_template *t, hth_text source, const char *at, const char *end, unsigned flags)
{
    static const char *const roles[N_MESSAGE] = {"system", "user", "assistant"};
    static const char variables[] = "{\"tools\":[{\"name\":\"f\"}],\"enable_thinking\":false}";
    const int64_t noon = 1700000000;
    hth_message messages[N_MESSAGE];
    char marked[N_MESSAGE][512];
    hth_template_input in = {.messages = messages,
                             .n_message = flags & 1 ? N_MESSAGE : 2,
                             .add_generation_prompt = flags & 2,
                             .bos = {"<s>", 3},
                             .eos = {"</s>", 4},
                             .seconds = flags & 4 ? &noon : NULL};
    if (flags & 8) in.variables = (hth_text){variables, sizeof variables - 1};
    for (int i = 0; i < N_MESSAGE; i++) {
        hth_text content = next_text(&at, end);
        size_t n = content.n < sizeof marked[i] - 2 ? content.n : sizeof marked[i] - 2;
        marked[i][0] = (char)MARK;
        if (n > 0) memcpy(marked[i] + 1, content.bytes, n);
        marked[i][n + 1] = (char)MARK;
        messages[i] = (hth_message){{roles[i], strlen(roles[i])}, {marked[i], n + 2}};
    }
    hth_rendered r;
    hearth_error why = {0};
    hearth_status st = hth_template_render(t, &in, &r, &why);
    if (st != HEARTH_OK && (!may_be(st) || !why.message[0] || r.text || r.parts)) abort();
    if (st == HEARTH_OK) check_parts(&r, source.n > 0 && memchr(source.bytes, MARK, source.n));
    hth_rendered_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    const uint64_t held = hth_alloc_held();
    const char *at = (const char *)data + 1, *end = (const char *)data + n;
    hth_text source = next_text(&at, end);
    hth_template *t = NULL;
    hearth_error why = {0};
    hearth_status st = hth_template_open(source.bytes, source.n, &t, &why);
    if (st != HEARTH_OK && (!may_be(st) || !why.message[0] || t)) abort();
    if (st == HEARTH_OK) render(t, source, at, end, data[0]);
    hth_template_close(t);
    if (hth_alloc_held() != held) abort();
    return 0;
}
