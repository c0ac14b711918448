/* What Hearth writes for a conversation, for tests/peers/peers.py.
 *
 *     chat formats                                     the names of the formats, one a line
 *     chat format NAME 0|1 [ROLE TEXT]...              a conversation in one of them
 *     chat template FILE 0|1 [ROLE TEXT]...            the same by a template: exit status 3 where
 *                                                      the template itself refuses the messages,
 *                                                      4 where it has what Hearth does not know
 *     chat calls FILE TOOLS MEMBERS [none]             the format of calls in a template, then, each behind a byte 0x1E,
 *                                                      the names and arguments of the calls that an answer with these
 *                                                      members is divided into as the template writes it; none: its content is None, not "" */
#include "support/test.h"
#include "chat/answer.h"
#include "chat/chat_formats.h"
#include "chat/functions.h"
#include "chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 64, REFUSED = 3, UNSUPPORTED = 4 };

/* What some templates ask for beside the messages. */
static const char more[] = "{\"functions\": \"none\", \"datetime\": \"26 Jul 2024\"}";

static const int64_t a_day = 1721995200; /* 26 July 2024, noon */

static hth_str word(const char *text) { return (hth_str){text, strlen(text)}; }

static int list_formats(void)
{
    const hth_chat_format *f;
    for (size_t i = 0; (f = hth_chat_format_at(i)) != NULL; i++) puts(hth_chat_format_name(f));
    return 0;
}

static hearth_status render(const char *way, const char *name, const hth_template_input *in, hth_rendered *r,
                            hearth_error *err)
{
    if (strcmp(way, "format") == 0) return hth_chat_format_render(hth_chat_format_find(word(name)), in, r, err);
    hth_template *t = NULL;
    size_t n = 0;
    char *source = test_read_file(name, &n);
    hearth_status status = hth_template_open(source, n, &t, err);
    if (status == HEARTH_OK) status = hth_template_render(t, in, r, err);
    hth_template_close(t);
    free(source);
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static void print_part(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    (void)user;
    if (kind == HEARTH_ANSWER_CALL) printf("\x1e%.*s\t", (int)n, text);
    if (kind == HEARTH_ANSWER_ARGUMENTS) fwrite(text, 1, n, stdout);
}

static size_t common(const hth_rendered *a, const hth_rendered *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->text[n] == b->text[n]) n++;
    return n;
}

/* Renders as the program does: calls are written for templates that show none. */
static hearth_status render_answer(const char *path, hth_str source, const hth_template_input *in, hth_rendered *r, hearth_error *err)
{
    hth_plain_messages written;
    hth_template_input other = *in;
    const hth_call_format *f = hth_call_format_detect(source);
    if (!f || hth_str_contains(source, "tool_calls")) return render("template", path, in, r, err);
    hearth_status st = hth_calls_as_text(in->messages, in->n_message, f, &written, err);
    if (st != HEARTH_OK) return st;
    other.messages = written.at, other.n_message = written.n;
    st = render("template", path, &other, r, err);
    hth_plain_messages_free(&written);
    return st;
}

/* An answer is what stands behind the prompt for it, or, where the template writes earlier answers otherwise, behind what
 * a conversation without it has, too. */
static int read_calls(const char *path, const char *tools, const char *members, bool is_none)
{
    hth_message messages[2] = {{.role = word("user"), .content = word("Find it."), .members = {"", 0}},
                               {.role = word("assistant"), .content = {is_none ? NULL : "", 0}, .members = word(members)}};
    hth_template_input in = {.messages = messages, .n_message = 1, .add_generation_prompt = true, .bos = word("<s>"),
                             .eos = word("</s>"), .seconds = &a_day, .variables = word(more), .tools = word(tools)};
    hth_rendered prompt = {0}, before = {0}, whole = {0};
    hth_answer *a = NULL;
    hearth_error why = {0};
    size_t n = 0;
    char *source = test_read_file(path, &n);
    const hth_call_format *f = hth_call_format_detect((hth_str){source, n});
    printf("%s", f ? f->name : "-");
    hearth_status st = render("template", path, &in, &prompt, &why);
    in.add_generation_prompt = false;
    if (st == HEARTH_OK) st = render("template", path, &in, &before, &why);
    in.n_message = 2;
    if (st == HEARTH_OK) st = render_answer(path, (hth_str){source, n}, &in, &whole, &why);
    if (st == HEARTH_OK && f) {
        hth_answer_options o = {.calls = f, .reasoning = hth_reasoning_detect((hth_str){source, n}), .tools = tools, .fn = print_part};
        size_t from = common(&prompt, &whole);
        if (from < prompt.n) from = common(&before, &whole);
        st = hth_answer_open(&o, &a, &why);
        if (st == HEARTH_OK) st = hth_answer_push(a, whole.text + from, whole.n - from, &why);
        if (st == HEARTH_OK) st = hth_answer_finish(a, &why);
        hth_answer_close(a);
    }
    if (st != HEARTH_OK) fprintf(stderr, "%s\n", why.message);
    hth_rendered_free(&prompt);
    hth_rendered_free(&before);
    hth_rendered_free(&whole);
    free(source);
    return st == HEARTH_OK ? 0 : REFUSED;
}

int main(int argc, char **argv)
{
    hth_message messages[MAX_MESSAGE];
    hth_rendered r = {0};
    hearth_error why = {0};
    if (argc == 2 && strcmp(argv[1], "formats") == 0) return list_formats();
    if (argc >= 5 && strcmp(argv[1], "calls") == 0) return read_calls(argv[2], argv[3], argv[4], argc > 5);
    if (argc < 4 || (argc - 4) / 2 > MAX_MESSAGE) return 2;
    size_t n = (size_t)(argc - 4) / 2;
    for (size_t i = 0; i < n; i++) messages[i] = (hth_message){.role = word(argv[4 + 2 * i]), .content = word(argv[5 + 2 * i]), .members = {"", 0}};
    hth_template_input in = {.messages = messages, .n_message = n, .add_generation_prompt = argv[3][0] == '1',
                             .bos = word("<s>"), .eos = word("</s>"), .seconds = &a_day, .variables = word(more)};
    hearth_status status = render(argv[1], argv[2], &in, &r, &why);
    if (status != HEARTH_OK) {
        fprintf(stderr, "%s\n", why.message);
        if (status == HEARTH_ERROR_UNSUPPORTED) return UNSUPPORTED;
        return strstr(why.message, "refuses these messages") ? REFUSED : 1;
    }
    fwrite(r.text, 1, r.n, stdout);
    hth_rendered_free(&r);
    return 0;
}
