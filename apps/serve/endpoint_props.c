/* GET /props and /slots: what the server is, and which calls it has. Neither shows a path or a text of a client. */
#include "serve/api/generation.h"

#include "base/clock.h"
#include "engine/engine.h"

static void write_token(json *j, const char *key, const served_model *m, int32_t id)
{
    hth_str text = id < 0 ? (hth_str){"", 0} : hth_tokenizer_entry(m->model->tokenizer, id);
    json_text(j, key, text.bytes, text.n);
}

/* Writes what requests get that do not say otherwise, under the names of their fields. */
static void write_defaults(json *j, const served_model *m)
{
    json_open_compact(j, "default_generation_settings", '{');
    json_open_compact(j, "params", '{');
    sampling_write(j, &m->sampling);
    json_close(j, '}');
    json_close(j, '}');
}

static void write_model(json *j, served_model *m)
{
    json_word(j, "model", m->id);
    json_word(j, "architecture", m->info.architecture);
    json_uint(j, "n_ctx", m->facts.n_ctx);
    json_uint(j, "n_ctx_train", m->info.n_ctx_train);
    json_uint(j, "n_vocab", m->info.n_vocab);
    json_word(j, "selector", hearth_selector_name(m->info.selector));
    json_bool(j, "synthetic_weights", m->info.synthetic);
    if (m->model->tokenizer) {
        write_token(j, "bos_token", m, hearth_token_bos(m->model));
        write_token(j, "eos_token", m, hearth_token_eos(m->model));
    }
    if (m->chat) json_word(j, "chat_format", hearth_chat_name(m->chat));
    if (m->facts.chat_template) json_text(j, "chat_template", m->facts.chat_template, m->facts.n_template);
    write_defaults(j, m);
    json_open_compact(j, "capabilities", '{');
    json_bool(j, "tokenize", m->model->tokenizer != NULL);
    json_bool(j, "chat_template", m->chat != NULL);
    json_close(j, '}');
}

void write_loaded(json *j, const engine *e, void (*write)(json *j, served_model *m))
{
    served_model *first = engine_next_loaded(e, NULL);
    if (!first) return;
    write(j, first);
    if (!engine_next_loaded(e, first)) return;
    json_open_compact(j, "models", '[');
    for (served_model *m = first; m; m = engine_next_loaded(e, m)) {
        json_open_compact(j, NULL, '{');
        write(j, m);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void props_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, FORM_OPENAI)) return;
    if (json_line_begin(&l)) {
        engine_lock(e);
        const served_model *first = engine_next_loaded(e, NULL);
        json_word(&l.j, "build_info", hearth_version());
        if (first) json_word(&l.j, "cpu", first->info.cpu);
        write_loaded(&l.j, e, write_model);
        engine_unlock(e);
    }
    reply_line(out, &l);
}

static void write_call(void *user, const call *c)
{
    json *j = user;
    json_open_compact(j, NULL, '{');
    json_bool(j, "is_processing", atomic_load(&c->taken));
    json_word(j, "path", c->path);
    const char *model = atomic_load(&c->model);
    if (model) json_word(j, "model", model);
    else json_put_null(j, "model");
    json_uint(j, "key", c->i_key);
    json_uint(j, "request_bytes", c->n_body);
    json_bool(j, "is_cancelled", call_is_cancelled(c));
    json_float(j, "seconds", hth_clock_since(c->submit_ns), 4);
    json_close(j, '}');
}

/* An array, as other servers answer. */
void slots_answer(const request *r, reply *out)
{
    json_line l;
    if (json_array_begin(&l)) server_for_each_call(r->server, write_call, &l.j);
    reply_array(out, &l);
}
