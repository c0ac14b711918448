/* Evaluates expressions: tree to value. Called by jinja_exec.c. Every evaluation counts a node and a level of
 * depth, so every template terminates and none exceeds the stack. */
#include "chat/jinja.h"

#include <string.h>

static void short_name(hth_str name, char out[64])
{
    size_t n = name.n < 63 ? name.n : 63;
    if (n) memcpy(out, name.bytes, n);
    out[n] = '\0';
}

/* "'x' is undefined" */
static bool fail_undefined(hth_jinja *j, const hth_jinja_value *v)
{
    char name[64] = "a value";
    if (v->as.text) {
        const char *p = hth_jinja_bytes(j, v->as.text);
        if (!p) return false;
        short_name((hth_str){p, v->as.text->n}, name);
    }
    return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, v->as.text ? "'%s' is undefined" : "%s is undefined", name);
}

/* ---- names and members --------------------------------------------------------------------------- */

static bool lookup(hth_jinja *j, hth_str name, hth_jinja_value *out)
{
    size_t steps = 0;
    for (const hth_jinja_scope *s = j->scope; s; s = s->above) {
        for (const hth_jinja_variable *v = s->first; v; v = v->next, steps++) {
            if (v->value.kind == JINJA_MISSING || v->name.n != name.n ||
                memcmp(v->name.bytes, name.bytes, name.n) != 0)
                continue;
            *out = v->value;
            return hth_jinja_count_steps(j, steps / 64);
        }
    }
    return hth_jinja_count_steps(j, steps / 64) && hth_jinja_undefined(j, name.bytes, name.n, out);
}

static bool bind_method(hth_jinja *j, const hth_jinja_function *f, const hth_jinja_value *self,
                        hth_jinja_value *out)
{
    hth_jinja_bound *bound = hth_jinja_alloc(j, 1, sizeof *bound);
    if (!bound) return false;
    *bound = (hth_jinja_bound){f, *self};
    *out = (hth_jinja_value){JINJA_FUNCTION, {.bound = bound}};
    return true;
}

static bool loop_item(hth_jinja *j, const hth_jinja_loop *loop, bool exists, size_t i, const char *name,
                      hth_jinja_value *out)
{
    if (!exists) return hth_jinja_undefined(j, name, strlen(name), out);
    *out = loop->item[i];
    return true;
}

static bool loop_member(hth_jinja *j, const hth_jinja_loop *loop, hth_str name, hth_jinja_value *out)
{
    const size_t i = loop->i, n = loop->n;
    if (hth_str_eq(name, "previtem")) return loop_item(j, loop, i > 0, i - 1, "previtem", out);
    if (hth_str_eq(name, "nextitem")) return loop_item(j, loop, i + 1 < n, i + 1, "nextitem", out);
    if (hth_str_eq(name, "index")) *out = hth_jinja_integer((int64_t)i + 1);
    else if (hth_str_eq(name, "index0")) *out = hth_jinja_integer((int64_t)i);
    else if (hth_str_eq(name, "first")) *out = hth_jinja_bool(i == 0);
    else if (hth_str_eq(name, "last")) *out = hth_jinja_bool(i + 1 == n);
    else if (hth_str_eq(name, "length")) *out = hth_jinja_integer((int64_t)n);
    else if (hth_str_eq(name, "revindex")) *out = hth_jinja_integer((int64_t)(n - i));
    else if (hth_str_eq(name, "revindex0")) *out = hth_jinja_integer((int64_t)(n - i) - 1);
    else if (hth_str_eq(name, "depth")) *out = hth_jinja_integer(1); /* 1: no recursive loops */
    else if (hth_str_eq(name, "depth0")) *out = hth_jinja_integer(0);
    else return hth_jinja_undefined(j, name.bytes, name.n, out);
    return true;
}

static bool method_or_undefined(hth_jinja *j, const hth_jinja_value *v, hth_str name, hth_jinja_value *out)
{
    const hth_jinja_function *f = hth_jinja_method(v, name);
    return f ? bind_method(j, f, v, out) : hth_jinja_undefined(j, name.bytes, name.n, out);
}

static bool dict_item(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *key, bool *found,
                      hth_jinja_value *out)
{
    hth_jinja_pair *at;
    if (!hth_jinja_find(j, v->as.dict, key, &at)) return false;
    *found = at != NULL;
    if (at) *out = at->value;
    return true;
}

