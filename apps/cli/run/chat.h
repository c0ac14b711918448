/* State of a conversation, shared by the files of the command chat. */
#ifndef HEARTH_APPS_CLI_RUN_CHAT_H
#define HEARTH_APPS_CLI_RUN_CHAT_H

#include "common/buffer.h"
#include "common/options/draft_args.h"
#include "common/terminal/line_input.h"
#include "common/options/model_args.h"
#include "common/transcript.h"
#include "common/terminal/word_wrap.h"

typedef struct chat {
    const args *a;
    const hearth_model *model;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_draft_options drafts;
    hearth_model *draft; /* model of --draft, or NULL */
    hearth_chat *format;
    lines *lines;
    transcript transcript;
    size_t n_reused, n_read; /* ids of the last turn: already in the session, evaluated */
    int64_t local_time;      /* at the start, because a changing date would change every turn */
    uint64_t interrupt_ns;   /* time of the last Ctrl-C at the prompt */
    bool is_terminal;        /* used on a terminal */
    bool ends, failed;
    bool shifted; /* turns were removed because the context was full, and the user was told */
} chat;

/* Lets the user choose a model of hearth list if none was named. 0, or the exit status after an error was
 * reported. */
enum { CHAT_PATH = 4096 };
int chat_choose_model(char path[CHAT_PATH]);

/* Runs a line that begins with a slash. Reports the result on stderr. */
void chat_command(chat *c, char *line);

/* Opens a new sampler; the same seed repeats the same answers. False: an error was reported. */
bool chat_open_sampler(chat *c);
/* Generates an answer to the last message. False: no answer, after an error was reported or Ctrl-C. */
bool chat_answer_last(chat *c);
/* The ids of the conversation, freed with hearth_free. */
hearth_status chat_tokenize(const chat *c, bool add_generation_prompt, int32_t **ids, size_t *n, hearth_error *err);

/* /save and /load: the messages are in the file, and what was computed of them in FILE.session beside it, which saves
 * evaluating them again. Report the result on stderr. */
void chat_save(chat *c, const char *path);
void chat_load(chat *c, const char *path);

#endif
