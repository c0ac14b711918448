/* Constraints of calls: texts that each format takes and refuses, what random walks write, divided again by
 * chat/answer.c, and texts behind reasoning. The vocabulary is the bytes, and control tokens for marks. */
#include "base/random.h"
#include "chat/answer.h"
#include "chat/deepseek_marks.h"
#include "chat/functions.h"
#include "support/test.h"
#include "support/texts.h"

#define DS_BEGIN HTH_DEEPSEEK_FIRST
#define DS_END HTH_DEEPSEEK_LAST
#define DS_CALL HTH_DEEPSEEK_OPEN
#define DS_CALL_END HTH_DEEPSEEK_CLOSE
#define DS_SEP HTH_DEEPSEEK_SEP
#define BAR "｜DSML｜"

static const char functions[] = "[{\"type\": \"function\", \"function\": {\"name\": \"find\", "
                                "\"parameters\": {\"type\": \"object\", \"properties\": "
                                "{\"text\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\", "
                                "\"minimum\": 0, \"maximum\": 9}}, \"required\": [\"text\"], "
                                "\"additionalProperties\": false}}},"
                                "{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": "
                                "{\"type\": \"object\", \"properties\": {}, "
                                "\"additionalProperties\": false}}}]";

/* Names of control tokens; each is one token behind the bytes and the end. */
static const char *const control[] = {
    "[TOOL_CALLS]", "[ARGS]", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>",  "<|start|>",
    DS_BEGIN,       DS_CALL,  DS_CALL_END,   DS_END,        DS_SEP,          "</hidden>", BAR, "<|tool_call_begin|>",
    "<|tool_call_start|>", "<|START_ACTION|>", "<|tools_suffix|>", "<|\"|>", "<tool_call|>"};
enum { N_CONTROL = sizeof control / sizeof *control, N_VOCAB = 257 + N_CONTROL, END = 256 };

static hth_token_trie *open_trie(void)
{
    static uint8_t bytes[256];
    static char marks[N_CONTROL][64];
    static hth_str pieces[N_VOCAB];
    hth_token_trie *trie = NULL;
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i, pieces[i] = (hth_str){(const char *)&bytes[i], 1};
    pieces[END] = (hth_str){"", 0};
    for (int i = 0; i < N_CONTROL; i++) {
        int n = snprintf(marks[i], sizeof marks[i], "%c%s%c", HTH_MARK_OPEN, control[i], HTH_MARK_CLOSE);
        pieces[257 + i] = (hth_str){marks[i], (size_t)n};
    }
    CHECK_OK(hth_token_trie_open_pieces(pieces, N_VOCAB, &trie, err));
    return trie;
}

/* The token at the beginning of a text: a control token, or a byte. */
static int32_t token_at(const char *text, size_t *n)
{
    for (int i = 0; i < N_CONTROL; i++)
        if (strncmp(text, control[i], strlen(control[i])) == 0) return *n = strlen(control[i]), 257 + i;
    return *n = 1, (uint8_t)*text;
}

typedef struct calls_case {
    const char *name, *template_text;
    bool one, in_reasoning;
    const char *takes[5], *refuses[8];
} calls_case;

/* The functions that the model may call, and the schema of an answer without calls; NULL: there is none. */
static const char *offered = functions, *schema;

