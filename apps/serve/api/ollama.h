/* Functions that the endpoints of Ollama's API share. */
#ifndef HEARTH_APPS_SERVE_API_OLLAMA_H
#define HEARTH_APPS_SERVE_API_OLLAMA_H

#include "common/json.h"

/* "2026-11-27T12:00:00Z" */
void ollama_write_time(json *j, const char *key, int64_t seconds);

#endif
