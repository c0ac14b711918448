/* `hearth inspect --json`: the same facts for programs. docs/inspect.md lists the fields. Fields are added,
 * never renamed. */
#include "cli/files/inspect_facts.h"
#include "common/options/field_names.h"
#include "common/json.h"

#include <stdio.h>

enum { SHOWN_ELEMENTS = 6 };

static void json_element(json *j, const hth_gguf_value *v, uint64_t i)
{
    hth_gguf_type t = v->element_type;
    if (t == HTH_GGUF_TEXT) {
        hth_str text = ((const hth_str *)v->elements)[i];
        json_text(j, NULL, text.bytes, text.n);
    } else if (t == HTH_GGUF_F32 || t == HTH_GGUF_F64) {
        json_float(j, NULL, hth_gguf_element_float(v, i), t == HTH_GGUF_F32 ? 9 : 17);
    } else if (t == HTH_GGUF_BOOL) {
        json_bool(j, NULL, hth_gguf_element_uint(v, i) != 0);
    } else if (value_type_is_signed(t)) {
        json_int(j, NULL, hth_gguf_element_int(v, i));
    } else {
        json_uint(j, NULL, hth_gguf_element_uint(v, i));
    }
}

static void json_value(json *j, const hth_gguf_value *v, bool all)
{
    json_open_compact(j, NULL, '{');
    json_text(j, "key", v->key.bytes, v->key.n);
    json_word(j, "type", value_type_name(v->type));
    if (v->type == HTH_GGUF_TEXT) json_text(j, "value", v->as.text.bytes, v->as.text.n);
    else if (v->type == HTH_GGUF_F32 || v->type == HTH_GGUF_F64)
        json_float(j, "value", v->as.f, v->type == HTH_GGUF_F32 ? 9 : 17);
    else if (v->type == HTH_GGUF_BOOL) json_bool(j, "value", v->as.u != 0);
    else if (v->type != HTH_GGUF_ARRAY && value_type_is_signed(v->type)) json_int(j, "value", v->as.i);
    else if (v->type != HTH_GGUF_ARRAY) json_uint(j, "value", v->as.u);
    else {
        json_word(j, "element_type", value_type_name(v->element_type));
        json_uint(j, "n", v->n_element);
        if (v->element_type != HTH_GGUF_ARRAY && (all || v->n_element <= SHOWN_ELEMENTS)) {
            json_open_compact(j, "value", '[');
            for (uint64_t i = 0; i < v->n_element; i++) json_element(j, v, i);
            json_close(j, ']');
        }
    }
    json_close(j, '}');
}

static void json_tensor(json *j, const hth_gguf_tensor *t)
{
    json_open_compact(j, NULL, '{');
    json_text(j, "name", t->name.bytes, t->name.n);
    json_word(j, "type", hth_type_find(t->type)->name);
    json_open_compact(j, "dims", '[');
    for (uint32_t d = 0; d < t->n_dim; d++) json_uint(j, NULL, t->dim[d]);
    json_close(j, ']');
    json_uint(j, "bytes", t->size);
    json_uint(j, "part", t->i_part + 1);
    json_uint(j, "offset", t->offset);
    json_close(j, '}');
}

static void json_sum(json *j, const char *name, const tensor_sum *s)
{
    json_open_compact(j, NULL, '{');
    json_word(j, "name", name);
    json_uint(j, "tensors", s->n_tensor);
    json_uint(j, "weights", s->n_weight);
    json_uint(j, "bytes", s->size);
    json_close(j, '}');
}

static void json_sums(json *j, const facts *f)
{
    json_open(j, "roles", '[');
    for (int r = 0; r < N_ROLE; r++)
        if (f->roles[r].n_tensor) json_sum(j, role_name((role)r), &f->roles[r]);
    json_close(j, ']');
    json_open(j, "types", '[');
    for (uint32_t i = 0; i < HTH_TYPE_LIMIT; i++)
        if (f->types[i].n_tensor) json_sum(j, hth_type_find(i)->name, &f->types[i]);
    json_close(j, ']');
}

static void json_selectors(json *j, const facts *f)
{
    json_open_compact(j, "selectors", '[');
    for (hearth_selector s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++)
        if (f->runs_with[s]) json_word(j, NULL, hearth_selector_name(s));
    json_close(j, ']');
    bool chosen = f->no_choice.status == HEARTH_OK;
    if (chosen) json_word(j, "auto_selector", hearth_selector_name(f->chosen));
    json_word(j, "auto_why", chosen ? f->chosen_why : with_options(f->no_choice.message).text);
}