#define HERMES "<tool_call> tools"
#define HARMONY "<|channel|> tools"
static const calls_case cases[] = {
    {"hermes",
     HERMES,
     false,
     false,
     {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"a\"}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
      "\"arguments\": "
      "{}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>", "{}", "",
      "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"a\", \"n\": 10}}\n</tool_call>"}},
    {"hermes, one",
     HERMES,
     true,
     false,
     {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
      "\"arguments\": "
      "{}}\n</tool_call>"}},
    {"behind reasoning",
     HERMES "</think>",
     false,
     true,
     {"I < </thin</thinks </think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
      "</think><tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
      "<</think>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "a</think>b", "a</think>\n\n\n"}},
    {"elements",
     "<function= <parameter=",
     false,
     false,
     {"<tool_call>\n<function=find>\n<parameter=text>\na\n</para\n</parameter>\n<parameter=n>\n7\n</"
      "parameter>\n</function>\n"
      "</tool_call>",
      "<tool_call>\n<function=now>\n</function>\n</tool_call>"},
     {"<tool_call>\n<function=find>\n</function>\n</tool_call>",
      "<tool_call>\n<function=find>\n<parameter=text>\na\n</parameter>\n<parameter=n>\nx\n</parameter>\n</"
      "function>\n</tool_call>"}},
    {"pairs",
     "<arg_key> <arg_value>",
     false,
     false,
     {"<tool_call>find\n<arg_key>text</arg_key>\n<arg_value>a\n<b></arg_value>\n</tool_call>",
      "<tool_call>now\n</tool_call>"},
     {"<tool_call>find\n</tool_call>"}},
    {"mistral",
     "[TOOL_CALLS]",
     false,
     false,
     {"[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"find\", \"arguments\": {\"text\": "
      "\"\"}}]"},
     {"[{\"name\": \"now\", \"arguments\": {}}]", "[TOOL_CALLS][]",
      "[TOOL_CALLS][{\"name\": \"find\", \"arguments\": {\"text\": \"[ARGS]\"}}]"}},
    {"mistral, names first",
     "[TOOL_CALLS][ARGS]",
     false,
     false,
     {"[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]find[ARGS]{\"text\": \"x\"}"},
     {"now[ARGS]{}"}},
    {"deepseek",
     DS_CALL "```json",
     false,
     false,
     {DS_BEGIN DS_CALL "function" DS_SEP "now\n```json\n{}\n```" DS_CALL_END DS_END},
     {DS_BEGIN DS_END}},
    {"deepseek 3.1",
     DS_CALL,
     false,
     false,
     {DS_BEGIN DS_CALL "now" DS_SEP "{}" DS_CALL_END DS_CALL "now" DS_SEP "{}" DS_CALL_END DS_END},
     {"{}"}},
    {"llama",
     "<|start_header_id|> \"parameters\"",
     false,
     false,
     {"{\"name\": \"now\", \"parameters\": {}}"},
     {"{\"name\": \"now\", \"arguments\": {}}", "{\"name\": \"now\", \"parameters\": {}}; "}},
    {"harmony",
     HARMONY,
     false,
     false,
     {"<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
      "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
      "<|constrain|>json<|message|>{}"},
     {"<|channel|>final<|message|>a", "<|channel|>analysis<|message|>a<|end|>"}},
    {.name = "seed",
     .template_text = "<seed:tool_call>",
     .takes = {"<seed:tool_call>\n<function=find>\n<parameter=text>a\n</parameter>\n<parameter=n>7</parameter>\n</function>\n</seed:tool_call>\n"
               "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>"},
     .refuses = {"<tool_call>\n<function=now>\n</function>\n</tool_call>"}},
    {.name = "pairs in a line",
     .template_text = "</arg_key><arg_value>",
     .takes = {"<tool_call>find<arg_key>text</arg_key><arg_value>a</arg_value></tool_call><tool_call>now</tool_call>"}},
    {.name = "kimi",
     .template_text = "<|tool_call_begin|> <|tool_call_argument_begin|>",
     .takes = {"<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>"
               "functions.find:12<|tool_call_argument_begin|>{\"text\": \"a\"}<|tool_call_end|><|tool_calls_section_end|>"},
     .refuses = {"<|tool_calls_section_begin|><|tool_call_begin|>functions.now:<|tool_call_argument_begin|>{}<|tool_call_end|>"
                 "<|tool_calls_section_end|>"}},
    {.name = "minimax",
     .template_text = "<minimax:tool_call>",
     .takes = {"<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"text\">a</parameter>\n<parameter name=\"n\">7</parameter>\n</invoke>\n"
               "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"},
     .refuses = {"<minimax:tool_call>\n</minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"find\">\n</invoke>\n</minimax:tool_call>"}},
    {.name = "atem",
     .template_text = "<atem:function_calls> <atem:invoke",
     .takes = {"<atem:function_calls>\n<atem:invoke name=\"find\">\n<atem:parameter name=\"text\">a</atem:parameter>\n</atem:invoke>\n"
               "</atem:function_calls>"}},
    {.name = "minicpm",
     .template_text = "<function name= <param name=",
     .takes = {"<function name=\"find\"><param name=\"text\">a</param></function><function name=\"now\"></function>"}},
    {.name = "deepseek 3.2",
     .template_text = BAR "function_calls>",
     .takes = {"<" BAR "function_calls>\n<" BAR "invoke name=\"find\">\n<" BAR "parameter name=\"text\" string=\"true\">a</" BAR "parameter>\n<" BAR
               "parameter name=\"n\" string=\"false\">7</" BAR "parameter>\n</" BAR "invoke>\n<" BAR "invoke name=\"now\">\n</" BAR "invoke>\n</" BAR
               "function_calls>"},
     .refuses = {"<" BAR "function_calls>\n<" BAR "invoke name=\"find\">\n<" BAR "parameter name=\"text\" string=\"false\">a</" BAR "parameter>\n</" BAR
                 "invoke>\n</" BAR "function_calls>"}},
    {.name = "nemotron",
     .template_text = "<TOOLCALL>",
     .takes = {"<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"find\", \"arguments\": {\"text\": \"\"}}]</TOOLCALL>"},
     .refuses = {"<TOOLCALL>[]</TOOLCALL>"}},
    {.name = "apriel",
     .template_text = "<tool_calls>[",
     .takes = {"<tool_calls>[{\"name\": \"now\", \"arguments\": {}}]</tool_calls>"}},
    {.name = "minimax 1",
     .template_text = "<tool_calls> \"arguments\"",
     .takes = {"<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>"}},
    {.name = "granite",
     .template_text = "<|tool_call|> tools",
     .takes = {"<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]"}},
    {.name = "gigachat",
     .template_text = "<|function_call|>",
     .takes = {"<|function_call|>{\"name\": \"now\", \"arguments\": {}}"}},
    {.name = "firefunction",
     .template_text = "functools[",
     .takes = {" functools[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]"}},
    {.name = "apertus",
     .template_text = "<|tools_prefix|>",
     .takes = {"<|tools_prefix|>[{\"find\": {\"text\": \"a\"}}, {\"now\": {}}]<|tools_suffix|>"},
     .refuses = {"<|tools_prefix|>[{\"other\": {}}]<|tools_suffix|>"}},
    {.name = "functionary 3.1",
     .template_text = "<function= </function>",
     .takes = {"<function=find>{\"text\": \"a\"}</function><function=now>{}</function>"}},
    {.name = "functionary 3.2",
     .template_text = ">>>all recipient",
     .takes = {"find\n{\"text\": \"a\"}>>>now\n{}"},
     .refuses = {"all\na", ">>>now\n{}"}},
    {.name = "command r7b",
     .template_text = "<|START_ACTION|> <|START_RESPONSE|>",
     .takes = {"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}},\n    {\"tool_call_id\": \"1\", "
               "\"tool_name\": \"find\", \"parameters\": {\"text\": \"a\"}}\n]<|END_ACTION|>"},
     .refuses = {"<|START_RESPONSE|>a<|END_RESPONSE|>"}},
    {.name = "command r",
     .template_text = "Action: \"tool_name\"",
     .takes = {"Action:\n```json\n[\n    {\n        \"tool_name\": \"find\",\n        \"parameters\": {\n            \"text\": \"a\"\n        }\n    },\n"
               "    {\n        \"tool_name\": \"now\",\n        \"parameters\": {}\n    }\n]```"}},
    {.name = "lfm2",
     .template_text = "<|tool_call_start|>",
     .takes = {"<|tool_call_start|>[find(text='a \"b\"', n=7), now()]<|tool_call_end|>", "<|tool_call_start|>[find(text=\"it's\")]<|tool_call_end|>"},
     .refuses = {"<|tool_call_start|>[find(n=7)]<|tool_call_end|>", "<|tool_call_start|>[find(text='a', n='7')]<|tool_call_end|>",
                 "<|tool_call_start|>[find(text='a' n=7)]<|tool_call_end|>", "<|tool_call_start|>[find(text='it's')]<|tool_call_end|>"}},
    {.name = "gemma 4",
     .template_text = "<|tool_call> <tool_call|>",
     .takes = {"<|tool_call>call:find{n:7,text:<|\"|>a, <|\"|>}<tool_call|><|tool_call>call:now{}<tool_call|>"},
     .refuses = {"<|tool_call>call:find{text:<|\"|>a<|\"|>,n:7}<tool_call|>", "<|tool_call>call:find{n:7}<tool_call|>", "<|tool_call>call:find{text:\"a\"}<tool_call|>"}},
};
enum { N_CASE = sizeof cases / sizeof *cases };

static hearth_constraint *open_case(const hth_token_trie *trie, const calls_case *c)
{
    const hth_str source = {c->template_text, strlen(c->template_text)};
    const hth_constraint_context context = {.calls = hth_call_format_detect(source),
                                            .reasoning = hth_reasoning_detect(source)};
    const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CALLS,
                                         .text = offered,
                                         .n = strlen(offered),
                                         .schema = schema,
                                         .n_schema = schema ? strlen(schema) : 0,
                                         .one_call = c->one,
                                         .in_reasoning = c->in_reasoning};
    hearth_constraint *out = NULL;
    CHECK_OK(hth_constraint_open(trie, &o, &context, &out, err));
    return out;
}

/* How many bytes of a text are taken; *is_complete: it may end there. */
static size_t follow(const hth_token_trie *trie, const calls_case *c, const char *text, bool *is_complete)
{
    hearth_constraint *k = open_case(trie, c);
    size_t at = 0, n;
    if (!k) return 0;
    while (text[at]) {
        int32_t id = token_at(text + at, &n);
        if (hearth_constraint_accept(k, id, NULL) != HEARTH_OK) break;
        at += n;
    }
    *is_complete = hearth_constraint_get_end(k) != HEARTH_CONSTRAINT_INCOMPLETE;
    hearth_constraint_close(k);
    return at;
}

static void check_cases(const calls_case *all, size_t n_case)
{
    hth_token_trie *trie = open_trie();
    for (size_t i = 0; i < n_case; i++) {
        bool is_complete = false;
        for (const char *const *t = all[i].takes; *t; t++) {
            size_t n = follow(trie, &all[i], *t, &is_complete);
            if (n != strlen(*t) || !is_complete)
                test_fail(__FILE__, __LINE__, "%s: %s is refused at byte %zu", all[i].name, *t, n);
        }
        for (const char *const *t = all[i].refuses; *t; t++)
            if (follow(trie, &all[i], *t, &is_complete) == strlen(*t) && is_complete)
                test_fail(__FILE__, __LINE__, "%s: %s is taken", all[i].name, *t);
    }
    hth_token_trie_close(trie);
}

TEST(each_format_takes_its_calls_and_nothing_else) { check_cases(cases, N_CASE); }

#define NUMBER "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"]}"
TEST(calls_or_json_of_a_schema)
{
    static const calls_case combined[] = {
        {.name = "hermes",
         .template_text = HERMES,
         .takes = {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "{\"n\": 12}"},
         .refuses = {"", "{}", "Hello", "{\"n\": 12}<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"}},
        {.name = "harmony",
         .template_text = HARMONY,
         .takes = {"<|channel|>final<|message|>{\"n\": 12}",
                   "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{\"n\": 12}",
                   "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.now "
                   "<|constrain|>json<|message|>{}"},
         .refuses = {"{\"n\": 12}", "<|channel|>final<|message|>{}"}},
        {.name = "recipients",
         .template_text = ">>>all recipient",
         .takes = {"all\n{\"n\": 12}", "now\n{}"},
         .refuses = {"{\"n\": 12}"}},
        {.name = "text between marks",
         .template_text = "<|START_ACTION|> <|START_RESPONSE|>",
         .takes = {"<|START_RESPONSE|>{\"n\": 12}<|END_RESPONSE|>"},
         .refuses = {"{\"n\": 12}", "<|START_RESPONSE|>{\"n\": 12}"}},
        {.name = "behind reasoning",
         .template_text = "<think> </think> <tool_call> tools",
         .in_reasoning = true,
         .takes = {"hm</think>\n\n{\"n\": 1}", "</think><tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
         .refuses = {"{\"n\": 1}"}},
    };
    schema = NUMBER;
    check_cases(combined, sizeof combined / sizeof *combined);
    schema = NULL;
}

/* References of parameters themselves, and of their properties. */
#define WITH_REFS                                                                                                          \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"$ref\": \"#/$defs/args\", \"$defs\": {\"args\": "  \
    "{\"type\": \"object\", \"properties\": {\"r\": {\"$ref\": \"#/$defs/c\"}, \"n\": {\"$ref\": \"#/$defs/n\"}}, \"required\": "     \
    "[\"r\", \"n\"]}, \"c\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}}}}]"
TEST(references_in_every_form)
{
    static const calls_case all[] = {
        {.name = "hermes",
         .template_text = HERMES,
         .takes = {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"r\": \"a\", \"n\": 1}}\n</tool_call>"},
         .refuses = {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"}},
        {.name = "Qwen3-Coder",
         .template_text = "<function= <parameter=",
         .takes = {"<tool_call>\n<function=f>\n<parameter=r>\nany text\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>"
                   "\n</tool_call>"},
         .refuses = {"<tool_call>\n<function=f>\n</function>\n</tool_call>",
                     "<tool_call>\n<function=f>\n<parameter=r>\na\n</parameter>\n<parameter=n>\nx\n</parameter>\n</function>\n</tool_call>"}},
        {.name = "GLM",
         .template_text = "<arg_key> <arg_value>",
         .takes = {"<tool_call>f\n<arg_key>r</arg_key>\n<arg_value>any text</arg_value>\n<arg_key>n</arg_key>\n<arg_value>12</arg_value>\n"
                   "</tool_call>"},
         .refuses = {"<tool_call>f\n</tool_call>"}},
    };
    offered = WITH_REFS;
    check_cases(all, sizeof all / sizeof *all);
    offered = functions;
}

/* Lists and objects in the notation of literals: a list of texts, an object in a list, and what is only JSON. */
#define NESTED                                                                                                             \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"texts\": "       \
    "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}, \"List\": {\"type\": \"array\", \"items\": {\"type\": \"object\", "         \
    "\"properties\": {\"b\": {\"type\": \"boolean\"}, \"a\": {\"const\": \"x\"}}, \"required\": [\"a\"]}}, \"two\": {\"type\": \"array\", "  \
    "\"items\": {\"type\": \"integer\"}, \"maxItems\": 2}}}}}]"
TEST(lists_and_objects_as_literals)
{
    static const calls_case all[] = {
        {.name = "gemma 4",
         .template_text = "<|tool_call> <tool_call|>",
         .takes = {"<|tool_call>call:f{List:[{a:<|\"|>x<|\"|>},{a:<|\"|>x<|\"|>,b:true}],texts:[<|\"|>it's<|\"|>,<|\"|><|\"|>],two:[1, 2]}<tool_call|>",
                   "<|tool_call>call:f{texts:[]}<tool_call|>", "<|tool_call>call:f{}<tool_call|>"},
         .refuses = {"<|tool_call>call:f{List:[{a:<|\"|>y<|\"|>}]}<tool_call|>", "<|tool_call>call:f{List:[{b:true}]}<tool_call|>",
                     "<|tool_call>call:f{texts:[,]}<tool_call|>", "<|tool_call>call:f{two:[1,2,3]}<tool_call|>"}},
        {.name = "lfm2",
         .template_text = "<|tool_call_start|>",
         .takes = {"<|tool_call_start|>[f(texts=[\"it's\"], List=[{\"b\": true, \"a\": \"x\"}], two=[1])]<|tool_call_end|>"},
         .refuses = {"<|tool_call_start|>[f(texts=[1])]<|tool_call_end|>"}},
    };
    offered = NESTED;
    check_cases(all, sizeof all / sizeof *all);
    offered = functions;
}

/* Texts of a length and of a form between marks, where they are no JSON; functions without parameters. */
#define SHAPED                                                                                                             \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": "      \
    "{\"short\": {\"type\": \"string\", \"maxLength\": 3}, \"some\": {\"type\": \"string\", \"minLength\": 2}, \"day\": {"   \
    "\"type\": \"string\", \"format\": \"date\"}, \"code\": {\"type\": \"string\", \"pattern\": \"^[a-z<\\\"]{2}$\"}}}}}, "        \
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]"
TEST(texts_between_marks_have_their_length_and_form)
{
#define ARG(KEY, VALUE) "<|tool_call>call:f{" KEY ":<|\"|>" VALUE "<|\"|>}<tool_call|>"
#define LINE(KEY, VALUE) "<tool_call>\n<function=f>\n<parameter=" KEY ">\n" VALUE "\n</parameter>\n</function>\n</tool_call>"
    static const calls_case all[] = {
        {.name = "gemma 4",
         .template_text = "<|tool_call> <tool_call|>",
         .takes = {ARG("short", "\xC3\xBC\"a"), ARG("some", "ab<|c"), ARG("day", "2024-02-29"), ARG("code", "a\"")},
         .refuses = {ARG("short", "abcd"), ARG("short", "a<"), ARG("some", "a"), ARG("day", "2023-02-29"), ARG("code", "abc"), ARG("code", "a<"),
                     "<|tool_call>call:now{a:1}<tool_call|>"}},
        {.name = "Qwen3-Coder",
         .template_text = "<function= <parameter=",
         .takes = {LINE("short", ""), LINE("some", "ab\n</para"), LINE("day", "2024-02-29"), LINE("code", "zz")},
         .refuses = {LINE("short", "abcd"), LINE("some", "a"), LINE("day", "today"), LINE("code", "a")}},
        {.name = "lfm2",
         .template_text = "<|tool_call_start|>",
         .takes = {"<|tool_call_start|>[f(short=\"abc\", code=\"<\\\"\")]<|tool_call_end|>", "<|tool_call_start|>[now()]<|tool_call_end|>"},
         .refuses = {"<|tool_call_start|>[f(short='abcd')]<|tool_call_end|>", "<|tool_call_start|>[f(short=\"abcd\")]<|tool_call_end|>"}},
        {.name = "hermes",
         .template_text = HERMES,
         .takes = {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
         .refuses = {"<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>"}},
    };
    offered = SHAPED;
    check_cases(all, sizeof all / sizeof *all);
    offered = functions;
}

static const char *notes_of(const hth_token_trie *trie, const char *list, hearth_constraint **c, hearth_status status)
{
    const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CALLS, .text = list, .n = strlen(list)};
    hearth_error why = {.status = HEARTH_OK};
    CHECK_INT(hth_constraint_open(trie, &o, NULL, c, &why), status);
    return status == HEARTH_OK ? hearth_constraint_get_notes(*c) : "";
}

#define VARS(STRICT)                                                                                                       \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", " STRICT "\"parameters\": {\"type\": \"object\", \"properties\": "     \
    "{\"a\": {\"type\": \"string\", \"pattern\": \"(?=x)y\"}, \"b\": {\"type\": \"object\", \"propertyNames\": {\"pattern\": "   \
    "\"^x\"}}, \"c\": {\"$ref\": \"other.json\"}, \"d\": {\"type\": \"integer\", \"multipleOf\": 2, \"maximum\": 9}}, "     \
    "\"required\": [\"a\", \"d\"], \"additionalProperties\": false}}}]"
TEST(functions_that_are_not_strict_leave_keywords_to_the_client)
{
    hth_token_trie *trie = open_trie();
    hearth_constraint *c = NULL;
    static const char taken[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"any\", \"b\": {\"y\": 1}, \"c\": [], \"d\": 3}}\n"
                                "</tool_call>";
    const char *notes = notes_of(trie, VARS(""), &c, HEARTH_OK);
    static const char *const paths[] = {"properties/a/pattern: ", "properties/b/propertyNames: the keyword propertyNames is not supported\n",
                                        "properties/c/$ref: ", "properties/d/multipleOf: the keyword"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strstr(notes, paths[i])) test_fail(__FILE__, __LINE__, "no %s in %s", paths[i], notes);
    size_t n_line = 0;
    for (const char *p = notes; *p; p++) n_line += *p == '\n';
    CHECK_INT(n_line, 4);
    CHECK(hth_constraint_accept_bytes(c, taken, sizeof taken - 1));
    hearth_constraint_close(c);
    notes_of(trie, VARS("\"strict\": false, "), &c, HEARTH_OK);
    CHECK(!hth_constraint_accept_bytes(c, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"\", \"d\": 10", 58)); /* maximum */
    hearth_constraint_close(c);
    notes_of(trie, VARS("\"strict\": true, "), &c, HEARTH_ERROR_UNSUPPORTED);
    hth_token_trie_close(trie);
}

/* ---- random walks ------------------------------------------------------------------------------------------- */

typedef struct divided {
    char name[32], arguments[20000];
    size_t n, n_call, n_text;
} divided;

static void check_call(divided *d)
{
    bool has_memory = true;
    if (d->n_call == 0) return;
    if (!hth_is_json(d->arguments, d->n, &has_memory))
        test_fail(__FILE__, __LINE__, "no JSON: %.*s", (int)d->n, d->arguments);
    CHECK(hth_function_is_given(offered, (hth_str){d->name, strlen(d->name)}, &has_memory));
    CHECK(strcmp(d->name, "find") != 0 || strstr(d->arguments, "\"text\"") != NULL);
    CHECK(!strstr(offered, "\"a b\"") || strstr(d->arguments, "\"a b\"") != NULL);
}

static void note(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    divided *d = user;
    if (kind == HEARTH_ANSWER_TEXT) d->n_text += n;
    if (kind == HEARTH_ANSWER_CALL) {
        check_call(d);
        snprintf(d->name, sizeof d->name, "%.*s", (int)n, text);
        d->n_call++, d->n = 0;
    }
    if (kind == HEARTH_ANSWER_ARGUMENTS && CHECK(n < sizeof d->arguments - d->n)) {
        memcpy(d->arguments + d->n, text, n);
        d->n += n;
        d->arguments[d->n] = '\0';
    }
}

/* One of the tokens that are allowed; ends of texts and rare tokens are preferred, so that a walk ends. */
static int32_t choose(const float *logits, uint64_t *seed)
{
    int32_t some[N_VOCAB], n = 0;
    for (int32_t id = 0; id < N_VOCAB; id++)
        if (logits[id] == 0.0f) some[n++] = id;
    if (n == 0) return -1;
    static const char closing[] = "\"}<>/\n";
    for (int32_t i = 0; i < n; i++)
        if ((some[i] == END || (some[i] < 128 && strchr(closing, some[i]) && some[i])) &&
            hth_random_next(seed) % 4 == 0)
            return some[i];
    return some[hth_random_next(seed) % (uint64_t)n];
}

static void walk(const hth_token_trie *trie, const calls_case *c, uint64_t seed)
{
    static float logits[N_VOCAB];
    hearth_constraint *k = open_case(trie, c);
    const hth_str source = {c->template_text, strlen(c->template_text)};
    divided d = {.n = 0};
    const hth_answer_options o = {.calls = hth_call_format_detect(source),
                                  .reasoning = hth_reasoning_detect(source),
                                  .in_reasoning = c->in_reasoning,
                                  .tools = offered,
                                  .fn = note,
                                  .user = &d};
    hth_answer *a = NULL;
    int32_t id = 0;
    CHECK_OK(hth_answer_open(&o, &a, err));
    for (int i = 0; k && i < 3000 && id != END; i++) {
        for (int t = 0; t < N_VOCAB; t++) logits[t] = 0.0f;
        CHECK_OK(hearth_constraint_mask(k, logits, err));
        id = choose(logits, &seed);
        if (!CHECK(id >= 0)) break;
        CHECK_OK(hearth_constraint_accept(k, id, err));
        char byte = (char)id;
        if (id < 256) CHECK_OK(hth_answer_push(a, &byte, 1, err));
        if (id > END) CHECK_OK(hth_answer_push(a, control[id - 257], strlen(control[id - 257]), err));
    }
    CHECK_OK(hth_answer_finish(a, err));
    if (id == END) {
        check_call(&d);
        if (d.n_call == 0)
            test_fail(__FILE__, __LINE__, "%s: no call in seed %llu", c->name, (unsigned long long)seed);
        CHECK(d.n_text == 0);
    }
    hth_answer_close(a);
    hearth_constraint_close(k);
}

/* Names with a space are written as they are; one that would end early is left out. */
#define SPACED                                                                                                             \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a b\": "         \
    "{\"type\": \"string\"}, \"in\": {\"type\": \"object\", \"properties\": {\"c d\": {\"type\": \"boolean\"}, \" e\": {}}}, \"x:y\": "     \
    "{\"type\": \"boolean\"}}, \"required\": [\"a b\"]}}}]"
TEST(names_of_arguments_may_have_spaces)
{
    static const calls_case all[] = {
        {.name = "gemma 4",
         .template_text = "<|tool_call> <tool_call|>",
         .takes = {"<|tool_call>call:f{a b:<|\"|>it's<|\"|>,in:{c d:true}}<tool_call|>", "<|tool_call>call:f{a b:<|\"|><|\"|>}<tool_call|>"},
         .refuses = {"<|tool_call>call:f{a b:<|\"|><|\"|>,x:y:true}<tool_call|>", "<|tool_call>call:f{}<tool_call|>",
                     "<|tool_call>call:f{a b:<|\"|><|\"|>,in:{ e:1}}<tool_call|>"}},
        {.name = "lfm2",
         .template_text = "<|tool_call_start|>",
         .takes = {"<|tool_call_start|>[f(a b='x', in={\"c d\": true})]<|tool_call_end|>"},
         .refuses = {"<|tool_call_start|>[f(a b='x', x:y=true)]<|tool_call_end|>"}},
    };
    hth_token_trie *trie = open_trie();
    offered = SPACED;
    check_cases(all, sizeof all / sizeof *all);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t seed = 1; seed <= 20; seed++) walk(trie, &all[i], seed * 7919);
    offered = functions;
    hth_token_trie_close(trie);
}

TEST(what_is_written_under_a_constraint_is_read_again)
{
    hth_token_trie *trie = open_trie();
    for (size_t i = 0; i < N_CASE; i++)
        for (uint64_t seed = 1; seed <= 20; seed++) walk(trie, &cases[i], seed * 7919);
    offered = NESTED;
    for (size_t i = 0; i < N_CASE; i++)
        for (uint64_t seed = 1; seed <= 20; seed++) walk(trie, &cases[i], seed * 104729);
    offered = functions;
    hth_token_trie_close(trie);
}

/* ---- other constraints, errors --------------------------------------------------------------------------------- */

TEST(other_constraints_begin_behind_reasoning)
{
    hth_token_trie *trie = open_trie();
    static const hth_str thinks = {"</think>", 8}, harmony = {HARMONY, 17};
    const struct {
        hth_constraint_context context;
        const char *text;
    } some[] = {{{.reasoning = hth_reasoning_detect(thinks)}, "so </think>\n\n{\"a\": 1}"},
                {{.calls = hth_call_format_detect(harmony)},
                 "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>{}"}};
    for (int i = 0; i < 2; i++) {
        const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT, .in_reasoning = true};
        hearth_constraint *k = NULL;
        size_t n;
        CHECK_OK(hth_constraint_open(trie, &o, &some[i].context, &k, err));
        for (const char *t = some[i].text; k && *t; t += n) {
            int32_t id = token_at(t, &n);
            if (!CHECK(hearth_constraint_accept(k, id, NULL) == HEARTH_OK)) break;
        }
        CHECK(k && hearth_constraint_get_end(k) == HEARTH_CONSTRAINT_COMPLETE);
        hearth_constraint_close(k);
    }
    hth_token_trie_close(trie);
}

TEST(what_stands_one_by_one_is_what_the_object_names)
{
    static const char list[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"allOf\":[{\"required\":[\"b\"]}],"
                               "\"properties\":{\"a\":{}},\"required\":[\"a\",\"z\"]}}}]",
                      spaced[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a:b\":{}},\"required\":[\"a:b\"]}}}]",
                      hidden[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"$ref\":\"#/$defs/q\",\"anyOf\":[{}],\"properties\":{\"x\":{}},"
                                 "\"$defs\":{\"q\":{\"$ref\":\"#/$defs/p\",\"allOf\":[{}]},\"p\":{\"oneOf\":[{}],\"properties\":{\"a b\":{},"
                                 "\"c:d\":{}}}}}}}]";
    static const char *const templates[] = {"<function= <parameter=", "<|tool_call> <tool_call|>", HERMES};
    hth_token_trie *trie = open_trie();
    for (size_t i = 0; i < 3; i++) {
        const hth_constraint_context context = {.calls = hth_call_format_detect((hth_str){templates[i], strlen(templates[i])})};
        hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CALLS, .text = list, .n = strlen(list)};
        hearth_constraint *k = NULL;
        CHECK_OK(hth_constraint_open(trie, &o, &context, &k, err));
        const char *notes = hearth_constraint_get_notes(k);
        CHECK_INT(strstr(notes, "#/0/function/parameters/allOf: ") != NULL && strstr(notes, "#/0/function/parameters/required/1: "), i < 2);
        CHECK(!strstr(notes, "required/0"));
        hearth_constraint_close(k);
        o.text = spaced, o.n = strlen(spaced);
        if (i == 1) CHECK_FAILS(hth_constraint_open(trie, &o, &context, &k, err), HEARTH_ERROR_UNSUPPORTED, "argument 'a:b'|form of calls");
        o.text = hidden, o.n = strlen(hidden);
        CHECK_OK(hth_constraint_open(trie, &o, &context, &k, err));
        notes = hearth_constraint_get_notes(k);
        CHECK_INT(strstr(notes, "#/0/function/parameters/anyOf: ") && strstr(notes, "#/0/function/parameters/properties: ") &&
                      strstr(notes, "/$defs/q/allOf: ") && strstr(notes, "/$defs/p/oneOf: "), i < 2);
        CHECK(!strstr(notes, "/$defs/p/properties: ") && (i == 1) == (strstr(notes, "/$defs/p/properties/c:d: ") != NULL));
        hearth_constraint_close(k);
    }
    hth_token_trie_close(trie);
}

/* A text of such a pattern has the character with which the mark behind it begins. */
TEST(patterns_with_the_beginning_of_a_mark_are_left_to_the_client)
{
#define TAGGED(STRICT)                                                                                                     \
    "[{\"function\":{\"name\":\"f\"," STRICT "\"parameters\":{\"type\":\"object\",\"properties\":{\"t\":{\"type\":"             \
    "\"string\",\"pattern\":\"^<[a-z]+>$\"}},\"required\":[\"t\"]}}}]"
    static const char call[] = "<tool_call>\n<function=f>\n<parameter=t>\n<b>\n</parameter>\n</function>\n</tool_call>";
    const hth_constraint_context context = {.calls = hth_call_format_detect((hth_str){"<function= <parameter=", 22})};
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CALLS, .text = TAGGED(""), .n = strlen(TAGGED(""))};
    hth_token_trie *trie = open_trie();
    hearth_constraint *k = NULL;
    size_t at = 0, n;
    CHECK_OK(hth_constraint_open(trie, &o, &context, &k, err));
    while (k && call[at] && hearth_constraint_accept(k, token_at(call + at, &n), NULL) == HEARTH_OK) at += n;
    CHECK_INT(at, sizeof call - 1);
    CHECK(strstr(hearth_constraint_get_notes(k), "pattern: ") != NULL);
    hearth_constraint_close(k);
    o.text = TAGGED("\"strict\":true,"), o.n = strlen(o.text);
    CHECK_FAILS(hth_constraint_open(trie, &o, &context, &k, err), HEARTH_ERROR_UNSUPPORTED, "pattern: |mark behind the text");
    hth_token_trie_close(trie);
}

/* References begin at the parameters, in forms of elements too. */
TEST(arguments_as_elements_follow_references)
{
    static const char text[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"r\":{\"$ref\":\"#/$defs/C\"},"
        "\"n\":{\"$ref\":\"#/$defs/N\"},\"e\":{\"anyOf\":[{\"$ref\":\"#/$defs/C\"}]}},\"required\":[\"r\",\"n\"],"
        "\"$defs\":{\"C\":{\"type\":\"string\"},\"N\":{\"enum\":[12]}}}}}]";
    static const struct {
        const char *text;
        bool takes;
    } some[] = {{"<tool_call>\n<function=f>\n<parameter=r>\n1 \"\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>", true},
                {"<tool_call>\n<function=f>\n<parameter=r>\n\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=e>\n7\n</parameter>\n"
                 "</function>\n</tool_call>", true},
                {"<tool_call>\n<function=f>\n<parameter=r>\n1\n</parameter>\n<parameter=n>\n13", false}};
    const hth_constraint_context context = {.calls = hth_call_format_detect((hth_str){"<function= <parameter=", 22})};
    const hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CALLS, .text = text, .n = strlen(text)};
    hth_token_trie *trie = open_trie();
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        hearth_constraint *k = NULL;
        size_t at = 0, n;
        CHECK_OK(hth_constraint_open(trie, &o, &context, &k, err));
        while (k && some[i].text[at] && hearth_constraint_accept(k, token_at(some[i].text + at, &n), NULL) == HEARTH_OK) at += n;
        CHECK_INT(some[i].text[at] == '\0' && hearth_constraint_get_end(k) != HEARTH_CONSTRAINT_INCOMPLETE, some[i].takes);
        hearth_constraint_close(k);
    }
    hth_token_trie_close(trie);
}

TEST(wrong_functions_are_refused_by_name)
{
    CHECK_REFUSED(HEARTH_CONSTRAINT_CALLS, "[]", HEARTH_ERROR_FORMAT,
                  "a JSON array with a function is expected");
    CHECK_REFUSED(HEARTH_CONSTRAINT_CALLS, "{}", HEARTH_ERROR_FORMAT,
                  "a JSON array with a function is expected");
    CHECK_REFUSED(HEARTH_CONSTRAINT_CALLS, "[{\"function\": {}}]", HEARTH_ERROR_FORMAT, "[0]|has no name");
    CHECK_REFUSED(HEARTH_CONSTRAINT_CALLS, "[", HEARTH_ERROR_FORMAT, "no JSON");
    CHECK_REFUSED(HEARTH_CONSTRAINT_CALLS,
                  "[{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": "
                  "{\"a\": {\"type\": "
                  "\"string\", \"pattern\": \"(\"}}}}}]",
                  HEARTH_ERROR_FORMAT, "pattern");
}
