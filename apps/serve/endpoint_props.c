/* GET /props and /slots: what the server is, and which calls it has. Neither shows a path or a text of a client. */
#include "serve/endpoints.h"

#include "base/clock.h"
#include "engine/engine.h"

const char *chat_template_of(const engine *e, size_t *n)
{
    const hth_gguf_value *v = hth_gguf_find(e->model->file, "tokenizer.chat_template");
    if (!v || v->type != HTH_GGUF_TEXT) return NULL;
    *n = v->as.text.n;
    return v->as.text.bytes;
}

static void write_token(json *j, const char *key, const engine *e, int32_t id)
{
    hth_str text = id < 0 ? (hth_str){"", 0} : hth_tokenizer_entry(e->model->tokenizer, id);
    json_text(j, key, text.bytes, text.n);
}

static void write_model(json *j, const engine *e)
{
    size_t n;
    const char *source = chat_template_of(e, &n);
    json_word(j, "model", e->id);
    json_word(j, "architecture", e->info.architecture);
    json_uint(j, "n_ctx", engine_n_ctx(e));
    json_uint(j, "n_ctx_train", e->info.n_ctx_train);
    json_uint(j, "n_vocab", e->info.n_vocab);
    json_word(j, "selector", hearth_selector_name(e->info.selector));
    json_bool(j, "synthetic_weights", e->info.synthetic);
    if (e->model->tokenizer) {
        write_token(j, "bos_token", e, hearth_token_bos(e->model));
        write_token(j, "eos_token", e, hearth_token_eos(e->model));
    }
    if (e->chat) json_word(j, "chat_format", hearth_chat_name(e->chat));
    if (source) json_text(j, "chat_template", source, n);
}

void props_answer(const request *r, reply *out)
{
    const engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, FORM_OPENAI)) return;
    if (json_line_begin(&l)) {
        json *j = &l.j;
        json_word(j, "build_info", hearth_version());
        json_word(j, "cpu", e->info.cpu);
        write_model(j, e);
        json_open_compact(j, "capabilities", '{');
        json_bool(j, "tokenize", e->model->tokenizer != NULL);
        json_bool(j, "chat_template", e->chat != NULL);
        json_close(j, '}');
    }
    reply_line(out, &l);
}

static void write_call(void *user, const call *c)
{
    json *j = user;
    json_open_compact(j, NULL, '{');
    json_bool(j, "is_processing", atomic_load(&c->taken));
    json_word(j, "path", c->path);
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
