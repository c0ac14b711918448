/* Collects the facts that inspect_facts.h declares. */
#include "cli/files/inspect_facts.h"

#include "common/options/model_args.h"
#include "forward/forward.h"
#include "sparse/selector.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { BATCH_ROWS = 256 };

const char *role_name(role r)
{
    static const char *const names[N_ROLE] = {"embedding", "attention", "feed-forward",
                                              "head",      "vectors",   "other"};
    return names[r];
}

const char *value_type_name(hth_gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "text", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "?";
}

bool value_type_is_signed(hth_gguf_type t)
{
    return t == HTH_GGUF_I8 || t == HTH_GGUF_I16 || t == HTH_GGUF_I32 || t == HTH_GGUF_I64;
}

uint64_t tensor_n_weight(const hth_gguf_tensor *t) { return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; }

const hth_gguf_value *reranker_labels(const hth_model *model)
{
    char key[80];
    snprintf(key, sizeof key, "%s.classifier.output_labels", model->hparams.architecture);
    const hth_gguf_value *v = hth_gguf_find(model->file, key);
    return v && v->type == HTH_GGUF_ARRAY && v->element_type == HTH_GGUF_TEXT ? v : NULL;
}

const char *const *sparsity_modes(const hth_model *model, bool *exact)
{
    static const char *const of_zeros[] = {"gate", "predictor", "threshold", NULL};
    static const char *const of_others[] = {"threshold", NULL};
    static const char *const of_experts[] = {NULL};
    *exact = hth_activation_is_sparse(model->hparams.activation);
    if (!hth_model_is_dense(model)) return of_experts;
    return *exact ? of_zeros : of_others;
}

/* ---- tensors ----------------------------------------------------------------------- */

static bool holds(hth_str name, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.n; i++)
        if (memcmp(name.bytes + i, part, n) == 0) return true;
    return false;
}

static role role_of(const hth_gguf_tensor *t)
{
    if (hth_str_eq(t->name, "token_embd.weight") || hth_str_eq(t->name, "position_embd.weight"))
        return ROLE_EMBEDDING;
    if (hth_str_eq(t->name, "output.weight")) return ROLE_HEAD;
    if (t->n_dim == 1) return ROLE_VECTORS;
    return holds(t->name, ".attn_") || holds(t->name, ".ssm_") || holds(t->name, ".shortconv.") ? ROLE_ATTENTION : holds(t->name, ".ffn_") ? ROLE_FFN : ROLE_OTHER;
}

static void add(tensor_sum *sum, const hth_gguf_tensor *t)
{
    sum->n_tensor++;
    sum->n_weight += tensor_n_weight(t);
    sum->size += t->size;
}

static void sum_tensors(facts *f)
{
    for (size_t i = 0; i < hth_gguf_n_tensor(f->file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(f->file, i);
        add(&f->types[t->type], t);
        add(&f->roles[role_of(t)], t);
    }
}

/* ---- requirements of a run ------------------------------------------------------------- */

static void choose_selectors(facts *f)
{
    hearth_selector same;
    const char *why;
    for (hearth_selector s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++)
        f->runs_with[s] = hth_selector_choose(f->model, s, &same, &why, NULL) == HEARTH_OK;
    f->no_choice.status =
        hth_selector_choose(f->model, HEARTH_SELECTOR_AUTO, &f->chosen, &f->chosen_why, &f->no_choice);
}

static void estimate(facts *f, const args *a)
{
    if (hth_model_open(f->file, &(hth_model_overrides){0}, &f->model, &f->why_not) != HEARTH_OK) return;
    choose_selectors(f);
    f->n_ctx = hth_context_for(&f->model->hparams, args_context(a, 0));
    f->weight_size = f->model->weight_size;
    f->state_size = hth_sequence_state_size(f->model);
    uint32_t n_row = f->n_ctx < BATCH_ROWS ? f->n_ctx : BATCH_ROWS;
    if (hth_kv_size(f->model, HEARTH_KV_F16, f->n_ctx, &f->kv_f16_size) &&
        hth_kv_size(f->model, HEARTH_KV_F32, f->n_ctx, &f->kv_f32_size) &&
        hth_step_size(f->model, n_row, HEARTH_SELECTOR_DENSE, 1, &f->step_size))
        return;
    snprintf(f->why_not.message, sizeof f->why_not.message, "a context of %u positions overflows", f->n_ctx);
    hth_model_close(f->model);
    f->model = NULL;
}

static void read_tokenizer(facts *f)
{
    hth_tokenizer *tok;
    f->no_tokenizer.status = hth_tokenizer_open(f->file, &tok, &f->no_tokenizer);
    if (f->no_tokenizer.status != HEARTH_OK) return;
    f->n_token = hth_tokenizer_n_vocab(tok);
    f->tokenizer = hth_tokenizer_model(tok);
    f->tokenizer_title = hth_tokenizer_title(tok);
    f->cut = hth_tokenizer_pretok_name(tok, f->cut_engine, sizeof f->cut_engine);
    hth_tokenizer_close(tok);
}

void file_info_gather(facts *f, const args *a, const hth_gguf *file)
{
    *f = (facts){.file = file, .all = args_has(a, "all"), .program = args_has(a, "program")};
    sum_tensors(f);
    estimate(f, a);
    read_tokenizer(f);
    f->no_use = sidecar_check(file);
}

void facts_free(facts *f) { hth_model_close(f->model); }
