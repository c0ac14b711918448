/* The endpoints of hearth serve. A new one is a row here and a function in a file of its own: `answer` if the network
 * thread can answer from what it has, `run` if the engine thread must. */
#include "serve/endpoints.h"

/* clang-format off: a table */
const route serve_routes[] = {
    {.method = HTTP_GET, .path = "/", .answer = page_answer, .is_public = true},
    {.method = HTTP_GET, .path = "/health", .answer = health_answer, .is_public = true},
    {.method = HTTP_GET, .path = "/v1/health", .answer = health_answer, .is_public = true},
    {.method = HTTP_GET, .path = "/v1/models", .answer = models_answer},
    {.method = HTTP_GET, .path = "/models", .answer = models_answer},
    {.method = HTTP_GET, .path = "/v1/models/{id}", .answer = model_answer},
    {.method = HTTP_GET, .path = "/models/{id}", .answer = model_answer},
    {.method = HTTP_GET, .path = "/props", .answer = props_answer},
    {.method = HTTP_GET, .path = "/slots", .answer = slots_answer},
    {.method = HTTP_GET, .path = "/stats", .answer = stats_answer, .is_quiet = true},
    {.method = HTTP_GET, .path = "/metrics", .answer = metrics_answer},
    {.method = HTTP_POST, .path = "/v1/chat/completions", .run = chat_run},
    {.method = HTTP_POST, .path = "/chat/completions", .run = chat_run},
    {.method = HTTP_POST, .path = "/v1/chat/completions/input_tokens", .run = chat_count_run},
    {.method = HTTP_POST, .path = "/chat/completions/input_tokens", .run = chat_count_run},
    {.method = HTTP_POST, .path = "/v1/completions", .run = completions_run},
    {.method = HTTP_POST, .path = "/completions", .run = completions_run},
    {.method = HTTP_POST, .path = "/v1/responses", .run = responses_run},
    {.method = HTTP_POST, .path = "/responses", .run = responses_run},
    {.method = HTTP_POST, .path = "/v1/responses/input_tokens", .run = responses_count_run},
    {.method = HTTP_POST, .path = "/responses/input_tokens", .run = responses_count_run},
    {.method = HTTP_POST, .path = "/v1/messages", .run = messages_run},
    {.method = HTTP_POST, .path = "/v1/messages/count_tokens", .run = count_tokens_run},
    {.method = HTTP_POST, .path = "/v1/embeddings", .run = embeddings_run},
    {.method = HTTP_POST, .path = "/embeddings", .run = embeddings_run},
    {.method = HTTP_POST, .path = "/tokenize", .run = tokenize_run},
    {.method = HTTP_POST, .path = "/detokenize", .run = detokenize_run},
    {.method = HTTP_POST, .path = "/apply-template", .run = template_run},
    {.method = HTTP_GET, .path = "/api/version", .answer = ollama_version_answer},
    {.method = HTTP_GET, .path = "/api/tags", .answer = ollama_tags_answer},
    {.method = HTTP_POST, .path = "/api/show", .run = ollama_show_run},
    {.method = HTTP_POST, .path = "/api/chat", .run = ollama_chat_run},
    {.method = HTTP_POST, .path = "/api/generate", .run = ollama_generate_run},
    {.method = HTTP_POST, .path = "/api/embed", .run = ollama_embed_run},
    {0},
};
/* clang-format on */
