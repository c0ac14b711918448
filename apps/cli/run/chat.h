/* What the files of the command chat share: one conversation under way. */
#ifndef HEARTH_APPS_CLI_CHAT_H
#define HEARTH_APPS_CLI_CHAT_H

#include "common/buffer.h"
#include "common/line_input.h"
#include "common/model_args.h"
#include "common/transcript.h"
#include "common/word_wrap.h"

typedef struct chat {
    const args *a;
    const hearth_model *model;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_chat *format;
    lines *lines;
    transcript transcript;
    id_list cached_ids;      /* what the session has evaluated */
    size_t n_reused, n_read; /* ids of the last turn: found in the session, evaluated */
    int64_t local_time;      /* of the beginning: a date that changes would change every turn */
    uint64_t interrupt_ns;   /* when Ctrl-C came to the prompt */
    bool is_terminal;        /* by a person at a terminal */
    bool ends, failed;
    bool shifted; /* turns were dropped for want of room, which was said */
} chat;

/* A model of hearth list that the user chooses, where none was named. 0, or the exit status after a message. */
enum { CHAT_PATH = 4096 };
int chat_choose_model(char path[CHAT_PATH]);

/* A line that begins with a slash. Says what it did on stderr. */
void chat_command(chat *c, char *line);

/* A fresh sampler: the same seed tells the same again. False after a message. */
bool chat_open_sampler(chat *c);
/* Lets the model answer the last message; false where it gives no answer: after a message, or Ctrl-C. */
bool chat_answer_last(chat *c);
/* The ids of the conversation, freed with hearth_free; false after a message. */
bool chat_tokenize(chat *c, bool add_generation_prompt, int32_t **ids, size_t *n);

#endif
