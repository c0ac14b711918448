/* The chat formats as a table, the rules that detect a format from the text of a template, and the function that
 * renders them. Called by engine/chat.c. The renderings in tests/data/chat test the table. */
#include "chat/chat_formats.h"

#include "base/alloc.h"
#include "chat/deepseek_marks.h"
#include "text/json.h"

#include <string.h>

/* Placeholders in texts: the role of the message, and the end-of-text token of the vocabulary. */
#define ROLE "\1"
#define EOS "\2"

enum {
    TRIM = 1,           /* strip white space at both ends of each content */
    TRIM_ASSISTANT = 2, /* only of the assistant's */
    DEFER_SYSTEM = 4,   /* the system text is inserted before the next user message */
    AS_ASSISTANT = 8,   /* roles other than system and user count as assistant */
    DROP_OTHERS = 16,   /* roles other than system, user and assistant are dropped */
    SELDOM_THINKS = 32, /* without enable_thinking the model answers at once */
};

typedef struct around {
    const char *before, *after;
} around;

struct hth_chat_format {
    const char *name;
    around user, system, assistant; /* empty: as for the user */
    const char *gen;                /* generation prompt */
    const char *open, *reopen;      /* start of a turn: at the beginning, and after each answer */
    unsigned flags;
    const char *calls;          /* the format of calls; NULL: that of Hermes */
    around result;              /* around the result of a function; empty: it is a message of the user's */
    const char *reasoning;      /* the end mark of reasoning */
    const char *think, *answer; /* behind the generation prompt, by enable_thinking */
};

#define DEEPSEEK_END HTH_DEEPSEEK_3("end", "of", "sentence")
#define DEEPSEEK_USER HTH_DEEPSEEK("User")
#define DEEPSEEK_ASSISTANT HTH_DEEPSEEK("Assistant")

/* clang-format off: tables */
#define CHATML .user = {"<|im_start|>" ROLE "\n", "<|im_end|>\n"}, .gen = "<|im_start|>assistant\n"
#define COHERE_TURN(WHO) {"<|START_OF_TURN_TOKEN|><|" WHO "_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}
#define COHERE .user = COHERE_TURN("USER"), .system = COHERE_TURN("SYSTEM"), .flags = TRIM | DROP_OTHERS
#define COHERE_GEN "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
#define EXAONE .user = {"[|user|]", "\n"}, .system = {"[|system|]", "[|endofturn|]\n"}, \
    .assistant = {"[|assistant|]", "[|endofturn|]\n"}, .gen = "[|assistant|]", .flags = TRIM | DROP_OTHERS
#define GRANITE .user = {"<|start_of_role|>" ROLE "<|end_of_role|>", "<|end_of_text|>\n"}, \
    .gen = "<|start_of_role|>assistant<|end_of_role|>"
#define LLAMA3 .user = {"<|start_header_id|>" ROLE "<|end_header_id|>\n\n", "<|eot_id|>"}, \
    .gen = "<|start_header_id|>assistant<|end_header_id|>\n\n", .flags = TRIM
#define MISTRAL_V7 .user = {"[INST]", "[/INST]"}, .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, .assistant = {"", "</s>"}, \
    .flags = AS_ASSISTANT
#define OBSERVATION {"<|observation|>\n<tool_response>\n", "\n</tool_response>"}
#define THINKS .reasoning = "</think>"

