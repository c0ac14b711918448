/* Conversations in a form that strict templates take. A rule is applied only where a template refuses the messages, or
 * leaves out the text of one, as they are: docs/serving.md has them for users. */
#ifndef HTH_CHAT_NORMALISE_H
#define HTH_CHAT_NORMALISE_H

#include "chat/functions.h"

typedef enum hth_normal_rule {
    HTH_NORMAL_IDS = 1,    /* ids of calls become nine letters and digits, as Mistral's templates want them */
    HTH_NORMAL_LATER = 2,  /* messages of the system behind the first message are the user's */
    HTH_NORMAL_SYSTEM = 4, /* all messages of the system are the user's, for templates without such a role */
    HTH_NORMAL_MERGE = 8,  /* messages of one role in a row become one, an empty line between their texts */
    HTH_NORMAL_FIRST = 16, /* before a first message of the assistant's comes an empty one of the user's */
    HTH_NORMAL_SPLIT = 32, /* an answer of several calls becomes one for each, and its result follows it */
    HTH_NORMAL_ALTERNATE = 64, /* between a result and the user comes an empty message of the assistant's */
    HTH_NORMAL_APART = 128,    /* a text beside calls is a message of its own before them */
    HTH_NORMAL_NONE = 256,     /* an empty text beside calls is None */
    HTH_NORMAL_FILL = 512,     /* empty messages of the user's and the assistant's are "..." */
} hth_normal_rule;

/* Sets of rules that change a conversation, those of few rules first. */
typedef struct hth_normal_sets {
    unsigned possible, n_rule, last;
} hth_normal_sets;

/* FORMAT: members are no JSON object; MEMORY. */
hearth_status hth_normal_begin(const hth_message *messages, size_t n, hth_normal_sets *out,
                               hearth_error *err);
/* The next one; 0: there is none. */
unsigned hth_normal_next(hth_normal_sets *sets);

/* Applies a set of rules, in the order in which they are listed. *is_new: each of them changed something, so that no
 * smaller set gives the same. out->at[] points into messages and into the arena of out, which the caller frees by
 * hth_plain_messages_free, unless this fails. A content whose bytes are NULL is None. Errors as of hth_normal_begin. */
hearth_status hth_normalise(const hth_message *messages, size_t n, unsigned rules, hth_plain_messages *out,
                            bool *is_new, hearth_error *err);

/* Whether a text has a piece of each message, in their order, and of each call. */
bool hth_shows_messages(const char *text, size_t n_text, const hth_message *messages, size_t n);

#endif
