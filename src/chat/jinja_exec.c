/* Executes the statements of a template in order and writes to j->out. Called by template.c. Scopes are Jinja's: a
 * loop and a macro have their own, an `if` has none. Variables that a loop sets do not outlive it (a namespace
 * does). */
#include "chat/jinja.h"

#include <string.h>

/* ---- scopes ------------------------------------------------------------------------------------- */

bool hth_jinja_set(hth_jinja *j, hth_str name, const hth_jinja_value *v)
{
    size_t steps = 0;
    hth_jinja_variable **last = &j->scope->first;
    for (; *last; last = &(*last)->next, steps++) {
        if ((*last)->name.n != name.n || memcmp((*last)->name.bytes, name.bytes, name.n) != 0) continue;
        (*last)->value = *v;
        return hth_jinja_count_steps(j, steps / 64);
    }
    hth_jinja_variable *variable = hth_jinja_alloc(j, 1, sizeof *variable);
    if (!variable || !hth_jinja_count_steps(j, steps / 64)) return false;
    *variable = (hth_jinja_variable){name, *v, NULL};
    *last = variable;
    return true;
}

static bool assign_each(hth_jinja *j, const hth_jinja_node *target, const hth_jinja_value *v)
{
    size_t n = 0, i = 0;
    hth_jinja_list *list;
    for (const hth_jinja_node *t = target->a; t; t = t->next) n++;
    if (!hth_jinja_items(j, v, &list)) return false;
    if (list->n != n) return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%zu names for %zu values", n, list->n);
    for (const hth_jinja_node *t = target->a; t; t = t->next)
        if (!hth_jinja_set(j, t->name, &list->v[i++])) return false;
    return true;
}

bool hth_jinja_assign(hth_jinja *j, const hth_jinja_node *target, const hth_jinja_value *v)
{
    hth_jinja_value object, key;
    if (target->kind == NODE_NAME) return hth_jinja_set(j, target->name, v);
    if (target->kind == NODE_TUPLE) return assign_each(j, target, v);
    if (!hth_jinja_eval(j, target->a, &object)) return false;
    if (object.kind != JINJA_NAMESPACE)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT,
                              "members of %s cannot be set, only those of a namespace",
                              hth_jinja_kind_name(&object));
    return hth_jinja_text_of(j, target->name.bytes, target->name.n, true, &key) &&
           hth_jinja_put(j, object.as.dict, &key, v);
}

static hth_jinja_scope *new_scope(hth_jinja *j, hth_jinja_scope *above)
{
    hth_jinja_scope *s = hth_jinja_alloc(j, 1, sizeof *s);
    if (s) s->above = above;
    return s;
}

/* ---- loops ---------------------------------------------------------------------------------------- */

/* Drops the variables of the previous iteration. Their memory is reused. */
static void clear_scope(hth_jinja_scope *s)
{
    for (hth_jinja_variable *v = s->first; v; v = v->next) v->value.kind = JINJA_MISSING;
}

/* The items of the loop that satisfy its condition. */
static bool select_items(hth_jinja *j, const hth_jinja_node *node, hth_jinja_list **items)
{
    hth_jinja_value kept, pass;
    hth_jinja_list *all = *items;
    if (!hth_jinja_new_list(j, JINJA_LIST, &kept)) return false;
    for (size_t i = 0; i < all->n; i++) {
        clear_scope(j->scope);
        if (!hth_jinja_assign(j, node->a, &all->v[i]) || !hth_jinja_eval(j, node->c, &pass)) return false;
        if (hth_jinja_is_true(&pass) && !hth_jinja_push(j, kept.as.list, &all->v[i])) return false;
    }
    *items = kept.as.list;
    return true;
}

static bool run_iteration(hth_jinja *j, const hth_jinja_node *node, hth_jinja_loop *loop)
{
    hth_jinja_value v = {JINJA_LOOP, {.loop = loop}};
    clear_scope(j->scope);
    if (!hth_jinja_count_steps(j, 1) || !hth_jinja_assign(j, node->a, &loop->item[loop->i]) ||
        !hth_jinja_set(j, (hth_str){"loop", 4}, &v))
        return false;
    return hth_jinja_exec(j, node->d);
}

static bool run_loop(hth_jinja *j, const hth_jinja_node *node, hth_jinja_list *items)
{
    hth_jinja_loop *loop = hth_jinja_alloc(j, 1, sizeof *loop);
    if (!loop) return false;
    if (node->c && !select_items(j, node, &items)) return false;
    *loop = (hth_jinja_loop){items->v, items->n, 0, {JINJA_MISSING, {0}}};
    bool ok = true;
    for (; ok && loop->i < loop->n && j->flow != FLOW_BREAK; loop->i++) {
        j->flow = FLOW_NEXT;
        ok = run_iteration(j, node, loop);
    }
    j->flow = FLOW_NEXT;
    if (!ok || loop->n > 0) return ok;
    clear_scope(j->scope);
    return hth_jinja_exec(j, node->e);
}

