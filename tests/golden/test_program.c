/* Programs of the files of golden/arch: where values lie, and that it does not matter which operations are computed
 * together. */
#include "engine/engine.h"
#include "forward/forward.h"
#include "model/program.h"
#include "support/models/golden.h"
#include "support/test.h"

/* Calls fn for each view of an operation; is_written: it writes the value, or has its memory to itself. */
static void each_view(const hth_op *op, void (*fn)(void *user, hth_view v, bool is_written), void *user)
{
    for (int i = 0; i < HTH_OP_IN; i++) fn(user, op->in[i], false);
    for (int i = 0; i < HTH_OP_OUT; i++) fn(user, op->out[i], true);
    for (int i = 0; i < HTH_OP_TEMP; i++) fn(user, op->temp[i], true);
}

/* The operations that a value needs its memory for, found anew. */
typedef struct use {
    uint32_t first, last;
    bool written;
} use;

typedef struct walk {
    const hth_program *p;
    use *uses;
    uint32_t i_op,
        end; /* end: of the run of operations that are computed row by row, with what they prepare */
    const char *name;
} walk;

static void note_use(void *user, hth_view v, bool is_written)
{
    walk *w = user;
    if (v.value == HTH_NO_VALUE) return;
    use *u = &w->uses[v.value];
    if (!CHECK(v.value < w->p->n_value && v.at < w->p->values[v.value].width)) return;
    if (!u->written && !is_written)
        test_fail(__FILE__, __LINE__, "%s: operation %u reads value %u, which nothing has written", w->name,
                  w->i_op, v.value);
    if (!u->written) u->first = w->i_op;
    u->written = true;
    u->last = w->end;
}

static uint32_t words_of(const hth_value *v) { return v->width * (v->element == HTH_SUMS ? 2 : 1); }

static bool share_memory(const hth_value *a, const hth_value *b)
{
    return a->domain == b->domain && a->at < b->at + words_of(b) && b->at < a->at + words_of(a);
}

static void check_program(const hth_program *p, const char *name)
{
    FREED use *uses = calloc(p->n_value, sizeof *uses);
    walk w = {.p = p, .uses = uses, .name = name};
    for (; w.i_op < p->n_op; w.i_op++) {
        for (w.end = w.i_op; w.end + 1 < p->n_op && hth_op_is_by_row(p->ops[w.end].kind);) w.end++;
        each_view(&p->ops[w.i_op], note_use, &w);
    }
    uses[p->x.value].last = p->n_op;
    uses[p->hidden.value] = (use){p->output_norm, p->n_op, true}; /* of a step that keeps it */
    for (uint32_t i = 0; i < p->n_value; i++)
        for (uint32_t k = 0; k < i && uses[i].written; k++) {
            if (!uses[k].written || uses[k].last < uses[i].first || uses[i].last < uses[k].first) continue;
            if (share_memory(&p->values[i], &p->values[k]))
                test_fail(__FILE__, __LINE__, "%s: values %u and %u share memory that both need", name, i, k);
        }
}

TEST(values_share_memory_only_where_no_operation_needs_both)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g;
        CLOSED(hearth_model) *model =
            golden_open_arch(&g, golden_arch(i)) ? OPENED(hearth_model, g.model, NULL) : NULL;
        if (model) check_program(model->model->program, golden_arch(i));
    }
}

typedef struct logits_list {
    float *at;
    size_t n, n_vocab;
} logits_list;

static hearth_status append(void *user, size_t i_token, const float *logits, hearth_error *err)
{
    logits_list *l = user;
    (void)err;
    memcpy(l->at + i_token * l->n_vocab, logits, l->n_vocab * sizeof *logits);
    l->n++;
    return HEARTH_OK;
}

/* The logits of a session of which no operation waits for another one, by generic kernels and one thread. */
static float *interpret(const golden *g)
{
    const hearth_model_options options = {.cpu = "generic", .n_thread = 1};
    CLOSED(hearth_model) *model = OPENED(hearth_model, g->model, &options);
    hearth_session_options o = {.n_ctx = (uint32_t)g->n, .n_thread = 1, .n_batch = 16, .kv = HEARTH_KV_F32};
    CLOSED(hearth_session) *session = model ? OPENED(hearth_session, model, &o) : NULL;
    logits_list all = {.n_vocab = g->n_truth / g->n};
    if (!session) return NULL;
    hth_step_unfuse(hth_session_step(session));
    all.at = calloc(g->n_truth, sizeof *all.at);
    CHECK_OK(hearth_session_eval_each(session, g->ids, g->n, append, &all, err));
    if (CHECK_INT(all.n, g->n)) return all.at;
    free(all.at);
    return NULL;
}

TEST(operations_one_by_one_give_the_bits_of_runs)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_arch(&g, golden_arch(i))) {
            FREED float *together = golden_logits(&g, HEARTH_KV_F32), *alone = interpret(&g);
            if (CHECK(together && alone)) CHECK_BYTES(together, alone, g.n_truth * sizeof *alone);
        }
    }
}
