/* hearth inspect --program: the operations that a model computes for a token, and what each reads. */
#include "cli/files/inspect_facts.h"
#include "common/output.h"
#include "common/terminal/table.h"
#include "model/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 320 };

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void append(char text[TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char text[TEXT], const char *format, ...)
{
    size_t n = strlen(text);
    va_list given;
    va_start(given, format);
    vsnprintf(text + n, TEXT - n, format, given);
    va_end(given);
}

/* "v3[256]": a value of 256 elements for each token; "v3+64": from element 64 on. */
static void append_view(const hth_program *p, hth_view v, char text[TEXT])
{
    if (v.value == HTH_NO_VALUE) return;
    if (text[0]) append(text, " ");
    if (v.value == p->x.value) append(text, "x");
    else append(text, "v%u", v.value);
    if (v.at > 0) append(text, "+%u", v.at);
    else append(text, "[%u]", p->values[v.value].width);
}

static void append_views(const hth_program *p, const hth_view *views, int n, char text[TEXT])
{
    text[0] = '\0';
    for (int i = 0; i < n; i++) append_view(p, views[i], text);
}

/* The tensor that a matrix is of. */
static hth_str tensor_of(const hth_model *m, const hth_matrix *w)
{
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].matrix == w) return m->bindings[i].tensor->name;
    return (hth_str){"", 0};
}

static void append_weights(const hth_model *m, const hth_op_weights *w, char text[TEXT])
{
    text[0] = '\0';
    for (uint32_t i = 0; i < w->n; i++) {
        hth_str name = tensor_of(m, w->matrix[i]);
        append(text, "%s%.*s %zu x %zu %s", i > 0 ? ", " : "", (int)(name.n < 48 ? name.n : 48), name.bytes,
               w->matrix[i]->n_row, w->matrix[i]->n_col, hth_type_find((uint32_t)w->matrix[i]->type)->name);
    }
    if (w->n_used < w->n_slice) append(text, " (%u of %u)", w->n_used, w->n_slice);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_op(const hth_model *m, const hth_op *op)
{
    const hth_program *p = m->program;
    const hth_op_weights w = hth_op_weights_of(m, op);
    const hth_op_cost cost = hth_op_cost_of(m, op);
    char layer[12] = "", in[TEXT], out[TEXT], weights[TEXT];
    if (op->layer < m->hparams.n_layer) snprintf(layer, sizeof layer, "%u", op->layer);
    append_views(p, op->in, HTH_OP_IN, in);
    append_views(p, op->out, HTH_OP_OUT, out);
    append_weights(m, &w, weights);
    table_add("| %td | %s | %s | %s | %s%s | %s | %llu | %llu |\n", op - p->ops, layer, hth_op_name(op->kind),
              in, op->adds ? "+= " : "", out, weights, (unsigned long long)cost.size,
              (unsigned long long)cost.multiply_adds);
}

void inspect_print_program(const hth_model *m)
{
    const hth_program *p = m->program;
    uint64_t size = 0, multiply_adds = 0;
    table_begin(0);
    table_add("| | layer | operation | reads | writes | weights | bytes | multiply-adds "
              "|\n|--:|--:|---|---|---|---|--:|--:|\n");
    for (uint32_t i = 0; i < p->n_op; i++) {
        const hth_op_cost cost = hth_op_cost_of(m, &p->ops[i]);
        size += cost.size, multiply_adds += cost.multiply_adds;
        print_op(m, &p->ops[i]);
    }
    table_end();
    printf("\n%u operations; a token reads %llu bytes of weights for %llu multiply-adds, and %u values take "
           "%u bytes of memory for each token\n",
           p->n_op, (unsigned long long)size, (unsigned long long)multiply_adds, p->n_value,
           4 * p->width[HTH_ROWS_TOKENS]);
}

static void write_views(json *j, const char *key, const hth_program *p, const hth_view *views, int n)
{
    json_open_compact(j, key, '[');
    for (int i = 0; i < n; i++) {
        char text[TEXT] = "";
        append_view(p, views[i], text);
        if (text[0]) json_word(j, NULL, text);
    }
    json_close(j, ']');
}

void inspect_write_program(json *j, const hth_model *m)
{
    const hth_program *p = m->program;
    json_open(j, "program", '[');
    for (const hth_op *op = p->ops; op < p->ops + p->n_op; op++) {
        const hth_op_weights w = hth_op_weights_of(m, op);
        const hth_op_cost cost = hth_op_cost_of(m, op);
        json_open_compact(j, NULL, '{');
        if (op->layer < m->hparams.n_layer) json_uint(j, "layer", op->layer);
        json_word(j, "operation", hth_op_name(op->kind));
        write_views(j, "reads", p, op->in, HTH_OP_IN);
        write_views(j, "writes", p, op->out, HTH_OP_OUT);
        json_bool(j, "adds", op->adds);
        json_open_compact(j, "weights", '[');
        for (uint32_t i = 0; i < w.n; i++) {
            hth_str name = tensor_of(m, w.matrix[i]);
            json_text(j, NULL, name.bytes, name.n);
        }
        json_close(j, ']');
        json_uint(j, "bytes", cost.size);
        json_uint(j, "multiply_adds", cost.multiply_adds);
        json_close(j, '}');
    }
    json_close(j, ']');
}
