/* hearth chat: a conversation. Each turn tokenizes the whole conversation again, and evaluates only the ids
 * that are not in the session. common/terminal/line_input.c reads lines, common/terminal/word_wrap.c prints answers,
 * chat_commands.c handles lines that begin with a slash. */
#define _GNU_SOURCE
#include "cli/run/chat.h"

#include "base/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "common/chat_format.h"
#include "common/input.h"
#include "common/terminal/live_stats.h"
#include "common/local_time.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const option_spec options[] = {
    OPT_TEXT("prompt", 'p', "TEXT", "the first message", .flags = OPTION_ESCAPES),
    OPT_FILE("file", 'f', "FILE", "a file with the first message"),
    OPT_FLAG("single-turn", 0, "end after the first answer", ADVANCED),
    OPT_TEXT("system", 0, "TEXT", "instructions before the conversation", .flags = OPTION_ESCAPES),
    ESCAPE_OPTION,
    OPT_FILE("system-file", 0, "FILE", "a file with them", ADVANCED),
    OPT_FILE("template", 0, "NAME|FILE", "a format by name, or a file with a Jinja template"),
    TEMPLATE_VARIABLE_OPTIONS,
    OPT_UINT("predict", 'n', "N", 1, 16777216, "at most N tokens for an answer; -1: to its end",
             .flags = OPTION_OPEN),
    OPT_FLAG("no-shift", 0, "stop if the context is full, drop no turns"),
    OPT_FLAG("no-history", 0, "do not save what is typed"),
    DRAFT_OPTIONS,
    STATS_OPTION("print what was evaluated; live: also meanwhile"),
    {0},
};

/* ---- messages from lines ------------------------------------------------------------------------- */

static bool append(buffer *b, const char *bytes, size_t n)
{
    return buffer_add(b, bytes, n) || report_text("out of memory for a message") == 0;
}

/* Reads lines up to one with a single point, or to the end of the input. */
static lines_status read_block(chat *c, buffer *message)
{
    for (message->n = 0;;) {
        char *line;
        size_t n;
        bool more;
        lines_status st = lines_read(c->lines, ". ", &line, &n, &more);
        if (st == LINES_END && message->n > 0) return LINES_OK;
        if (st != LINES_OK) return st;
        if (n == 1 && *line == '.') return LINES_OK;
        if ((message->n > 0 && !append(message, "\n", 1)) || !append(message, line, n)) return LINES_FAILED;
    }
}

/* Reads a line and its continuations: after a backslash at its end, or pasted with it. *is_block: it was
 * entered with /multi, so a slash at its start is not a command. */
static lines_status read_message(chat *c, buffer *message, bool *is_block)
{
    bool goes_on = true;
    *is_block = false;
    message->n = 0;
    for (bool first = true; goes_on; first = false) {
        char *line;
        size_t n;
        bool more;
        lines_status st = lines_read(c->lines, first ? "> " : ". ", &line, &n, &more);
        if (st == LINES_END && !first) return LINES_OK;
        if (st != LINES_OK) return st;
        bool backslash = n > 0 && line[n - 1] == '\\';
        if (!first && !append(message, "\n", 1)) return LINES_FAILED;
        if (!append(message, line, n - backslash)) return LINES_FAILED;
        bool is_command = first && n > 0 && line[0] == '/' && !(n > 1 && line[1] == '/');
        goes_on =
            backslash || (more && !is_command); /* a command that was typed ahead is a message of its own */
    }
    *is_block = strcmp(message->bytes, "/multi") == 0;
    return *is_block ? read_block(c, message) : LINES_OK;
}

/* ---- a turn ------------------------------------------------------------------------------------------ */

typedef struct answer {
    live_stats live;
    hearth_answer *parts; /* divides what a terminal shows; NULL: all is shown as it comes */
    wrap wrap;
    buffer text, rest; /* rest: what was kept back at the end of a call; a text that goes on has it again */
    id_list ids;
    uint64_t n_token; /* with the one that ended it */
    hearth_answer_kind kind; /* kind of the last part that was shown, if has_part */
    bool has_part;
    bool failed;     /* an error was reported */
    const char *end; /* why it ended; NULL: continues */
} answer;

/* On a terminal reasoning is dim, and its marks are left out, as those of calls. What is of another kind has a line of
 * its own; arguments stand behind the name of their function. */
