/* One step: a batch of tokens through the program of a model. The engine calls it for every prompt chunk
 * and every generated token. A token's bits depend on its own sequence alone: tokens meet only in matrix
 * products, which compute each one as if it were alone.
 *
 * Operations are queued on the pool in their order. Those that are computed row by row wait until the next
 * other one: they become one job, or what that one prepares its rows with. */
#include "forward/forward_int.h"

#include "base/checked_math.h"
#include "forward/gpu/gpu.h"

#include <assert.h>

/* Between two phases a step may wait for a read of some MiB, or for a GPU's part of a layer: threads that slept would
 * be woken later than that. It lasts as long as the pool. */
enum { LONG_SPIN_NS = 2000000 };

void hth_step_use_gpu(hth_step *step, hth_gpu *gpu)
{
    step->gpu = gpu;
    if (gpu && (hth_gpu_divides_layers(gpu) || hth_gpu_max_tokens(gpu) < UINT32_MAX)) hth_pool_set_spin(step->pool, LONG_SPIN_NS);
}

hearth_status hth_step_use_store(hth_step *step, const hth_streamed *streamed, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    step->streamed = streamed;
    if (streamed->store) hth_pool_set_spin(step->pool, LONG_SPIN_NS);
    for (int i = 0; i < HTH_N_TABLE && st == HEARTH_OK; i++)
        if (streamed->tables[i].row_size > 0)
            st = hth_table_rows_open(streamed->reader, &streamed->tables[i], step->n_tok_max,
                                     streamed->cancel, &step->rows[i], err);
    if (st != HEARTH_OK) return st;
    return streamed->bundles ? hth_fwd_open_bundles(step, err) : HEARTH_OK;
}

bool hth_step_store_size(const hth_model *model, uint32_t n_row, const hth_row_table tables[HTH_N_TABLE],
                         bool dense, size_t *size)
{
    size_t rows;
    *size = 0;
    if (dense && model->down_transposed && !hth_fwd_bundles_size(model, n_row, size)) return false;
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (!hth_table_rows_size(&tables[i], n_row, &rows) || !hth_add_size(*size, rows, size)) return false;
    return true;
}

void hth_step_set_probe(hth_step *step, hth_ffn_probe_fn *fn, void *user)
{
    step->probe = fn;
    step->probe_user = user;
}

void hth_step_set_product_probe(hth_step *step, hth_product_probe_fn *fn, void *user)
{
    step->act_q8.probe = fn;
    step->act_q8.probe_user = user;
}

void hth_step_select(hth_step *step, hth_selector_fn *fn, void *user)
{
    step->select = fn;
    step->select_user = user;
}

void hth_step_set_route(hth_step *step, hth_route_fn *fn, void *user)
{
    step->route = fn;
    step->route_user = user;
    step->n_tok_done = 0;
}

void hth_step_copy_probes(hth_step *step, const hth_step *from)
{
    hth_step_set_probe(step, from->probe, from->probe_user);
    hth_step_set_product_probe(step, from->act_q8.probe, from->act_q8.probe_user);
    hth_step_select(step, from->select, from->select_user);
    hth_step_set_route(step, from->route, from->route_user);
    step->n_tok_done = from->n_tok_done;
}

/* ---- operations ------------------------------------------------------------------------------- */

static void rates_row(const hth_step *s, const hth_op *op, size_t t)
{
    const hth_layer *l = &s->model->layers[op->layer];
    switch (l->parallel_mixer == HTH_MIXER_NONE ? l->mixer : l->parallel_mixer) {
    case HTH_MIXER_DELTA_NET: hth_fwd_rates_delta(s, op, t); break;
    case HTH_MIXER_KDA: hth_fwd_rates_kda(s, op, t); break;
    default: hth_fwd_rates_ssm(s, op, t);
    }
}

static hth_fwd_op_fn multiply;

