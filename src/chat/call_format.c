/* The table of call formats, and the rules by which a template's text tells which one it writes. */
#include "chat/call_format.h"

#include "chat/deepseek_marks.h"

#include <string.h>

/* clang-format off: a table */
enum {
    HERMES,
    QWEN_CODER,
    SEED,
    MINIMAX,
    ATEM,
    MINICPM,
    DSML_CALLS,
    DSML_TOOLS,
    GLM,
    GLM_47,
    MISTRAL,
    MISTRAL_NAMED,
    DEEPSEEK_FENCED,
    DEEPSEEK_PLAIN,
    KIMI,
    LLAMA3,
    NEMOTRON,
    APRIEL,
    MINIMAX_1,
    GRANITE,
    GIGACHAT,
    FIREFUNCTION,
    COMMAND_R,
    COMMAND_R7B,
    COMMAND_A,
    APERTUS,
    FUNCTIONARY_31,
    FUNCTIONARY_32,
    LFM2,
    GEMMA4,
    HARMONY,
    N_FORMAT
};

#define NAME "{\"name\": "
#define ARGUMENTS ", \"arguments\": "
#define PARAMETERS ", \"parameters\": "
#define COHERE_NAME "{\"tool_call_id\": \"#\", \"tool_name\": "
#define COHERE .style = HTH_CALL_JSON, .first = "<|START_ACTION|>[\n    ", .open = COHERE_NAME, .name_end = PARAMETERS, \
    .close = "}", .between = ",\n    ", .last = "\n]<|END_ACTION|>", .mark = "<|START_ACTION|>", .end_mark = "<|END_ACTION|>"
/* <FUNCTION=NAME> and <PARAMETER=KEY> of Qwen's and ByteDance's models. */
#define FUNCTION_IS .call_open = "<function=", .name_close = ">", .key_open = "<parameter=", .key_close = ">", \
    .value_close = "</parameter>", .call_close = "</function>", .gap = "\n"
/* <invoke name="NAME"> and <parameter name="KEY"> with something before each word. */
#define INVOKE(X) .call_open = "<" X "invoke name=\"", .name_close = "\">", .key_open = "<" X "parameter name=\"", \
    .key_close = "\"", .value_open = ">", .value_close = "</" X "parameter>", .call_close = "</" X "invoke>", \
    .gap = "\n"
#define PAIRS .key_open = "<arg_key>", .key_close = "</arg_key>", .value_open = "<arg_value>", .value_close = "</arg_value>"
#define DSML "\xEF\xBD\x9C" "DSML" "\xEF\xBD\x9C" /* between fullwidth bars, U+FF5C */
#define DSML_FORMAT(WORD) .style = HTH_CALL_ELEMENTS, .first = "<" DSML WORD ">\n", .between = "\n", \
    .last = "\n</" DSML WORD ">", .elements = {INVOKE(DSML), .is_typed = true}, .mark = "<" DSML WORD ">", \
    .end_mark = "</" DSML WORD ">"