static void show_part(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    answer *an = user;
    bool differs = an->has_part && (kind != an->kind || kind == HEARTH_ANSWER_CALL), ok = true;
    if (differs && kind == HEARTH_ANSWER_ARGUMENTS) ok = wrap_write(&an->wrap, " ", 1);
    else if (differs) ok = wrap_line(&an->wrap);
    an->kind = kind, an->has_part = true;
    if (!ok || !wrap_dim(&an->wrap, kind == HEARTH_ANSWER_REASONING) || !wrap_write(&an->wrap, text, n))
        an->end = "output closed";
}

/* The conversation has the text with all marks: the template knows what of it belongs into the next turn. */
static bool show(answer *an, const char *piece, size_t n)
{
    if (!append(&an->text, piece, n)) return false;
    if (!an->parts && !wrap_write(&an->wrap, piece, n)) an->end = "output closed";
    return true;
}

static hearth_status open_answer(const chat *c, const int32_t *ids, size_t n, answer *an, hearth_error *why)
{
    const hearth_answer_options o = {.chat = c->format,
                                     .at_start = true,
                                     .in_reasoning = hearth_chat_is_reasoning(c->format, ids, n),
                                     .fn = show_part,
                                     .user = an};
    wrap_init(&an->wrap);
    return an->wrap.can_dim ? hearth_answer_open(c->model, &o, &an->parts, why) : HEARTH_OK;
}

/* Removes the oldest message after the system text, and the following ones up to the user's next message.
 * False: only the last message of the user is left. */
static bool drop_oldest_turn(chat *c)
{
    size_t first = c->transcript.n > 0 && strcmp(c->transcript.message[0].role, "system") == 0, n = 1;
    while (first + n < c->transcript.n && strcmp(c->transcript.message[first + n].role, "user") != 0) n++;
    if (args_has(c->a, "no-shift") || first + n >= c->transcript.n) return false;
    for (; n > 0; n--) transcript_drop(&c->transcript, first);
    if (!c->shifted) print_status("the context is full: the oldest messages are dropped from now on");
    c->shifted = true;
    return true;
}

/* Context positions to reserve for the answer of a turn. */
static size_t answer_reserve(const chat *c)
{
    size_t n_ctx = hearth_session_n_ctx(c->session);
    return n_ctx / 8 < 256 ? n_ctx / 8 : 256;
}

/* If the context is full during an answer: *ids become the conversation without its oldest turns, and the answer so far.
 * False: there is nothing to remove, or an error was reported. */
static bool shift(chat *c, answer *an, id_list *ids)
{
    hearth_error err;
    bool fits = false;
    while (!fits && !an->failed && drop_oldest_turn(c)) {
        int32_t *prompt = NULL;
        size_t n = 0;
        ids->n = 0;
        if (chat_tokenize(c, true, &prompt, &n, &err) != HEARTH_OK) an->failed = report(&err);
        fits = n + an->ids.n + answer_reserve(c) <= hearth_session_n_ctx(c->session);
        if (!an->failed && (!id_list_add(ids, prompt, n) || !id_list_add(ids, an->ids.at, an->ids.n)))
            an->failed = report_text("out of memory for the ids");
        hearth_free(prompt);
    }
    return fits && !an->failed;
}

/* Shows a token of the answer. */
static bool show_answer_part(void *user, const hearth_generated *part)
{
    answer *an = user;
    hearth_error err;
    if (part->token < 0) return !(an->failed = !append(&an->rest, part->text, part->n));
    if (!show(an, part->text, part->n)) an->failed = true;
    if (an->failed) return false;
    an->n_token++;
    if (part->is_end) return true;
    if (!id_list_add(&an->ids, &part->token, 1)) an->failed = report_text("out of memory for the ids");
    else if (an->parts && hearth_answer_push(an->parts, part->token, &err) != HEARTH_OK) an->failed = report(&err);
    live_stats_token(&an->live);
    return !an->failed && !an->end;
}

/* Ctrl-C stops an answer; what it skips is evaluated with the next turn. */
static bool call(chat *c, answer *an, const hearth_generate_options *o, hearth_usage *usage)
{
    hearth_error err;
    *usage = (hearth_usage){.size = sizeof *usage};
    an->rest.n = 0;
    hearth_status st = hearth_generate(c->session, o, usage, &err);
    if (st == HEARTH_ERROR_CANCELLED) an->end = "stopped";
    else if (st != HEARTH_OK) an->failed = report(&err);
    return !an->failed;
}

