/* What answers are divided into: each format of calls and reasoning, whole, byte by byte and in random parts; answers
 * that break their format; every allocation that fails; and how conversations with calls are rendered. */
#include "base/alloc.h"
#include "chat/answer.h"
#include "chat/deepseek_marks.h"
#include "chat/functions.h"
#include "chat/template.h"
#include "support/test.h"

#include "base/random.h"

#define DS_BEGIN HTH_DEEPSEEK_FIRST
#define DS_END HTH_DEEPSEEK_LAST
#define DS_CALL HTH_DEEPSEEK_OPEN
#define DS_CALL_END HTH_DEEPSEEK_CLOSE
#define DS_SEP HTH_DEEPSEEK_SEP

static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": "
                            "{\"type\": \"object\", \"properties\": "
                            "{\"text\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"any\": "
                            "{\"type\": [\"null\", \"string\"]}}}}}]";

/* Parts of templates that tell the formats. */
#define HERMES "<tool_call> tools"
#define THINKS "</think>"
#define CODER "<function= <parameter= </think>"
#define GLM "<arg_key> <arg_value>"
#define MISTRAL "[TOOL_CALLS]"
#define MISTRAL_11 "[TOOL_CALLS][ARGS]"
#define DEEPSEEK DS_CALL "```json"
#define DEEPSEEK_31 DS_CALL
#define LLAMA "<|start_header_id|> \"parameters\""
#define HARMONY "<|channel|> tools"
#define SEED "<seed:tool_call> <function= <parameter= </seed:think>"
#define KIMI "<|tool_call_begin|> <|tool_call_argument_begin|> </think>"
#define MINIMAX "<minimax:tool_call> </think>"
#define BAR "｜DSML｜"
#define DSML "'" BAR "' function_calls> </think>"
#define LFM2 "<|tool_call_start|> </think>"
#define GEMMA4 "<|tool_call> <tool_call|> <channel|>"
#define NEMOTRON "<TOOLCALL> </think>"
#define APERTUS "<|tools_prefix|> <|inner_suffix|>"
#define FUNCTIONARY "<function= </function>"
#define FUNCTIONARY_32 ">>>all recipient"
#define COMMAND_R7B "<|START_ACTION|> <|START_RESPONSE|> <|END_THINKING|>"
#define COMMAND_R "Action: \"tool_name\""

/* ---- dividing --------------------------------------------------------------------------------------------- */

typedef struct seen {
    char text[2000]; /* "T[text]R[reasoning]C[name]A[arguments]" */
    size_t n;
    int last;
} seen;

static void note(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    seen *s = user;
    CHECK(n > 0);
    if (s->last >= 0 && ((int)kind != s->last || kind == HEARTH_ANSWER_CALL))
        s->text[s->n++] = ']', s->last = -1;
    if (s->last < 0) s->text[s->n++] = "TRCA"[kind], s -> text[s->n++] = '[';
    s->last = (int)kind;
    if (!CHECK(n < sizeof s->text - s->n - 8)) return;
    memcpy(s->text + s->n, text, n);
    s->n += n;
}

static hth_answer_options options_of(const char *template_text, bool with_tools, bool in_reasoning, seen *s)
{
    const hth_str source = {template_text, strlen(template_text)};
    const hth_call_format *calls = hth_call_format_detect(source);
    *s = (seen){.last = -1};
    return (hth_answer_options){.calls = with_tools ? calls ? calls : hth_call_format_plain() : NULL,
                                .reasoning = hth_reasoning_detect(source),
                                .in_reasoning = in_reasoning,
                                .tools = with_tools ? tools : NULL,
                                .fn = note,
                                .user = s};
}

/* In parts of `size` bytes; 0: of random sizes. */
static hearth_status divide_bytes(const hth_answer_options *o, const char *text, size_t n, size_t size, uint64_t seed)
{
    hth_answer *a;
    hearth_error err;
    seen *s = o->user;
    hearth_status st = hth_answer_open(o, &a, &err);
    if (st != HEARTH_OK) return st;
    for (size_t at = 0, part; at < n && st == HEARTH_OK; at += part) {
        part = size ? size : 1 + (size_t)(hth_random_next(&seed) % 9);
        if (part > n - at) part = n - at;
        st = hth_answer_push(a, text + at, part, &err);
    }
    if (st == HEARTH_OK) st = hth_answer_finish(a, &err);
    if (s->last >= 0) s->text[s->n++] = ']';
    s->text[s->n] = '\0';
    hth_answer_close(a);
    return st;
}

static hearth_status divide(const hth_answer_options *o, const char *text, size_t size, uint64_t seed)
{
    return divide_bytes(o, text, strlen(text), size, seed);
}

typedef struct answer_case {
    const char *name, *template_text;
    bool with_tools, in_reasoning;
    const char *text, *wanted;
} answer_case;

