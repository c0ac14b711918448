/* GET /v1/models and /v1/models/{id}: the model, also while it is read; then without what its file says. */
#include "serve/endpoints.h"

#include <string.h>

bool is_served(const engine *e, const char *name, size_t n, bool with_tag)
{
    static const char tag[] = ":latest";
    size_t n_id = strlen(e->id), n_tag = sizeof tag - 1;
    if (with_tag && n == n_id + n_tag && memcmp(name + n_id, tag, n_tag) == 0) n = n_id;
    return n == n_id && memcmp(name, e->id, n) == 0;
}

static void write_model(json *j, const request *r, const engine *e)
{
    json_word(j, "id", e->id);
    json_word(j, "object", "model");
    json_int(j, "created", e->created);
    json_word(j, "owned_by", "hearth");
    if (!server_is_ready(r->server)) return;
    json_open_compact(j, "meta", '{');
    json_word(j, "architecture", e->info.architecture);
    json_uint(j, "n_ctx", engine_n_ctx(e));
    json_uint(j, "n_ctx_train", e->info.n_ctx_train);
    json_uint(j, "n_embd", e->info.d_model);
    json_uint(j, "n_vocab", e->info.n_vocab);
    json_uint(j, "n_params", e->info.n_parameter);
    json_uint(j, "size", e->info.weight_bytes);
    json_close(j, '}');
}

void models_answer(const request *r, reply *out)
{
    json_line l;
    if (json_line_begin(&l)) {
        json_word(&l.j, "object", "list");
        json_open_compact(&l.j, "data", '[');
        json_open_compact(&l.j, NULL, '{');
        write_model(&l.j, r, server_user(r->server));
        json_close(&l.j, '}');
        json_close(&l.j, ']');
    }
    reply_line(out, &l);
}

void model_answer(const request *r, reply *out)
{
    const engine *e = server_user(r->server);
    json_line l;
    problem p;
    if (!is_served(e, r->tail, r->n_tail, false)) {
        problem_set(&p, 404, "", "the model '%.200s' does not exist; %s is served", r->tail, e->id);
        p.code = "model_not_found";
        reply_problem(out, &p, FORM_OPENAI);
        return;
    }
    if (json_line_begin(&l)) write_model(&l.j, r, e);
    reply_line(out, &l);
}
