/* Reads headers of models. Called by model_list.c; when a model was opened, by served_model.c. */
#define _GNU_SOURCE
#include "serve/model_facts.h"

#include "base/status.h"
#include "engine/engine.h"
#include "hub/hub.h"

#include <stdlib.h>
#include <string.h>

static hth_str text_of(const hth_gguf *file, const char *key)
{
    const hth_gguf_value *v = hth_gguf_find(file, key);
    return v && v->type == HTH_GGUF_TEXT ? v->as.text : (hth_str){NULL, 0};
}

hearth_status model_facts_set_template(model_facts *f, const char *text, size_t n, hearth_error *err)
{
    char *copy = malloc(n + 1);
    if (!copy) return hth_fail_memory(err, n, "a chat template");
    memcpy(copy, text, n);
    free(f->chat_template);
    f->chat_template = copy, f->n_template = n, f->has_chat = true;
    return HEARTH_OK;
}

static hearth_status take(model_facts *f, const hth_gguf *file, const hth_model *m, uint32_t n_ctx,
                          hearth_error *err)
{
    const hth_hparams *h = &m->hparams;
    const hth_str name = text_of(file, "general.name"),
                  chat_template = text_of(file, "tokenizer.chat_template");
    model_facts_free(f);
    *f = (model_facts){.architecture = h->architecture,
                       .type = hub_main_type(file),
                       .name = strndup(name.bytes ? name.bytes : "", name.n),
                       .is_reranker = hth_model_is_reranker(m),
                       .is_synthetic = name.bytes && strncmp(name.bytes, "synthetic", 9) == 0,
                       .file_size = hth_gguf_size(file),
                       .n_ctx = hth_context_for(h, n_ctx),
                       .n_ctx_train = h->n_ctx_train,
                       .d_model = h->d_model,
                       .d_ff = h->d_ff,
                       .n_layer = h->n_layer,
                       .n_head = h->n_head,
                       .n_head_kv = h->n_head_kv,
                       .n_vocab = h->n_vocab};
    hearth_status st = f->name ? HEARTH_OK : hth_fail_memory(err, name.n, "what is known of a model");
    if (st == HEARTH_OK && chat_template.bytes)
        st = model_facts_set_template(f, chat_template.bytes, chat_template.n, err);
    if (st != HEARTH_OK) {
        model_facts_free(f);
        return st;
    }
    for (size_t i = 0; i < m->n_binding; i++) {
        const hth_binding *b = &m->bindings[i];
        f->n_parameter += b->matrix ? (uint64_t)b->matrix->n_row * b->matrix->n_col : b->n;
        f->weight_size += b->size;
    }
    return HEARTH_OK;
}

hearth_status model_facts_take(model_facts *f, const hearth_model *m, uint32_t n_ctx, hearth_error *err)
{
    hearth_model_info info = {0};
    hearth_status st = take(f, m->file, m->model, n_ctx, err);
    if (st != HEARTH_OK) return st;
    hearth_model_get_info(m, &info); /* sidecars are counted too */
    f->n_parameter = info.n_parameter, f->weight_size = info.weight_bytes;
    return HEARTH_OK;
}

static bool is_model(const hth_gguf *file)
{
    const hth_str type = text_of(file, "general.type"), architecture = text_of(file, "general.architecture");
    return (!type.bytes || hth_str_eq(type, "model")) && !hth_str_begins(architecture, "hearth.");
}

hearth_status model_facts_read(model_facts *f, const hth_gguf *file, const hearth_model_options *o,
                               bool *is_other, hearth_error *err)
{
    hth_model *m = NULL;
    const hth_model_overrides other = {.activation = o->activation, .allow_unused = o->allow_unused};
    *is_other = false;
    *is_other = !is_model(file);
    hearth_status st = hth_model_open(file, &other, &m, err);
    if (st == HEARTH_OK) st = take(f, file, m, o->gpu.n_ctx, err);
    hth_model_close(m);
    return st;
}

void model_facts_free(model_facts *f)
{
    free(f->name);
    free(f->chat_template);
    *f = (model_facts){.architecture = NULL};
}
