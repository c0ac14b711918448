/* Weights that pass through a device: for the many tokens of a prompt it may be quicker to send the host's
 * neurons there than to compute them here (docs/gpu.md). Rows go from the host's layout straight to planes in
 * a staging buffer; who copies and uses them: record.c. */
#include "run/gpu/gpu_int.h"

#include "base/alloc.h"

#include <string.h>

/* Pieces of some megabytes: a piece's way is long beside what a submission costs, short beside a screen's
 * frame. Small matrices make some pieces too, so that the way of one is hidden by the use of another. */
enum { MOST_SLOT = 8 << 20, LEAST_PIECES = 4, LEAST_ROWS = 64, ROWS_AT_ONCE = 16 };

/* ---- pieces -----------------------------------------------------------------------------------------------
 */

static uint64_t planes_bytes(const hth_matrix *m, uint64_t n_row)
{
    hth_planes planes;
    return hth_planes_place(m->type, n_row, m->n_col, &planes) ? planes.size : UINT64_MAX;
}

/* Only integers may come by pieces: chains of floats are never cut. */
static bool can_pass(const hth_matrix *m)
{
    hth_form form;
    if (m->n_row == 0) return true;
    return hth_form_of(m->type, &form) && m->row_size <= HTH_GPU_MOST_STAGED &&
           planes_bytes(m, LEAST_ROWS) <= MOST_SLOT;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Of a slot that a piece of a matrix wants, as far as it may grow. */
static uint64_t wanted(const hth_matrix *m)
{
    uint64_t n_row = (m->n_row / LEAST_PIECES + LEAST_ROWS - 1) / LEAST_ROWS * LEAST_ROWS;
    uint64_t piece = n_row > 0 ? planes_bytes(m, n_row) : 0;
    return piece < MOST_SLOT ? piece : MOST_SLOT;
}

uint64_t hth_gpu_slot_bytes(const hth_model *model)
{
    uint64_t bytes = 0;
    if (!model->by_neurons) return 0;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        if (!can_pass(&l->gate) || !can_pass(&l->up) || !can_pass(&l->neurons.rows)) return 0;
        bytes = larger(bytes, larger(wanted(&l->gate), larger(wanted(&l->up), wanted(&l->neurons.rows))));
    }
    return bytes;
}

/* Rows of a matrix that fit in a slot, in runs of LEAST_ROWS. */
static uint32_t rows_of_piece(const hth_matrix *m, uint64_t slot)
{
    uint32_t low = 1, high = (uint32_t)((m->n_row + LEAST_ROWS - 1) / LEAST_ROWS);
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (planes_bytes(m, (uint64_t)middle * LEAST_ROWS) <= slot) low = middle;
        else high = middle - 1;
    }
    return low * LEAST_ROWS;
}

/* Of one matrix, counted, and written where there is a list. */
static void add_pieces(hth_gpu *g, const hth_matrix *m, uint32_t n_hot, hth_gpu_vector bias, bool counts_only)
{
    uint32_t step = m->n_row > 0 ? rows_of_piece(m, g->room.slots[0].bytes) : 1;
    for (uint32_t first = 0; first < m->n_row; first += step) {
        hth_gpu_piece p = {.rows = m, .first = first, .neuron = n_hot + first, .bias = bias};
        p.n_row = (uint32_t)m->n_row - first < step ? (uint32_t)m->n_row - first : step;
        if (bias.n > 0) p.bias.at += first * sizeof(float), p.bias.n = p.n_row;
        hth_planes_place(m->type, p.n_row, m->n_col, &p.planes);
        if (!counts_only) g->pieces[g->n_piece] = p;
        g->n_piece++;
    }
}

static void add_all(hth_gpu *g, bool counts_only)
{
    g->n_piece = 0;
    for (uint32_t i = 0; i < g->n_hand; i++) {
        const hth_gpu_layer *l = &g->layers[g->hands[i]];
        add_pieces(g, &l->cold.gate, l->n_hot, l->cold_bias[0], counts_only);
        add_pieces(g, &l->cold.up, l->n_hot, l->cold_bias[1], counts_only);
        add_pieces(g, &l->cold.neurons.rows, l->n_hot, (hth_gpu_vector){0}, counts_only);
    }
}

hearth_status hth_gpu_stream_open(hth_gpu *g, hearth_error *err)
{
    if (g->place.n_stream == 0 || hth_gpu_slot_bytes(g->model) == 0) return HEARTH_OK;
    add_all(g, true);
    g->pieces = hth_alloc(g->n_piece, sizeof *g->pieces);
    if (!g->pieces) return hth_fail_memory(err, g->n_piece * sizeof *g->pieces, "weights that pass through");
    add_all(g, false);
    return HEARTH_OK;
}

/* ---- staging ----------------------------------------------------------------------------------------------
 */

typedef struct stage_job {
    const hth_matrix *m;
    uint32_t first, n;
    uint8_t *to;
} stage_job;

static void stage_some(void *arg, size_t i, uint32_t i_thread)
{
    const stage_job *job = arg;
    const hth_matrix *m = job->m;
    uint8_t room[HTH_GPU_MOST_STAGED];
    uint32_t first = (uint32_t)i * ROWS_AT_ONCE,
             end = first + ROWS_AT_ONCE < job->n ? first + ROWS_AT_ONCE : job->n;
    (void)i_thread;
    for (uint32_t r = first; r < end; r++) {
        const uint8_t *row = hth_matrix_row(m, job->first + r, room);
        hth_planes_fill(m->type, job->n, m->n_col, row, m->row_size, r, 1, job->to);
    }
}

void hth_gpu_stage_rows(hth_pool *pool, const hth_matrix *m, uint32_t first, uint32_t n, uint8_t *to)
{
    stage_job job = {m, first, n, to};
    hth_pool_run(pool, stage_some, &job, (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE);
}

void hth_gpu_stage(const hth_gpu *g, hth_pool *pool, uint32_t i)
{
    const hth_gpu_piece *p = &g->pieces[i];
    const hth_slice *to = &g->room.staging[i % 2];
    hth_gpu_stage_rows(pool, p->rows, p->first, p->n_row, (uint8_t *)hth_buffer_map(to->of) + to->at);
}
