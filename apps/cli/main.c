/* Entry point: finds the command and runs it. Each command is in its own file; shared code is in apps/common. */
#define _GNU_SOURCE
#include "base/switches.h"
#include "cli/commands.h"
#include "common/output.h"
#include "common/options/spelling.h"

#include <fcntl.h>
#include <hearth/hearth.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* clang-format off: a table */
static const command *const commands[] = {
    &command_run_model, &command_chat, &command_serve, &command_tokenize, &command_detokenize, &command_inspect,
    &command_logits, &command_perplexity, &command_compare, &command_profile, &command_study,
    &command_imatrix, &command_quantize, &command_predictors, &command_thresholds, &command_pack,
    &command_synth, &command_bench, &command_doctor, &command_devices, &command_plan, &command_pull, &command_list,
    &command_cp, &command_rm, &command_ps, &command_stop, NULL,
};
/* clang-format on */

/* A truncated mapped model file is an error of the evaluation. Any other bus error is a bug of the program, and
 * ends it. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    if (hearth_handle_sigbus(info->si_addr)) return;
    signal(signal_number, SIG_DFL); /* the instruction runs again and ends the program */
}

/* A repeated line is not printed again. */
static void print_log(void *user, hearth_log_level level, const char *line)
{
    static char last_lines[2][1000];
    bool warns = level == HEARTH_LOG_WARN;
    char *last = last_lines[warns];
    (void)user;
    if (strncmp(line, last, sizeof last_lines[0] - 1) == 0) return;
    snprintf(last, sizeof last_lines[0], "%s", line);
    if (warns) print_warning("%s", line);
    else print_note("%s", line);
}

/* A file must not get the number of a closed standard stream: it would be read as the user's text, or written
 * to. The placeholder is opened in the opposite direction, so that each use fails as on a closed stream. */
static void reserve_std_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_OTHER); /* not even /dev/null opens: a message may have no target */
}

static void set_signals(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGPIPE, &ignore, NULL); /* a closed pipe is a write error */
    sigaction(SIGXFSZ, &ignore, NULL); /* and so is a file size limit */
    sigaction(SIGBUS, &bus, NULL);
}

/* The names that other programs have for a command. */
static const struct {
    const char *words, *command;
} aliases[] = {{"ls", "list"}, {"show info", "inspect"}, {"remove delete", "rm"}, {"download get", "pull"},
               {"generate cli llama-cli", "run"}, {"server start llama-server", "serve"}, {"llama-bench", "bench"}};

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (lists_word(aliases[i].words, name, strlen(name))) name = aliases[i].command;
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static const char *const flags[] = {"--help", "--version", "--man", "--completions", NULL};

/* Commands of other programs that do not exist. */
static const struct {
    const char *words, *answer;
} foreign_commands[] = {
    {"create", "there are no Modelfiles: options of run, chat and serve say what they do"},
    {"push signin signout", "nothing is sent to a hub; hearth pull ORG/NAME fetches a model"},
    {"launch", "hearth serve MODEL, then point the program at http://127.0.0.1:8080"},
    {"embed", "hearth serve MODEL answers at /v1/embeddings"},
    {"rerank", "hearth serve MODEL answers at /v1/rerank"},
    {"gguf-split", "files of several parts are read as they are; hearth quantize IN OUT TYPE writes one"},
    {"convert", "convert_hf_to_gguf.py of llama.cpp makes GGUF files; hearth quantize IN OUT TYPE other types of them"},
};

static int unknown_command(const char *word)
{
    for (size_t i = 0; i < sizeof foreign_commands / sizeof *foreign_commands; i++)
        if (lists_word(foreign_commands[i].words, word, strlen(word)))
            return usage_error("'%s' is no command; %s", word, foreign_commands[i].answer);
    const foreign_option *option = find_foreign_option("", word, strlen(word));
    if (option && option->kind == FOREIGN_REFUSED) return usage_error("%s: %s", word, option->answer);
    nearest near = nearest_to(word);
    for (size_t i = 0; *word == '-' && flags[i]; i++) nearest_offer(&near, flags[i]);
    if (*near.name) return usage_error("%s: %s is the nearest; see hearth --help", word, near.name);
    if (*word == '-') return usage_error("%s: options stand behind a command: hearth run %s ...", word, word);
    for (size_t i = 0; commands[i]; i++) nearest_offer(&near, commands[i]->name);
    if (*near.name)
        return usage_error("'%s' is no command; %s is the nearest; see hearth --help", word, near.name);
    if (access(word, F_OK) == 0) return usage_error("'%s' is no command; hearth run %s runs it", word, word);
    return usage_error("'%s' is no command; see hearth --help", word);
}

static int run_flag(int argc, char **argv)
{
    const char *flag = argv[1];
    const command *asked = strcmp(flag, "help") == 0 && argc > 2 ? find_command(argv[2]) : NULL;
    if (asked) {
        command_print_help(asked);
    } else if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0 || strcmp(flag, "help") == 0) {
        commands_print_help(commands);
    } else if (lists_word("--version -v -V version", flag, strlen(flag))) {
        printf("hearth %s\n", hearth_version());
    } else if (strcmp(flag, "--man") == 0) {
        commands_print_man(commands);
    } else if (strcmp(flag, "--completions") == 0) {
        if (argc != 3 || !commands_print_completions(commands, argv[2]))
            return usage_error("--completions: expected one of bash, zsh, fish");
    } else {
        return unknown_command(flag);
    }
    return 0;
}

int main(int argc, char **argv)
{
    reserve_std_fds();
    set_signals();
    hearth_log_set(print_log, NULL);
    hearth_error err;
    if (hth_switches_check(&err) != HEARTH_OK) return usage_error("%s", err.message);
    if (argc < 2) {
        commands_print_help(commands);
        int lost = finish_stdout();
        return lost ? lost : EXIT_USAGE;
    }
    const command *found = find_command(argv[1]);
    const char *instead = NULL;
    int status = found ? command_run(found, argc - 2, argv + 2, &instead) : run_flag(argc, argv);
    while (instead) { /* a conversation has the same arguments; the list of devices is all that is asked for */
        found = find_command(instead);
        status = command_run(found, found == &command_devices ? 0 : argc - 2, argv + 2, &instead);
    }
    /* A shell that chains commands must see the interruption, even if data was kept. */
    if (status <= EXIT_OTHER && interrupted()) status = EXIT_SIGNAL + interrupted();
    int lost = finish_stdout();
    return status == 0 || lost > status ? lost : status; /* 141 is more specific than a general failure */
}