static const hth_call_format formats[N_FORMAT] = {
    [HERMES] = {"hermes", HTH_CALL_JSON, .open = "<tool_call>\n" NAME, .name_end = ARGUMENTS, .close = "}\n</tool_call>",
                .between = "\n", .mark = "<tool_call>", .end_mark = "</tool_call>"},
    [QWEN_CODER] = {"qwen3-coder", HTH_CALL_ELEMENTS, .open = "<tool_call>\n", .close = "\n</tool_call>", .between = "\n",
                    .elements = {FUNCTION_IS, .in_lines = true}, .mark = "<tool_call>", .end_mark = "</tool_call>"},
    [SEED] = {"seed-oss", HTH_CALL_ELEMENTS, .open = "<seed:tool_call>\n", .close = "\n</seed:tool_call>", .between = "\n",
              .elements = {FUNCTION_IS}, .mark = "<seed:tool_call>", .end_mark = "</seed:tool_call>"},
    [MINIMAX] = {"minimax-m2", HTH_CALL_ELEMENTS, .first = "<minimax:tool_call>\n", .between = "\n",
                 .last = "\n</minimax:tool_call>", .elements = {INVOKE("")}, .mark = "<minimax:tool_call>",
                 .end_mark = "</minimax:tool_call>"},
    [ATEM] = {"atem", HTH_CALL_ELEMENTS, .open = "<atem:function_calls>\n", .close = "\n</atem:function_calls>", .between = "\n",
              .elements = {INVOKE("atem:")}, .mark = "<atem:function_calls>", .end_mark = "</atem:function_calls>"},
    [MINICPM] = {"minicpm5", HTH_CALL_ELEMENTS,
                 .elements = {.call_open = "<function name=\"", .name_close = "\">", .key_open = "<param name=\"", .key_close = "\"",
                              .value_open = ">", .value_close = "</param>", .call_close = "</function>", .has_cdata = true},
                 .end_mark = "</function>"},
    [DSML_CALLS] = {"deepseek-v3.2", DSML_FORMAT("function_calls")},
    [DSML_TOOLS] = {"deepseek-v4", DSML_FORMAT("tool_calls")},
    [GLM] = {"glm-4.5", HTH_CALL_ELEMENTS, .open = "<tool_call>", .close = "</tool_call>", .between = "\n",
             .elements = {PAIRS, .gap = "\n", .key_gap = "\n"}, .mark = "<tool_call>", .end_mark = "</tool_call>"},
    [GLM_47] = {"glm-4.7", HTH_CALL_ELEMENTS, .open = "<tool_call>", .close = "</tool_call>", .elements = {PAIRS},
                .mark = "<tool_call>", .end_mark = "</tool_call>"},
    [MISTRAL] = {"mistral", HTH_CALL_JSON, .first = "[TOOL_CALLS][", .open = NAME, .name_end = ARGUMENTS, .close = "}",
                 .between = ", ", .last = "]", .mark = "[TOOL_CALLS]"},
    [MISTRAL_NAMED] = {"mistral-v11", HTH_CALL_NAMED, .open = "[TOOL_CALLS]", .name_end = "[ARGS]", .mark = "[TOOL_CALLS]"},
    [DEEPSEEK_FENCED] = {"deepseek-v3", HTH_CALL_NAMED, .first = HTH_DEEPSEEK_FIRST,
                         .open = HTH_DEEPSEEK_OPEN "function" HTH_DEEPSEEK_SEP, .name_end = "\n```json\n",
                         .close = "\n```" HTH_DEEPSEEK_CLOSE, .between = "\n", .last = HTH_DEEPSEEK_LAST, .mark = HTH_DEEPSEEK_OPEN,
                         .end_mark = HTH_DEEPSEEK_CLOSE, .other_mark = {HTH_DEEPSEEK_FIRST, HTH_DEEPSEEK_LAST},
                         .name_mark = HTH_DEEPSEEK_SEP},
    [DEEPSEEK_PLAIN] = {"deepseek-v3.1", HTH_CALL_NAMED, .first = HTH_DEEPSEEK_FIRST, .open = HTH_DEEPSEEK_OPEN,
                        .name_end = HTH_DEEPSEEK_SEP, .close = HTH_DEEPSEEK_CLOSE, .last = HTH_DEEPSEEK_LAST,
                        .mark = HTH_DEEPSEEK_OPEN, .end_mark = HTH_DEEPSEEK_CLOSE,
                        .other_mark = {HTH_DEEPSEEK_FIRST, HTH_DEEPSEEK_LAST}},
    [KIMI] = {"kimi-k2", HTH_CALL_NAMED, .first = "<|tool_calls_section_begin|>", .open = "<|tool_call_begin|>functions.",
              .name_end = ":#<|tool_call_argument_begin|>", .close = "<|tool_call_end|>", .last = "<|tool_calls_section_end|>",
              .mark = "<|tool_call_begin|>", .end_mark = "<|tool_call_end|>",
              .other_mark = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, .name_mark = "functions."},
    [LLAMA3] = {"llama-3", HTH_CALL_JSON, .open = NAME, .name_end = PARAMETERS, .close = "}", .between = "; ", .one = true,
                .is_bare = true, .mark = "<|python_tag|>"},
    [NEMOTRON] = {"nemotron-v2", HTH_CALL_JSON, .first = "<TOOLCALL>[", .open = NAME, .name_end = ARGUMENTS, .close = "}",
                  .between = ", ", .last = "]</TOOLCALL>", .mark = "<TOOLCALL>", .end_mark = "</TOOLCALL>"},
    [APRIEL] = {"apriel", HTH_CALL_JSON, .first = "<tool_calls>[", .open = NAME, .name_end = ARGUMENTS, .close = "}",
                .between = ", ", .last = "]</tool_calls>", .mark = "<tool_calls>", .end_mark = "</tool_calls>"},
    [MINIMAX_1] = {"minimax-m1", HTH_CALL_JSON, .first = "<tool_calls>\n", .open = NAME, .name_end = ARGUMENTS, .close = "}\n",
                   .last = "</tool_calls>", .mark = "<tool_calls>", .end_mark = "</tool_calls>"},
    [GRANITE] = {"granite-3.3", HTH_CALL_JSON, .first = "<|tool_call|>[", .open = NAME, .name_end = ARGUMENTS, .close = "}",
                 .between = ", ", .last = "]", .mark = "<|tool_call|>"},
    [GIGACHAT] = {"gigachat-3.1", HTH_CALL_JSON, .open = "<|function_call|>" NAME, .name_end = ARGUMENTS, .close = "}", .one = true,
                  .mark = "<|function_call|>"},
    [FIREFUNCTION] = {"firefunction-v2", HTH_CALL_JSON, .first = " functools[", .open = NAME, .name_end = ARGUMENTS, .close = "}",
                      .between = ", ", .last = "]", .mark = "functools["},
    [COMMAND_R] = {"command-r", HTH_CALL_JSON, .first = "Action:\n```json\n[\n", .open = "    {\n        \"tool_name\": ",
                   .name_end = ",\n        \"parameters\": ", .close = "\n    }", .between = ",\n", .last = "\n]```", .mark = "Action:",
                   .end_mark = "```"},
    [COMMAND_R7B] = {"command-r7b", COHERE, .text_open = "<|START_RESPONSE|>", .text_close = "<|END_RESPONSE|>",
                     .other_mark = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    [COMMAND_A] = {"command-a", COHERE},
    [APERTUS] = {"apertus", HTH_CALL_KEYED, .first = "<|tools_prefix|>[", .open = "{", .name_end = ": ", .close = "}",
                 .between = ", ", .last = "]<|tools_suffix|>", .mark = "<|tools_prefix|>", .end_mark = "<|tools_suffix|>"},
    [FUNCTIONARY_31] = {"functionary-v3.1", HTH_CALL_NAMED, .open = "<function=", .name_end = ">", .close = "</function>",
                        .mark = "<function=", .end_mark = "</function>"},
    [FUNCTIONARY_32] = {"functionary-v3.2", HTH_CALL_RECIPIENT, .name_end = "\n", .between = ">>>", .text_open = "all\n",
                        .mark = ">>>"},
    [LFM2] = {"lfm2", HTH_CALL_LITERALS, .first = "<|tool_call_start|>[", .name_end = "(", .close = ")", .between = ", ",
              .last = "]<|tool_call_end|>", .key_end = "=", .between_arguments = ", ", .quote = "'", .mark = "<|tool_call_start|>",
              .end_mark = "<|tool_call_end|>"},
    [GEMMA4] = {"gemma-4", HTH_CALL_LITERALS, .open = "<|tool_call>call:", .name_end = "{", .close = "}<tool_call|>", .key_end = ":",
                .between_arguments = ",", .quote = "<|\"|>", .is_sorted = true, .mark = "<|tool_call>", .end_mark = "<tool_call|>", .name_mark = "call:"},
    [HARMONY] = {"harmony", HTH_CALL_HARMONY, .open = "<|channel|>commentary to=functions.",
                 .name_end = " <|constrain|>json<|message|>", .one = true, .text_open = "<|channel|>final<|message|>"},
};

/* Ordered rules: the first whose texts all occur decides. */
static const struct {
    int format;
    const char *has[2];
} rules[] = {
    {HARMONY, {"<|channel|>", "tools"}},
    {SEED, {"<seed:tool_call>"}},
    {QWEN_CODER, {"<function=", "<parameter="}},
    {FUNCTIONARY_31, {"<function=", "</function>"}},
    {MINICPM, {"<function name=", "<param name="}},
    {MINIMAX, {"<minimax:tool_call>"}},
    {ATEM, {"<atem:function_calls>", "<atem:invoke"}},
    {DSML_TOOLS, {DSML, "tool_calls>"}},
    {DSML_CALLS, {DSML}},
    {GLM_47, {"</arg_key><arg_value>"}},
    {GLM, {"<arg_key>", "<arg_value>"}},
    {KIMI, {"<|tool_call_begin|>", "<|tool_call_argument_begin|>"}},
    {APERTUS, {"<|tools_prefix|>"}},
    {NEMOTRON, {"<TOOLCALL>"}},
    {COMMAND_R7B, {"<|START_ACTION|>", "<|START_RESPONSE|>"}},
    {COMMAND_A, {"<|START_ACTION|>"}},
    {COMMAND_R, {"Action:", "\"tool_name\""}},
    {APRIEL, {"<tool_calls>["}},
    {MINIMAX_1, {"<tool_calls>", "\"arguments\""}},
    {GEMMA4, {"<|tool_call>", "<tool_call|>"}},
    {LFM2, {"<|tool_call_start|>"}},
    {LFM2, {"<|tool_list_start|>"}},
    {LFM2, {"List of tools: ["}},
    {GRANITE, {"<|tool_call|>", "tools"}},
    {GIGACHAT, {"<|function_call|>"}},
    {FIREFUNCTION, {"functools["}},
    {FUNCTIONARY_32, {">>>all", "recipient"}},
    {HERMES, {"<tool_call>", "tools"}},
    {DEEPSEEK_FENCED, {HTH_DEEPSEEK_OPEN, "```json"}},
    {DEEPSEEK_PLAIN, {HTH_DEEPSEEK_OPEN}},
    {MISTRAL_NAMED, {"[TOOL_CALLS]", "[ARGS]"}},
    {MISTRAL, {"[TOOL_CALLS]"}},
    {LLAMA3, {"<|start_header_id|>", "\"parameters\""}},
};

static const hth_reasoning_marks reasoning[] = {
    {"<seed:think>", "</seed:think>", false},
    {"<|START_THINKING|>", "<|END_THINKING|>", false},
    {"<|inner_prefix|>", "<|inner_suffix|>", true},
    {"<|channel>thought", "<channel|>", false},
    {"<mm:think>", "</mm:think>", false},
    {"<think>", "</think>", false},
    {"[THINK]", "[/THINK]", false},
};
/* clang-format on */

bool hth_call_format_is_list(const hth_call_format *f) { return strchr(f->last, ']') != NULL; }

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

const hth_call_format *hth_call_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMAT; i++)
        if (strcmp(name, formats[i].name) == 0) return &formats[i];
    return NULL;
}

const hth_reasoning_marks *hth_reasoning_detect(hth_str source)
{
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning; i++)
        if (hth_str_contains(source, reasoning[i].close)) return &reasoning[i];
    return NULL;
}
