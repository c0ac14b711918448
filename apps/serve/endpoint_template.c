/* POST /apply-template: {messages, add_generation_prompt, chat_template_kwargs} to {prompt}, the text that the model
 * would read. */
#define _GNU_SOURCE
#include "serve/endpoints.h"

#include "common/local_time.h"
#include "serve/messages.h"

#include <stdlib.h>

/* Variables of the template are single values. */
static bool check_variable(void *user, const char *key, const json_in *value)
{
    fields *f = user;
    json_in_kind kind = json_in_kind_of(value);
    if (kind != JSON_IN_ARRAY && kind != JSON_IN_OBJECT) return true;
    return fields_fail(f, "chat_template_kwargs", "%.100s is %s; single values alone are taken", key,
                       json_kind_words(kind));
}

bool template_variables(fields *f, const json_in **variables)
{
    return fields_object(f, "chat_template_kwargs", variables) &&
           (!*variables || json_in_each(*variables, check_variable, f));
}

static void render(call *c, const engine *e, const messages *m, const hearth_chat_options *o)
{
    problem p;
    hearth_error err;
    json_line l;
    char *text;
    size_t n;
    if (hearth_chat_render(e->chat, m->at, m->n, o, &text, &n, &err) != HEARTH_OK) {
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
    const engine *e = user;
    fields f;
    problem p;
    messages m = {0};
    const json_in *variables = NULL;
    char *written = NULL;
    int64_t now = local_seconds();
    bool add_prompt = true;
    json_in *document = fields_read(c, &f, &p);
    bool ok = document && messages_read(&f, &m) && fields_bool(&f, "add_generation_prompt", &add_prompt) &&
              template_variables(&f, &variables);
    if (ok && fields_value(&f, "tools")) ok = fields_fail(&f, "tools", "tools are not supported");
    if (ok && !e->chat) problem_of_error(&p, &e->chat_error), ok = false;
    if (ok && variables && !(written = json_in_write(variables)))
        problem_set(&p, 503, "", "out of memory"), ok = false;
    hearth_chat_options o = {.add_generation_prompt = add_prompt, .local_time = &now, .variables = written};
    if (ok) render(c, e, &m, &o);
    else call_problem(c, &p);
    free(written);
    messages_free(&m);
    json_in_free(document);
}