static bool read_prompt_ids(chat *c, answer *an, const int32_t *ids, size_t n)
{
    hearth_generate_options o = {.tokens = ids, .n_token = n, .prompt_only = true};
    hearth_usage usage;
    progress shown;
    progress_init(&shown, "reading", "tokens", 1);
    if (progress_is_shown()) o.progress = progress_show, o.progress_user = &shown;
    bool ok = call(c, an, &o, &usage);
    progress_end(&shown);
    c->n_reused = usage.n_cached, c->n_read = usage.n_evaluated;
    return ok;
}

static const char *end_name(hearth_end end)
{
    return end == HEARTH_END_TOKEN ? "end" : end == HEARTH_END_FUNCTION ? "output closed" : hearth_end_name(end);
}

static bool generate(chat *c, answer *an, const int32_t *ids, size_t n)
{
    const uint64_t limit = args_uint(c->a, "predict", UINT64_MAX);
    hearth_generate_options o = {.tokens = ids,
                                 .n_token = n,
                                 .at_start = true,
                                 .sampler = c->sampler,
                                 .max_token = limit,
                                 .fn = show_answer_part,
                                 .user = an};
    hearth_usage usage;
    id_list shifted = {0};
    live_stats_open(&an->live, c->a, c->model, c->session);
    live_stats_begin(&an->live);
    while (!an->end && !an->failed && call(c, an, &o, &usage) && !an->end) {
        if (an->n_token >= limit) usage.end = HEARTH_END_LENGTH;
        if (usage.end != HEARTH_END_CONTEXT || !shift(c, an, &shifted)) an->end = end_name(usage.end);
        o.tokens = shifted.at, o.n_token = shifted.n, o.at_start = false, o.max_token = limit - an->n_token;
    }
    live_stats_end(&an->live);
    free(shifted.at);
    if (!an->failed && an->rest.n > 0 && !show(an, an->rest.bytes, an->rest.n)) an->failed = true;
    if (an->failed) {
        (void)wrap_dim(&an->wrap, false);
        return false;
    }
    const char *end = an->end;
    hearth_error ignored;
    if (an->parts) (void)hearth_answer_finish(an->parts, &ignored);
    if (!wrap_end(&an->wrap)) an->end = "output closed";
    else an->end = end;
    return true;
}

static void print_end(const chat *c, const answer *an)
{
    unsigned n_ctx = hearth_session_n_ctx(c->session);
    if (strcmp(an->end, "context full") == 0)
        print_status("the context of %u tokens is full; /reset begins again, -c takes more", n_ctx);
    else if (strcmp(an->end, "stopped") == 0 && c->is_terminal) print_note("stopped");
    if (args_has(c->a, "stats"))
        print_status("%zu tokens were there, %zu read, %llu written; ended: %s", c->n_reused, c->n_read,
                     (unsigned long long)an->n_token, an->end);
    if (args_has(c->a, "stats")) drafts_print(c->session);
}

/* Evaluates the conversation and generates the answer. False: an error was reported, and the conversation is
 * restored. */
static bool answer_ids(chat *c, const int32_t *ids, size_t n)
{
    hearth_error err;
    answer an = {0};
    if (open_answer(c, ids, n, &an, &err) != HEARTH_OK) an.failed = report(&err);
    bool ok = !an.failed && read_prompt_ids(c, &an, ids, n) && generate(c, &an, ids, n);
    if (ok && (an.n_token > 0 || c->is_terminal)) finish_line();
    if (!flush_stdout()) ok = false;
    if (ok) print_end(c, &an);
    bool lost = ok && strcmp(an.end, "output closed") == 0;
    ok = ok && !lost && an.n_token > 0 &&
         transcript_add(&c->transcript, "assistant", an.text.bytes ? an.text.bytes : "", an.text.n);
    hearth_answer_close(an.parts);
    free(an.text.bytes);
    free(an.rest.bytes);
    free(an.ids.at);
    c->ends = c->ends || lost;
    return ok;
}

hearth_status chat_tokenize(const chat *c, bool add_generation_prompt, int32_t **ids, size_t *n,
                            hearth_error *err)
{
    hearth_chat_options o = {.add_generation_prompt = add_generation_prompt,
                             .local_time = &c->local_time,
                             .variables = wanted_variables(c->a)};
    return hearth_chat_tokenize(c->format, c->transcript.message, c->transcript.n, &o, ids, n, err);
}

/* The ids of a conversation that fits the context, with space for an answer if turns may be removed. NULL: an
 * error was reported. */
