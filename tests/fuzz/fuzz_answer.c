/* A fuzz target for answers: the first byte chooses a format, the second where the rest is cut in two pieces. What is
 * promised of all bytes: pieces make no difference; names of functions are words; without calls and reasoning the
 * text is what came. Built with libFuzzer by the preset `fuzz`; test_answer.c replays seeded ones. */
#include "chat/answer.h"
#include "chat/deepseek_marks.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const templates[] = {"",
                                        "</think>",
                                        "<tool_call> tools </think>",
                                        "<function= <parameter= </think>",
                                        "<arg_key> <arg_value>",
                                        "[TOOL_CALLS]",
                                        "[TOOL_CALLS][ARGS]",
                                        HTH_DEEPSEEK_OPEN "```json",
                                        HTH_DEEPSEEK_OPEN,
                                        "<|start_header_id|> \"parameters\"",
                                        "<|channel|> tools",
                                        "<seed:tool_call>",
                                        "<minimax:tool_call> </think>",
                                        "｜DSML｜function_calls>",
                                        "<function name= <param name=",
                                        "</arg_key><arg_value>",
                                        "<|tool_call_begin|> <|tool_call_argument_begin|>",
                                        "<TOOLCALL>",
                                        "<|tools_prefix|> <|inner_suffix|>",
                                        "<|START_ACTION|> <|START_RESPONSE|>",
                                        "Action: \"tool_name\"",
                                        "<function= </function>",
                                        ">>>all recipient",
                                        "<|tool_call_start|>",
                                        "<|tool_call> <tool_call|> <channel|>"};
enum { N_TEMPLATE = sizeof templates / sizeof *templates, MAX_SIZE = 4096, MAX_OUTPUT = 8 * MAX_SIZE };

typedef struct output {
    char bytes[MAX_OUTPUT]; /* the kind, then text, for each stretch of a kind */
    size_t n, n_text;
    int last;
} output;

static void expect(bool holds)
{
    if (!holds) abort();
}

static void note(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    output *o = user;
    expect(n > 0 && n + 2 < MAX_OUTPUT - o->n);
    if ((int)kind != o->last || kind == HEARTH_ANSWER_CALL) o->bytes[o->n++] = (char)(1 + kind);
    o->last = (int)kind;
    memcpy(o->bytes + o->n, text, n);
    o->n += n;
    if (kind == HEARTH_ANSWER_TEXT) o->n_text += n;
    for (size_t i = 0; kind == HEARTH_ANSWER_CALL && i < n; i++) expect(text[i] > ' ' && text[i] < 0x7F);
}

static void divide(const char *source, bool in_reasoning, const char *text, size_t n, size_t cut, output *o)
{
    const hth_str template_text = {source, strlen(source)};
    hth_answer_options options = {.calls = hth_call_format_detect(template_text),
                                  .reasoning = hth_reasoning_detect(template_text),
                                  .in_reasoning = in_reasoning,
                                  .fn = note,
                                  .user = o};
    hth_answer *a;
    o->n = o->n_text = 0;
    o->last = -1;
    expect(hth_answer_open(&options, &a, NULL) == HEARTH_OK);
    expect(hth_answer_push(a, text, cut, NULL) == HEARTH_OK);
    expect(hth_answer_push(a, text + cut, n - cut, NULL) == HEARTH_OK);
    expect(hth_answer_finish(a, NULL) == HEARTH_OK);
    hth_answer_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static output whole, cut;
    if (n < 2 || n > MAX_SIZE) return 0;
    const char *source = templates[data[0] / 2 % N_TEMPLATE], *text = (const char *)data + 2;
    size_t n_text = n - 2;
    divide(source, data[0] & 1, text, n_text, n_text, &whole);
    divide(source, data[0] & 1, text, n_text, data[1] < n_text ? data[1] : n_text, &cut);
    expect(whole.n == cut.n && memcmp(whole.bytes, cut.bytes, whole.n) == 0);
    if (!*source)
        expect(whole.n_text == n_text && (n_text == 0 || memcmp(whole.bytes + 1, text, n_text) == 0));
    return 0;
}