bool hth_jinja_member(hth_jinja *j, const hth_jinja_value *v, hth_str name, hth_jinja_value *out)
{
    hth_jinja_value key;
    bool found = false;
    if (v->kind == JINJA_UNDEFINED) return fail_undefined(j, v);
    if (v->kind == JINJA_LOOP && !hth_jinja_method(v, name)) return loop_member(j, v->as.loop, name, out);
    if (v->kind == JINJA_NAMESPACE || (v->kind == JINJA_DICT && !hth_jinja_method(v, name))) {
        if (!hth_jinja_text_of(j, name.bytes, name.n, true, &key) || !dict_item(j, v, &key, &found, out))
            return false;
        if (found) return true;
    }
    return method_or_undefined(j, v, name, out);
}

static bool list_item(hth_jinja *j, const hth_jinja_value *v, int64_t i, hth_jinja_value *out)
{
    int64_t n = (int64_t)v->as.list->n;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return hth_jinja_undefined(j, NULL, 0, out);
    *out = v->as.list->v[i];
    return true;
}

static bool text_character(hth_jinja *j, hth_jinja_text *t, int64_t i, hth_jinja_value *out)
{
    const char *p = hth_jinja_bytes(j, t);
    if (!p || !hth_jinja_count_bytes(j, 2 * t->n)) return false;
    if (i < 0) i += (int64_t)hth_jinja_n_char(p, t->n);
    size_t at = i < 0 ? t->n : hth_jinja_char_at(p, t->n, (size_t)i);
    if (at >= t->n) return hth_jinja_undefined(j, NULL, 0, out);
    return hth_jinja_cut(j, t, at, at + hth_jinja_char_size(p + at, t->n - at), out);
}

bool hth_jinja_index(hth_jinja *j, const hth_jinja_value *v, const hth_jinja_value *key, hth_jinja_value *out)
{
    bool found = false;
    int64_t i = key->kind == JINJA_INT ? key->as.i : key->kind == JINJA_BOOL ? key->as.b : 0;
    bool whole = key->kind == JINJA_INT || key->kind == JINJA_BOOL;
    if (v->kind == JINJA_UNDEFINED) return fail_undefined(j, v);
    if (whole && (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE)) return list_item(j, v, i, out);
    if (whole && v->kind == JINJA_TEXT) return text_character(j, v->as.text, i, out);
    if (v->kind == JINJA_DICT) {
        if (!dict_item(j, v, key, &found, out)) return false;
        if (found) return true;
    }
    if (key->kind != JINJA_TEXT) return hth_jinja_undefined(j, NULL, 0, out);
    const char *p = hth_jinja_bytes(j, key->as.text);
    if (!p) return false;
    hth_str name = {p, key->as.text->n};
    return v->kind == JINJA_DICT ? method_or_undefined(j, v, name, out) : hth_jinja_member(j, v, name, out);
}

/* ---- calls ------------------------------------------------------------------------------------------- */

static bool eval_args(hth_jinja *j, const hth_jinja_node *arg, hth_jinja_args *args)
{
    hth_jinja_list list = {0};
    hth_jinja_value v, name;
    for (; arg; arg = arg->next) {
        if (!hth_jinja_eval(j, arg->a, &v)) return false;
        if (!arg->name.n) {
            if (!hth_jinja_push(j, &list, &v)) return false;
        } else if (!hth_jinja_text_of(j, arg->name.bytes, arg->name.n, true, &name) ||
                   !hth_jinja_put(j, &args->named, &name, &v)) {
            return false;
        }
    }
    args->v = list.v;
    args->n = list.n;
    return true;
}

/* Position of a name in a space-separated list; -1: not in it. */
static int position_of(const char *names, const char *name, size_t n)
{
    int i = 0;
    for (const char *p = names; *p; i++) {
        size_t size = strcspn(p, " ");
        if (size == n && memcmp(p, name, n) == 0) return i;
        p += size + (p[size] == ' ');
    }
    return -1;
}

enum { MAX_PARAMETER = 6 };