static int32_t *ids_that_fit(chat *c, size_t *n)
{
    unsigned n_ctx = hearth_session_n_ctx(c->session);
    hearth_error err;
    for (;;) {
        int32_t *ids = NULL;
        if (chat_tokenize(c, true, &ids, n, &err) != HEARTH_OK) {
            report(&err);
            return NULL;
        }
        bool is_tight = *n + answer_reserve(c) > n_ctx, dropped = is_tight && drop_oldest_turn(c);
        if (!dropped && *n < n_ctx) return ids;
        hearth_free(ids);
        if (dropped) continue;
        report_text("the conversation has %zu tokens, and %u fit; /reset begins again, -c takes more", *n,
                    n_ctx);
        return NULL;
    }
}

bool chat_answer_last(chat *c)
{
    size_t n = 0;
    int32_t *ids = ids_that_fit(c, &n);
    bool ok = ids && answer_ids(c, ids, n);
    hearth_free(ids);
    c->failed = c->failed || !ok;
    return ok;
}

static void run_turn(chat *c, const buffer *message)
{
    if (!transcript_add(&c->transcript, "user", message->bytes, message->n)) return;
    if (!chat_answer_last(c)) transcript_drop(&c->transcript, c->transcript.n - 1);
}

/* ---- the conversation -------------------------------------------------------------------------------- */

/* Handles Ctrl-C at the prompt. A second one within a second ends the chat. */
static bool is_second_interrupt(chat *c)
{
    uint64_t now = hth_clock_ns(), second = 1000000000u;
    bool again = c->interrupt_ns != 0 && now - c->interrupt_ns < second;
    c->interrupt_ns = now;
    return again;
}

static void handle_message(chat *c, buffer *message)
{
    char *bytes = message->bytes;
    if (bytes[0] == '/' && bytes[1] != '/') {
        chat_command(c, bytes);
        return;
    }
    if (bytes[0] == '/') memmove(bytes, bytes + 1, message->n--); /* including the NUL */
    run_turn(c, message);
}

static bool has_answer(const chat *c)
{
    return c->transcript.n > 0 && strcmp(c->transcript.message[c->transcript.n - 1].role, "assistant") == 0;
}

/* Without a terminal, Ctrl-C during an answer ends the chat too. */
static int chat_loop(chat *c)
{
    buffer message = {0};
    bool is_block = false;
    int status = 0;
    while (!c->ends && status == 0) {
        if (c->is_terminal) clear_interrupt();
        lines_status st = interrupted() ? LINES_INTERRUPTED : read_message(c, &message, &is_block);
        if (termination_signal()) status = EXIT_SIGNAL + termination_signal();
        else if (st == LINES_FAILED) status = EXIT_OTHER;
        else if (st == LINES_END) break;
        else if (st == LINES_INTERRUPTED)
            status = !c->is_terminal || is_second_interrupt(c) ? EXIT_SIGNAL + SIGINT : 0;
        else if (message.n > 0 && is_block) run_turn(c, &message);
        else if (message.n > 0) handle_message(c, &message);
        c->ends = c->ends || (args_has(c->a, "single-turn") && has_answer(c));
    }
    free(message.bytes);
    return status ? status : c->failed && !c->is_terminal ? EXIT_OTHER : 0;
}

/* ---- entry point ----------------------------------------------------------------------------------------- */

/* Reports that a model without a chat template cannot chat: first what to do. */
static int fail_format(const chat *c, const hearth_error *err)
{
    hearth_metadata found = {.size = sizeof found};
    if (args_has(c->a, "template")) return report(err);
    bool lacks = hearth_model_find_metadata(c->model, "tokenizer.chat_template", &found) == HEARTH_OK && found.type == HEARTH_METADATA_NONE;
    return report_text("hearth run continues a text with this model; --template chatml, or another name or file, chats anyway: %s",
                       lacks ? "it was not made for chat, or its file has no chat template (a wrong name lists those that are known)"
                             : err->message);
}

bool chat_open_sampler(chat *c)
{
    int status;
    hearth_sampler *before = c->sampler;
    c->sampler = NULL;
    bool ok =
        open_sampler(c->a, c->model, &c->sampler, &status) && drafts_use(c->session, &c->drafts, c->sampler);
    if (!ok) (void)hearth_session_use_drafts(c->session, &(hearth_draft_options){0}, NULL, NULL);
    hearth_sampler_close(before);
    return ok;
}

