/* The functions of the endpoints, one file each; serve_routes.c has their table. The user of a call is the model that it is
 * for (served_model.h); functions that run it may run beside the engine thread, and change the model by call_go_on alone
 * (large_call.h). On the network thread the user of the server is the engine. */
#ifndef HEARTH_APPS_SERVE_ENDPOINTS_H
#define HEARTH_APPS_SERVE_ENDPOINTS_H

#include "serve/engine.h"
#include "serve/api/fields.h"

answer_fn page_answer, health_answer, models_answer, model_answer, props_answer, slots_answer, stats_answer,
    metrics_answer, ollama_version_answer, ollama_tags_answer, ollama_ps_answer;
call_fn tokenize_run, detokenize_run, template_run, chat_run, completions_run, responses_run, chat_count_run,
    responses_count_run, completion_run, infill_run, response_get_run, response_delete_run, messages_run, count_tokens_run, ollama_show_run, ollama_chat_run,
    ollama_generate_run, embeddings_run, llama_embedding_run, rerank_run, ollama_embed_run, ollama_embeddings_run;

/* endpoint_models.c: an array of all models. */
void write_all_models(json *j, const char *key, engine *e, void (*write)(json *j, const served_model *m));
/* No model has that name. */
void problem_no_model(problem *p, const engine *e, const char *name);
/* Answers 503 and returns false while the first model is still read. */
bool need_model(const request *r, reply *out, api_form form);

/* endpoint_props.c, with the engine's lock held: what there is to write of the first model that is loaded; with several,
 * of each of them in a member "models". */
void write_loaded(json *j, const engine *e, void (*write)(json *j, served_model *m));

#endif