/* The function of a kind computes a row, or all rows at once. One that prepares takes the run before it. */
static const struct {
    hth_fwd_row_fn *row;
    hth_fwd_op_fn *all;
    bool prepares;
} kinds[HTH_N_OP] = {[HTH_OP_EMBED] = {.all = hth_fwd_embed},
                     [HTH_OP_ROPE] = {.row = hth_fwd_rope_row},
                     [HTH_OP_NORM] = {.row = hth_fwd_norm_row},
                     [HTH_OP_PRODUCT] = {.all = multiply, .prepares = true},
                     [HTH_OP_BY_HEAD] = {.all = hth_fwd_by_head},
                     [HTH_OP_HEADS] = {.all = hth_fwd_heads},
                     [HTH_OP_ATTEND] = {.all = hth_fwd_attend},
                     [HTH_OP_COMPRESS] = {.all = hth_fwd_compress},
                     [HTH_OP_CONV] = {.row = hth_fwd_conv_row},
                     [HTH_OP_RATES] = {.row = rates_row},
                     [HTH_OP_DELTA] = {.all = hth_fwd_delta},
                     [HTH_OP_KDA] = {.all = hth_fwd_kda},
                     [HTH_OP_SCAN] = {.all = hth_fwd_scan},
                     [HTH_OP_MUL] = {.row = hth_fwd_mul_row},
                     [HTH_OP_FFN] = {.all = hth_fwd_ffn, .prepares = true},
                     [HTH_OP_ROUTE] = {.all = hth_fwd_route},
                     [HTH_OP_EXPERTS] = {.all = hth_fwd_experts},
                     [HTH_OP_SETTLE] = {.row = hth_fwd_settle_row},
                     [HTH_OP_ADD] = {.row = hth_fwd_add_row},
                     [HTH_OP_SCALE] = {.row = hth_fwd_scale_row},
                     [HTH_OP_CAP] = {.row = hth_fwd_cap_row},
                     [HTH_OP_COPY] = {.row = hth_fwd_copy_row},
                     [HTH_OP_STREAMS] = {.all = hth_fwd_streams},
                     [HTH_OP_GATHER] = {.row = hth_fwd_gather_row}};

void hth_fwd_compute_row(const hth_step *s, const hth_op *op, size_t t) { kinds[op->kind].row(s, op, t); }

static void compute_run(const void *arg, size_t t)
{
    const hth_fwd_run *run = arg;
    for (uint64_t i = 0; i < run->n; i++) hth_fwd_compute_row(run->s, &run->first[i], t);
}

static void run_unit(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    compute_run(arg, t);
}

static hth_row_domain domain_of(const hth_step *s, const hth_op *op)
{
    return hth_fwd_has(op->out[0]) ? s->program->values[op->out[0].value].domain : HTH_ROWS_TOKENS;
}

static uint32_t n_row_of(const hth_step *s, const hth_op *op)
{
    return domain_of(s, op) == HTH_ROWS_TOKENS ? s->n_tok : s->n_wanted;
}

void hth_fwd_flush(hth_step *s)
{
    if (s->run.n > 0) hth_pool_add(s->pool, run_unit, &s->run, sizeof s->run, n_row_of(s, s->run.first));
    s->run.n = 0;
}

void hth_fwd_take_run(hth_step *s, hth_fwd_run *run, hth_fusion *fusion)
{
    if (s->unfused) hth_fwd_flush(s);
    if (s->run.n == 0) return;
    *run = s->run;
    fusion->prepare = compute_run, fusion->prepare_arg = run;
    s->run.n = 0;
}

static bool reads_rows(const hth_op *op) { return op->kind == HTH_OP_CONV || op->kind == HTH_OP_GATHER; }

/* Whether an operation can be computed for a row when those that wait were computed for that row alone:
 * none of them has written other rows that it reads, nor does it write what they read of other rows. */
static bool joins(const hth_step *s, const hth_op *op)
{
    if (s->unfused || domain_of(s, op) != domain_of(s, s->run.first)) return false;
    for (const hth_op *before = s->run.first; before < s->run.first + s->run.n; before++)
        if ((reads_rows(op) && hth_op_writes(before, op->in[0].value)) ||
            (reads_rows(before) && hth_op_writes(op, before->in[0].value)))
            return false;
    return true;
}

hearth_status hth_fwd_ops(hth_step *s, uint32_t first, uint32_t end, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = first; i < end && st == HEARTH_OK; i++) {
        const hth_op *op = &s->program->ops[i];
        bool by_row = kinds[op->kind].row != NULL;
        assert(by_row == hth_op_is_by_row(op->kind));
        if (s->run.n > 0 && !(by_row ? joins(s, op) : kinds[op->kind].prepares)) hth_fwd_flush(s);
        if (!by_row) st = kinds[op->kind].all(s, op, err);
        else if (s->run.n == 0) s->run = (hth_fwd_run){.s = s, .first = op, .n = 1};
        else s->run.n++;
    }
    return st;
}

static hearth_status multiply(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_op_product *p = &op->product;
    hth_output outputs[HTH_PRODUCT_MAX];
    hth_fwd_run run;
    hth_fusion fusion = {0};
    (void)err;
    for (uint32_t i = 0; i < p->n; i++)
        outputs[i] = (hth_output){.matrix = p->matrix[i],
                                  .bias = p->bias[i] ? *p->bias[i] : NULL,
                                  .y = hth_fwd_row(s, op->adds ? op->temp[0] : op->out[i], 0),
                                  .n_y = hth_fwd_width(s, op->adds ? op->temp[0] : op->out[i]),
                                  .add_to = op->adds ? hth_fwd_row(s, op->out[0], 0) : NULL};
    hth_fwd_take_run(s, &run, &fusion);
    hth_product_add(s->k, s->pool, &s->act_q8, hth_fwd_row(s, op->in[0], 0), n_row_of(s, op), outputs, p->n,
                    &fusion);
    return HEARTH_OK;
}