static const answer_case cases[] = {
    {"text alone", "", false, false, " <think>a</think> \n<tool_call>", "T[ <think>a</think> \n<tool_call>]"},
    {"text with functions", HERMES, true, false, "Hello < tool_c\n", "T[Hello < tool_c\n]"},
    {"reasoning", THINKS, false, false, "<think>\nWell,\n\nhm. </think>\n\nYes. ", "R[Well,\n\nhm.]T[Yes. ]"},
    {"reasoning begun", THINKS, false, true, "\nhm </think>Yes <think>x", "R[hm]T[Yes <think>x]"},
    {"reasoning without end", THINKS, false, true, "a </thin", "R[a </thin]"},
    {"no reasoning", THINKS, false, false, "No. <think>a</think>", "T[No. <think>a</think>]"},
    {"empty reasoning", THINKS, false, false, "<think>\n\n</think>\n\nYes", "T[Yes]"},

    {"hermes", HERMES, true, false,
     "Let me.\n\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"a}\\\"b\"}}\n</tool_call>",
     "T[Let me.]C[find]A[{\"text\": \"a}\\\"b\"}]"},
    {"hermes, two", HERMES, true, false,
     "<tool_call>{\"name\":\"find\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"arguments\": {\"n\": [1, "
     "{}]}, \"name\": "
     "\"f.x\"}\n</tool_call>\n",
     "C[find]A[{}]C[f.x]A[{\"n\": [1, {}]}]"},
    {"hermes, text behind", HERMES, true, false,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> ok", "C[f]A[{}]T[ok]"},
    {"hermes, without arguments", HERMES, true, false, "<tool_call>{\"name\":\"f\"}</tool_call>",
     "C[f]A[{}]"},
    {"hermes, arguments as a text", HERMES, true, false,
     "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\u00e4\\\\n\\\"}\"}</tool_call>",
     "C[f]A[{\"a\": \"\xC3\xA4\\n\"}]"},
    {"hermes, a pair of escapes in a text", HERMES, true, false,
     "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\ud83d\\ude00 \\ud83d \\ude00\\\"}\"}</tool_call>",
     "C[f]A[{\"a\": \"\xF0\x9F\x98\x80 \xEF\xBF\xBD \xEF\xBF\xBD\"}]"},
    {"hermes, no JSON", HERMES, true, false, "<tool_call>\nfind(1)</tool_call>x",
     "T[<tool_call>\nfind(1)</tool_call>x]"},
    {"hermes, words about marks", HERMES, true, false, "Use <tool_call> to call.\n\n`</tool_call>` ends.",
     "T[Use <tool_call> to call.\n\n`</tool_call>` ends.]"},
    {"hermes, a mark at the end", HERMES, true, false, "x \n<tool_call> ", "T[x \n<tool_call> ]"},
    {"hermes, no name", HERMES, true, false, "<tool_call>{\"a\": 1}</tool_call>",
     "T[<tool_call>{\"a\": 1}</tool_call>]"},
    {"hermes, cut in the arguments", HERMES, true, false,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b", "C[f]A[{\"a\": \"b]"},
    {"hermes, cut in the head", HERMES, true, false, "<tool_call>{\"name\":\"f",
     "T[<tool_call>{\"name\":\"f]"},
    {"hermes, not asked for", HERMES, false, false,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "T[<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>]"},
    {"hermes behind reasoning", HERMES THINKS, true, false,
     "<think>I <tool_call>\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
     "1}}\n</tool_call>",
     "R[I <tool_call>]C[f]A[{\"a\": 1}]"},
    {"plain", "", true, false, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":-1.5e3}}</tool_call>",
     "C[f]A[{\"a\":-1.5e3}]"},

    {"elements", CODER, true, true,
     "hm\n</think>\n\nI "
     "look.\n\n<tool_call>\n<function=find>\n<parameter=text>\n12\n\"x\"\\\n</parameter>\n<parameter=n>\n12\n"
     "</parameter>\n<parameter=any>\ntrue\n</parameter>\n<parameter=other>\n[1]\n</"
     "parameter>\n<parameter=flag>\nTrue\n"
     "</parameter>\n</function>\n</tool_call>",
     "R[hm]T[I look.]C[find]A[{\"text\": \"12\\n\\\"x\\\"\\\\\", \"n\": 12, \"any\": \"true\", \"other\": "
     "[1], \"flag\": true}]"},
    {"elements, none", CODER, true, false, "<tool_call>\n<function=f>\n</function>\n</tool_call>",
     "C[f]A[{}]"},
    {"elements, two", CODER, true, false,
     "<tool_call><function=f><parameter=a>b</parameter></function></tool_call>\n<tool_call><function=g></"
     "function></tool_call>",
     "C[f]A[{\"a\": \"b\"}]C[g]A[{}]"},
    {"elements, cut", CODER, true, false, "<tool_call>\n<function=f>\n<parameter=a>\nb",
     "C[f]A[{\"a\": \"b\"}]"},
    {"elements, none of them", CODER, true, false, "<tool_call>\nwhat", "T[<tool_call>\nwhat]"},

    {"pairs", GLM, true, false,
     "Ok\n<tool_call>find\n<arg_key>text</arg_key>\n<arg_value>a\nb</arg_value>\n<arg_key>n</"
     "arg_key>\n<arg_value>3</arg_value>\n"
     "</tool_call>",
     "T[Ok]C[find]A[{\"text\": \"a\\nb\", \"n\": 3}]"},
    {"pairs, none", GLM, true, false, "<tool_call>f</tool_call><tool_call>g\n</tool_call>",
     "C[f]A[{}]C[g]A[{}]"},

    {"mistral", MISTRAL, true, false,
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"abcdefghi\"}, {\"name\": "
     "\"g\", \"arguments\": {}}]",
     "C[f]A[{\"a\": \"]\"}]C[g]A[{}]"},
    {"mistral, names first", MISTRAL_11, true, false,
     "A[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\": {}}[TOOL_CALLS]g[ARGS]{}", "T[A]C[f]A[{\"a\": {}}]C[g]A[{}]"},
    {"deepseek", DEEPSEEK, true, false,
     "Ok" DS_BEGIN DS_CALL "function" DS_SEP "f\n```json\n{\"a\": 1}\n```" DS_CALL_END "\n" DS_CALL
     "function" DS_SEP "g\n```json\n{}\n```" DS_CALL_END DS_END,
     "T[Ok]C[f]A[{\"a\": 1}]C[g]A[{}]"},
    {"deepseek 3.1", DEEPSEEK_31, true, false,
     DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": 1}" DS_CALL_END DS_CALL "g" DS_SEP "{}" DS_CALL_END DS_END,
     "C[f]A[{\"a\": 1}]C[g]A[{}]"},
    {"llama", LLAMA, true, false, "{\"name\": \"find\", \"parameters\": {\"a\": 1}}", "C[find]A[{\"a\": 1}]"},
    {"llama, JSON with a name", LLAMA, true, false, "{\"name\": \"Bob\", \"age\": 30}", "T[{\"name\": \"Bob\", \"age\": 30}]"},
    {"llama, a name behind", LLAMA, true, false, "{\"age\": 30, \"name\": \"Bob\"}", "T[{\"age\": 30, \"name\": \"Bob\"}]"},
    {"llama, no arguments", LLAMA, true, false, "{\"title\": 1, \"name\": \"find\"}", "T[{\"title\": 1, \"name\": \"find\"}]"},
    {"llama, another function", LLAMA, true, false, "{\"name\": \"f\", \"parameters\": {}}", "T[{\"name\": \"f\", \"parameters\": {}}]"},
    {"llama, mark", LLAMA, true, false,
     "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
     "\"parameters\": {\"b\": 2}}",
     "C[f]A[{}]C[g]A[{\"b\": 2}]"},
    {"llama, text", LLAMA, true, false, "It is {\"name\": 1}", "T[It is {\"name\": 1}]"},
    {"llama, other JSON", LLAMA, true, false, "{\"a\": {\"name\": 1}} ", "T[{\"a\": {\"name\": 1}} ]"},

    {"elements without their mark", CODER, true, false,
     "Look.\n\n<function=find>\n<parameter=text>\n007\n</parameter>\n</function>\n</tool_call>\n<function=find>\n</function>\n</tool_call>",
     "T[Look.]C[find]A[{\"text\": \"007\"}]C[find]A[{}]"},
    {"elements without their mark, another function", CODER, true, false, "Write <function=f> here", "T[Write <function=f> here]"},
    {"elements, two between the marks", CODER, true, false,
     "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call> ok", "C[f]A[{}]C[g]A[{}]T[ok]"},
    {"pairs in a line", GLM "</arg_key><arg_value>", true, false,
     "<tool_call>find<arg_key>text</arg_key><arg_value> a\n</arg_value><arg_key>n</arg_key><arg_value>3</arg_value></tool_call>",
     "C[find]A[{\"text\": \" a\\n\", \"n\": 3}]"},

    {"seed", SEED, true, false,
     "<seed:think>hm</seed:think>\nOk\n\n<seed:tool_call>\n<function=find>\n<parameter=text>\n12</parameter>\n<parameter=n>7</parameter>\n"
     "<parameter=list>['it's', \"b\", (True, None, 1.5),]</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n"
     "</function>\n</seed:tool_call>",
     "R[hm]T[Ok]C[find]A[{\"text\": \"\\n12\", \"n\": 7, \"list\": [\"it's\",\"b\",[true,null,1.5]]}]C[g]A[{}]"},
    {"kimi", KIMI, true, false,
     "<think>hm</think>Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{\"text\": \"a\"}"
     "<|tool_call_end|><|tool_call_begin|>functions.x.y:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "R[hm]T[Ok]C[find]A[{\"text\": \"a\"}]C[x.y]A[{}]"},
    {"kimi, cut", KIMI, true, false,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{\"text\": \"a", "C[find]A[{\"text\": \"a]"},
    {"minimax", MINIMAX, true, true,
     "hm</think>\n\nOk\n<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"text\">12</parameter>\n"
     "<parameter name=\"n\">12</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "R[hm]T[Ok]C[find]A[{\"text\": \"12\", \"n\": 12}]C[g]A[{}]"},
    {"minimax, no call", MINIMAX, true, false, "<minimax:tool_call> is a mark", "T[<minimax:tool_call> is a mark]"},
    {"minimax, cut", MINIMAX, true, false, "<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"text\">a <",
     "C[find]A[{\"text\": \"a <\"}]"},
    {"deepseek 3.2", DSML, true, false,
     "Ok\n\n<" BAR "function_calls>\n<" BAR "invoke name=\"find\">\n<" BAR "parameter name=\"x\" string=\"true\">12</" BAR
     "parameter>\n<" BAR "parameter name=\"any\" string=\"false\">12</" BAR "parameter>\n</" BAR "invoke>\n<" BAR
     "invoke name=\"g\">\n</" BAR "invoke>\n</" BAR "function_calls>",
     "T[Ok]C[find]A[{\"x\": \"12\", \"any\": 12}]C[g]A[{}]"},
    {"lfm2", LFM2, true, false,
     "Ok <|tool_call_start|>[find(text='it's, (so)', n=12, flag=True, none=None), x.y(list=['a', \"b\\n\"], o={\"k\": -1.5}), h()]<|tool_call_end|>Done",
     "T[Ok]C[find]A[{\"text\": \"it's, (so)\", \"n\": 12, \"flag\": true, \"none\": null}]"
     "C[x.y]A[{\"list\": [\"a\",\"b\\n\"], \"o\": {\"k\": -1.5}}]C[h]A[{}]T[Done]"},
    {"lfm2, types", LFM2, true, false, "<|tool_call_start|>[find(text=007, n=\"12\", any='''a\n'b' \\'c\\'''', 5)]<|tool_call_end|>",
     "C[find]A[{\"text\": \"007\", \"n\": \"12\", \"any\": \"a\\n'b' 'c'\"}]"},
    {"lfm2, escapes", LFM2, true, false,
     "<|tool_call_start|>[find(any=\"\\ud83d\\ude00 \\ud83d\\n \\u00zz\")]<|tool_call_end|>",
     "C[find]A[{\"any\": \"\xF0\x9F\x98\x80 \xEF\xBF\xBD\\n u00zz\"}]"},
    {"lfm2, JSON", LFM2, true, false,
     "<|tool_call_start|>[{\"name\": \"find\", \"arguments\": {\"text\": \"a\"}}, {\"name\": \"g\", \"arguments\": {}}]<|tool_call_end|>",
     "C[find]A[{\"text\": \"a\"}]C[g]A[{}]"},
    {"lfm2, cut", LFM2, true, false, "<|tool_call_start|>[find(n=1, text='a b", "C[find]A[{\"n\": 1, \"text\": \"a b\"}]"},
    {"lfm2, no call", LFM2, true, false, "<|tool_call_start|>find it", "T[<|tool_call_start|>find it]"},
    {"gemma 4", GEMMA4, true, false,
     "<|channel>thought\nhm\n<channel|>Ok<|tool_call>call:find{any:<|\"|>it's \"a\", {b}<|\"|>,list:[<|\"|>x<|\"|>,2,true],n:12,o:{k:<|\"|>v<|\"|>,j:{}}}"
     "<tool_call|><|tool_call>call:g{}<tool_call|>",
     "R[hm]T[Ok]C[find]A[{\"any\": \"it's \\\"a\\\", {b}\", \"list\": [\"x\",2,true], \"n\": 12, \"o\": {\"k\":\"v\",\"j\":{}}}]C[g]A[{}]"},
    {"gemma 4, cut", GEMMA4, true, false, "<|tool_call>call:find{text:<|\"|>a b", "C[find]A[{\"text\": \"a b\"}]"},
    {"nemotron", NEMOTRON, true, false,
     "<think>\nhm\n</think>\n\nOk\n<TOOLCALL>[{\"name\": \"find\", \"arguments\": {\"text\": \"]\"}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
     "R[hm]T[Ok]C[find]A[{\"text\": \"]\"}]C[g]A[{}]"},
    {"apertus", APERTUS, true, false,
     "<|inner_prefix|>hm<|tools_prefix|>[{\"find\": {\"text\": \"a\"}}, {\"g\": {}}]<|tools_suffix|>", "R[hm]C[find]A[{\"text\": \"a\"}]C[g]A[{}]"},
    {"apertus, text", APERTUS, true, false, "<|inner_prefix|>hm <|tools<|inner_suffix|>Yes", "R[hm <|tools]T[Yes]"},
    {"apertus, cut", APERTUS, true, false, "<|tools_prefix|>[{\"find\": {\"text\": \"a", "C[find]A[{\"text\": \"a]"},
    {"functionary 3.1", FUNCTIONARY, true, false, "Ok <function=find>{\"text\": \"a\"}</function><function=g>{}</function>",
     "T[Ok]C[find]A[{\"text\": \"a\"}]C[g]A[{}]"},
    {"functionary 3.2", FUNCTIONARY_32, true, false, "all\nOk >>> x\n>>>find\n{\"text\": \"a\"}>>>find\n{}",
     "T[Ok >>> x]C[find]A[{\"text\": \"a\"}]C[find]A[{}]"},
    {"functionary 3.2, a call", FUNCTIONARY_32, true, false, ">>>find\n{\"text\": \">>>all\"}", "C[find]A[{\"text\": \">>>all\"}]"},
    {"functionary 3.2, no line", FUNCTIONARY_32, true, false, "Hello there\n", "T[Hello there\n]"},
    {"command r7b", COMMAND_R7B, true, false,
     "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"find\", \"parameters\": {\"text\": \"a\"}},\n"
     "    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     "R[hm]C[find]A[{\"text\": \"a\"}]C[g]A[{}]"},
    {"command r7b, text", COMMAND_R7B, true, false, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "T[Yes.]"},
    {"command r", COMMAND_R, true, false,
     "Plan.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"find\",\n        \"parameters\": {\n            \"text\": \"a\"\n        }\n    },\n"
     "    {\n        \"tool_name\": \"g\",\n        \"parameters\": {}\n    }\n]```",
     "T[Plan.]C[find]A[{\n            \"text\": \"a\"\n        }]C[g]A[{}]"},
    {"command r, text", COMMAND_R, true, false, "Action: ```json\nno", "T[Action: ```json\nno]"},
    {"minimax 1", "<tool_calls> \"arguments\"", true, false,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>", "C[f]A[{}]C[g]A[{}]"},
    {"minicpm", "<function name= <param name=", true, false,
     "Ok <function name=\"find\"><param name=\"text\"><![CDATA[<a>\n]]></param><param name=\"n\">1</param></function>and <function name=\"f\">",
     "T[Ok]C[find]A[{\"text\": \"<a>\\n\", \"n\": 1}]T[and <function name=\"f\">]"},

    {"harmony", HARMONY, true, false,
     "<|channel|>analysis<|message|>We <a.<|end|><|start|>assistant<|channel|>commentary to=functions.find "
     "<|constrain|>json<|message|>{\"text\": \"<b>\"}",
     "R[We <a.]C[find]A[{\"text\": \"<b>\"}]"},
    {"harmony, other header", HARMONY, true, false,
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "C[f]A[{}]"},
    {"harmony, text", HARMONY, true, false,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Yes\n <|return|>",
     "R[a]T[Yes\n ]"},
    {"harmony, preamble", HARMONY, true, false, "<|channel|>commentary<|message|>First<|end|>", "T[First]"},
    {"harmony, no header", HARMONY, true, false, "Hello", "T[Hello]"},
    {"harmony, cut header", HARMONY, true, false, "<|channel|>anal", ""},
};
enum { N_CASE = sizeof cases / sizeof *cases };

static void expect(const answer_case *c, size_t size, uint64_t seed)
{
    seen s;
    hth_answer_options o = options_of(c->template_text, c->with_tools, c->in_reasoning, &s);
    CHECK(divide(&o, c->text, size, seed) == HEARTH_OK);
    if (strcmp(s.text, c->wanted) != 0)
        test_fail(__FILE__, __LINE__, "%s, parts of %zu: %s, not %s", c->name, size, s.text, c->wanted);
}

/* These tests spell the marks by the same macros as the program: here they are as the vocabularies have them. */
TEST(the_marks_of_deepseek_are_those_of_its_vocabularies)
{
    static const char *const marks[][2] = {
        {DS_BEGIN, "<｜tool▁calls▁begin｜>"},
        {DS_END, "<｜tool▁calls▁end｜>"},
        {DS_CALL, "<｜tool▁call▁begin｜>"},
        {DS_CALL_END, "<｜tool▁call▁end｜>"},
        {DS_SEP, "<｜tool▁sep｜>"},
        {HTH_DEEPSEEK("User"), "<｜User｜>"},
        {HTH_DEEPSEEK_3("end", "of", "sentence"), "<｜end▁of▁sentence｜>"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) CHECK(strcmp(marks[i][0], marks[i][1]) == 0);
}

TEST(answers_are_divided_the_same_however_they_come)
{
    for (size_t i = 0; i < N_CASE; i++) {
        expect(&cases[i], 100000, 0);
        for (size_t size = 1; size < 8; size++) expect(&cases[i], size, 0);
        for (uint64_t seed = 1; seed < 40; seed++) expect(&cases[i], 0, seed);
    }
}

/* What is cut anywhere is divided without an error, and begins like the whole. */
TEST(answers_may_end_anywhere)
{
    seen s;
    for (size_t i = 0; i < N_CASE; i++)
        for (size_t n = strlen(cases[i].text); n > 0; n--) {
            char part[2000];
            snprintf(part, sizeof part, "%.*s", (int)n, cases[i].text);
            hth_answer_options o =
                options_of(cases[i].template_text, cases[i].with_tools, cases[i].in_reasoning, &s);
            CHECK(divide(&o, part, 3, 0) == HEARTH_OK);
        }
}

/* A vocabulary of bytes has a token for NUL, which ends no C string here. */
TEST(arguments_may_hold_a_nul)
{
    static const char list[] = "<|tool_call_start|>[f(a=[x\0y, 'a\0', \0])]<|tool_call_end|>",
                      element[] = "<tool_call><function=f><parameter=a>[\0, 1]</parameter></function></tool_call>";
    seen s;
    for (size_t size = 0; size < 8; size++) {
        hth_answer_options o = options_of(LFM2, true, false, &s);
        CHECK(divide_bytes(&o, list, sizeof list - 1, size, size) == HEARTH_OK);
        CHECK_TEXT(s.text, "C[f]A[{\"a\": [\"x\\u0000y\",\"a\\u0000\",\"\\u0000\"]}]");
        o = options_of(CODER, true, false, &s);
        CHECK(divide_bytes(&o, element, sizeof element - 1, size, size) == HEARTH_OK);
        CHECK_TEXT(s.text, "C[f]A[{\"a\": [\"\\u0000\",1]}]");
    }
}

TEST(answers_survive_allocations_that_fail)
{
    seen s;
    for (size_t i = 0; i < N_CASE; i++)
        for (uint64_t k = 1; k < 12; k++) {
            hth_answer_options o =
                options_of(cases[i].template_text, cases[i].with_tools, cases[i].in_reasoning, &s);
            hth_alloc_fail_at(k, 1);
            hearth_status st = divide(&o, cases[i].text, 5, 0);
            hth_alloc_fail_at(0, 0);
            CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
        }
}

TEST(control_tokens_are_text_only_where_they_are_marks)
{
    seen s;
    hth_answer_options o = options_of(MISTRAL_11 "[/THINK]", true, false, &s);
    static const char *const marks[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"};
    for (size_t i = 0; i < 5; i++) CHECK(hth_answer_is_mark(&o, (hth_str){marks[i], strlen(marks[i])}));
    CHECK(!hth_answer_is_mark(&o, (hth_str){"</s>", 4}));
    CHECK(!hth_answer_is_mark(&o, (hth_str){"", 0}));
    CHECK(!hth_answer_is_mark(&o, (hth_str){"<|channel|>", 11}));
    o = options_of(HARMONY, true, false, &s);
    CHECK(hth_answer_is_mark(&o, (hth_str){"<|channel|>", 11}));
    static const char *const others[][2] = {{GEMMA4, "<|\"|>"}, {GEMMA4, "<|channel>"}, {GEMMA4, "<tool_call|>"}, {DSML, BAR},
                                            {KIMI, "<|tool_call_argument_begin|>"}, {COMMAND_R7B, "<|START_RESPONSE|>"},
                                            {COMMAND_R7B, "<|END_THINKING|>"}, {APERTUS, "<|tools_suffix|>"}, {LFM2, "<|tool_call_end|>"},
                                            {SEED, "</seed:tool_call>"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        o = options_of(others[i][0], true, false, &s);
        if (!hth_answer_is_mark(&o, (hth_str){others[i][1], strlen(others[i][1])})) test_fail(__FILE__, __LINE__, "%s is no mark", others[i][1]);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

static const char two_calls[] = "{\"tool_calls\": [{\"function\": {\"name\": \"find\", \"arguments\": \"{\\\"text\\\": \\\"a \\\\\\\"b\\\\\\\", {c}\\\", "
                                "\\\"n\\\": 12, \\\"any\\\": \\\"it's\\\"}\"}}, {\"function\": {\"name\": \"find\", \"arguments\": {}}}]}";

/* What is written into a conversation is divided into the same calls, and only marks of it are text of the template. */
TEST(calls_that_are_written_are_read_again)
{
    static const char *const templates[] = {
        "",   HERMES,      CODER, SEED,        GLM,  GLM "</arg_key><arg_value>", MISTRAL, MISTRAL_11,          DEEPSEEK, DEEPSEEK_31, KIMI,
        LFM2, MINIMAX,     DSML,  BAR "tool_calls>", "List of tools: [",          GEMMA4,  NEMOTRON,            APERTUS,  FUNCTIONARY, COMMAND_R7B,
        COMMAND_R, "<|tool_call|> tools"};
    static const char wanted[] = "T[Ok]C[find]A[{\"text\": \"a \\\"b\\\", {c}\", \"n\": 12, \"any\": \"it's\"}]C[find]A[{}]";
    const hth_message m = {.role = {"assistant", 9}, .content = {"Ok", 2}, .members = {two_calls, sizeof two_calls - 1}};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        seen s;
        hth_plain_messages made;
        hearth_error why;
        char text[2000];
        hth_answer_options o = options_of(templates[i], true, false, &s);
        if (!CHECK(hth_calls_as_text(&m, 1, o.calls, &made, &why) == HEARTH_OK)) continue;
        snprintf(text, sizeof text, "%.*s", (int)made.at[0].content.n, made.at[0].content.bytes);
        CHECK(divide(&o, text, 7, 0) == HEARTH_OK);
        if (strcmp(s.text, wanted) != 0) test_fail(__FILE__, __LINE__, "%s: %s of %s", o.calls->name, s.text, text);
        for (size_t k = 0; k < made.at[0].n_part; k++) {
            const hth_text_part *part = &made.at[0].parts[k];
            const hth_str shown = {part->text, part->n};
            CHECK(!part->is_template || (!hth_str_contains(shown, "it's") && !hth_str_contains(shown, "Ok")));
        }
        hth_plain_messages_free(&made);
    }
}

/* ---- rendering --------------------------------------------------------------------------------------------- */

static const hth_message with_call[] = {
    {.role = {"user", 4}, .content = {"Find a.", 7}, .members = {"", 0}},
    {.role = {"assistant", 9},
     .content = {"Ok", 2},
     .members = {"{\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"find\", "
      "\"arguments\": "
      "\"{\\\"text\\\":\\\"a\\\",  \\\"n\\\":1}\"}}]}",
      0}},
    {.role = {"tool", 4}, .content = {"<b>", 3}, .members = {"{\"tool_call_id\": \"c1\"}", 22}},
};

static void renders(const char *source, const hth_message *messages, size_t n, const char *given_tools,
                    const char *wanted)
{
    hth_template *t;
    hth_rendered r = {0};
    hearth_error why = {0};
    hth_message copy[4];
    for (size_t i = 0; i < n; i++) {
        copy[i] = messages[i];
        copy[i].members.n = strlen(copy[i].members.bytes);
    }
    const hth_template_input in = {
        .messages = copy, .n_message = n, .tools = {given_tools, strlen(given_tools)}};
    if (!CHECK(hth_template_open(source, strlen(source), &t, &why) == HEARTH_OK)) return;
    if (hth_template_render(t, &in, &r, &why) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", why.message);
    else CHECK_TEXT(r.text, wanted);
    hth_rendered_free(&r);
    hth_template_close(t);
}

TEST(arguments_are_an_object_that_is_written_as_it_came)
{
    renders("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}|{{ "
            "c.function | tojson }}|{{ c.function.arguments.text }}{% for k, v in "
            "c.function.arguments.items() %}|{{ k }}="
            "{{ v }}{% endfor %}{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}",
            with_call, 3, "",
            "{\"text\":\"a\",  \"n\":1}|{\"name\": \"find\", \"arguments\": {\"text\":\"a\",  "
            "\"n\":1}}|a|text=a|n=1c1");
    renders("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}", with_call, 1,
            "[{\"a\":1}]", "{\"a\": 1}");
    renders("{% if tools %}some{% else %}none{% endif %}", with_call, 1, "[]", "none");
    renders("{% if tools is defined %}some{% else %}none{% endif %}", with_call, 1, "", "none");
}

TEST(templates_without_functions_get_texts)
{
    hth_plain_messages m;
    hearth_error why = {0};
    hth_message copy[3];
    memcpy(copy, with_call, sizeof copy);
    copy[1].members.n = strlen(copy[1].members.bytes);
    const hth_call_format *hermes = hth_call_format_plain();
    if (!CHECK_INT(hth_plain_messages_make(copy, 3, (hth_str){"[T]", 3}, hermes, false, &m, &why), HEARTH_OK)) return;
    CHECK(m.n == 4);
    CHECK(hth_str_eq(m.at[0].role, "system") && hth_str_contains(m.at[0].content, "<tools>\n[T]\n</tools>"));
    CHECK(hth_str_eq(m.at[1].content, "Find a."));
    CHECK(hth_str_eq(
        m.at[2].content,
        "Ok\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\":\"a\",  \"n\":1}}\n</tool_call>"));
    CHECK(hth_str_eq(m.at[3].role, "user") &&
          hth_str_eq(m.at[3].content, "<tool_response>\n<b>\n</tool_response>"));
    hth_plain_messages_free(&m);
    for (uint64_t k = 1; k < 30; k++) {
        hth_alloc_fail_at(k, 1);
        hearth_status st = hth_plain_messages_make(copy, 3, (hth_str){"[T]", 3}, hermes, false, &m, &why);
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
        hth_plain_messages_free(&m);
    }
    copy[1].members = (hth_str){"{\"tool_calls\": [{}]}", 20};
    CHECK(hth_plain_messages_make(copy, 3, (hth_str){"", 0}, hermes, false, &m, &why) == HEARTH_ERROR_FORMAT);
}

TEST(each_family_is_told_its_own_form_of_calls)
{
    static const struct {
        const char *format, *example, *call;
        bool has_results;
    } told[] = {
        {"hermes", "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": \"VALUE\"}}\n</tool_call>\n",
         "Ok\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\":\"a\",  \"n\":1}}\n</tool_call>", false},
        {"glm-4.5", "<tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>\n",
         "Ok\n<tool_call>find\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n<arg_key>n</arg_key>\n"
         "<arg_value>1</arg_value>\n</tool_call>", true},
        {"llama-3", "{\"name\": \"NAME\", \"parameters\": {\"KEY\": \"VALUE\"}}\n",
         "Ok\n{\"name\": \"find\", \"parameters\": {\"text\":\"a\",  \"n\":1}}", true},
        {"qwen3-coder", "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>\n",
         "Ok\n<tool_call>\n<function=find>\n<parameter=text>\na\n</parameter>\n<parameter=n>\n1\n</parameter>\n</function>\n"
         "</tool_call>", false}};
    hth_message copy[3];
    memcpy(copy, with_call, sizeof copy);
    copy[1].members.n = strlen(copy[1].members.bytes);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        CLEANUP(hth_plain_messages_free) hth_plain_messages m;
        hearth_error why = {0};
        const hth_call_format *f = hth_call_format_find(told[i].format);
        if (!CHECK_INT(hth_plain_messages_make(copy, 3, (hth_str){"[T]", 3}, f, told[i].has_results, &m, &why), HEARTH_OK)) return;
        CHECK_INT(m.n, 4);
        CHECK(hth_str_contains(m.at[0].content, told[i].example));
        CHECK_BYTES(m.at[2].content.bytes, told[i].call, strlen(told[i].call));
        CHECK(hth_str_eq(m.at[3].role, told[i].has_results ? "tool" : "user"));
        CHECK(hth_str_eq(m.at[3].content, told[i].has_results ? "<b>" : "<tool_response>\n<b>\n</tool_response>"));
        CHECK(hth_str_contains(m.at[0].content, "<tool_response>") == !told[i].has_results);
    }
    CHECK(hth_call_format_find("nope") == NULL);
}

/* ---- types of arguments ---------------------------------------------------------------------------------------- */

TEST(a_text_is_a_text_where_the_schema_says_so)
{
    static const char typed[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"$defs\":{"
        "\"Code\":{\"type\":\"string\"},\"Alias\":{\"$ref\":\"#/$defs/Code\"},\"Loop\":{\"$ref\":\"#/$defs/Loop\"},"
        "\"Deep\":{\"anyOf\":[{\"$ref\":\"#/$defs/Deep\"}]}},\"properties\":{"
        "\"string\":{\"type\":\"string\"},\"list\":{\"type\":[\"null\",\"string\"]},\"ref\":{\"$ref\":\"#/$defs/Code\"},"
        "\"alias\":{\"$ref\":\"#/$defs/Alias\"},\"any\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/Code\"}]},"
        "\"one\":{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},\"all\":{\"allOf\":[{\"$ref\":\"#/$defs/Code\"}]},"
        "\"enum\":{\"enum\":[\"12\",7]},\"const\":{\"const\":\"12\"},\"pattern\":{\"pattern\":\"^1\"},\"size\":{\"minLength\":1},"
        "\"date\":{\"format\":\"date\"},"
        "\"integer\":{\"type\":\"integer\"},\"nothing\":{},\"numbers\":{\"enum\":[12,7]},\"other\":{\"enum\":[\"13\"]},"
        "\"else\":{\"const\":12},\"nowhere\":{\"$ref\":\"#/$defs/None\"},\"loop\":{\"$ref\":\"#/$defs/Loop\"},"
        "\"deep\":{\"$ref\":\"#/$defs/Deep\"},\"bad\":{\"$ref\":7},\"true\":true}}}}]";
    static const char *const texts[] = {"string", "list", "ref", "alias", "any", "one", "all", "enum", "const", "pattern", "size", "date"};
    static const char *const others[] = {"integer", "nothing", "numbers", "other", "else", "nowhere", "loop", "deep", "bad", "true", "missing"};
    bool has_memory = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!hth_function_takes_text(typed, (hth_str){"f", 1}, (hth_str){texts[i], strlen(texts[i])}, (hth_str){"12", 2}, &has_memory))
            test_fail(__FILE__, __LINE__, "%s takes a text", texts[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (hth_function_takes_text(typed, (hth_str){"f", 1}, (hth_str){others[i], strlen(others[i])}, (hth_str){"12", 2}, &has_memory))
            test_fail(__FILE__, __LINE__, "%s takes no text", others[i]);
    CHECK(!hth_function_takes_text(typed, (hth_str){"g", 1}, (hth_str){"string", 6}, (hth_str){"12", 2}, &has_memory));
    CHECK(!hth_function_takes_text(NULL, (hth_str){"f", 1}, (hth_str){"string", 6}, (hth_str){"12", 2}, &has_memory));
    CHECK(hth_function_is_given(typed, (hth_str){"f", 1}, &has_memory) && !hth_function_is_given(typed, (hth_str){"g", 1}, &has_memory));
    CHECK(has_memory);
}
