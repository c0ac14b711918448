/* Properties of a model from its file's metadata. No weights are read, so that models that are not loaded can be
 * listed. */
#ifndef HEARTH_APPS_SERVE_MODEL_FACTS_H
#define HEARTH_APPS_SERVE_MODEL_FACTS_H

#include "file/gguf.h"

#include <hearth/hearth.h>

typedef struct model_facts {
    const char *architecture;
    const char *type;    /* type of most of its weights: "Q4_K" */
    char *name;          /* general.name, or "" */
    char *chat_template; /* [n_template]; NULL: there is none */
    size_t n_template;
    bool has_chat; /* the template can be used, as far as is known */
    bool is_reranker;
    bool is_synthetic;
    uint64_t file_size, weight_size, n_parameter;
    uint32_t n_ctx, n_ctx_train, d_model, d_ff, n_layer, n_head, n_head_kv, n_vocab; /* n_ctx: of a request */
} model_facts;

/* Takes them from an open model; n_ctx as in hearth_session_options. MEMORY. */
hearth_status model_facts_take(model_facts *f, const hearth_model *m, uint32_t n_ctx, hearth_error *err);
/* Reads them from a file; the options say which activation it has, and whether it may have unused tensors. As
 * hearth_model_open. *is_other: an error because it is another kind of file: a sidecar, a matrix of importance, a part
 * for images. */
hearth_status model_facts_read(model_facts *f, const hth_gguf *file, const hearth_model_options *o,
                               bool *is_other, hearth_error *err);
/* Another template than that of the file. MEMORY. */
hearth_status model_facts_set_template(model_facts *f, const char *text, size_t n, hearth_error *err);
void model_facts_free(model_facts *f);

#endif