/* ---- the step ------------------------------------------------------------------------------------ */

bool hth_step_device_failed(const hth_step *step) { return step->device_failed; }

/* UNSUPPORTED: a probe, or a selector function, needs neurons whose weights are not in the host's memory. */
static hearth_status check_probe(const hth_step *s, hearth_error *err)
{
    bool selects = s->select && (s->gpu || !s->bundles);
    if (!s->probe && !selects && !s->act_q8.probe) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED, "%s: neurons %s cannot be probed: open the model without %s",
        hth_gguf_path(s->model->file), s->gpu ? "on a device" : "whose weights are read when they are needed",
        s->gpu ? "a device (gpu.device none)" : "a limit of memory");
}

/* Before all that may fail: a step that does must leave no copies behind (kv_pool.h). */
static hearth_status copy_pages(hth_step *s, hearth_error *err)
{
    hearth_status st = s->gpu ? hth_gpu_copy_pages(s->gpu, s->tokens[0].seq->pool, err) : HEARTH_OK;
    s->device_failed = hth_gpu_is_device_failure(st);
    return st;
}

/* Nothing may fail between the start of the reads of rows and the embeddings, which wait for them. */
static hearth_status begin_tokens(hth_step *s, hearth_error *err)
{
    s->run.n = 0;
    hth_fwd_start_rows(s);
    hth_fwd_group(s);
    hth_fwd_find_runs(s);
    hth_fwd_by_head_begin(s);
    return hth_fwd_ops(s, 0, s->program->first_of_layer[0], err);
}

static hearth_status run_on_device(hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hth_fwd_flush(s);
    hth_pool_finish(s->pool);
    if (check_probe(s, err) != HEARTH_OK) return HEARTH_ERROR_UNSUPPORTED;
    hearth_status st = hth_gpu_run(s->gpu, s, to, err);
    s->device_failed = hth_gpu_is_device_failure(st);
    return st;
}

/* Skipped units left sums of the transposed down behind. */
static void clear_sums(hth_step *s)
{
    if (!s->model->down_transposed) return;
    hth_pool_quiesce(s->pool);
    hth_axpy_scratch_clear(&s->axpy_scratch, hth_pool_n_thread(s->pool), s->model->hparams.d_model);
}

void hth_step_keep_hidden(hth_step *step, bool on)
{
    const hth_program *p = step->program;
    step->keeps_hidden = on;
    step->keep_norm = p->ops[p->output_norm];
    step->keep_norm.in[0] = p->x, step->keep_norm.out[0] = p->hidden;
}

const float *hth_step_hidden(const hth_step *step) { return hth_fwd_row(step, step->program->hidden, 0); }
void hth_step_unfuse(hth_step *step) { step->unfused = true; }

hearth_status hth_step_run(hth_step *step, const hth_batch_token *tokens, uint32_t n_row, hth_logits_fn *fn,
                           void *user, hearth_error *err)
{
    step->tokens = tokens;
    step->n_tok = n_row;
    hth_alloc_assert_none(1); /* functions called from here may allocate again */
    hearth_status st = copy_pages(step, err);
    if (st == HEARTH_OK) st = begin_tokens(step, err);
    if (st != HEARTH_OK) { /* nothing is queued yet */
        hth_alloc_assert_none(-1);
        return st;
    }
    const hth_program *p = step->program;
    hth_logits_sink to = {fn, user, 0};
    uint32_t n_done = 0, n_layer = step->model->hparams.n_layer;
    bool head_done = false;
    if (step->gpu) {
        st = run_on_device(step, &to, err);
        n_done = hth_gpu_end_layer(step->gpu), head_done = hth_gpu_has_head(step->gpu);
    } else if (step->streamed && (step->streamed->pieces || step->streamed->bundles)) {
        st = check_probe(step, err);
    }
    if (st == HEARTH_OK && !(head_done && n_done == n_layer))
        st = hth_fwd_ops(step, p->first_of_layer[n_done], p->output_norm - 1, err);
    if (st == HEARTH_OK && !head_done) st = hth_fwd_head(step, &to, err);
    step->run.n = 0; /* drops operations of a failed step */
    hth_pool_finish(step->pool);
    if (hth_pool_take_cancelled(step->pool)) {
        st = hth_fail_cancelled(err);
        clear_sums(step);
    }
    if (st != HEARTH_OK) hth_fwd_delta_net_undo(step);
    hth_fwd_drop_wanted(step); /* cancels reads for a layer that was not reached */
    if (step->streamed && step->streamed->store) hth_store_advance(step->streamed->store, n_row);
    step->n_tok_done += n_row;
    if (st == HEARTH_OK && step->gpu) hth_gpu_sim_host_cost_rest(step->gpu, step, to.n_given > 0);
    hth_alloc_assert_none(-1);
    return st;
}