static bool exec_for(hth_jinja *j, const hth_jinja_node *node)
{
    hth_jinja_value v;
    hth_jinja_list *items;
    if (!hth_jinja_eval(j, node->b, &v)) return false;
    j->line = node->line;
    if (!hth_jinja_items(j, &v, &items)) return false;
    hth_jinja_scope *outside = j->scope, *inside = new_scope(j, outside);
    if (!inside) return false;
    j->scope = inside;
    bool ok = run_loop(j, node, items);
    j->scope = outside;
    return ok;
}

/* ---- macros and captures ----------------------------------------------------------------------------- */

bool hth_jinja_capture(hth_jinja *j, const hth_jinja_node *list, hth_jinja_value *out)
{
    hth_jinja_strbuf b = {0}, *outside = j->out;
    hth_jinja_scope *above = j->scope, *inside = new_scope(j, above);
    if (!inside) return false;
    j->scope = inside;
    j->out = &b;
    bool ok = hth_jinja_exec(j, list);
    j->out = outside;
    j->scope = above;
    return ok && hth_jinja_strbuf_value(j, &b, out);
}

static bool bind_parameters(hth_jinja *j, const hth_jinja_macro *macro, const hth_jinja_args *args)
{
    size_t i = 0, n_named = 0;
    for (const hth_jinja_node *param = macro->node->a; param; param = param->next, i++) {
        hth_jinja_value v, name;
        hth_jinja_pair *named = NULL;
        if (!hth_jinja_text_of(j, param->name.bytes, param->name.n, true, &name)) return false;
        if (args->named.n && !hth_jinja_find(j, &args->named, &name, &named)) return false;
        if (named) n_named++;
        if (i < args->n) v = args->v[i];
        else if (named) v = named->value;
        else if (!(param->a ? hth_jinja_eval(j, param->a, &v)
                            : hth_jinja_undefined(j, param->name.bytes, param->name.n, &v)))
            return false;
        if (!hth_jinja_set(j, param->name, &v)) return false;
    }
    if (args->n <= i && n_named == args->named.n) return true;
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "macro '%.*s' takes other arguments than it is given",
                          (int)(macro->node->name.n < 60 ? macro->node->name.n : 60),
                          macro->node->name.bytes);
}

bool hth_jinja_call_macro(hth_jinja *j, const hth_jinja_macro *macro, const hth_jinja_args *args,
                          hth_jinja_value *out)
{
    if (j->n_call >= HTH_TEMPLATE_MAX_CALLS)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "more than %d macros inside one another",
                              HTH_TEMPLATE_MAX_CALLS);
    hth_jinja_scope *caller = j->scope, *inside = new_scope(j, macro->scope);
    if (!inside) return false;
    j->scope = inside;
    j->n_call++;
    bool ok = bind_parameters(j, macro, args) && hth_jinja_capture(j, macro->node->b, out);
    j->n_call--;
    j->scope = caller;
    return ok;
}

static bool exec_macro(hth_jinja *j, const hth_jinja_node *node)
{
    hth_jinja_macro *macro = hth_jinja_alloc(j, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (hth_jinja_macro){node, j->scope};
    return hth_jinja_set(j, node->name, &(hth_jinja_value){JINJA_MACRO, {.macro = macro}});
}

/* ---- statements ------------------------------------------------------------------------------------------ */

static bool exec_if(hth_jinja *j, const hth_jinja_node *node)
{
    for (const hth_jinja_node *branch = node->a; branch; branch = branch->next) {
        hth_jinja_value v = hth_jinja_bool(true);
        if (branch->a && !hth_jinja_eval(j, branch->a, &v)) return false;
        if (hth_jinja_is_true(&v)) return hth_jinja_exec(j, branch->b);
    }
    return true;
}

static bool exec_output(hth_jinja *j, const hth_jinja_node *node)
{
    hth_jinja_value v;
    return hth_jinja_eval(j, node->a, &v) && hth_jinja_print(j, &v, j->out);
}

static bool exec_set(hth_jinja *j, const hth_jinja_node *node)
{
    hth_jinja_value v;
    if (!hth_jinja_eval(j, node->b, &v)) return false;
    j->line = node->line;
    return hth_jinja_assign(j, node->a, &v);
}

static bool exec_node(hth_jinja *j, const hth_jinja_node *node)
{
    switch (node->kind) {
    case NODE_DATA: return hth_jinja_strbuf_text(j, j->out, node->value.as.text);
    case NODE_OUTPUT: return exec_output(j, node);
    case NODE_IF: return exec_if(j, node);
    case NODE_FOR: return exec_for(j, node);
    case NODE_SET: return exec_set(j, node);
    case NODE_MACRO: return exec_macro(j, node);
    case NODE_BREAK: j->flow = FLOW_BREAK; return true;
    default: j->flow = FLOW_CONTINUE; return true; /* NODE_CONTINUE */
    }
}

bool hth_jinja_exec(hth_jinja *j, const hth_jinja_node *list)
{
    if (!hth_jinja_enter(j)) return false;
    bool ok = true;
    for (const hth_jinja_node *node = list; ok && node && j->flow == FLOW_NEXT; node = node->next) {
        j->line = node->line;
        ok = hth_jinja_count_steps(j, 1) && exec_node(j, node);
    }
    hth_jinja_leave(j);
    return ok;
}
