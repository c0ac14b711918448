/* Model names instead of paths: resolves operands and options of any command that name a model. */
#ifndef HEARTH_APPS_COMMON_MODEL_NAME_H
#define HEARTH_APPS_COMMON_MODEL_NAME_H

/* Resolves `name` to a path (hub_resolve in hub/hub.h), valid until the program ends. Returns 0, or the exit
 * status after an error was reported. */
int resolve_model(const char *name, const char **path);

#endif
