/* GET /api/version and /api/tags, POST /api/show: what clients of Ollama ask before anything else. */
#define _GNU_SOURCE
#include "serve/api/ollama.h"
#include "serve/endpoints.h"

#include "engine/engine.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void ollama_version_answer(const request *r, reply *out)
{
    json_line l;
    (void)r;
    if (json_line_begin(&l)) json_word(&l.j, "version", hearth_version());
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

static void write_details(json *j, const engine *e)
{
    char size[32];
    double billions = (double)e->info.n_parameter * 1e-9;
    if (billions >= 1.0) snprintf(size, sizeof size, "%.1fB", billions);
    else snprintf(size, sizeof size, "%.2fM", billions * 1e3);
    json_open_compact(j, "details", '{');
    json_word(j, "parent_model", "");
    json_word(j, "format", "gguf");
    json_word(j, "family", e->info.architecture);
    json_open_compact(j, "families", '[');
    json_word(j, NULL, e->info.architecture);
    json_close(j, ']');
    json_word(j, "parameter_size", size);
    json_word(j, "quantization_level", hub_main_type(e->model->file));
    json_close(j, '}');
}

void ollama_tags_answer(const request *r, reply *out)
{
    const engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, FORM_OLLAMA)) return;
    if (json_line_begin(&l)) {
        json_open_compact(&l.j, "models", '[');
        json_open_compact(&l.j, NULL, '{');
        json_word(&l.j, "name", e->id);
        json_word(&l.j, "model", e->id);
        ollama_write_time(&l.j, "modified_at", e->created);
        json_uint(&l.j, "size", hth_gguf_size(e->model->file));
        json_word(&l.j, "digest", e->digest);
        write_details(&l.j, e);
        json_close(&l.j, '}');
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

static void write_facts(json *j, const engine *e)
{
    const hearth_model_info *i = &e->info;
    json_open_compact(j, "model_info", '{');
    json_word(j, "general.architecture", i->architecture);
    json_word(j, "general.name", i->name);
    json_uint(j, "general.parameter_count", i->n_parameter);
    write_fact(j, i->architecture, "context_length", i->n_ctx_train);
    write_fact(j, i->architecture, "embedding_length", i->d_model);
    write_fact(j, i->architecture, "block_count", i->n_layer);
    write_fact(j, i->architecture, "feed_forward_length", i->d_ff);
    write_fact(j, i->architecture, "attention.head_count", i->n_head);
    write_fact(j, i->architecture, "attention.head_count_kv", i->n_head_kv);
    write_fact(j, i->architecture, "vocab_size", i->n_vocab);
    json_close(j, '}');
}

static void answer_show(call *c, const engine *e)
{
    json_line l;
    size_t n = 0;
    const char *source = chat_template_of(e, &n);
    if (json_line_begin(&l)) {
        json_text(&l.j, "template", source ? source : "", n);
        write_details(&l.j, e);
        write_facts(&l.j, e);
        json_open_compact(&l.j, "capabilities", '[');
        json_word(&l.j, NULL, "completion");
        if (e->chat) json_word(&l.j, NULL, "tools");
        json_close(&l.j, ']');
        ollama_write_time(&l.j, "modified_at", e->created);
    }
    call_line(c, &l);
}

void ollama_show_run(void *user, call *c)
{
    const engine *e = user;
    fields f;
    problem p;
    const char *name = NULL;
    size_t n = 0;
    json_in *document = fields_read(c, &f, &p);
    bool ok = document && fields_text(&f, "model", &name, &n);
    if (ok && !name) ok = fields_text(&f, "name", &name, &n); /* of older clients */
    if (ok && !name) ok = fields_fail(&f, "model", "a text is expected; the field is missing");
    if (ok && !is_served(e, name, n, true)) {
        problem_set(&p, 404, "model", "model '%.200s' not found", name);
        ok = false;
    }
    if (ok) answer_show(c, e);
    else call_problem(c, &p);
    json_in_free(document);
}
