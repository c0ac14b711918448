/* POST /apply-template: {messages, add_generation_prompt, chat_template_kwargs} to {prompt}, the text that the model
 * would read. */
#define _GNU_SOURCE
#include "serve/endpoints.h"

#include "common/local_time.h"
#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"

#include <stdlib.h>

static void render(call *c, const served_model *served, const conversation *m, const hearth_chat_options *o)
{
    problem p;
    hearth_error err;
    json_line l;
    char *text;
    size_t n;
    if (hearth_chat_render(served->chat, m->at, m->n, o, &text, &n, &err) != HEARTH_OK) {
        problem_of_error(&p, &err);
        call_problem(c, &p);
        return;
    }
    if (json_line_begin(&l)) json_text(&l.j, "prompt", text, n);
    hearth_free(text);
    call_line(c, &l);
}

void template_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    conversation m = {.keeps_billing = served->engine->keeps_billing};
    chat_variables v = {0};
    char *written = NULL, *functions = NULL;
    int64_t now = local_seconds();
    bool add_prompt = true;
    json_in *document = fields_read(c, &f, &p);
    bool ok = document && conversation_read(&f, &m) &&
              fields_bool(&f, "add_generation_prompt", &add_prompt) &&
              effort_read(&f, "reasoning_effort", &v) && template_variables(&f, &v.given) &&
              functions_list(&f, &chat_functions, NULL, &functions);
    if (ok && !served->chat) problem_of_error(&p, &served->chat_error), ok = false;
    if (ok && !(written = chat_variables_write(&v))) problem_set(&p, 503, "", "out of memory"), ok = false;
    const hearth_chat_options o = {
        .add_generation_prompt = add_prompt, .local_time = &now, .variables = written, .tools = functions};
    if (ok) render(c, served, &m, &o);
    else call_problem(c, &p);
    free(functions);
    free(written);
    conversation_free(&m);
    json_in_free(document);
}