static void json_reranker(json *j, const hth_model *m)
{
    const hth_gguf_value *labels = reranker_labels(m);
    json_open_compact(j, "reranker", '{');
    json_uint(j, "n_class", m->n_class);
    json_open_compact(j, "labels", '[');
    for (uint64_t i = 0; labels && i < labels->n_element; i++) {
        hth_str name = ((const hth_str *)labels->elements)[i];
        json_text(j, NULL, name.bytes, name.n);
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void json_model(json *j, const facts *f)
{
    const hth_model *m = f->model;
    const hth_hparams *h = &m->hparams;
    bool exact;
    const char *const *modes = sparsity_modes(m, &exact);
    hth_active_weights active = hth_model_count_active(m);
    json_open(j, "model", '{');
    json_word(j, "architecture", h->architecture);
    json_uint(j, "n_layer", h->n_layer);
    if (h->n_block > h->n_layer) {
        json_uint(j, "n_mtp_block", h->n_block - h->n_layer);
        json_bool(j, "mtp_drafts", hth_model_has_mtp(m));
    }
    if (hth_model_is_reranker(m)) json_reranker(j, m);
    json_uint(j, "d_model", h->d_model);
    json_uint(j, "n_head", h->n_head);
    json_uint(j, "n_head_kv", h->n_head_kv);
    json_uint(j, "d_head", h->d_head);
    json_uint(j, "d_ff", h->d_ff);
    json_uint(j, "n_parameter", active.n_weight);
    if (h->experts.n_expert > 0) {
        json_open_compact(j, "experts", '{');
        json_uint(j, "n_expert", h->experts.n_expert);
        json_uint(j, "n_layer", active.n_layer);
        json_uint(j, "n_used", h->experts.n_used);
        json_uint(j, "d_ff", h->experts.d_ff);
        json_uint(j, "d_ff_shared", h->experts.d_ff_shared);
        json_uint(j, "n_parameter_active", active.n_active);
        json_uint(j, "token_bytes", active.read_size);
        json_close(j, '}');
    }
    json_uint(j, "n_vocab", h->n_vocab);
    json_uint(j, "n_ctx_train", h->n_ctx_train);
    json_open_compact(j, "windows", '[');
    for (uint32_t i = 0; i < h->n_layer; i++) json_uint(j, NULL, m->layers[i].attn.window);
    json_close(j, ']');
    json_open_compact(j, "mixers", '[');
    for (uint32_t i = 0; i < h->n_layer; i++) json_word(j, NULL, hth_mixer_name(m->layers[i].mixer));
    json_close(j, ']');
    json_word(j, "activation", hth_activation_name(h->activation));
    json_bool(j, "gated", m->layers[0].ffn.gate.n_row > 0 || m->layers[0].experts.gate.n_row > 0);
    json_bool(j, "exact_zeros", exact);
    json_open_compact(j, "sparsity_modes", '[');
    for (int i = 0; modes[i]; i++) json_word(j, NULL, modes[i]);
    json_close(j, ']');
    json_selectors(j, f);
    json_close(j, '}');
}

static void json_needs(json *j, const facts *f)
{
    json_open(j, "run", '{');
    json_bool(j, "possible", f->model != NULL);
    if (f->model) {
        json_uint(j, "n_ctx", f->n_ctx);
        json_uint(j, "weight_bytes", f->weight_size);
        json_uint(j, "kv_f16_bytes", f->kv_f16_size);
        json_uint(j, "kv_f32_bytes", f->kv_f32_size);
        json_uint(j, "state_bytes", f->state_size);
        json_uint(j, "workspace_bytes", f->step_size);
    } else {
        json_word(j, "reason", with_options(f->why_not.message).text);
    }
    json_close(j, '}');
}

static void json_tokenizer(json *j, const facts *f)
{
    json_open(j, "tokenizer", '{');
    json_bool(j, "possible", f->no_tokenizer.status == HEARTH_OK);
    if (f->no_tokenizer.status != HEARTH_OK) {
        json_word(j, "reason", with_options(f->no_tokenizer.message).text);
    } else {
        json_word(j, "kind", f->tokenizer);
        json_int(j, "tokens", f->n_token);
        if (f->cut) json_word(j, "pre", f->cut);
        if (f->cut) json_word(j, "engine", f->cut_engine);
    }
    json_close(j, '}');
}

void inspect_print_json(const facts *f)
{
    json j = json_begin(stdout);
    json_word(&j, "file", hth_gguf_path(f->file));
    json_uint(&j, "version", hth_gguf_version(f->file));
    json_uint(&j, "parts", hth_gguf_n_part(f->file));
    json_uint(&j, "bytes", hth_gguf_size(f->file));
    json_uint(&j, "alignment", hth_gguf_alignment(f->file));
    json_uint(&j, "trailing_bytes", hth_gguf_trailing(f->file));
    if (f->model) json_model(&j, f);
    if (f->program && f->model) inspect_write_program(&j, f->model);
    if (is_sidecar(f->file)) inspect_json_sidecar(&j, f);
    json_sums(&j, f);
    json_needs(&j, f);
    json_tokenizer(&j, f);
    json_open(&j, "metadata", '[');
    for (size_t i = 0; i < hth_gguf_n_value(f->file); i++)
        json_value(&j, hth_gguf_value_at(f->file, i), f->all);
    json_close(&j, ']');
    json_open(&j, "tensors", '[');
    for (size_t i = 0; i < hth_gguf_n_tensor(f->file); i++) json_tensor(&j, hth_gguf_tensor_at(f->file, i));
    json_close(&j, ']');
    json_end(&j);
}