static void print_banner(const chat *c)
{
    warn_of_context(c->model, hearth_session_n_ctx(c->session));
    print_start_line(c->a, c->model, c->session);
    if (c->is_terminal)
        print_status("chat by: %s; /help lists the commands, Ctrl-D ends", hearth_chat_name(c->format));
}

/* False: an error was reported. */
static bool add_system(chat *c)
{
    const char *given = args_text(c->a, "system", NULL), *file = args_text(c->a, "system-file", NULL);
    size_t n = given ? strlen(given) : 0;
    char *text = file ? read_prompt(file, &n) : NULL;
    if (!given && !text) return !file;
    bool ok = transcript_add(&c->transcript, "system", text ? text : given, n);
    free(text);
    return ok;
}

/* The message of -p or -f; none is empty. False: an error was reported. */
static bool read_first(const args *a, buffer *message)
{
    const char *given = args_text(a, "prompt", NULL), *file = args_text(a, "file", NULL);
    size_t n = given ? strlen(given) : 0;
    char *text = file ? read_prompt(file, &n) : NULL;
    if (!given && !text) return !file;
    bool ok = append(message, text ? text : given, n);
    free(text);
    return ok;
}

static bool is_by_name(const hearth_chat *format)
{
    for (size_t i = 0; hearth_chat_format(i); i++)
        if (strcmp(hearth_chat_format(i), hearth_chat_name(format)) == 0) return true;
    return false;
}

static int run_chat(const args *a)
{
    chat c = {.a = a, .local_time = local_seconds()};
    hearth_model *model = NULL;
    chat_format given;
    hearth_error err = {0};
    buffer first = {0};
    int status = EXIT_OTHER;
    const char *path = args_operand(a, 0);
    char chosen[CHAT_PATH];
    if (args_has(a, "prompt") && args_has(a, "file")) return usage_error("--prompt and --file contradict each other");
    install_signal_handlers();
    if (!path && !args_has(a, "template")) { /* the embedded story model, only because the user insists */
        int wrong = chat_choose_model(chosen);
        if (wrong) return wrong;
        path = chosen;
    }
    if (!chat_format_read(args_text(a, "template", NULL), &given)) return EXIT_OTHER;
    if (!open_model(a, path, &model)) goto done;
    c.model = model;
    if (chat_format_open(&given, model, &c.format, &err) != HEARTH_OK) {
        status = fail_format(&c, &err);
        goto done;
    }
    if (wanted_variables(a) && is_by_name(c.format)) {
        status = usage_error("--%s: the format %s takes none; templates do",
                             args_has(a, "template-vars") ? "template-vars" : "reasoning", hearth_chat_name(c.format));
        goto done;
    }
    if (!open_session(a, model, 0, &c.session)) goto done;
    if (!open_sampler(a, model, &c.sampler, &status)) goto done;
    status = EXIT_OTHER;
    if (!drafts_open(a, &c.drafts, &c.draft) || !drafts_use(c.session, &c.drafts, c.sampler)) goto done;
    if (!add_system(&c) || !read_first(a, &first)) goto done;
    if (!(c.lines = lines_open(args_has(a, "no-history") ? NULL : "history"))) goto done;
    c.is_terminal = lines_are_typed(c.lines);
    print_banner(&c);
    install_chat_signal_handlers();
    if (first.n > 0) run_turn(&c, &first);
    c.ends = c.ends || (first.n > 0 && args_has(a, "single-turn"));
    status = chat_loop(&c);
    if (*seed_text(a).text) print_note("the same answers%s", seed_text(a).text + 1);
done:
    free(first.bytes);
    lines_close(c.lines);
    transcript_free(&c.transcript);
    hearth_session_close(c.session);
    hearth_sampler_close(c.sampler);
    hearth_model_close(c.draft);
    hearth_chat_close(c.format);
    hearth_model_close(model);
    chat_format_free(&given);
    return status;
}

const command command_chat = {
    .name = "chat",
    .operands = "[MODEL]",
    .summary = "talk with a model",
    .details = "The template in the file formats the messages; --template gives another. A\n"
               "backslash at the end of a line continues it; /help lists commands. Ctrl-C stops\n"
               "an answer; twice at the prompt, or Ctrl-D, ends. From a pipe each line is a\n"
               "message. Reasoning is dim on a terminal, unless NO_COLOR is set. The embedded\n"
               "story model was not trained for chat.\n",
    .example = "hearth chat model.gguf --system \"Answer briefly.\"",
    .groups = {options, sampling_options, model_options, gpu_options},
    .models = 1,
    .run = run_chat,
};
