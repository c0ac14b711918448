/* Which models are served: by the operands of the command. */
#ifndef HEARTH_APPS_SERVE_MODEL_LIST_H
#define HEARTH_APPS_SERVE_MODEL_LIST_H

#include "serve/served_model.h"

typedef struct model_list {
    served_model *at; /* [n] */
    size_t n;
} model_list;

/* Adds a file, or all models that lie in a folder, sorted by name; NULL: the embedded model. MEMORY; ARGUMENT: there is
 * none. */
hearth_status model_list_add(model_list *l, const char *path, hearth_error *err);
/* Reads what the files say, leaves out those of folders that are no models, and checks that names differ. ARGUMENT, or the error of a file that was named itself. */
hearth_status model_list_finish(model_list *l, const hearth_model_options *o, hearth_error *err);
/* Sets the folder in which each model keeps its cache between runs: `folder` itself for a single model; with several, a
 * folder below it for each. NULL: none. MEMORY. */
hearth_status model_list_keep(model_list *l, const char *folder, hearth_error *err);
void model_list_free(model_list *l);

#endif
