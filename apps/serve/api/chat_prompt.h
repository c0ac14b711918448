/* From messages to the prompt of a generation: what all APIs of conversations share. */
#ifndef HEARTH_APPS_SERVE_API_CHAT_PROMPT_H
#define HEARTH_APPS_SERVE_API_CHAT_PROMPT_H

#include "serve/api/conversation.h"
#include "serve/api/generation.h"

/* Variables that the template gets, apart from messages and functions. */
typedef struct chat_variables {
    const hth_json *given; /* an object of single values, or NULL */
    enum { AS_USUAL, THINK, NO_THINK } thinking;
    const char *effort; /* the reasoning effort as a word, "low"; NULL: not given */
    bool no_answer;     /* the prompt ends behind the messages: no answer begins there */
    bool no_continuing; /* an answer begins behind a last message of the assistant's */
} chat_variables;

/* The field "chat_template_kwargs". */
bool template_variables(fields *f, const hth_json **variables);
/* The variables as JSON, freed with free; defaults: an object of those that the request does not say, or NULL. NULL: memory
 * ran out. */
char *chat_variables_write(const chat_variables *v, const hth_json *defaults);
/* The fields add_generation_prompt and continue_final_message of vLLM's chat API. Without them a last message of the
 * assistant's is continued. */
bool continuing_read(fields *f, chat_variables *out);
/* The field reasoning_effort of OpenAI's APIs: none, minimal, low, medium, high, xhigh, max. */
bool effort_read(fields *f, const char *name, chat_variables *out);

/* Makes the prompt of the messages and starts the generation; *p: what is wrong so far. Ends the call in any case,
 * and frees the messages. A last message of the assistant's is continued. */
void chat_start(generation *g, conversation *messages, const chat_variables *v, problem *p);
/* Ends the call by {"object", "input_tokens"}: the tokens of that prompt. object NULL: there is no such member. Frees the
 * messages and functions. */
void chat_count(served_model *served, call *c, conversation *messages, const chat_variables *v,
                char *functions, const char *object, problem *p);
/* The prompt alone. False: *p says why. */
bool chat_prompt_make(const served_model *served, const conversation *messages, const chat_variables *v,
                      const char *functions, int32_t **ids, size_t *n, problem *p);
/* Its text, *n bytes, freed with hearth_free. NULL: *p says why. */
char *chat_prompt_text(const served_model *served, const conversation *messages, const chat_variables *v,
                       const char *functions, size_t *n, problem *p);

#endif
