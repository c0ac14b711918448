/* POST /apply-template: {messages, add_generation_prompt, continue_final_message, chat_template_kwargs} to {prompt}, the
 * text that the model would read. */
#define _GNU_SOURCE
#include "serve/endpoints.h"

#include "serve/api/chat_prompt.h"
#include "serve/api/functions.h"

#include <stdlib.h>

static void render(call *c, const served_model *served, const conversation *m, const chat_variables *v,
                   const char *functions)
{
    problem p = {0};
    json_line l;
    size_t n;
    char *text = chat_prompt_text(served, m, v, functions, &n, &p);
    if (!text) {
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
    char *functions = NULL;
    if (fields_read(c, &f, &p) && conversation_read(&f, &m) && continuing_read(&f, &v) &&
        effort_read(&f, "reasoning_effort", &v) && template_variables(&f, &v.given) &&
        functions_list(&f, &chat_functions, &functions))
        render(c, served, &m, &v, functions);
    else call_problem(c, &p);
    free(functions);
    conversation_free(&m);
}
