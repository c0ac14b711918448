/* Names of models in place of paths: what every command does with an operand or an option that is a model. */
#ifndef HEARTH_APPS_COMMON_MODEL_NAME_H
#define HEARTH_APPS_COMMON_MODEL_NAME_H

/* The path that `name` means (hub_resolve in hub/hub.h): valid until the program ends. 0, or the exit status
 * after a message. */
int resolve_model(const char *name, const char **path);

#endif
