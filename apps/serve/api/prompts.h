/* Texts that a request gives as they are, or as ids of tokens: prompts of completions, inputs of embeddings. */
#ifndef HEARTH_APPS_SERVE_API_PROMPTS_H
#define HEARTH_APPS_SERVE_API_PROMPTS_H

#include "serve/api/fields.h"
#include "serve/engine.h"

typedef struct prompt {
    int32_t *ids; /* [n], freed by hearth_free */
    size_t n, capacity;
    const char *text; /* n_text bytes that it was made of, of the document; NULL: it was given as ids */
    size_t n_text;
} prompt;

typedef struct prompt_list {
    prompt *at; /* [n] */
    size_t n;
} prompt_list;

/* One more. ids are the list's, also if memory runs out: then false. */
bool prompt_list_add(prompt_list *l, int32_t *ids, size_t n, const char *text, size_t n_text);
void prompt_list_free(prompt_list *l);
/* More of a prompt, whose ids begin as NULL. False: f->problem says why. */
bool prompt_append(fields *f, prompt *to, const int32_t *ids, size_t n);
/* flags: of hearth_tokenize. */
bool prompt_append_text(fields *f, const served_model *served, const char *text, size_t n_text, unsigned flags, prompt *to);
/* A field that is a text, an array of ids and texts, or an array of at most `most` of either. False: f->problem says why. */
bool prompts_read(fields *f, const served_model *served, const char *name, size_t most, prompt_list *out);

#endif
