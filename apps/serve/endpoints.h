/* The functions of the endpoints, one file each; serve_routes.c has their table. */
#ifndef HEARTH_APPS_SERVE_ENDPOINTS_H
#define HEARTH_APPS_SERVE_ENDPOINTS_H

#include "serve/engine.h"
#include "serve/api/fields.h"

answer_fn page_answer, health_answer, models_answer, model_answer, props_answer, slots_answer, stats_answer,
    metrics_answer, ollama_version_answer, ollama_tags_answer;
call_fn tokenize_run, detokenize_run, template_run, chat_run, completions_run, responses_run, chat_count_run,
    responses_count_run, messages_run, count_tokens_run, ollama_show_run, ollama_chat_run,
    ollama_generate_run, embeddings_run, ollama_embed_run;

/* endpoint_models.c: whether a client's name of a model is that of this server's; with tag: "ID:latest" too. */
bool is_served(const engine *e, const char *name, size_t n, bool with_tag);
/* Answers 503 and returns false while the model is still read. */
bool need_model(const request *r, reply *out, api_form form);
/* The chat template in the model's file, n bytes; NULL: there is none. */
const char *chat_template_of(const engine *e, size_t *n);

#endif
