/* What `hearth inspect` knows of a file: gathered once, printed by inspect_text.c and
 * inspect_json.c, that of files which belong to a model by inspect_sidecar.c. Of weights only the
 * values of thresholds, which are few, are read for it. */
#ifndef HEARTH_APPS_CLI_INSPECT_FACTS_H
#define HEARTH_APPS_CLI_INSPECT_FACTS_H

#include "common/json.h"
#include "common/options.h"
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
    bool all; /* arrays, texts and tensors are shown whole */
    tensor_sum types[HTH_TYPE_LIMIT], roles[N_ROLE];

    hth_model *model; /* NULL: it cannot be run */
    hearth_error why_not;
    bool runs_with[HEARTH_SELECTOR_THRESHOLD + 1]; /* by selector, never AUTO */
    hearth_selector chosen;                        /* by auto */
    const char *chosen_why;
    hearth_error no_choice; /* status OK: auto finds one */
    uint32_t n_ctx;         /* that the bytes below are for */
    uint64_t weight_size;
    size_t kv_f16_size, kv_f32_size, step_size;

    hearth_error no_use; /* of a file of thresholds; status OK: its values will do */

    hearth_error no_tokenizer; /* status OK: it has one of ours */
    int32_t n_token;
    const char *cut;     /* the pre-tokenizer's family, or NULL */
    char cut_engine[80]; /* what it runs on */
} facts;

void file_info_gather(facts *f, const args *a, const hth_gguf *file);
void facts_free(facts *f);

const char *role_name(role r);
const char *value_type_name(hth_gguf_type type);
bool value_type_is_signed(hth_gguf_type type);
uint64_t tensor_n_weight(const hth_gguf_tensor *t);
/* Which selectors of neurons a model of this activation allows: names, NULL behind the
 * last; the first one is exact where *exact. */
const char *const *sparsity_modes(hth_activation activation, bool *exact);

/* inspect_sidecar.c: whether the file belongs to a model (general.architecture hearth.*), and what it is. */
bool is_sidecar(const hth_gguf *file);
hearth_error sidecar_check(const hth_gguf *file);
void inspect_print_sidecar(const facts *f);
void inspect_json_sidecar(json *j, const facts *f);

void inspect_print(const facts *f);
void inspect_print_json(const facts *f);

#endif
