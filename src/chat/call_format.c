/* The table of call formats, and the rules by which a template's text tells which one it writes. */
#include "chat/call_format.h"

#include "chat/deepseek_marks.h"

#include <string.h>

/* clang-format off: a table */
enum {
    HERMES,
    ELEMENTS,
    PAIRS,
    MISTRAL,
    MISTRAL_NAMED,
    DEEPSEEK_FENCED,
    DEEPSEEK_PLAIN,
    LLAMA3,
    HARMONY,
    N_FORMAT
};
static const hth_call_format formats[N_FORMAT] = {
    [HERMES] = {"hermes",
                HTH_CALL_JSON,
                "",
                "<tool_call>\n",
                "\n</tool_call>",
                "\n",
                "",
                "arguments",
                "",
                false,
                "<tool_call>",
                "</tool_call>",
                {"", ""},
                ""},
    [ELEMENTS] = {"qwen3-coder",
                  HTH_CALL_ELEMENTS,
                  "",
                  "<tool_call>\n",
                  "\n</tool_call>",
                  "\n",
                  "",
                  "",
                  "",
                  false,
                  "<tool_call>",
                  "</tool_call>",
                  {"", ""},
                  ""},
    [PAIRS] = {"glm-4.5",
               HTH_CALL_PAIRS,
               "",
               "<tool_call>",
               "</tool_call>",
               "\n",
               "",
               "",
               "",
               false,
               "<tool_call>",
               "</tool_call>",
               {"", ""},
               ""},
    [MISTRAL] = {"mistral",
                 HTH_CALL_JSON,
                 "[TOOL_CALLS][",
                 "",
                 "",
                 ", ",
                 "]",
                 "arguments",
                 "",
                 false,
                 "[TOOL_CALLS]",
                 "",
                 {"", ""},
                 ""},
    [MISTRAL_NAMED] = {"mistral-v11",
                       HTH_CALL_NAMED,
                       "",
                       "[TOOL_CALLS]",
                       "",
                       "",
                       "",
                       "",
                       "[ARGS]",
                       false,
                       "[TOOL_CALLS]",
                       "",
                       {"", ""},
                       ""},
    [DEEPSEEK_FENCED] = {"deepseek-v3",
                         HTH_CALL_NAMED,
                         HTH_DEEPSEEK_FIRST,
                         HTH_DEEPSEEK_OPEN "function" HTH_DEEPSEEK_SEP,
                         "\n```" HTH_DEEPSEEK_CLOSE,
                         "\n",
                         HTH_DEEPSEEK_LAST,
                         "",
                         "\n```json\n",
                         false,
                         HTH_DEEPSEEK_OPEN,
                         HTH_DEEPSEEK_CLOSE,
                         {HTH_DEEPSEEK_FIRST, HTH_DEEPSEEK_LAST},
                         HTH_DEEPSEEK_SEP},
    [DEEPSEEK_PLAIN] = {"deepseek-v3.1",
                        HTH_CALL_NAMED,
                        HTH_DEEPSEEK_FIRST,
                        HTH_DEEPSEEK_OPEN,
                        HTH_DEEPSEEK_CLOSE,
                        "",
                        HTH_DEEPSEEK_LAST,
                        "",
                        HTH_DEEPSEEK_SEP,
                        false,
                        HTH_DEEPSEEK_OPEN,
                        HTH_DEEPSEEK_CLOSE,
                        {HTH_DEEPSEEK_FIRST, HTH_DEEPSEEK_LAST},
                        ""},
    [LLAMA3] = {"llama-3",
                HTH_CALL_JSON,
                "",
                "",
                "",
                "; ",
                "",
                "parameters",
                "",
                true,
                "<|python_tag|>",
                "",
                {"", ""},
                ""},
    [HARMONY] = {"harmony",
                 HTH_CALL_HARMONY,
                 "",
                 "<|channel|>commentary to=functions.",
                 "",
                 "",
                 "",
                 "",
                 " <|constrain|>json<|message|>",
                 true,
                 "",
                 "",
                 {"", ""},
                 ""},
};

/* Ordered rules: the first whose texts all occur decides. */
static const struct {
    int format;
    const char *has[2];
} rules[] = {
    {HARMONY, {"<|channel|>", "tools"}},
    {ELEMENTS, {"<function=", "<parameter="}},
    {PAIRS, {"<arg_key>", "<arg_value>"}},
    {HERMES, {"<tool_call>", "tools"}},
    {DEEPSEEK_FENCED, {HTH_DEEPSEEK_OPEN, "```json"}},
    {DEEPSEEK_PLAIN, {HTH_DEEPSEEK_OPEN}},
    {MISTRAL_NAMED, {"[TOOL_CALLS]", "[ARGS]"}},
    {MISTRAL, {"[TOOL_CALLS]"}},
    {LLAMA3, {"<|start_header_id|>", "\"parameters\""}},
};

static const hth_reasoning_marks reasoning[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
};
/* clang-format on */

const hth_call_format *hth_call_format_detect(hth_str source)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        bool all = true;
        for (size_t k = 0; k < 2 && rules[i].has[k] && all; k++)
            all = hth_str_contains(source, rules[i].has[k]);
        if (all) return &formats[rules[i].format];
    }
    return NULL;
}

const hth_call_format *hth_call_format_plain(void) { return &formats[HERMES]; }

const hth_call_format *hth_call_format_of_name(const char *chat_format)
{
    return strcmp(chat_format, "gpt-oss") == 0 ? &formats[HARMONY] : NULL;
}

const hth_reasoning_marks *hth_reasoning_detect(hth_str source)
{
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning; i++)
        if (hth_str_contains(source, reasoning[i].close)) return &reasoning[i];
    return NULL;
}
