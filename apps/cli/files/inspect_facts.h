/* Facts of `hearth inspect` about a file, collected once. inspect_text.c and inspect_json.c print them, and
 * inspect_sidecar.c those of sidecar files. Of the weights, only thresholds are read, because they are few. */
#ifndef HEARTH_APPS_CLI_FILES_INSPECT_FACTS_H
#define HEARTH_APPS_CLI_FILES_INSPECT_FACTS_H

#include "common/json.h"
#include "common/options/options.h"
#include "file/gguf.h"
#include "model/model.h"

typedef struct tensor_sum {
    uint64_t n_tensor, n_weight, size;
} tensor_sum;

typedef enum role {
    ROLE_EMBEDDING,
    ROLE_ATTENTION,
    ROLE_FFN,
    ROLE_HEAD,
    ROLE_VECTORS,
    ROLE_OTHER,
    N_ROLE
} role;

typedef struct facts {
    const hth_gguf *file;
    bool all;     /* shows arrays, texts and tensors completely */
    bool program; /* shows the operations of the model */
    tensor_sum types[HTH_TYPE_LIMIT], roles[N_ROLE];

    hth_model *model; /* NULL: it cannot be run */
    hearth_error why_not;
    bool runs_with[HEARTH_SELECTOR_THRESHOLD + 1]; /* by selector, never AUTO */
    hearth_selector chosen;                        /* by auto */
    const char *chosen_why;
    hearth_error no_choice; /* status OK: auto finds one */
    uint32_t n_ctx;         /* context for the sizes below */
    uint64_t weight_size;
    size_t kv_f16_size, kv_f32_size, step_size;
    size_t state_size; /* one copy of the states of recurrent layers */

    hearth_error no_use; /* why a file of thresholds is invalid; status OK: it is valid */

    hearth_error no_tokenizer; /* status OK: its tokenizer is supported */
    int32_t n_token;
    const char *tokenizer, *tokenizer_title; /* its kind in the file, and in words */
    const char *cut;     /* name of the pre-tokenizer, or NULL */
    char cut_engine[80]; /* implementation of the pre-tokenizer */
} facts;

void file_info_gather(facts *f, const args *a, const hth_gguf *file);
void facts_free(facts *f);

const char *role_name(role r);
const char *value_type_name(hth_gguf_type type);
bool value_type_is_signed(hth_gguf_type type);
uint64_t tensor_n_weight(const hth_gguf_tensor *t);
/* Selectors of single neurons that a model allows, mixtures of experts none: names, terminated by NULL. *exact:
 * whether the activation gives exact zeros; then the first one is exact. */
const char *const *sparsity_modes(const hth_model *model, bool *exact);

/* Names of the classes of a reranker; NULL: the file has none. */
const hth_gguf_value *reranker_labels(const hth_model *model);

/* inspect_sidecar.c: whether the file belongs to a model (general.architecture hearth.*), and its facts. */
bool is_sidecar(const hth_gguf *file);
hearth_error sidecar_check(const hth_gguf *file);
void inspect_print_sidecar(const facts *f);
void inspect_json_sidecar(json *j, const facts *f);

void inspect_print(const facts *f);
/* inspect_program.c: as a table; as a member of an object. */
void inspect_print_program(const hth_model *m);
void inspect_write_program(json *j, const hth_model *m);
void inspect_print_json(const facts *f);

#endif
