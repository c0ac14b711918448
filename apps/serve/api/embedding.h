/* Texts that an embedder of the library evaluates for one request, as a task of the model (serve/tasks.h): what becomes of
 * the numbers is the endpoint's. */
#ifndef HEARTH_APPS_SERVE_API_EMBEDDING_H
#define HEARTH_APPS_SERVE_API_EMBEDDING_H

#include "serve/api/prompts.h"
#include "serve/endpoints.h"

enum { MAX_INPUTS = 2048 };

typedef struct embedding embedding;
struct embedding {
    task task;
    served_model *served;
    prompt_list inputs;
    hearth_pooling pooling;
    uint32_t n_dim;
    hearth_embedder *embedder;
    float *vectors; /* [inputs.n][n_dim] */
    uint64_t begin_ns;
    void (*write)(json *j, const embedding *m); /* the members of the answer */
    bool as_base64;                             /* vectors are written as base64 */
    bool is_array;                              /* the answer is an array, not an object */
};

/* Reads the body of a call: *f is its document, *p says of all that follows what is wrong. size: of the struct that begins
 * with the embedding, whose other members are zero. NULL: the call was ended. */
embedding *embedding_make(served_model *served, call *c, size_t size, fields *f, problem *p);
/* Whether the i-th input has tokens and fits into a context; field: of the inputs. */
bool embedding_check_input(fields *f, const embedding *m, const char *field, size_t i);
/* Adds the task; where there is no room for it, or a device in the way, ends the call. ok false: ends it by *p. */
void embedding_start(embedding *m, bool ok, const problem *p);

#endif
