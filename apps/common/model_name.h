/* Model names instead of paths: resolves operands and options of any command that name a model. */
#ifndef HEARTH_APPS_COMMON_MODEL_NAME_H
#define HEARTH_APPS_COMMON_MODEL_NAME_H

#include <stdbool.h>

/* Resolves `name` to a path (hub_resolve in hub/hub.h), valid until the program ends. Returns 0, or the exit
 * status after an error was reported. */
int resolve_model(const char *name, const char **path);
/* Whether an operand is an address of the hub, as Ollama's hf.co/ORG/NAME, and no file is called so: fetch_model takes it. */
bool is_remote_model(const char *operand);
/* Finds the model for REPO[:QUANT] of Hugging Face, or a file of it (NULL: none is named). What is not on this machine
 * is downloaded, unless offline. */
int fetch_model(const char *repo, const char *file, bool offline, const char **path);

#endif