static const hth_chat_format formats[] = {
    {"chatglm4", .user = {"<|" ROLE "|>\n", ""}, .gen = "<|assistant|>\n", .open = "[gMASK]<sop>"},
    {"chatml", CHATML},
    {"command-r", COHERE, .assistant = COHERE_TURN("CHATBOT"), .gen = COHERE_GEN, .calls = "command-r",
     .result = {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><results>\n", "\n</results><|END_OF_TURN_TOKEN|>"}},
    {"command-r7b", COHERE | SELDOM_THINKS, .assistant = COHERE_TURN("CHATBOT"), .gen = COHERE_GEN, .calls = "command-r7b",
     .result = {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>\n",
                "\n<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>"}, .reasoning = "<|END_THINKING|>",
     .answer = "<|START_THINKING|><|END_THINKING|>"},
    {"deepseek", .user = {"### Instruction:\n", "\n"}, .system = {"", ""}, .assistant = {"### Response:\n", "\n<|EOT|>\n"},
     .gen = "### Response:\n", .flags = DROP_OTHERS},
    {"deepseek-v3.1", .user = {DEEPSEEK_USER, ""}, .system = {"", "\n\n"},
     .assistant = {DEEPSEEK_ASSISTANT "</think>", DEEPSEEK_END},
     .gen = DEEPSEEK_ASSISTANT, .flags = DROP_OTHERS | SELDOM_THINKS, .calls = "deepseek-v3.1",
     .result = {HTH_DEEPSEEK_3("tool", "output", "begin"), HTH_DEEPSEEK_3("tool", "output", "end")}, THINKS,
     .think = "<think>", .answer = "</think>"},
    {"deepseek2", .user = {"User: ", "\n\n"}, .system = {"", "\n\n"}, .assistant = {"Assistant: ", DEEPSEEK_END},
     .gen = "Assistant:", .flags = DROP_OTHERS},
    {"deepseek3", .user = {DEEPSEEK_USER, ""}, .system = {"", "\n\n"}, .assistant = {DEEPSEEK_ASSISTANT, DEEPSEEK_END},
     .gen = DEEPSEEK_ASSISTANT, .flags = DROP_OTHERS, .calls = "deepseek-v3", THINKS},
    {"exaone3", EXAONE},
    {"exaone4", EXAONE, .result = {"[|tool|]", "[|endofturn|]\n"}, THINKS},
    {"falcon3", .user = {"<|" ROLE "|>\n", "\n"}, .gen = "<|assistant|>\n"},
    {"gemma", .user = {"<start_of_turn>" ROLE "\n", "<end_of_turn>\n"}, .system = {"", "\n\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"}, .gen = "<start_of_turn>model\n", .flags = TRIM | DEFER_SYSTEM},
    {"gemma-4", .user = {"<|turn>" ROLE "\n", "<turn|>\n"}, .assistant = {"<|turn>model\n", "<turn|>\n"},
     .gen = "<|turn>model\n",
     .flags = TRIM | SELDOM_THINKS, .calls = "gemma-4", .reasoning = "<channel|>", .answer = "<|channel>thought\n<channel|>"},
    {"glm-4.5", .user = {"<|" ROLE "|>\n", ""}, .assistant = {"<|assistant|>\n<think></think>\n", ""}, .gen = "<|assistant|>",
     .open = "[gMASK]<sop>", .calls = "glm-4.5", .result = OBSERVATION, THINKS, .answer = "\n<think></think>"},
    {"glm-4.7", .user = {"<|" ROLE "|>", ""}, .assistant = {"<|assistant|></think>", ""}, .gen = "<|assistant|>",
     .open = "[gMASK]<sop>", .calls = "glm-4.7", .result = OBSERVATION, THINKS, .think = "<think>", .answer = "</think>"},
    {"glmedge", .user = {"<|" ROLE "|>\n", ""}, .gen = "<|assistant|>"},
    {"gpt-oss", .user = {"<|start|>" ROLE "<|message|>", "<|end|>"},
     .assistant = {"<|start|>assistant<|message|>", "<|return|>"}, .gen = "<|start|>assistant", .calls = "harmony"},
    {"granite", GRANITE, .calls = "granite-3.3", .result = {"<|start_of_role|>tool<|end_of_role|>", "<|end_of_text|>\n"}},
    {"granite-4.0", GRANITE},
    {"kimi-k2", .user = {"<|im_user|>user<|im_middle|>", "<|im_end|>"},
     .system = {"<|im_system|>system<|im_middle|>", "<|im_end|>"},
     .assistant = {"<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"}, .gen = "<|im_assistant|>assistant<|im_middle|>",
     .calls = "kimi-k2", .result = {"<|im_system|>tool<|im_middle|>", "<|im_end|>"}},
    {"lfm2", CHATML, .calls = "lfm2", .result = {"<|im_start|>tool\n", "<|im_end|>\n"}},
    {"llama2", .user = {"", " [/INST]"}, .system = {"", "\n"}, .assistant = {"", "</s>"}, .open = "[INST] ",
     .reopen = "[INST] ", .flags = AS_ASSISTANT},
    {"llama2-sys", .user = {"", " [/INST]"}, .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"}, .assistant = {"", "</s>"},
     .open = "[INST] ", .reopen = "[INST] ", .flags = AS_ASSISTANT},
    {"llama2-sys-bos", .user = {"", " [/INST]"}, .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"}, .assistant = {"", "</s>"},
     .open = "[INST] ", .reopen = "<s>[INST] ", .flags = AS_ASSISTANT},
    {"llama2-sys-strip", .user = {"", " [/INST]"}, .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"}, .assistant = {"", "</s>"},
     .open = "[INST] ", .reopen = "[INST] ", .flags = TRIM | AS_ASSISTANT},
    {"llama3", LLAMA3},
    {"llama3.1", LLAMA3, .calls = "llama-3", .result = {"<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"}},
    {"llama4", .user = {"<|header_start|>" ROLE "<|header_end|>\n\n", "<|eot|>"},
     .gen = "<|header_start|>assistant<|header_end|>\n\n", .flags = TRIM},
    {"megrez", .user = {"<|role_start|>" ROLE "<|role_end|>", "<|turn_end|>"}, .gen = "<|role_start|>assistant<|role_end|>"},
    {"minicpm5", CHATML, .calls = "minicpm5", THINKS, .answer = "<think>\n\n</think>\n\n"},
    {"minimax-m2", .user = {"]~b]" ROLE "\n", "[e~[\n"}, .assistant = {"]~b]ai\n", "[e~[\n"}, .gen = "]~b]ai\n",
     .open = "]~!b[",
     .calls = "minimax-m2", .result = {"]~b]tool\n<response>", "</response>[e~[\n"}, THINKS, .think = "<think>\n",
     .answer = "<think>\n\n</think>\n\n"},
    {"ministral-3", MISTRAL_V7, .calls = "mistral-v11"},
    {"mistral-v1", .user = {"", " [/INST]"}, .system = {"", "\n\n"}, .assistant = {" ", "</s>"}, .open = " [INST] ",
     .reopen = " [INST] ", .flags = AS_ASSISTANT},
    {"mistral-v3", .user = {"", "[/INST]"}, .system = {"", "\n\n"}, .assistant = {" ", "</s>"}, .open = "[INST] ",
     .reopen = "[INST] ", .flags = TRIM_ASSISTANT | AS_ASSISTANT, .calls = "mistral"},
    {"mistral-v3-tekken", .user = {"", "[/INST]"}, .system = {"", "\n\n"}, .assistant = {"", "</s>"}, .open = "[INST]",
     .reopen = "[INST]", .flags = AS_ASSISTANT, .calls = "mistral"},
    {"mistral-v7", .user = {"[INST] ", "[/INST]"}, .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
     .assistant = {" ", "</s>"}, .flags = AS_ASSISTANT, .calls = "mistral"},
    {"mistral-v7-tekken", MISTRAL_V7, .calls = "mistral"},
    {"nemotron-3", CHATML, .calls = "qwen3-coder", THINKS, .think = "<think>\n", .answer = "<think></think>"},
    {"nemotron-v2", .user = {"<SPECIAL_11>User\n", "\n"}, .system = {"<SPECIAL_10>System\n", "\n\n"},
     .assistant = {"<SPECIAL_11>Assistant\n", "\n<SPECIAL_12>\n"}, .gen = "<SPECIAL_11>Assistant\n",
     .flags = TRIM | DROP_OTHERS, .calls = "nemotron-v2",
     .result = {"<SPECIAL_11>User\n<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>\n"}, THINKS, .think = "<think>\n",
     .answer = "<think></think>"},
    {"phi3", .user = {"<|" ROLE "|>\n", "<|end|>\n"}, .gen = "<|assistant|>\n"},
    {"phi4", .user = {"<|im_start|>" ROLE "<|im_sep|>", "<|im_end|>"}, .gen = "<|im_start|>assistant<|im_sep|>"},
    {"qwen3", CHATML, THINKS, .answer = "<think>\n\n</think>\n\n"},
    {"qwen3-coder", CHATML, .calls = "qwen3-coder"},
    {"qwen3.5", CHATML, .calls = "qwen3-coder", THINKS, .think = "<think>\n", .answer = "<think>\n\n</think>\n\n"},
    {"seed_oss", .user = {"<seed:bos>" ROLE "\n", "<seed:eos>"}, .gen = "<seed:bos>assistant\n", .flags = TRIM_ASSISTANT,
     .calls = "seed-oss", .result = {"<seed:bos>tool\n", "<seed:eos>"}, .reasoning = "</seed:think>"},
    {"smollm3", CHATML, THINKS, .answer = "<think>\n\n</think>\n"},
    {"solar-open", .user = {"<|begin|>" ROLE "<|content|>", "<|end|>"}, .gen = "<|begin|>assistant"},
    {"vicuna", .user = {"USER: ", "\n"}, .system = {"", "\n\n"}, .assistant = {"ASSISTANT: ", "</s>\n"}, .gen = "ASSISTANT:",
     .flags = DROP_OTHERS},
    {"vicuna-orca", .user = {"USER: ", "\n"}, .system = {"SYSTEM: ", "\n"}, .assistant = {"ASSISTANT: ", "</s>\n"},
     .gen = "ASSISTANT:", .flags = DROP_OTHERS},
    {"zephyr", .user = {"<|" ROLE "|>\n", "<|endoftext|>\n"}, .gen = "<|assistant|>\n"},
    {"zephyr-eos", .user = {"<|" ROLE "|>\n", EOS "\n"}, .gen = "<|assistant|>\n"},
};

/* Other names that people give a format. */
static const char *const others[][2] = {
    {"deepseek-r1", "deepseek3"}, {"deepseek-v3", "deepseek3"}, {"devstral", "ministral-3"}, {"gemma2", "gemma"},
    {"gemma3", "gemma"}, {"glm-4", "chatglm4"}, {"glm-4.6", "glm-4.5"}, {"granite-3.3", "granite"},
    {"granite-4", "granite-4.0"}, {"hermes", "chatml"}, {"llama3.2", "llama3.1"}, {"llama3.3", "llama3.1"},
    {"mistral-nemo", "mistral-v3-tekken"}, {"mistral-small", "mistral-v7-tekken"}, {"mistral-v11", "ministral-3"},
    {"nemotron", "nemotron-3"}, {"qwen2", "chatml"}, {"qwen2.5", "chatml"}, {"qwen3.6", "qwen3.5"}, {"qwq", "qwen3.5"},
    {"smollm2", "chatml"}, {"yi", "chatml"},
};

/* Ordered rules: the first rule whose texts all occur decides. A rule without a format recognises a template that
 * none of the formats above can write. */
static const struct {
    const char *format, *has[3];
} rules[] = {
    {"phi4", {"<|im_start|>", "<|im_sep|>"}},
    {NULL, {"<|im_start|>", "<end_of_utterance>"}}, /* SmolVLM */
    {"chatml", {"<|im_start|>"}},
    {"mistral-v7", {"[INST]", "[SYSTEM_PROMPT]"}},
    {"mistral-v1", {"' [INST] ' + system_message", " [INST]"}},
    {"mistral-v1", {"[INST]", "[AVAILABLE_TOOLS]", " [INST]"}},
    {"mistral-v3-tekken", {"[AVAILABLE_TOOLS]", "\"[INST]\""}},
    {"mistral-v3", {"[INST]", "[AVAILABLE_TOOLS]"}},
    {"llama2-sys-strip", {"[INST]", "content.strip()"}},
    {"llama2-sys-bos", {"[INST]", "bos_token + '[INST]"}},
    {"llama2-sys", {"[INST]", "<<SYS>>"}},
    {"llama2", {"[INST]"}},
    {"gpt-oss", {"<|start|>", "<|message|>", "<|channel|>"}},
    {"phi3", {"<|assistant|>", "<|end|>"}},
    {"chatglm4", {"[gMASK]<sop>"}},
    {"zephyr-eos", {"'<|user|>\n' + message['content'] + eos_token"}},
    {"zephyr-eos", {"'<|user|>\\n' + message['content'] + eos_token"}},
    {NULL, {"<|assistant|>", "<|user|>", "<|tool_declare|>"}}, /* EXAONE MoE */
    {"falcon3", {"<|assistant|>", "<|user|>", "</s>"}},
    {"glmedge", {"<|assistant|>", "<|user|>"}},
    {"zephyr", {"<|user|>", "<|endoftext|>"}},
    {NULL, {"bos_token + message['role']"}}, /* Monarch */
    {"gemma", {"<start_of_turn>"}},
    {NULL, {"'\\n\\nAssistant: ' + eos_token"}}, /* Orion */
    {NULL, {"GPT4 Correct "}},                   /* OpenChat */
    {"vicuna-orca", {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
    {"vicuna", {"USER: ", "ASSISTANT: "}},
    {"deepseek", {"### Instruction:", "<|EOT|>"}},
    {"command-r", {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}},
    {NULL, {"[gMASK]sop"}}, /* ChatGLM 3 */
    {"deepseek2", {"'Assistant: ' + message['content'] + eos_token"}},
    {"deepseek3", {DEEPSEEK_ASSISTANT, DEEPSEEK_USER, DEEPSEEK_END}},
    {"exaone4", {"[|tool|]", "[|assistant|]", "[|endofturn|]"}},
    {"exaone3", {"[|system|]", "[|assistant|]", "[|endofturn|]"}},
    {"granite-4.0", {"<|start_of_role|>", "<tool_call>"}},
    {"granite-4.0", {"<|start_of_role|>", "<tools>"}},
    {"granite", {"<|start_of_role|>"}},
    {"megrez", {"<|role_start|>"}},
    {"llama4", {"<|header_start|>", "<|header_end|>"}},
    {"kimi-k2", {"<|im_assistant|>assistant<|im_middle|>"}},
    {"seed_oss", {"<seed:bos>"}},
};
/* clang-format on */

enum { N_FORMAT = sizeof formats / sizeof *formats, N_RULE = sizeof rules / sizeof *rules };

/* The next character that counts, lower-case, or 0: Llama-3.1, llama3.1 and llama_31 are one name. */
static char next_letter(const char **p, const char *end)
{
    while (*p < end && (**p == '-' || **p == '_' || **p == '.' || **p == ' ')) ++*p;
    if (*p == end) return '\0';
    const char c = *(*p)++;
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_name(hth_str given, const char *name)
{
    const char *a = given.bytes, *b = name, *const a_end = a + given.n, *const b_end = b + strlen(b);
    char c;
    do
        if ((c = next_letter(&a, a_end)) != next_letter(&b, b_end)) return false;
    while (c);
    return true;
}

const hth_chat_format *hth_chat_format_find(hth_str name)
{
    if (memchr(name.bytes, '\0', name.n)) return NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_name(name, others[i][0])) name = (hth_str){others[i][1], strlen(others[i][1])};
    for (size_t i = 0; i < N_FORMAT; i++)
        if (is_name(name, formats[i].name)) return &formats[i];
    return NULL;
}

const char *hth_chat_format_name(const hth_chat_format *f) { return f->name; }
const char *hth_chat_format_calls(const hth_chat_format *f) { return f->calls ? f->calls : "hermes"; }
const char *hth_chat_format_reasoning(const hth_chat_format *f) { return f->reasoning ? f->reasoning : ""; }
bool hth_chat_format_has_results(const hth_chat_format *f) { return f->result.before != NULL; }
const hth_chat_format *hth_chat_format_at(size_t i) { return i < N_FORMAT ? &formats[i] : NULL; }

const hth_chat_format *hth_chat_format_detect(hth_str source)
{
    for (size_t i = 0; i < N_RULE; i++) {
        bool all = true;
        for (size_t k = 0; k < 3 && rules[i].has[k] && all; k++) all = hth_str_contains(source, rules[i].has[k]);
        if (!all) continue;
        return rules[i].format ? hth_chat_format_find((hth_str){rules[i].format, strlen(rules[i].format)})
                               : NULL;
    }
    return NULL;
}

/* ---- rendering ---------------------------------------------------------------------------------- */

/* Counts bytes first, writes once the buffer is allocated. */
typedef struct output {
    hth_rendered *out;
    size_t n, n_part;
    bool is_template; /* the last part is text of the template */
    bool writes;
} output;

static void put_part(output *s, const char *p, size_t n, bool is_template)
{
    if (n == 0) return;
    bool begins = s->n_part == 0 || s->is_template != is_template;
    if (s->writes) {
        if (begins) s->out->parts[s->n_part] = (hth_text_part){s->out->text + s->n, 0, is_template};
        s->out->parts[s->n_part - !begins].n += n;
        memcpy(s->out->text + s->n, p, n);
    }
    s->n_part += begins;
    s->is_template = is_template;
    s->n += n;
}

static void put_template(output *s, const char *text, hth_str role, hth_str eos)
{
    for (; text && *text; text++) {
        if (*text == *ROLE) put_part(s, role.bytes, role.n, true);
        else if (*text == *EOS) put_part(s, eos.bytes, eos.n, true);
        else put_part(s, text, 1, true);
    }
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static hth_str trim(hth_str t)
{
    while (t.n > 0 && is_space(t.bytes[0])) t = (hth_str){t.bytes + 1, t.n - 1};
    while (t.n > 0 && is_space(t.bytes[t.n - 1])) t.n--;
    return t;
}

typedef struct writer {
    const hth_chat_format *f;
    const hth_template_input *in;
    output *s;
    size_t i_system; /* first of the system messages that are deferred to the next user message */
    bool open;      /* a turn is open */
} writer;

static void put_message(writer *w, size_t i, around with)
{
    const hth_message *m = &w->in->messages[i];
    bool assistant = hth_str_eq(m->role, "assistant");
    hth_str content = m->content;
    if (w->f->flags & TRIM || (w->f->flags & TRIM_ASSISTANT && assistant)) content = trim(content);
    put_template(w->s, with.before, m->role, w->in->eos);
    if (w->f->flags & DEFER_SYSTEM && !assistant) {
        bool some = false;
        for (; w->i_system < i; w->i_system++) {
            if (!hth_str_eq(w->in->messages[w->i_system].role, "system")) continue;
            hth_str system = trim(w->in->messages[w->i_system].content);
            put_part(w->s, system.bytes, system.n, false);
            some = some || system.n > 0;
        }
        if (some) put_template(w->s, w->f->system.after, m->role, w->in->eos);
    }
    put_part(w->s, content.bytes, content.n, false);
    put_template(w->s, with.after, m->role, w->in->eos);
}

static void write_message(writer *w, size_t i)
{
    const hth_chat_format *f = w->f;
    hth_str role = w->in->messages[i].role;
    bool system = hth_str_eq(role, "system"), user = hth_str_eq(role, "user");
    bool result = f->result.before && hth_str_eq(role, "tool");
    bool assistant = hth_str_eq(role, "assistant") || (!system && !user && !result && f->flags & AS_ASSISTANT);
    if (!system && !user && !assistant && !result && f->flags & DROP_OTHERS) return;
    if (!w->open) put_template(w->s, i == 0 ? f->open : f->reopen, role, w->in->eos);
    w->open = !assistant;
    if (system && f->flags & DEFER_SYSTEM) return;
    around with = result                             ? f->result
                  : system && f->system.before       ? f->system
                  : assistant && f->assistant.before ? f->assistant
                                                     : f->user;
    put_message(w, i, with);
}

static void write_all(const hth_chat_format *f, const hth_template_input *in, bool thinks, output *s)
{
    writer w = {.f = f, .in = in, .s = s};
    for (size_t i = 0; i < in->n_message; i++) write_message(&w, i);
    if (!in->add_generation_prompt) return;
    put_template(s, f->gen, (hth_str){"assistant", 9}, in->eos);
    put_template(s, thinks ? f->think : f->answer, (hth_str){"assistant", 9}, in->eos);
}

/* enable_thinking of the variables, or what the family does without it. */
static hearth_status read_thinks(const hth_chat_format *f, hth_str variables, bool *thinks, hearth_error *err)
{
    *thinks = !(f->flags & SELDOM_THINKS);
    if (variables.n == 0 || !f->answer) return HEARTH_OK;
    hearth_error why;
    hth_json *v = hth_json_open(variables.bytes, variables.n, NULL, &why);
    if (!v) return hth_fail(err, why.status, "chat format %s: variables: %s", f->name, why.message);
    const hth_json *given = hth_json_member(v, "enable_thinking");
    if (given) *thinks = hth_json_is_true(given);
    hth_json_close(v);
    return HEARTH_OK;
}

hearth_status hth_chat_format_render(const hth_chat_format *f, const hth_template_input *in,
                                     hth_rendered *out, hearth_error *err)
{
    bool thinks;
    size_t total = 0;
    *out = (hth_rendered){0};
    hearth_status st = read_thinks(f, in->variables, &thinks, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < in->n_message; i++) {
        if (!hth_message_role_ok(in->messages[i].role))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "chat format %s: message %zu: a role is a word of at most 64 letters, digits, - and _",
                f->name, i);
        if (in->messages[i].content.n > HTH_TEMPLATE_MAX_OUTPUT - total)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "chat format %s: a text of more than %d MiB",
                            f->name, HTH_TEMPLATE_MAX_OUTPUT >> 20);
        total += in->messages[i].content.n;
    }
    output count = {.out = out}, copy = {.out = out, .writes = true};
    write_all(f, in, thinks, &count);
    out->text = hth_alloc(count.n + 1, 1);
    out->parts = hth_alloc(count.n_part + 1, sizeof *out->parts);
    if (!out->text || !out->parts) {
        hth_rendered_free(out);
        return hth_fail_memory(err, count.n, "a rendered conversation");
    }
    write_all(f, in, thinks, &copy);
    out->n = copy.n;
    out->n_part = copy.n_part;
    return HEARTH_OK;
}
