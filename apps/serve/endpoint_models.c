/* GET /v1/models and /v1/models/{id}: the models, loaded or not. */
#include "serve/endpoints.h"

void problem_no_model(problem *p, const engine *e, const char *name)
{
    if (e->n_model == 1)
        problem_set(p, 404, "model", "the model '%.150s' was not found; %.150s is served", name,
                    e->models[0].id);
    else
        problem_set(p, 404, "model",
                    "the model '%.150s' was not found; %zu models are served, which /v1/models lists", name,
                    e->n_model);
    p->code = "model_not_found";
}

static void write_model(json *j, const served_model *m)
{
    const model_facts *f = &m->facts;
    json_word(j, "id", m->id);
    json_word(j, "object", "model");
    json_int(j, "created", m->created);
    json_word(j, "owned_by", "hearth");
    json_open_compact(j, "meta", '{');
    json_bool(j, "loaded", m->is_loaded);
    json_word(j, "architecture", f->architecture);
    json_uint(j, "n_ctx", f->n_ctx);
    json_uint(j, "n_ctx_train", f->n_ctx_train);
    json_uint(j, "n_embd", f->d_model);
    json_uint(j, "n_vocab", f->n_vocab);
    json_uint(j, "n_params", f->n_parameter);
    json_uint(j, "size", f->weight_size);
    json_bool(j, "chat_template", f->has_chat);
    json_bool(j, "synthetic_weights", f->is_synthetic);
    json_close(j, '}');
}

void write_all_models(json *j, const char *key, engine *e, void (*write)(json *j, const served_model *m))
{
    json_open_compact(j, key, '[');
    engine_lock(e);
    for (size_t i = 0; i < e->n_model; i++) {
        json_open_compact(j, NULL, '{');
        write(j, &e->models[i]);
        json_close(j, '}');
    }
    engine_unlock(e);
    json_close(j, ']');
}

void models_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (json_line_begin(&l)) {
        json_word(&l.j, "object", "list");
        write_all_models(&l.j, "data", e, write_model);
    }
    reply_line(out, &l);
}

void model_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    const served_model *m = engine_find(e, r->tail, r->n_tail, true);
    json_line l;
    problem p;
    if (!m) {
        problem_no_model(&p, e, r->tail);
        *p.param = '\0'; /* the name is in the path */
        reply_problem(out, &p, FORM_OPENAI);
        return;
    }
    if (json_line_begin(&l)) {
        engine_lock(e);
        write_model(&l.j, m);
        engine_unlock(e);
    }
    reply_line(out, &l);
}
