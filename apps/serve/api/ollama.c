/* GET /api/version, /api/tags and /api/ps, POST /api/show: what clients of Ollama ask before anything else. */
#define _GNU_SOURCE
#include "serve/api/ollama.h"
#include "serve/endpoints.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The version of Ollama that clients are told of: they refuse to work with older ones. */
#define OLLAMA_VERSION "0.13.5"

void ollama_version_answer(const request *r, reply *out)
{
    json_line l;
    (void)r;
    if (json_line_begin(&l)) {
        json_word(&l.j, "version", OLLAMA_VERSION);
        json_word(&l.j, "hearth", hearth_version());
    }
    reply_line(out, &l);
}

void ollama_write_time(json *j, const char *key, int64_t seconds)
{
    char text[40];
    time_t when = (time_t)seconds;
    struct tm t;
    if (!gmtime_r(&when, &t) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t) == 0) *text = '\0';
    json_word(j, key, text);
}

static void write_details(json *j, const model_facts *f)
{
    char size[32];
    double billions = (double)f->n_parameter * 1e-9;
    if (billions >= 1.0) snprintf(size, sizeof size, "%.1fB", billions);
    else snprintf(size, sizeof size, "%.2fM", billions * 1e3);
    json_open_compact(j, "details", '{');
    json_word(j, "parent_model", "");
    json_word(j, "format", "gguf");
    json_word(j, "family", f->architecture);
    json_open_compact(j, "families", '[');
    json_word(j, NULL, f->architecture);
    json_close(j, ']');
    json_word(j, "parameter_size", size);
    json_word(j, "quantization_level", f->type);
    json_close(j, '}');
}

static void write_model(json *j, const served_model *m)
{
    json_word(j, "name", m->id);
    json_word(j, "model", m->id);
    ollama_write_time(j, "modified_at", m->created);
    json_uint(j, "size", m->facts.file_size);
    json_word(j, "digest", m->listed);
    write_details(j, &m->facts);
    json_open_compact(j, "meta", '{');
    json_bool(j, "loaded", m->is_loaded);
    json_close(j, '}');
}

void ollama_tags_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, FORM_OLLAMA)) return;
    if (json_line_begin(&l)) write_all_models(&l.j, "models", e, write_model);
    reply_line(out, &l);
}

/* Writes a loaded model. It leaves for another one, not by the clock. */
static void write_running(json *j, const served_model *m)
{
    json_word(j, "name", m->id);
    json_word(j, "model", m->id);
    json_uint(j, "size", m->facts.weight_size);
    json_word(j, "digest", m->listed);
    write_details(j, &m->facts);
    json_word(j, "expires_at", "9999-12-31T23:59:59Z");
    json_uint(j, "size_vram", 0);
    json_uint(j, "context_length", m->facts.n_ctx);
}

void ollama_ps_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (json_line_begin(&l)) {
        json_open_compact(&l.j, "models", '[');
        engine_lock(e);
        for (size_t i = 0; i < e->n_model; i++) {
            if (!e->models[i].is_loaded) continue;
            json_open_compact(&l.j, NULL, '{');
            write_running(&l.j, &e->models[i]);
            json_close(&l.j, '}');
        }
        engine_unlock(e);
        json_close(&l.j, ']');
    }
    reply_line(out, &l);
}

/* ---- show ---------------------------------------------------------------------------------------------- */

static void write_fact(json *j, const char *architecture, const char *name, uint64_t value)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    json_uint(j, key, value);
}

static void write_facts(json *j, const model_facts *f)
{
    json_open_compact(j, "model_info", '{');
    json_word(j, "general.architecture", f->architecture);
    json_word(j, "general.name", f->name);
    json_uint(j, "general.parameter_count", f->n_parameter);
    write_fact(j, f->architecture, "context_length", f->n_ctx_train);
    write_fact(j, f->architecture, "embedding_length", f->d_model);
    write_fact(j, f->architecture, "block_count", f->n_layer);
    write_fact(j, f->architecture, "feed_forward_length", f->d_ff);
    write_fact(j, f->architecture, "attention.head_count", f->n_head);
    write_fact(j, f->architecture, "attention.head_count_kv", f->n_head_kv);
    write_fact(j, f->architecture, "vocab_size", f->n_vocab);
    json_close(j, '}');
}

static void answer_show(call *c, const served_model *served)
{
    const model_facts *f = &served->facts;
    json_line l;
    if (json_line_begin(&l)) {
        json_text(&l.j, "template", f->chat_template ? f->chat_template : "", f->n_template);
        write_details(&l.j, f);
        write_facts(&l.j, f);
        json_open_compact(&l.j, "capabilities", '[');
        json_word(&l.j, NULL, f->is_reranker ? "rerank" : "completion");
        if (f->has_chat && !f->is_reranker) json_word(&l.j, NULL, "tools");
        json_close(&l.j, ']');
        ollama_write_time(&l.j, "modified_at", served->created);
    }
    call_line(c, &l);
}

void ollama_show_run(void *user, call *c)
{
    const served_model *served = user;
    fields f;
    problem p;
    const char *name = NULL;
    bool ok = fields_read(c, &f, &p) && fields_word(&f, "model", &name);
    if (ok && !name) ok = fields_word(&f, "name", &name); /* older clients send it */
    if (ok && !name) ok = fields_fail(&f, "model", "a text is expected; the field is missing");
    if (ok && !served_model_is_called(served, name, strlen(name), true)) {
        problem_no_model(&p, served->engine, name);
        ok = false;
    }
    if (ok) answer_show(c, served);
    else call_problem(c, &p);
}