bool hth_jinja_apply(hth_jinja *j, const hth_jinja_function *f, const hth_jinja_value *self,
                     const hth_jinja_args *args, hth_jinja_value *out)
{
    hth_jinja_value v[MAX_PARAMETER];
    size_t n_given = args->n + args->named.n, n_name = 0;
    if (!f->names) return f->call(j, self, args, out);
    for (const char *p = f->names; *p; p += p[strcspn(p, " ")] ? strcspn(p, " ") + 1 : strlen(p)) n_name++;
    if (args->n > n_name)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%s' takes %zu arguments, %zu are given", f->name,
                              n_name, n_given);
    for (size_t i = 0; i < MAX_PARAMETER; i++)
        v[i] = i < args->n ? args->v[i] : (hth_jinja_value){JINJA_MISSING, {0}};
    for (size_t i = 0; i < args->named.n; i++) {
        hth_jinja_text *name = args->named.v[i].key.as.text;
        int at = position_of(f->names, hth_jinja_bytes(j, name), name->n);
        if (at < 0 || (size_t)at < args->n)
            return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "'%s' takes no argument '%.*s' here", f->name,
                                  (int)(name->n < 60 ? name->n : 60), hth_jinja_bytes(j, name));
        v[at] = args->named.v[i].value;
    }
    for (size_t i = 0; i < f->n_min; i++)
        if (v[i].kind == JINJA_MISSING)
            return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "'%s' lacks an argument", f->name);
    hth_jinja_args in_order = {.v = v, .n = n_name};
    return f->call(j, self, &in_order, out);
}

static bool eval_call(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value callee;
    hth_jinja_args args = {0};
    if (!hth_jinja_eval(j, node->a, &callee) || !eval_args(j, node->b, &args)) return false;
    j->line = node->line;
    if (callee.kind == JINJA_MACRO) return hth_jinja_call_macro(j, callee.as.macro, &args, out);
    if (callee.kind == JINJA_FUNCTION)
        return hth_jinja_apply(j, callee.as.bound->function, &callee.as.bound->self, &args, out);
    if (callee.kind != JINJA_UNDEFINED)
        return hth_jinja_fail(j, HEARTH_ERROR_FORMAT, "%s is not a function", hth_jinja_kind_name(&callee));
    char name[64];
    hth_jinja_value object;
    short_name(node->a->name, name);
    if (node->a->kind == NODE_NAME)
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "function '%s' is not known", name);
    if (node->a->kind == NODE_MEMBER && hth_jinja_eval(j, node->a->a, &object))
        return hth_jinja_fail(j, HEARTH_ERROR_UNSUPPORTED, "method '%s' is not known of %s", name,
                              hth_jinja_kind_name(&object));
    return fail_undefined(j, &callee);
}

static bool eval_filter(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value self;
    hth_jinja_args args = {0};
    if (!hth_jinja_eval(j, node->a, &self) || !eval_args(j, node->b, &args)) return false;
    j->line = node->line;
    if (!hth_jinja_apply(j, node->function, &self, &args, out)) return false;
    if (node->kind == NODE_TEST && node->negated) *out = hth_jinja_bool(!hth_jinja_is_true(out));
    return true;
}

/* ---- other expressions ----------------------------------------------------------------------------------- */

static bool eval_list(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v;
    if (!hth_jinja_new_list(j, node->kind == NODE_TUPLE ? JINJA_TUPLE : JINJA_LIST, out)) return false;
    for (const hth_jinja_node *item = node->a; item; item = item->next)
        if (!hth_jinja_eval(j, item, &v) || !hth_jinja_push(j, out->as.list, &v)) return false;
    return true;
}

static bool eval_dict(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value key, v;
    if (!hth_jinja_new_dict(j, JINJA_DICT, out)) return false;
    for (const hth_jinja_node *pair = node->a; pair; pair = pair->next)
        if (!hth_jinja_eval(j, pair->a, &key) || !hth_jinja_eval(j, pair->b, &v) ||
            !hth_jinja_put(j, out->as.dict, &key, &v))
            return false;
    return true;
}

static bool eval_condition(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v;
    if (!hth_jinja_eval(j, node->a, &v)) return false;
    if (hth_jinja_is_true(&v)) return hth_jinja_eval(j, node->b, out);
    return node->c ? hth_jinja_eval(j, node->c, out) : hth_jinja_undefined(j, NULL, 0, out);
}

