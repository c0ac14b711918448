/* The chat formats as a table, the rules that detect a format from the text of a template, and the function that
 * renders them. Called by engine/chat.c. The renderings in tests/data/chat test the table. */
#include "chat/chat_formats.h"

#include "base/alloc.h"
#include "chat/deepseek_marks.h"

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
};

#define DEEPSEEK_END HTH_DEEPSEEK_3("end", "of", "sentence")
#define DEEPSEEK_USER HTH_DEEPSEEK("User")
#define DEEPSEEK_ASSISTANT HTH_DEEPSEEK("Assistant")

/* clang-format off: a table */
static const hth_chat_format formats[] = {
    {"chatml", {"<|im_start|>" ROLE "\n", "<|im_end|>\n"}, {0}, {0}, "<|im_start|>assistant\n", "", "", 0},
    {"deepseek", {"### Instruction:\n", "\n"}, {"", ""}, {"### Response:\n", "\n<|EOT|>\n"},
     "### Response:\n", "", "", DROP_OTHERS},
    {"deepseek2", {"User: ", "\n\n"}, {"", "\n\n"}, {"Assistant: ", DEEPSEEK_END}, "Assistant:", "", "",
     DROP_OTHERS},
    {"deepseek3", {DEEPSEEK_USER, ""}, {"", "\n\n"}, {DEEPSEEK_ASSISTANT, DEEPSEEK_END}, DEEPSEEK_ASSISTANT,
     "", "", DROP_OTHERS},
    {"gemma", {"<start_of_turn>" ROLE "\n", "<end_of_turn>\n"}, {"", "\n\n"},
     {"<start_of_turn>model\n", "<end_of_turn>\n"}, "<start_of_turn>model\n", "", "", TRIM | DEFER_SYSTEM},
    {"glmedge", {"<|" ROLE "|>\n", ""}, {0}, {0}, "<|assistant|>", "", "", 0},
    {"gpt-oss", {"<|start|>" ROLE "<|message|>", "<|end|>"}, {0},
     {"<|start|>assistant<|message|>", "<|return|>"}, "<|start|>assistant", "", "", 0},
    {"llama2", {"", " [/INST]"}, {"", "\n"}, {"", "</s>"}, "", "[INST] ", "[INST] ", AS_ASSISTANT},
    {"llama2-sys", {"", " [/INST]"}, {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"", "</s>"}, "", "[INST] ", "[INST] ",
     AS_ASSISTANT},
    {"llama2-sys-bos", {"", " [/INST]"}, {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"", "</s>"}, "", "[INST] ",
     "<s>[INST] ", AS_ASSISTANT},
    {"llama2-sys-strip", {"", " [/INST]"}, {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"", "</s>"}, "", "[INST] ",
     "[INST] ", TRIM | AS_ASSISTANT},
    {"llama3", {"<|start_header_id|>" ROLE "<|end_header_id|>\n\n", "<|eot_id|>"}, {0}, {0},
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "", "", TRIM},
    {"mistral-v1", {"", " [/INST]"}, {"", "\n\n"}, {" ", "</s>"}, "", " [INST] ", " [INST] ", AS_ASSISTANT},
    {"mistral-v3", {"", "[/INST]"}, {"", "\n\n"}, {" ", "</s>"}, "", "[INST] ", "[INST] ",
     TRIM_ASSISTANT | AS_ASSISTANT},
    {"mistral-v3-tekken", {"", "[/INST]"}, {"", "\n\n"}, {"", "</s>"}, "", "[INST]", "[INST]", AS_ASSISTANT},
    {"mistral-v7", {"[INST] ", "[/INST]"}, {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, {" ", "</s>"}, "", "",
     "", AS_ASSISTANT},
    {"mistral-v7-tekken", {"[INST]", "[/INST]"}, {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, {"", "</s>"}, "",
     "", "", AS_ASSISTANT},
    {"phi3", {"<|" ROLE "|>\n", "<|end|>\n"}, {0}, {0}, "<|assistant|>\n", "", "", 0},
    {"phi4", {"<|im_start|>" ROLE "<|im_sep|>", "<|im_end|>"}, {0}, {0}, "<|im_start|>assistant<|im_sep|>",
     "", "", 0},
    {"vicuna", {"USER: ", "\n"}, {"", "\n\n"}, {"ASSISTANT: ", "</s>\n"}, "ASSISTANT:", "", "", DROP_OTHERS},
    {"vicuna-orca", {"USER: ", "\n"}, {"SYSTEM: ", "\n"}, {"ASSISTANT: ", "</s>\n"}, "ASSISTANT:", "", "",
     DROP_OTHERS},
    {"zephyr", {"<|" ROLE "|>\n", "<|endoftext|>\n"}, {0}, {0}, "<|assistant|>\n", "", "", 0},
    {"zephyr-eos", {"<|" ROLE "|>\n", EOS "\n"}, {0}, {0}, "<|assistant|>\n", "", "", 0},
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
    {NULL, {"[gMASK]<sop>"}}, /* ChatGLM 4 */
    {"zephyr-eos", {"'<|user|>\n' + message['content'] + eos_token"}},
    {"zephyr-eos", {"'<|user|>\\n' + message['content'] + eos_token"}},
    {NULL, {"<|assistant|>", "<|user|>", "</s>"}}, /* Falcon 3 */
    {"glmedge", {"<|assistant|>", "<|user|>"}},
    {"zephyr", {"<|user|>", "<|endoftext|>"}},
    {NULL, {"bos_token + message['role']"}}, /* Monarch */
    {"gemma", {"<start_of_turn>"}},
    {NULL, {"'\\n\\nAssistant: ' + eos_token"}}, /* Orion */
    {NULL, {"GPT4 Correct "}},                   /* OpenChat */
    {"vicuna-orca", {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
    {"vicuna", {"USER: ", "ASSISTANT: "}},
    {"deepseek", {"### Instruction:", "<|EOT|>"}},
    {NULL, {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}}, /* Command R */
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}},
    {NULL, {"[gMASK]sop"}}, /* ChatGLM 3 */
    {"deepseek2", {"'Assistant: ' + message['content'] + eos_token"}},
    {"deepseek3", {DEEPSEEK_ASSISTANT, DEEPSEEK_USER, DEEPSEEK_END}},
};
/* clang-format on */

enum { N_FORMAT = sizeof formats / sizeof *formats, N_RULE = sizeof rules / sizeof *rules };

const hth_chat_format *hth_chat_format_find(hth_str name)
{
    for (size_t i = 0; i < N_FORMAT; i++)
        if (hth_str_eq(name, formats[i].name)) return &formats[i];
    return NULL;
}

const char *hth_chat_format_name(const hth_chat_format *f) { return f->name; }
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
    bool is_template; /* of the last part */
    bool writes;
} output;

static void put(output *s, const char *p, size_t n, bool is_template)
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
    for (; *text; text++) {
        if (*text == *ROLE) put(s, role.bytes, role.n, true);
        else if (*text == *EOS) put(s, eos.bytes, eos.n, true);
        else put(s, text, 1, true);
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
            put(w->s, system.bytes, system.n, false);
            some = some || system.n > 0;
        }
        if (some) put_template(w->s, w->f->system.after, m->role, w->in->eos);
    }
    put(w->s, content.bytes, content.n, false);
    put_template(w->s, with.after, m->role, w->in->eos);
}

