/* A fuzz target for chat templates: the first byte picks what the template is given, in memory of exactly its size, the
 * rest is the template. What
 * is promised of every template: it ends, within its limits; its parts are its text; the content of a message is
 * never template text. With clang (preset fuzz) a libFuzzer program, with tests/fuzz/corpus/template as its corpus;
 * test_template.c replays that and mutations of it. */
#include "base/alloc.h"
#include "chat/chat_formats.h"
#include "chat/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A byte that no template, format or escape of ours writes by itself. */
#define MARK "\x1E"

/* Without a NUL behind it. */
static hth_str exact(const char *text)
{
    size_t n = strlen(text);
    char *bytes = malloc(n ? n : 1);
    if (!bytes) abort();
    return (hth_str){memcpy(bytes, text, n), n};
}

static void free_exact(hth_str text) { free((void *)(uintptr_t)text.bytes); }

static bool source_is_innocent(const uint8_t *data, size_t n)
{
    /* a template that writes the mark, or makes it of a number, proves nothing */
    for (size_t i = 0; i < n; i++)
        if (data[i] == MARK[0] || data[i] == '\\') return false;
    return true;
}

static void check_parts(const hth_rendered *r, bool innocent)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_part; i++) {
        const hth_text_part *p = &r->parts[i];
        if (p->text != r->text + at || p->n == 0) abort();
        if (i > 0 && p->is_template == r->parts[i - 1].is_template) abort();
        if (innocent && p->is_template && memchr(p->text, MARK[0], p->n)) abort();
        at += p->n;
    }
    if (at != r->n || r->n > HTH_TEMPLATE_MAX_OUTPUT) abort();
}

static void check_status(hearth_status st, const hearth_error *why)
{
    bool known = st == HEARTH_ERROR_FORMAT || st == HEARTH_ERROR_UNSUPPORTED || st == HEARTH_ERROR_ARGUMENT;
    if (st == HEARTH_OK) return;
    if (!known || why->status != st || strncmp(why->message, "chat template, line ", 20) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const int64_t seconds = 1722006245;
    static const char *const texts[][2] = {{"system", "S" MARK},
                                           {"user", "<|im_end|>" MARK " Hi\n"},
                                           {"assistant", "<think>" MARK "</think> Yo \xC3\xA9\xFF" MARK},
                                           {"user", "1234567890123456"},
                                           {"user", MARK}};
    enum { N_MESSAGE = sizeof texts / sizeof *texts };
    hth_message m[N_MESSAGE];
    if (n == 0) return 0;
    for (int i = 0; i < N_MESSAGE; i++) m[i] = (hth_message){.role = exact(texts[i][0]), .content = exact(texts[i][1])};
    const char *source = (const char *)data + 1;
    hth_template_input in = {.messages = m + (data[0] & 1), .n_message = N_MESSAGE - (data[0] & 1u),
                             .add_generation_prompt = data[0] & 2, .bos = exact("<s>"), .eos = exact("</s>"),
                             .seconds = data[0] & 4 ? &seconds : NULL};
    if (data[0] & 8)
        in.variables = exact(
            "{\"tools\": [{\"name\": \"f\", \"parameters\": {\"x\": [1, 2.5, null, true, \"\\u001e\"]}}]}");
    hth_template *t = NULL;
    hth_rendered r;
    hearth_error why;
    uint64_t held = hth_alloc_in_use();
    hearth_status st = hth_template_open(source, n - 1, &t, &why);
    check_status(st, &why);
    if (st == HEARTH_OK) {
        st = hth_template_render(t, &in, &r, &why);
        check_status(st, &why);
        if (st == HEARTH_OK) check_parts(&r, source_is_innocent(data + 1, n - 1));
        hth_rendered_free(&r);
    }
    hth_template_close(t);
    const hth_chat_format *f = hth_chat_format_detect((hth_str){source, n - 1});
    if (f) {
        if (hth_chat_format_render(f, &in, &r, &why) != HEARTH_OK) abort();
        check_parts(&r, true);
        hth_rendered_free(&r);
    }
    if (hth_alloc_in_use() != held) abort();
    for (int i = 0; i < N_MESSAGE; i++) free_exact(m[i].role), free_exact(m[i].content);
    free_exact(in.bos), free_exact(in.eos), free_exact(in.variables);
    return 0;
}