/* The first operand that decides the result, as in Python. */
static bool eval_logic(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    for (const hth_jinja_node *a = node->a; a; a = a->next) {
        if (!hth_jinja_eval(j, a, out)) return false;
        if (hth_jinja_is_true(out) == (node->kind == NODE_OR)) return true;
    }
    return true;
}

static bool eval_chain(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value b;
    if (!hth_jinja_eval(j, node->a, out)) return false;
    for (const hth_jinja_node *o = node->b; o; o = o->next) {
        if (!hth_jinja_eval(j, o->a, &b)) return false;
        j->line = o->line;
        hth_jinja_value a = *out;
        if (!hth_jinja_operate(j, (hth_jinja_op)o->op, &a, &b, out)) return false;
    }
    return true;
}

/* a < b < c means a < b and b < c. */
static bool eval_compare(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value a, b;
    if (!hth_jinja_eval(j, node->a, &a)) return false;
    for (const hth_jinja_node *o = node->b; o; o = o->next, a = b) {
        if (!hth_jinja_eval(j, o->a, &b)) return false;
        j->line = o->line;
        if (!hth_jinja_operate(j, (hth_jinja_op)o->op, &a, &b, out)) return false;
        if (!hth_jinja_is_true(out)) return true;
    }
    return true;
}

static bool eval_sign(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v, zero = hth_jinja_integer(0);
    if (!hth_jinja_eval(j, node->a, &v)) return false;
    j->line = node->line;
    if (v.kind == JINJA_FLOAT && node->kind == NODE_NEGATE) *out = hth_jinja_float(-v.as.f);
    else return hth_jinja_operate(j, node->kind == NODE_NEGATE ? OP_SUB : OP_ADD, &zero, &v, out);
    return true;
}

static bool eval_index(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v, key;
    if (!hth_jinja_eval(j, node->a, &v) || !hth_jinja_eval(j, node->b, &key)) return false;
    j->line = node->line;
    return hth_jinja_index(j, &v, &key, out);
}

static bool eval_place(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    *out = hth_jinja_none();
    return !node || hth_jinja_eval(j, node, out);
}

static bool eval_slice(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v, place[3];
    if (!hth_jinja_eval(j, node->a, &v) || !eval_place(j, node->b, &place[0]) ||
        !eval_place(j, node->c, &place[1]) || !eval_place(j, node->d, &place[2]))
        return false;
    j->line = node->line;
    return hth_jinja_slice(j, &v, &place[0], &place[1], &place[2], out);
}

static bool eval_member(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    hth_jinja_value v;
    if (!hth_jinja_eval(j, node->a, &v)) return false;
    j->line = node->line;
    return hth_jinja_member(j, &v, node->name, out);
}

static bool eval_not(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    if (!hth_jinja_eval(j, node->a, out)) return false;
    *out = hth_jinja_bool(!hth_jinja_is_true(out));
    return true;
}

static bool eval_node(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    switch (node->kind) {
    case NODE_CONST: *out = node->value; return true;
    case NODE_NAME: return lookup(j, node->name, out);
    case NODE_LIST:
    case NODE_TUPLE: return eval_list(j, node, out);
    case NODE_DICT: return eval_dict(j, node, out);
    case NODE_COND: return eval_condition(j, node, out);
    case NODE_AND:
    case NODE_OR: return eval_logic(j, node, out);
    case NODE_NOT: return eval_not(j, node, out);
    case NODE_COMPARE: return eval_compare(j, node, out);
    case NODE_CHAIN: return eval_chain(j, node, out);
    case NODE_NEGATE:
    case NODE_PLUS: return eval_sign(j, node, out);
    case NODE_MEMBER: return eval_member(j, node, out);
    case NODE_INDEX: return eval_index(j, node, out);
    case NODE_SLICE: return eval_slice(j, node, out);
    case NODE_CALL: return eval_call(j, node, out);
    case NODE_FILTER:
    case NODE_TEST: return eval_filter(j, node, out);
    default: return hth_jinja_capture(j, node->a, out); /* NODE_CAPTURE */
    }
}

bool hth_jinja_eval(hth_jinja *j, const hth_jinja_node *node, hth_jinja_value *out)
{
    j->line = node->line;
    if (!hth_jinja_count_steps(j, 1) || !hth_jinja_enter(j)) return false;
    bool ok = eval_node(j, node, out);
    hth_jinja_leave(j);
    return ok;
}
