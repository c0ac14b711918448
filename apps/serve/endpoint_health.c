/* GET /health: whether the server can serve. */
#include "serve/endpoints.h"

bool need_model(const request *r, reply *out, api_form form)
{
    problem p;
    if (server_is_ready(r->server)) return true;
    problem_set(&p, 503, "", "the model is still being read");
    out->retry_after = 1;
    reply_problem(out, &p, form);
    return false;
}

void health_answer(const request *r, reply *out)
{
    json_line l;
    if (!need_model(r, out, FORM_OPENAI)) return;
    if (json_line_begin(&l)) json_word(&l.j, "status", "ok");
    reply_line(out, &l);
}