static void write_message(writer *w, size_t i)
{
    const hth_chat_format *f = w->f;
    hth_str role = w->in->messages[i].role;
    bool system = hth_str_eq(role, "system"), user = hth_str_eq(role, "user");
    bool assistant = hth_str_eq(role, "assistant") || (!system && !user && f->flags & AS_ASSISTANT);
    if (!system && !user && !assistant && f->flags & DROP_OTHERS) return;
    if (!w->open) put_template(w->s, i == 0 ? f->open : f->reopen, role, w->in->eos);
    w->open = !assistant;
    if (system && f->flags & DEFER_SYSTEM) return;
    around with = system && f->system.before         ? f->system
                  : assistant && f->assistant.before ? f->assistant
                                                     : f->user;
    put_message(w, i, with);
}

static void write_all(const hth_chat_format *f, const hth_template_input *in, output *s)
{
    writer w = {.f = f, .in = in, .s = s};
    for (size_t i = 0; i < in->n_message; i++) write_message(&w, i);
    if (in->add_generation_prompt) put_template(s, f->gen, (hth_str){"assistant", 9}, in->eos);
}

hearth_status hth_chat_format_render(const hth_chat_format *f, const hth_template_input *in,
                                     hth_rendered *out, hearth_error *err)
{
    *out = (hth_rendered){0};
    size_t total = 0;
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
    write_all(f, in, &count);
    out->text = hth_alloc(count.n + 1, 1);
    out->parts = hth_alloc(count.n_part + 1, sizeof *out->parts);
    if (!out->text || !out->parts) {
        hth_rendered_free(out);
        return hth_fail_memory(err, count.n, "a rendered conversation");
    }
    write_all(f, in, &copy);
    out->n = copy.n;
    out->n_part = copy.n_part;
    return HEARTH_OK;
}
