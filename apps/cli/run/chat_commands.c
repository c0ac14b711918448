/* The commands of chat: lines that begin with a slash. chat.c calls them. */
#define _GNU_SOURCE
#include "cli/run/chat.h"

#include <stdlib.h>
#include <string.h>

typedef struct slash_command {
    const char *name, *operand, *help;
    void (*run)(chat *c, const char *operand);
} slash_command;

static void note(const char *text) { print_status("%s", text); }

static bool has_system(const chat *c)
{
    return c->transcript.n > 0 && strcmp(c->transcript.message[0].role, "system") == 0;
}

/* Keeps the system text. */
static void reset(chat *c, const char *operand)
{
    (void)operand;
    while (c->transcript.n > has_system(c)) transcript_drop(&c->transcript, c->transcript.n - 1);
    if (!chat_open_sampler(c)) c->ends = true;
    note("the conversation begins again");
}

static bool has_answer(chat *c)
{
    if (c->transcript.n > 0 && strcmp(c->transcript.message[c->transcript.n - 1].role, "assistant") == 0)
        return true;
    report_text("there is no answer yet");
    c->failed = true;
    return false;
}

static void undo(chat *c, const char *operand)
{
    (void)operand;
    if (!has_answer(c)) return;
    transcript_drop(&c->transcript, c->transcript.n - 1);
    if (c->transcript.n > has_system(c)) transcript_drop(&c->transcript, c->transcript.n - 1);
    print_status("the last message and its answer are forgotten");
}

/* Keeps the old answer until there is a new one. */
static void regenerate(chat *c, const char *operand)
{
    (void)operand;
    if (!has_answer(c)) return;
    hearth_message old =
        c->transcript.message[--c->transcript.n]; /* only a new answer uses its slot */
    if (chat_answer_last(c)) {
        transcript_free_message(&old);
        return;
    }
    c->transcript.message[c->transcript.n++] = old;
    note("the last answer stays");
}

static void set_system(chat *c, const char *text)
{
    if (has_system(c)) transcript_drop(&c->transcript, 0);
    if (!*text) note("no system text any more");
    else if (transcript_add_first(&c->transcript, "system", text, strlen(text)))
        note("the system text is set");
}

/* Expands ~/ to the home folder. */
static bool full_path(const char *path, char out[4096])
{
    const char *home = path[0] == '~' && path[1] == '/' ? getenv("HOME") : NULL;
    if (!*path) return report_text("expected the name of a file") == 0;
    int n = home ? snprintf(out, 4096, "%s%s", home, path + 1) : snprintf(out, 4096, "%s", path);
    while (n > 0 && n < 4096 && out[n - 1] == ' ') out[--n] = '\0';
    return n < 4096 || report_text("the name is too long") == 0;
}

static void save(chat *c, const char *operand)
{
    char path[4096];
    if (full_path(operand, path)) chat_save(c, path);
    else c->failed = true;
}

static void load(chat *c, const char *operand)
{
    char path[4096];
    if (full_path(operand, path)) chat_load(c, path);
    else c->failed = true;
}

static void leave(chat *c, const char *operand)
{
    (void)operand;
    c->ends = true;
}

static void help(chat *c, const char *operand);

static const slash_command slash_commands[] = {
    {"help", "", "this list", help},
    {"reset", "", "forget the conversation, but not the system text", reset},
    {"clear", "", "the same", reset},
    {"undo", "", "forget the last message and its answer", undo},
    {"regenerate", "", "another answer to the last message", regenerate},
    {"system", "TEXT", "set the system text; without TEXT: none", set_system},
    {"save", "FILE", "write the conversation: JSON lines, and FILE.session", save},
    {"load", "FILE", "go on with a conversation that was saved", load},
    {"multi", "", "a message of several lines, up to a line with only .", NULL},
    {"exit", "", "end; Ctrl-D does too", leave},
    {"quit", "", "the same", leave},
    {"bye", "", "the same", leave},
};

enum { N_COMMAND = sizeof slash_commands / sizeof *slash_commands };

static void help(chat *c, const char *operand)
{
    (void)operand;
    const char *history = lines_history(c->lines);
    for (size_t i = 0; i < N_COMMAND; i++) {
        char name[32];
        snprintf(name, sizeof name, "/%s %s", slash_commands[i].name, slash_commands[i].operand);
        fprintf(stderr, "  %-14s %s\n", name, slash_commands[i].help);
    }
    fprintf(stderr,
            "  A backslash at the end of a line continues it. // begins a message with a slash.\n"
            "  Ctrl-C stops an answer; at the prompt it clears the line, twice it ends.\n"
            "  FILE.session spares /load reading the messages again; it may be deleted.\n"
            "  What was typed is kept in %s (--no-history: nowhere).\n",
            *history ? printable(history) : "no file");
}

void chat_command(chat *c, char *line)
{
    size_t n = strcspn(line + 1, " \t\r");
    const char *operand = line + 1 + n + strspn(line + 1 + n, " \t\r");
    for (size_t i = 0; i < N_COMMAND; i++) {
        if (!slash_commands[i].run || strlen(slash_commands[i].name) != n ||
            memcmp(slash_commands[i].name, line + 1, n) != 0)
            continue;
        if (!*operand || *slash_commands[i].operand) {
            slash_commands[i].run(c, operand);
            return;
        }
        report_text("/%s takes no argument; // begins a message with a slash", slash_commands[i].name);
        c->failed = true;
        return;
    }
    report_text("'%.60s' is no command; /help lists them, and // begins a message with a slash", line);
    c->failed = true;
}
