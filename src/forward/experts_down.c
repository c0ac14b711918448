/* The transposed down matrix of experts: the rows of neurons whose hidden value is not zero, times that value and
 * the weight of the pair, are added to the sums of the pair's token. The sums are those of hth_axpy_add
 * (docs/arithmetic.md 6); here a unit owns some outputs of all pairs of a wave. */
#include "forward/forward_int.h"

#include "base/bits.h"

/* Outputs of a unit, whole blocks of all types. */
enum { UNIT_OUTPUTS = 512 };

typedef struct down_job {
    const hth_step *s;
    const hth_transposed_down *down;
    const uint8_t *const *data; /* [n_slice] */
    uint32_t d_ff;
    int64_t *sums; /* [n_tok][d_model + 1] */
} down_job;

static size_t n_scale_of(const down_job *job) { return hth_n_cluster(job->d_ff) + 1; }

/* The first neuron of row i among those of all experts. */
static size_t first_neuron(const down_job *job, size_t i)
{
    const hth_expert_buffers *b = &job->s->experts;
    return (size_t)b->slices[b->slice_of[i]].i_slice * job->d_ff;
}

/* The rows of the neurons of row i. */
static const uint8_t *neurons_of(const down_job *job, size_t i)
{
    if (job->data) return job->data[job->s->experts.slice_of[i]];
    return job->down->rows.data + first_neuron(job, i) * job->down->rows.row_size;
}

/* The number of entries of the list of row i from `at` on that are in the same cluster, and its number in this row. */
static size_t next_cluster(const down_job *job, size_t i, size_t at, size_t *i_cluster)
{
    const hth_expert_buffers *b = &job->s->experts;
    const int32_t *list = b->list + i * job->d_ff;
    size_t first = first_neuron(job, i), cluster = (first + (size_t)list[at]) / HTH_CLUSTER_NEURONS, n = 1;
    while (at + n < b->n_list[i] && (first + (size_t)list[at + n]) / HTH_CLUSTER_NEURONS == cluster) n++;
    *i_cluster = cluster - first / HTH_CLUSTER_NEURONS;
    return n;
}

/* The active neurons of row i, their values, and the scales of their clusters. */
static void list_unit(void *arg, size_t i, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_expert_buffers *b = &job->s->experts;
    const hth_kernels *k = job->s->k;
    hth_type type = job->down->rows.type;
    int safe = hth_axpy_safe_exponent(type, job->down->n_summed);
    float *h = b->hidden + i * job->d_ff, *scales = b->scales + i * n_scale_of(job);
    (void)i_thread;
    b->n_list[i] = 0;
    if (b->rows[i].token == UINT32_MAX) return;
    k->scale(h, b->rows[i].weight, job->d_ff, h);
    const hth_compact args = {
        .x = h, .n = job->d_ff, .threshold = 0x1p-149f, .out_idx = b->list + i * job->d_ff, .out_x = h};
    b->n_list[i] = (uint32_t)k->compact_abs(&args);
    for (size_t at = 0, n, c; at < b->n_list[i]; at += n) {
        n = next_cluster(job, i, at, &c);
        float d_max = job->down->scale_max[first_neuron(job, i) / HTH_CLUSTER_NEURONS + c];
        scales[c] = hth_type_act_block(type) == 0 ? 0x1p32f : hth_axpy_scale(h + at, n, d_max, safe);
    }
}

/* Adds the products of the neurons of row i to acc64. d: the outputs, which begin `at_byte` of a row, and memory for
 * their sums. */
static void add_row(const down_job *job, size_t i, hth_axpy_job d, size_t at_byte, int64_t *acc64,
                    hth_axpy_state *state)
{
    const hth_expert_buffers *b = &job->s->experts;
    hth_type type = job->down->rows.type;
    d.w = neurons_of(job, i) + at_byte;
    for (size_t at = 0, n, c; at < b->n_list[i]; at += n) {
        n = next_cluster(job, i, at, &c);
        d.list = b->list + i * job->d_ff + at, d.h = b->hidden + i * job->d_ff + at;
        d.n = n, d.n_prefetch = b->n_list[i] - at - n;
        d.scale = b->scales[i * n_scale_of(job) + c];
        hth_axpy_add_rows(job->s->k, type, &d, acc64, state);
    }
    hth_axpy_flush_pending(job->s->k, type, &d, acc64, state);
}

static void add_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const down_job *job = arg;
    const hth_expert_buffers *b = &job->s->experts;
    const hth_matrix *m = &job->down->rows;
    const hth_type_info *info = hth_type_find((uint32_t)m->type);
    size_t first = i_unit * UNIT_OUTPUTS, left = m->n_col - first, at_byte = first / info->n_weight * info->size;
    int32_t parts[UNIT_OUTPUTS] = {0}, offsets[UNIT_OUTPUTS / 16] = {0};
    float chain[UNIT_OUTPUTS] = {0};
    const hth_axpy_job d = {.row_size = m->row_size,
                            .n_out = left < UNIT_OUTPUTS ? left : UNIT_OUTPUTS,
                            .sums = parts,
                            .offsets = offsets,
                            .chain = chain};
    (void)i_thread;
    for (uint32_t i = 0; i < b->n_row; i++) {
        if (b->n_list[i] == 0) continue;
        hth_axpy_state state = {0};
        int64_t *sums = job->sums + b->rows[i].token * (m->n_col + 1);
        add_row(job, i, d, at_byte, sums + first, &state);
        if (state.overflow) __atomic_store_n(&sums[m->n_col], 1, __ATOMIC_RELAXED);
    }
}

void hth_fwd_experts_down(hth_step *s, const hth_transposed_down *down, const uint8_t *const *data, uint32_t d_ff,
                          int64_t *sums)
{
    down_job job = {s, down, data, d_ff, sums};
    hth_pool_add(s->pool, list_unit, &job, sizeof job, s->experts.n_row);
    hth_pool_add(s->pool, add_unit, &job, sizeof job, (down->rows.n_col + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS);
}
