/* Chat templates, published and of the project's own, and the formats by name, against 28
 * renderings of each of 20 templates by other programs (tests/data/chat). */
#include "support/models/json_lines.h"
#include "support/test.h"
#include "chat/call_format.h"
#include "chat/chat_formats.h"
#include "chat/deepseek_marks.h"
#include "chat/template.h"

enum { MAX_MESSAGE = 64, N_LINE = 28 };

/* 26 July 2024, noon. */
static const int64_t the_day = 1721995200;

static const struct {
    const char *file, *bos, *eos;
    const char *format; /* whose text is the field llamacpp */
    const char *detected;
} templates[] = {
    {"chatml", "<s>", "<|im_end|>", "chatml", "chatml"},
    {"own-deepseek",
     "<\xEF\xBD\x9C"
     "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     "<|EOT|>", "deepseek", "deepseek"},
    {"own-deepseek2",
     "<\xEF\xBD\x9C"
     "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     "deepseek2", "deepseek2"},
    {"own-deepseek3",
     "<\xEF\xBD\x9C"
     "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     "deepseek3", "deepseek3"},
    {"own-gemma", "<bos>", "<eos>", "gemma", "gemma"},
    {"own-llama-3.2", "<|begin_of_text|>", "<|eot_id|>", "llama3", "llama3"},
    {"llama2", "<s>", "</s>", "llama2", "llama2"},
    {"own-llama2-sys-bos", "<s>", "</s>", "llama2-sys-bos", "llama2-sys-bos"},
    {"own-llama2-sys-strip", "<s>", "</s>", "llama2-sys-strip", "llama2-sys-strip"},
    {"own-llama3", "<|begin_of_text|>", "<|eot_id|>", "llama3", "llama3"},
    {"mistral-v1", "<s>", "</s>", "mistral-v1", "mistral-v1"},
    {"mistral-v3", "<s>", "</s>", "mistral-v3", "mistral-v3"},
    {"mistral-v3-tekken", "<s>", "</s>", "mistral-v3-tekken", "mistral-v3-tekken"},
    {"own-mistral-v7", "<s>", "</s>", "mistral-v7", "mistral-v7"},
    {"phi-3.5", "<s>", "<|endoftext|>", "phi3", "phi3"},
    {"phi3", "<s>", "<|end|>", "phi3", "phi3"},
    {"qwen2.5", "", "<|im_end|>", "chatml", "chatml"},
    {"qwen3", "", "<|im_end|>", "chatml", "chatml"},
    {"own-vicuna", "<s>", "</s>", "vicuna", "vicuna"},
    /* llama.cpp takes it for GLM-Edge's; we know better */
    {"zephyr", "<s>", "</s>", "glmedge", "zephyr-eos"},
};

enum { N_TEMPLATE = sizeof templates / sizeof *templates };

static hth_str word(const char *text) { return (hth_str){text, strlen(text)}; }

/* ---- one line of a vector file -------------------------------------------------------------------- */

typedef struct conversation {
    hth_message message[MAX_MESSAGE];
    char *texts[2 * MAX_MESSAGE];
    size_t n, n_text;
    bool add_generation_prompt;
} conversation;

static hth_str keep_text(conversation *c, const char *value)
{
    size_t n;
    char *text = json_text_of(value, &n);
    c->texts[c->n_text++] = text;
    return (hth_str){text, n};
}

/* Objects inside of the array, whose texts hold no braces of their own unescaped: they
 * are walked by quotation marks. */
static const char *object_end(const char *p)
{
    bool quoted = false;
    for (; *p && (quoted || *p != '}'); p++) {
        if (*p == '\\') p++;
        else if (*p == '"') quoted = !quoted;
    }
    return p;
}

static void read_conversation(conversation *c, const char *line)
{
    memset(c, 0, sizeof *c);
    c->add_generation_prompt = memcmp(json_field(line, "add_generation_prompt"), "true", 4) == 0;
    const char *p = json_field(line, "messages");
    for (p = strchr(p, '{'); p && c->n < MAX_MESSAGE;) {
        c->message[c->n].role = keep_text(c, json_field(p, "role"));
        c->message[c->n++].content = keep_text(c, json_field(p, "content"));
        p = object_end(p);
        p = p[0] == '}' && p[1] == ',' ? p + 2 : NULL;
    }
}

static void free_conversation(conversation *c) { for (size_t i = 0; i < c->n_text; i++) free(c->texts[i]); }

/* ---- all lines of all files ------------------------------------------------------------------------- */

typedef void check_line(size_t i_template, const hth_template *t, const char *line, const hth_template_input *in);

static void each_line(check_line *check)
{
    for (size_t i = 0; i < N_TEMPLATE; i++) {
        char name[100];
        size_t n = 0, n_line = 0;
        snprintf(name, sizeof name, "chat/%s.jinja", templates[i].file);
        const char *path = test_data(name);
        if (!path) return;
        FREED char *source = test_read_file(path, &n);
        CLOSED(hth_template) *t = OPENED(hth_template, source, n);
        snprintf(name, sizeof name, "chat/%s.jsonl", templates[i].file);
        if (!(path = test_data(name))) return;
        FREED char *lines = test_read_file(path, &n);
        char *rest = lines, *line;
        while ((line = json_next_line(&rest)) != NULL) {
            conversation c;
            read_conversation(&c, line);
            hth_template_input in = {.messages = c.message, .n_message = c.n,
                                     .add_generation_prompt = c.add_generation_prompt,
                                     .bos = word(templates[i].bos), .eos = word(templates[i].eos),
                                     .seconds = &the_day};
            if (t) check(i, t, line, &in);
            free_conversation(&c);
            n_line++;
        }
        CHECK_INT(n_line, N_LINE);
    }
}

static void expect_text(size_t i, const char *line, const hth_rendered *r, const char *wanted)
{
    size_t n;
    FREED char *conv = json_text_of(json_field(line, "conv"), &n);
    if (r->n != strlen(wanted) || memcmp(r->text, wanted, r->n) != 0)
        test_fail(__FILE__, __LINE__, "%s, %s: \"%.*s\", not \"%s\"", templates[i].file, conv, (int)r->n,
                  r->text, wanted);
}

/* The parts are the text, and alternate. */
static void expect_parts(const hth_rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_part; i++) {
        CHECK(r->parts[i].text == r->text + at && r->parts[i].n > 0);
        CHECK(i == 0 || r->parts[i].is_template != r->parts[i - 1].is_template);
        at += r->parts[i].n;
    }
    CHECK_INT(at, r->n);
}

static void check_jinja(size_t i, const hth_template *t, const char *line, const hth_template_input *in)
{
    hth_rendered r;
    hearth_error why = {0};
    hearth_status st = hth_template_render(t, in, &r, &why);
    const char *wanted = json_field(line, "jinja");
    if (!wanted) {
        CHECK(json_field(line, "jinja_error") != NULL);
        CHECK_INT(st, HEARTH_ERROR_ARGUMENT);
        CHECK(strstr(why.message, "refuses") != NULL);
        CHECK(r.text == NULL && r.n_part == 0);
        return;
    }
    if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", templates[i].file, why.message);
    if (st != HEARTH_OK) return;
    size_t n;
    char *text = json_text_of(wanted, &n);
    expect_text(i, line, &r, text);
    expect_parts(&r);
    free(text);
    hth_rendered_free(&r);
}

/* Tools, calls and results, which come as variables. */
static void check_with_tools(const char *line)
{
    size_t n_source, n;
    char path[100];
    FREED char *name = json_text_of(json_field(line, "template"), &n),
               *conv = json_text_of(json_field(line, "conv"), &n);
    snprintf(path, sizeof path, "chat/%s.jinja", name);
    FREED char *source = test_read_file(test_data(path), &n_source);
    FREED char *variables = json_text_of(json_field(line, "variables"), &n);
    CLOSED(hth_template) *t = OPENED(hth_template, source, n_source);
    CLEANUP(hth_rendered_free) hth_rendered r = {0};
    hth_template_input in = {.seconds = &the_day, .variables = {variables, n}};
    hearth_error why = {0};
    hearth_status st = t ? hth_template_render(t, &in, &r, &why) : HEARTH_ERROR_FORMAT;
    const char *wanted = json_field(line, "jinja");
    if (!wanted) {
        CHECK_INT(st, HEARTH_ERROR_ARGUMENT);
        return;
    }
    FREED char *text = json_text_of(wanted, &n);
    if (st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s, %s: %s", name, conv, why.message);
    else if (r.n != n || memcmp(r.text, text, n) != 0)
        test_fail(__FILE__, __LINE__, "%s, %s: \"%.*s\", not \"%s\"", name, conv, (int)r.n, r.text, text);
}

TEST(conversations_with_tools_render_as_jinja_does)
{
    size_t n, n_case = 0;
    FREED char *lines = test_read_file(test_data("chat/tools.jsonl"), &n);
    char *rest = lines, *line;
    for (; (line = json_next_line(&rest)) != NULL; n_case++) check_with_tools(line);
    CHECK_INT(n_case, 20);
}

static void check_format(size_t i, const hth_template *t, const char *line, const hth_template_input *in)
{
    CLEANUP(hth_rendered_free) hth_rendered r;
    size_t n;
    const hth_chat_format *f = hth_chat_format_find(word(templates[i].format));
    CHECK_OK(hth_chat_format_render(f, in, &r, err));
    FREED char *text = json_text_of(json_field(line, "llamacpp"), &n);
    expect_text(i, line, &r, text);
    expect_parts(&r);
}

TEST(templates_of_models_render_as_jinja_does) { each_line(check_jinja); }
TEST(formats_by_name_write_what_llama_cpp_writes) { each_line(check_format); }

/* ---- formats without vectors, detection ---------------------------------------------------------------- */

static void expect_format(const char *name, bool gen, const char *wanted)
{
    const hth_message m[] = {{word("system"), word("S "), {"", 0}, NULL, 0},
                             {word("user"), word(" U"), {"", 0}, NULL, 0},
                             {word("assistant"), word(" A "), {"", 0}, NULL, 0},
                             {word("user"), word("V"), {"", 0}, NULL, 0},
                             {word("tool"), word("T"), {"", 0}, NULL, 0}};
    hth_template_input in = {.messages = m, .n_message = 5, .add_generation_prompt = gen, .eos = word("</s>")};
    hth_rendered r;
    const hth_chat_format *f = hth_chat_format_find(word(name));
    if (!CHECK(f != NULL)) return;
    CHECK_TEXT(hth_chat_format_name(f), name);
    CHECK_OK(hth_chat_format_render(f, &in, &r, err));
    CHECK_TEXT(r.text, wanted);
    hth_rendered_free(&r);
}

TEST(other_formats_follow_their_description)
{
    expect_format("llama2-sys", true, "[INST] <<SYS>>\nS \n<</SYS>>\n\n U [/INST] A </s>[INST] V [/INST]T</s>");
    expect_format("mistral-v7-tekken", true,
                  "[SYSTEM_PROMPT]S [/SYSTEM_PROMPT][INST] U[/INST] A </s>[INST]V[/INST]T</s>");
    expect_format("vicuna-orca", true, "SYSTEM: S \nUSER:  U\nASSISTANT:  A </s>\nUSER: V\nASSISTANT:");
    expect_format("gpt-oss", true,
                  "<|start|>system<|message|>S <|end|><|start|>user<|message|> U<|end|>"
                  "<|start|>assistant<|message|> A <|return|><|start|>user<|message|>V<|end|>"
                  "<|start|>tool<|message|>T<|end|><|start|>assistant");
    expect_format("phi4", false,
                  "<|im_start|>system<|im_sep|>S <|im_end|><|im_start|>user<|im_sep|> U<|im_end|>"
                  "<|im_start|>assistant<|im_sep|> A <|im_end|><|im_start|>user<|im_sep|>V<|im_end|>"
                  "<|im_start|>tool<|im_sep|>T<|im_end|>");
    expect_format("zephyr", true,
                  "<|system|>\nS <|endoftext|>\n<|user|>\n U<|endoftext|>\n<|assistant|>\n A <|endoftext|>\n"
                  "<|user|>\nV<|endoftext|>\n<|tool|>\nT<|endoftext|>\n<|assistant|>\n");
    expect_format("zephyr-eos", true,
                  "<|system|>\nS </s>\n<|user|>\n U</s>\n<|assistant|>\n A </s>\n<|user|>\nV</s>\n"
                  "<|tool|>\nT</s>\n<|assistant|>\n");
}

/* Checks what a family writes for a conversation with the result T of a call, in both ways of thinking. The expected texts
 * are what the templates published with these models write around messages. */
static void expect_family(const char *name, const char *turns, const char *usual, const char *thinks, const char *answers)
{
    static const char *const variables[] = {"", "{\"enable_thinking\": true}", "{\"enable_thinking\": false}"};
    const char *const ends[] = {usual, thinks, answers};
    const hth_message m[] = {{word("system"), word("S"), {"", 0}, NULL, 0},
                             {word("user"), word("U"), {"", 0}, NULL, 0},
                             {word("assistant"), word("A"), {"", 0}, NULL, 0},
                             {word("tool"), word("T"), {"", 0}, NULL, 0}};
    const hth_chat_format *f = hth_chat_format_find(word(name));
    if (!CHECK(f != NULL)) return;
    for (size_t i = 0; i < 3; i++) {
        const hth_template_input in = {.messages = m,
                                       .n_message = hth_chat_format_has_results(f) ? 4 : 3,
                                       .add_generation_prompt = true,
                                       .variables = word(variables[i])};
        char wanted[700];
        CLEANUP(hth_rendered_free) hth_rendered r;
        snprintf(wanted, sizeof wanted, "%s%s", turns, ends[i]);
        CHECK_OK(hth_chat_format_render(f, &in, &r, err));
        CHECK_TEXT(r.text, wanted);
    }
}

TEST(variables_that_cannot_be_read_are_named)
{
    const hth_chat_format *f = hth_chat_format_find(word("qwen3"));
    const hth_template_input in = {.variables = word("{")};
    hth_rendered r;
    CHECK_FAILS(hth_chat_format_render(f, &in, &r, err), HEARTH_ERROR_FORMAT, "chat format qwen3: variables: no JSON");
    CHECK_INT(hth_chat_format_render(f, &in, &r, NULL), HEARTH_ERROR_FORMAT);
}

#define CHATML_TURNS \
    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
#define CHATML_GEN "<|im_start|>assistant\n"

TEST(families_have_their_turns_results_and_thoughts)
{
    expect_family("qwen2.5", CHATML_TURNS CHATML_GEN, "", "", "");
    expect_family("qwen3", CHATML_TURNS CHATML_GEN, "", "", "<think>\n\n</think>\n\n");
    expect_family("qwen3.5", CHATML_TURNS CHATML_GEN, "<think>\n", "<think>\n", "<think>\n\n</think>\n\n");
    expect_family("nemotron-3", CHATML_TURNS CHATML_GEN, "<think>\n", "<think>\n", "<think></think>");
    expect_family("lfm2", CHATML_TURNS "<|im_start|>tool\nT<|im_end|>\n" CHATML_GEN, "", "", "");
    expect_family("llama3.1",
                  "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
                  "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
                  "<|start_header_id|>ipython<|end_header_id|>\n\nT<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                  "", "", "");
    expect_family("glm-4.5",
                  "[gMASK]<sop><|system|>\nS<|user|>\nU<|assistant|>\n<think></think>\nA<|observation|>\n"
                  "<tool_response>\nT\n</tool_response><|assistant|>",
                  "", "", "\n<think></think>");
    expect_family("glm-4.7",
                  "[gMASK]<sop><|system|>S<|user|>U<|assistant|></think>A<|observation|>\n<tool_response>\nT\n</tool_response>"
                  "<|assistant|>",
                  "<think>", "<think>", "</think>");
    expect_family("minimax-m2",
                  "]~!b[]~b]system\nS[e~[\n]~b]user\nU[e~[\n]~b]ai\nA[e~[\n]~b]tool\n<response>T</response>[e~[\n]~b]ai\n",
                  "<think>\n", "<think>\n", "<think>\n\n</think>\n\n");
    expect_family("gemma-4", "<|turn>system\nS<turn|>\n<|turn>user\nU<turn|>\n<|turn>model\nA<turn|>\n<|turn>model\n",
                  "<|channel>thought\n<channel|>", "", "<|channel>thought\n<channel|>");
    expect_family("deepseek-v3.1",
                  "S\n\n" HTH_DEEPSEEK("User") "U" HTH_DEEPSEEK("Assistant") "</think>A" HTH_DEEPSEEK_3("end", "of", "sentence")
                      HTH_DEEPSEEK_3("tool", "output", "begin") "T" HTH_DEEPSEEK_3("tool", "output", "end")
                          HTH_DEEPSEEK("Assistant"),
                  "</think>", "<think>", "</think>");
    expect_family("kimi-k2",
                  "<|im_system|>system<|im_middle|>S<|im_end|><|im_user|>user<|im_middle|>U<|im_end|>"
                  "<|im_assistant|>assistant<|im_middle|>A<|im_end|><|im_system|>tool<|im_middle|>T<|im_end|>"
                  "<|im_assistant|>assistant<|im_middle|>",
                  "", "", "");
    expect_family("nemotron-v2",
                  "<SPECIAL_10>System\nS\n\n<SPECIAL_11>User\nU\n<SPECIAL_11>Assistant\nA\n<SPECIAL_12>\n"
                  "<SPECIAL_11>User\n<TOOL_RESPONSE>[T]</TOOL_RESPONSE>\n<SPECIAL_11>Assistant\n",
                  "<think>\n", "<think>\n", "<think></think>");
    expect_family("ministral-3", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U[/INST]A</s>", "", "", "");
}

TEST(the_call_format_of_each_format_is_known)
{
    static const char *const own[][2] = {{"qwen3", "hermes"},      {"qwen3.5", "qwen3-coder"}, {"glm-4.5", "glm-4.5"},
                                         {"llama3.1", "llama-3"}, {"gpt-oss", "harmony"},     {"mistral-nemo", "mistral"},
                                         {"vicuna", "hermes"},    {"granite", "granite-3.3"}, {"seed-oss", "seed-oss"}};
    const hth_chat_format *f;
    for (size_t i = 0; (f = hth_chat_format_at(i)) != NULL; i++) {
        const char *end = hth_chat_format_reasoning(f);
        if (!hth_call_format_find(hth_chat_format_calls(f))) test_fail(__FILE__, __LINE__, "%s", hth_chat_format_name(f));
        if (*end) CHECK_TEXT(hth_reasoning_detect(word(end))->close, end);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        CHECK_TEXT(hth_chat_format_calls(hth_chat_format_find(word(own[i][0]))), own[i][1]);
}

TEST(names_of_formats_are_known_as_people_write_them)
{
    static const char *const names[][2] = {{"Qwen-3", "qwen3"},        {"LLAMA_3.1", "llama3.1"}, {"llama-3.3", "llama3.1"},
                                           {"seed-oss", "seed_oss"},   {"glm4.6", "glm-4.5"}, {"mistral-v11", "ministral-3"},     {"gemma3", "gemma"},
                                           {"DeepSeek-R1", "deepseek3"}, {"Phi-4", "phi4"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const hth_chat_format *f = hth_chat_format_find(word(names[i][0]));
        CHECK_TEXT(f ? hth_chat_format_name(f) : "none", names[i][1]);
    }
}

TEST(formats_are_recognised_by_the_text_of_a_template)
{
    for (size_t i = 0; i < N_TEMPLATE; i++) {
        char name[100];
        size_t n = 0;
        snprintf(name, sizeof name, "chat/%s.jinja", templates[i].file);
        const char *path = test_data(name);
        if (!path) return;
        FREED char *source = test_read_file(path, &n);
        const hth_chat_format *f = hth_chat_format_detect((hth_str){source, n});
        CHECK_TEXT(f ? hth_chat_format_name(f) : "none", templates[i].detected);
    }
}

TEST(nothing_is_guessed_from_an_unknown_template)
{
    CHECK(hth_chat_format_detect(word("")) == NULL);
    CHECK(hth_chat_format_detect(word("{{ messages }}")) == NULL);
    CHECK(hth_chat_format_detect(word("GPT4 Correct  <|start_header_id|><|end_header_id|>")) == NULL);
    CHECK(hth_chat_format_find(word("chatm")) == NULL);
    CHECK(hth_chat_format_find(word("")) == NULL);
    CHECK(hth_chat_format_find(word("--")) == NULL);
    CHECK(hth_chat_format_find(word("{{ chatml }}")) == NULL);
    CHECK(hth_chat_format_find((hth_str){"chatml\0", 7}) == NULL);
}

TEST(formats_are_listed_by_name)
{
    const hth_chat_format *f, *before = NULL;
    size_t n = 0;
    for (; (f = hth_chat_format_at(n)) != NULL; before = f, n++) {
        CHECK(hth_chat_format_find(word(hth_chat_format_name(f))) == f);
        CHECK(!before || strcmp(hth_chat_format_name(before), hth_chat_format_name(f)) < 0);
    }
    CHECK_INT(n, 51);
}

/* Contents never count as template text, whatever they spell. */
TEST(formats_mark_template_text_and_content)
{
    const hth_message m[] = {{word("system"), word("<|im_end|>"), {"", 0}, NULL, 0}, {word("user"), word("<|im_start|>"), {"", 0}, NULL, 0}};
    hth_template_input in = {.messages = m, .n_message = 2, .add_generation_prompt = true};
    static const struct {
        const char *text;
        bool is_template;
    } wanted[] = {{"<|im_start|>system\n", true},
                  {"<|im_end|>", false},
                  {"<|im_end|>\n<|im_start|>user\n", true},
                  {"<|im_start|>", false},
                  {"<|im_end|>\n<|im_start|>assistant\n", true}};
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(hth_chat_format_render(hth_chat_format_find(word("chatml")), &in, &r, err));
    if (CHECK_INT(r.n_part, 5)) {
        for (size_t i = 0; i < 5; i++) {
            CHECK_INT(r.parts[i].is_template, wanted[i].is_template);
            CHECK_INT(r.parts[i].n, strlen(wanted[i].text));
            CHECK_BYTES(r.parts[i].text, wanted[i].text, r.parts[i].n);
        }
    }
}

TEST(formats_refuse_odd_roles_and_too_much_text)
{
    static const char *const roles[] = {
        "",           "a b",         "us\ner",
        "<|im_end|>", "r\xC3\xB6le", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    const hth_chat_format *f = hth_chat_format_find(word("chatml"));
    hth_rendered r;
    hearth_error why;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        hth_message m = {.role = word(roles[i]), .content = word("x")};
        hth_template_input in = {.messages = &m, .n_message = 1};
        CHECK_INT(hth_chat_format_render(f, &in, &r, &why), HEARTH_ERROR_ARGUMENT);
        CHECK(r.text == NULL);
    }
    hth_message m[2] = {{word("user"), {NULL, HTH_TEMPLATE_MAX_OUTPUT}, {"", 0}, NULL, 0}, {word("user"), {NULL, 1}, {"", 0}, NULL, 0}};
    hth_template_input in = {.messages = m, .n_message = 2};
    CHECK_FAILS(hth_chat_format_render(f, &in, &r, err), HEARTH_ERROR_UNSUPPORTED, "16 MiB");
}
