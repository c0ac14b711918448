/* Loads weights onto the device. Matrices that share an input are fused; neighbours of one type become one matrix,
 * up to the size of a binding: one dispatch each. Float vectors share one buffer. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <string.h>

/* ---- fused matrices ------------------------------------------------------------------------------- */

static hth_gpu_fused_src source_of(const hth_matrix *m, const float *bias)
{
    return (hth_gpu_fused_src){{m}, {bias}, {m->n_row}, 1, false};
}

static void add_matrix(hth_gpu_fused_src *s, const hth_matrix *m, const float *bias)
{
    s->matrix[s->n] = m, s->bias[s->n] = bias, s->n_row[s->n] = m->n_row;
    s->n++;
}

/* The first n rows of each matrix that has any. */
static hth_gpu_fused_src first_of(hth_gpu_fused_src s, uint64_t n)
{
    for (uint32_t i = 0; i < s.n; i++) s.n_row[i] = s.n_row[i] < n ? s.n_row[i] : n;
    return s;
}

static uint32_t ffn_srcs(const hth_ffn *f, uint32_t n_hot, hearth_selector selector, hth_gpu_fused_src *out)
{
    out[HTH_GPU_GATE_UP] = source_of(&f->gate, f->gate_bias);
    add_matrix(&out[HTH_GPU_GATE_UP], &f->up, f->up_bias);
    out[HTH_GPU_GATE_UP] = first_of(out[HTH_GPU_GATE_UP], n_hot);
    if (f->down_t.rows.n_row > 0) out[HTH_GPU_DOWN] = first_of(source_of(&f->down_t.rows, NULL), n_hot);
    else out[HTH_GPU_DOWN] = source_of(&f->down, f->down_bias);
    if (selector != HEARTH_SELECTOR_PREDICTOR) return HTH_GPU_PREDICT_IN;
    out[HTH_GPU_PREDICT_IN] = source_of(&f->predictor.in, NULL);
    out[HTH_GPU_PREDICT_OUT] = source_of(&f->predictor.out, f->predictor.bias);
    return HTH_GPU_OP_FUSED;
}

/* Matrices whose outputs lie side by side are one. */
static uint32_t product_srcs(const hth_op *op, hth_gpu_fused_src *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->product.n; i++) {
        const hth_matrix *m = op->product.matrix[i];
        const float *bias = op->product.bias[i] ? *op->product.bias[i] : NULL;
        if (i > 0 && op->out[i].value == op->out[i - 1].value &&
            op->out[i].at == op->out[i - 1].at + op->product.matrix[i - 1]->n_row)
            add_matrix(&out[n - 1], m, bias);
        else out[n++] = source_of(m, bias);
    }
    return n;
}

/* Absent ones have no rows. n_hot: experts, if they are divided. */
static uint32_t experts_srcs(const hth_layer *l, bool shared, uint32_t n_hot, hth_gpu_fused_src *out)
{
    const hth_experts *e = &l->experts;
    bool is_divided = !shared && hth_layer_divides_experts(l) && n_hot < e->router.n_expert;
    const hth_ffn *f = &e->shared;
    const hth_matrix *down = e->down_t.rows.n_row > 0 ? &e->down_t.rows : &e->down;
    out[HTH_GPU_EXPERT_GATE] = shared ? source_of(&f->gate, f->gate_bias) : source_of(&e->gate, e->gate_bias);
    out[HTH_GPU_EXPERT_UP] = shared ? source_of(&f->up, f->up_bias) : source_of(&e->up, e->up_bias);
    out[HTH_GPU_EXPERT_DOWN] = shared ? source_of(&f->down, f->down_bias) : source_of(down, e->down_bias);
    for (int i = 0; i < HTH_GPU_EXPERT_PARTS; i++) {
        out[i].is_sliced = true;
        if (is_divided) out[i] = first_of(out[i], out[i].n_row[0] / e->router.n_expert * n_hot);
    }
    return HTH_GPU_EXPERT_PARTS;
}

uint32_t hth_gpu_op_srcs(const hth_model *model, const hth_op *op, uint32_t n_hot, hearth_selector selector,
                         hth_gpu_fused_src out[HTH_GPU_OP_FUSED])
{
    const hth_layer *l = op->layer < model->hparams.n_layer ? &model->layers[op->layer] : NULL;
    switch (op->kind) {
    case HTH_OP_PRODUCT: return product_srcs(op, out);
    case HTH_OP_EXPERTS: return experts_srcs(l, op->experts.shared, n_hot, out);
    case HTH_OP_FFN: return ffn_srcs(&l->ffn, hth_layer_divides_experts(l) ? UINT32_MAX : n_hot, selector, out);
    case HTH_OP_BY_HEAD:
        out[0] = source_of(op->by_head.matrix, NULL);
        out[0].is_sliced = true;
        return 1;
    default: return 0;
    }
}

static const hth_matrix *floats_of(const hth_gpu_fused_src *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->n_row[i] > 0 && hth_type_act_block(s->matrix[i]->type) == 0) return s->matrix[i];
    return NULL;
}

const hth_matrix *hth_gpu_first_floats(const hth_model *model, const hth_offload_params *params)
{
    hth_gpu_fused_src sources[HTH_GPU_OP_FUSED];
    const hth_matrix *found = NULL;
    for (uint32_t i = 0; !found && i < model->program->n_op; i++) {
        const hth_op *op = &model->program->ops[i];
        if (!hth_gpu_op_is_on_device(model, params, i)) continue;
        uint32_t n_hot = hth_op_is_network(op) ? params->n_hot[op->layer] : 0,
                 n = hth_gpu_op_srcs(model, op, n_hot, params->selector, sources);
        for (uint32_t k = 0; !found && k < n; k++) found = floats_of(&sources[k]);
    }
    return found;
}

/* ---- partitioning ------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a fused matrix, of one type and with or without a bias. */
typedef struct row_range {
    hth_type type;
    uint64_t first, n, n_col;
    bool has_bias;
} row_range;

/* Also limits the allocation size: a device must support 1 GiB at once. */
static const uint64_t MAX_AT_ONCE = (uint64_t)1 << 30;
enum { SPLIT_ROWS = HTH_CLUSTER_NEURONS }; /* matrices end at multiples of this many rows */

/* The longest range from row `first` on. false: no rows are left, or not even CUT rows fit. */
static bool next_row_range(const hth_gpu_fused_src *s, uint64_t max, uint64_t first, row_range *out)
{
    uint64_t at = 0;
    hth_soa_layout layout;
    *out = (row_range){.first = first};
    for (uint32_t i = 0; i < s->n; at += s->n_row[i], i++) {
        const hth_matrix *m = s->matrix[i];
        if (s->n_row[i] == 0 || at + s->n_row[i] <= first) continue;
        bool joins = out->n == 0 || (m->type == out->type && (s->bias[i] != NULL) == out->has_bias);
        if (!joins) break;
        out->type = m->type, out->n_col = m->n_col, out->has_bias = s->bias[i] != NULL;
        out->n = at + s->n_row[i] - first;
    }
    if (max > MAX_AT_ONCE) max = MAX_AT_ONCE;
    while (out->n > 0 &&
           (!hth_soa_layout_init(out->type, out->n, out->n_col, &layout) || layout.size > max)) {
        if (out->n <= SPLIT_ROWS || s->is_sliced) return false;
        out->n = (out->n / 2 + SPLIT_ROWS - 1) / SPLIT_ROWS * SPLIT_ROWS;
    }
    return out->n > 0;
}

static uint64_t rows_of(const hth_gpu_fused_src *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) n += s->n_row[i];
    return n;
}

bool hth_gpu_fused_matrix_bytes(const hth_gpu_fused_src *source, uint64_t max, uint64_t *bytes)
{
    row_range s;
    *bytes = 0;
    for (uint64_t first = 0; first < rows_of(source); first += s.n) {
        hth_soa_layout layout;
        if (!next_row_range(source, max, first, &s) || !hth_soa_layout_init(s.type, s.n, s.n_col, &layout))
            return false;
        *bytes += layout.size;
    }
    return true;
}

/* ---- vectors ------------------------------------------------------------------------------------------ */

enum { VECTOR_GRAIN = 64 }; /* floats; an alignment that every device accepts */

/* Appends n zeros; NULL: out of memory. */
static float *add_vector(hth_gpu *g, size_t n, hth_gpu_vector *out)
{
    size_t at = g->n_staging_vector, end = at + (n + VECTOR_GRAIN - 1) / VECTOR_GRAIN * VECTOR_GRAIN;
    if (end > g->staging_capacity) {
        size_t capacity = 2 * end;
        float *grown = hth_realloc(g->staging_vectors, capacity, sizeof *grown);
        if (!grown) return NULL;
        memset(grown + at, 0, (capacity - at) * sizeof *grown);
        g->staging_vectors = grown, g->staging_capacity = capacity;
    }
    g->n_staging_vector = end;
    *out = (hth_gpu_vector){at * sizeof(float), (uint32_t)n};
    return g->staging_vectors + at;
}

static hearth_status copy_vector(hth_gpu *g, const float *x, size_t n, hth_gpu_vector *out, hearth_error *err)
{
    if (!x) return HEARTH_OK;
    float *to = add_vector(g, n, out);
    if (!to) return hth_fail_memory(err, n * sizeof *x, "vectors of weights");
    memcpy(to, x, n * sizeof *x);
    return HEARTH_OK;
}

static hearth_status copy_norm(hth_gpu *g, const hth_op_norm *norm, hth_gpu_vector out[2], hearth_error *err)
{
    size_t n = (size_t)norm->width * (norm->own ? norm->n_group : 1);
    hearth_status st = copy_vector(g, *norm->weight, n, &out[0], err);
    return st == HEARTH_OK && norm->bias ? copy_vector(g, *norm->bias, norm->width, &out[1], err) : st;
}

static hearth_status copy_conv(hth_gpu *g, const hth_conv *c, hth_gpu_vector out[2], hearth_error *err)
{
    hearth_status st = copy_vector(g, c->taps, (size_t)c->d_conv * c->n_channel, &out[0], err);
    return st == HEARTH_OK ? copy_vector(g, c->bias, c->n_channel, &out[1], err) : st;
}

/* State spaces have none here: their rates are those of SCAN. */
static hearth_status copy_rates(hth_gpu *g, const hth_layer *l, hth_gpu_vector out[2], hearth_error *err)
{
    bool is_kda = l->mixer == HTH_MIXER_KDA;
    size_t n_head = is_kda ? l->kda.n_head : l->delta_net.n_head, n_dt = is_kda ? n_head * l->kda.d : n_head;
    if (!is_kda && l->mixer != HTH_MIXER_DELTA_NET) return HEARTH_OK;
    hearth_status st = copy_vector(g, is_kda ? l->kda.a : l->delta_net.a, n_head, &out[0], err);
    return st == HEARTH_OK ? copy_vector(g, is_kda ? l->kda.dt : l->delta_net.dt, n_dt, &out[1], err) : st;
}

static hearth_status copy_scan(hth_gpu *g, const hth_ssm *n, hth_gpu_vector *out, hearth_error *err)
{
    size_t n_d = n->n_head > 0 ? n->n_head : n->n_inner, n_a = n->n_head > 0 ? n_d : n_d * n->d_state;
    float *to = add_vector(g, n_a + n_d, out);
    if (!to) return hth_fail_memory(err, (n_a + n_d) * sizeof *to, "vectors of weights");
    memcpy(to, n->a, n_a * sizeof *to);
    memcpy(to + n_a, n->d, n_d * sizeof *to);
    return HEARTH_OK;
}

static hearth_status copy_router(hth_gpu *g, const hth_op *op, hth_gpu_vector *out, hearth_error *err)
{
    const hth_experts *e = &g->model->layers[op->layer].experts;
    const hth_router *r = &e->router;
    uint32_t d = g->model->hparams.d_model;
    if (op->experts.shared) return copy_vector(g, e->shared_gate, d, &out[HTH_GPU_ROUTER_ROWS], err);
    hearth_status st = copy_vector(g, r->weight, (size_t)r->n_expert * d, &out[HTH_GPU_ROUTER_ROWS], err);
    if (st == HEARTH_OK) st = copy_vector(g, r->bias, r->n_expert, &out[HTH_GPU_ROUTER_BIAS], err);
    if (st == HEARTH_OK) st = copy_vector(g, r->select_bias, r->n_expert, &out[HTH_GPU_SELECT_BIAS], err);
    return st == HEARTH_OK ? copy_vector(g, r->expert_scale, r->n_expert, &out[HTH_GPU_EXPERT_SCALE], err) : st;
}

/* Writes the weights of a norm of n_head heads. A factor of a head is that of all of its values. */
static void write_head_norm(const hth_model *m, const hth_attention *a, const hth_norm *norm, size_t n_head, float *to)
{
    bool of_heads = m->hparams.qk_norm == HTH_QK_NORM_FACTOR && norm->weight != m->ones,
         is_one = m->hparams.qk_norm == HTH_QK_NORM_FACTOR && !of_heads;
    for (size_t i = 0; i < n_head * a->d_head; i++)
        to[i] = is_one ? 1.0f : norm->weight[of_heads ? i / a->d_head : i];
}

/* Norms of all heads together are vectors of their own. */
static hearth_status copy_norms_of_all(hth_gpu *g, const hth_attention *a, hth_gpu_vector out[2], hearth_error *err)
{
    hearth_status st = copy_vector(g, a->q_norm.weight, (size_t)a->n_head * a->d_head, &out[0], err);
    if (st != HEARTH_OK) return st;
    return copy_vector(g, a->k_norm.weight, (size_t)a->n_head_kv * a->d_head, &out[1], err);
}

static hearth_status copy_head_norms(hth_gpu *g, uint32_t i_layer, hth_gpu_vector of_all[2], hearth_error *err)
{
    const hth_attention *a = &g->model->layers[i_layer].attn;
    hth_qk_norm kind = g->model->hparams.qk_norm;
    bool shared = kind == HTH_QK_NORM_HEAD;
    size_t n_q = shared ? 1 : a->n_head, n_k = shared ? 1 : a->n_head_kv, n = (n_q + n_k) * a->d_head;
    if (!a->q_norm.weight) return HEARTH_OK;
    if (kind == HTH_QK_NORM_ALL) return copy_norms_of_all(g, a, of_all, err);
    float *to = add_vector(g, n, &g->layers[i_layer].head_norms);
    if (!to) return hth_fail_memory(err, n * sizeof *to, "vectors of weights");
    write_head_norm(g->model, a, &a->q_norm, n_q, to);
    if (a->k_norm.weight) write_head_norm(g->model, a, &a->k_norm, n_k, to + n_q * a->d_head);
    return HEARTH_OK;
}

/* Zeros where the heads have one kind of term alone. */
static hearth_status copy_head_terms(hth_gpu *g, const hth_attention *a, hth_gpu_vector *out, hearth_error *err)
{
    if (!a->sinks && !a->slopes) return HEARTH_OK;
    float *to = add_vector(g, 2 * a->n_head, out);
    if (!to) return hth_fail_memory(err, 2 * a->n_head * sizeof *to, "vectors of weights");
    if (a->sinks) memcpy(to, a->sinks, a->n_head * sizeof *to);
    if (a->slopes) memcpy(to + a->n_head, a->slopes, a->n_head * sizeof *to);
    return HEARTH_OK;
}

/* Slices of BY_HEAD, as shaders read those that were chosen for a token. */
static hearth_status write_head_numbers(hth_gpu *g, hearth_error *err)
{
    uint32_t n = hth_gpu_heads_at_once(g->model, &g->params);
    if (n == 0) return HEARTH_OK;
    size_t n_word = 2 * (size_t)n * g->params.n_row;
    float *to = add_vector(g, n_word, &g->head_numbers);
    if (!to) return hth_fail_memory(err, n_word * sizeof *to, "vectors of weights");
    for (uint32_t i = 0; i < n_word; i++) to[i] = hth_float_of(i / n % 2 ? 0 : i % n);
    return HEARTH_OK;
}

static hearth_status copy_biases(hth_gpu *g, const hth_gpu_fused_src *source, const row_range *s,
                                 hth_gpu_vector *out, hearth_error *err)
{
    uint64_t at = 0, end = s->first + s->n;
    if (!s->has_bias) return HEARTH_OK;
    float *to = add_vector(g, s->n, out);
    if (!to) return hth_fail_memory(err, s->n * sizeof *to, "vectors of weights");
    for (uint32_t i = 0; i < source->n; at += source->n_row[i], i++)
        for (uint64_t r = 0; r < source->n_row[i]; r++)
            if (at + r >= s->first && at + r < end) to[at + r - s->first] = source->bias[i][r];
    return HEARTH_OK;
}

/* ---- loading ------------------------------------------------------------------------------------------ */

enum { READ_AT_ONCE = 4 << 20 };

typedef struct loader {
    hth_gpu *g;
    hth_gpu_read_fn *read;
    void *user;
    float *scale_max;       /* of clusters, raised while neurons are read; or NULL */
    hth_pool *pool;         /* converts rows */
    uint8_t *rows, *planes; /* in file format; in device layout */
    uint8_t *row_scales;    /* floats [rows read at once] */
    size_t rows_capacity, planes_capacity, scales_capacity;
} loader;

static hearth_status ensure(uint8_t **scratch, size_t *has, size_t wants, hearth_error *err)
{
    if (*has >= wants) return HEARTH_OK;
    hth_free(*scratch);
    *scratch = hth_alloc(1, wants);
    *has = *scratch ? wants : 0;
    return *scratch ? HEARTH_OK : hth_fail_memory(err, wants, "a buffer to load weights");
}

/* Rows that were read, to be packed from row `at` of a part on; scales: of each row, or NULL. */
typedef struct pack_job {
    const hth_gpu_matrix *part;
    const uint8_t *rows;
    size_t row_size;
    uint64_t n, n_col, at;
    uint8_t *planes;
    float *scales;
} pack_job;

enum { PACK_ROWS = 16 }; /* of a unit of work */

static void pack_some(void *arg, size_t i, uint32_t i_thread)
{
    const pack_job *j = arg;
    uint64_t first = i * PACK_ROWS, n = hth_min_u64(PACK_ROWS, j->n - first);
    const uint8_t *rows = j->rows + first * j->row_size;
    (void)i_thread;
    hth_soa_layout_pack(j->part->type, j->part->n_row, j->n_col, rows, j->row_size, j->at + first, n, j->planes);
    for (uint64_t r = 0; j->scales && r < n; r++)
        j->scales[first + r] = hth_axpy_absmax_scale(j->part->type, rows + r * j->row_size, j->n_col);
}

/* Packs rows of one matrix into a part, from row `at` of the part on. */
static hearth_status fill_from(loader *o, const hth_gpu_matrix *p, const hth_matrix *m, uint64_t from,
                               uint64_t n, uint64_t at, hearth_error *err)
{
    uint64_t step = READ_AT_ONCE / m->row_size > 0 ? READ_AT_ONCE / m->row_size : 1;
    hearth_status st = ensure(&o->rows, &o->rows_capacity, step * m->row_size, err);
    if (st == HEARTH_OK && o->scale_max)
        st = ensure(&o->row_scales, &o->scales_capacity, step * sizeof(float), err);
    float *scales = o->scale_max ? (float *)(void *)o->row_scales : NULL;
    for (uint64_t i = 0, k; st == HEARTH_OK && i < n; i += k) {
        k = n - i < step ? n - i : step;
        st = o->read(o->user, m, from + i, k, o->rows, err);
        if (st != HEARTH_OK) break;
        pack_job job = {p, o->rows, m->row_size, k, m->n_col, at + i, o->planes, scales};
        hth_pool_run(o->pool, pack_some, &job, (k + PACK_ROWS - 1) / PACK_ROWS);
        for (uint64_t r = 0; scales && r < k; r++)
            hth_axpy_raise(&o->scale_max[(from + i + r) / HTH_CLUSTER_NEURONS], scales[r]);
    }
    return st;
}

static hearth_status load_part(loader *o, const hth_gpu_fused_src *source, hth_gpu_matrix *p,
                               const char *what, hearth_error *err)
{
    uint64_t at = 0, end = (uint64_t)p->first + p->n_row;
    if (hth_device_get_info(o->g->device)->no_values)
        return hth_buffer_new(o->g->device, HTH_MEMORY_DEVICE, p->layout.size, what, &p->weights, err);
    hearth_status st = ensure(&o->planes, &o->planes_capacity, p->layout.size, err);
    if (st != HEARTH_OK) return st;
    memset(o->planes, 0, p->layout.size);
    for (uint32_t i = 0; st == HEARTH_OK && i < source->n; at += source->n_row[i], i++) {
        const hth_matrix *m = source->matrix[i];
        uint64_t from = at > p->first ? at : p->first,
                 to = at + source->n_row[i] < end ? at + source->n_row[i] : end;
        if (from < to) st = fill_from(o, p, m, from - at, to - from, from - p->first, err);
    }
    if (st == HEARTH_OK)
        st = hth_buffer_new(o->g->device, HTH_MEMORY_DEVICE, p->layout.size, what, &p->weights, err);
    return st == HEARTH_OK ? hth_device_upload((hth_buffer_range){p->weights, 0, 0}, o->planes, err) : st;
}

static hearth_status open_group(loader *o, hth_gpu_fused_matrix *group, const hth_gpu_fused_src *source,
                                const char *what, hearth_error *err)
{
    uint64_t max = hth_device_get_info(o->g->device)->max_binding_size, n_row = rows_of(source), n_part = 0;
    row_range s;
    for (uint64_t first = 0; first < n_row && next_row_range(source, max, first, &s); first += s.n) n_part++;
    group->matrices = hth_alloc(n_part, sizeof *group->matrices);
    if (!group->matrices) return hth_fail_memory(err, n_part * sizeof *group->matrices, what);
    group->n_row = (uint32_t)n_row;
    hearth_status st = HEARTH_OK;
    if (source->is_sliced) st = copy_vector(o->g, source->bias[0], source->matrix[0]->n_row, &group->bias, err);
    for (uint64_t first = 0; st == HEARTH_OK && first < n_row; first += s.n) {
        if (!next_row_range(source, max, first, &s)) break; /* hth_gpu_unsupported_reason has already checked this */
        hth_gpu_matrix *p = &group->matrices[group->n_matrix++];
        p->type = s.type, p->n_row = (uint32_t)s.n, p->first = (uint32_t)first;
        group->n_col = (uint32_t)s.n_col;
        hth_soa_layout_init(s.type, s.n, s.n_col, &p->layout);
        uint32_t block = hth_type_act_block(s.type);
        group->wants_32 |= block == HTH_ACT_BLOCK;
        group->wants_256 |= block == HTH_ACT_BLOCK_256;
        group->wants_f32 |= block == 0;
        if (source->is_sliced) p->bias = group->bias;
        else st = copy_biases(o->g, source, &s, &p->bias, err);
        if (st == HEARTH_OK) st = load_part(o, source, p, what, err);
    }
    return st;
}

/* D of a layer whose down is transposed; floats have none. */
static hearth_status copy_scale_max(hth_gpu *g, uint32_t i_layer, hearth_error *err)
{
    const hth_transposed_down *down = hth_layer_transposed_down(&g->model->layers[i_layer]);
    if (down->rows.n_row == 0 || hth_type_act_block(down->rows.type) == 0) return HEARTH_OK;
    return copy_vector(g, down->scale_max, hth_n_cluster(down->rows.n_row), &g->layers[i_layer].scale_max, err);
}

/* The network of a layer besides its matrices. */
static hearth_status open_ffn(loader *o, uint32_t i_layer, hearth_error *err)
{
    const hth_ffn *f = &o->g->model->layers[i_layer].ffn;
    hth_gpu_layer *to = &o->g->layers[i_layer];
    bool has_thresholds = o->g->params.selector == HEARTH_SELECTOR_THRESHOLD;
    to->n_hot = hth_gpu_n_hot(o->g, i_layer);
    to->down_transposed = f->down_t.rows.n_row > 0;
    hearth_status st = copy_vector(o->g, has_thresholds ? f->thresholds : NULL, f->d_ff, &to->thresholds, err);
    if (st == HEARTH_OK && to->down_transposed)
        st = copy_vector(o->g, f->down_bias, o->g->model->hparams.d_model, &to->down_bias, err);
    if (st == HEARTH_OK && to->down_transposed) st = copy_scale_max(o->g, i_layer, err);
    if (o->g->params.streams[0].n_tok == 0 || to->n_hot == f->d_ff) return st;
    const float *bias[2] = {f->gate_bias, f->up_bias};
    for (int i = 0; st == HEARTH_OK && i < 2; i++)
        if (bias[i]) st = copy_vector(o->g, bias[i] + to->n_hot, f->d_ff - to->n_hot, &to->cold_bias[i], err);
    return st;
}

/* D of the clusters of fused matrix k, or NULL. */
static float *scale_max_of(const hth_model *m, const hth_op *op, uint32_t k)
{
    const hth_layer *l = &m->layers[op->layer];
    if (op->kind == HTH_OP_FFN && k == HTH_GPU_DOWN) return l->ffn.down_t.scale_max;
    bool is_chosen = op->kind == HTH_OP_EXPERTS && !op->experts.shared;
    return is_chosen && k == HTH_GPU_EXPERT_DOWN ? l->experts.down_t.scale_max : NULL;
}

static hearth_status open_matrices(loader *o, const hth_op *op, hth_gpu_op *to, hearth_error *err)
{
    static const char *const what[HTH_GPU_OP_FUSED] = {"weights of neurons", "weights of neurons", "predictors",
                                                       "predictors"};
    const hth_model *m = o->g->model;
    bool is_ffn = op->kind == HTH_OP_FFN;
    hth_gpu_fused_src sources[HTH_GPU_OP_FUSED];
    hearth_status st = HEARTH_OK;
    to->n_fused = hth_gpu_op_srcs(m, op, hth_op_is_network(op) ? o->g->params.n_hot[op->layer] : 0,
                                  o->g->params.selector, sources);
    for (uint32_t k = 0, i_out = 0; st == HEARTH_OK && k < to->n_fused; i_out += sources[k++].n) {
        hth_gpu_fused_matrix *fused = &to->fused[k];
        o->scale_max = scale_max_of(m, op, k);
        st = open_group(o, fused, &sources[k], is_ffn ? what[k] : "weights", err);
        fused->y_stride = op->kind == HTH_OP_PRODUCT ? m->program->values[op->out[i_out].value].width : fused->n_row;
        fused->y_first = op->kind == HTH_OP_PRODUCT ? op->out[i_out].at : 0;
        fused->i_out = i_out;
    }
    o->scale_max = NULL;
    bool has_neurons = is_ffn || op->kind == HTH_OP_EXPERTS;
    return st == HEARTH_OK && has_neurons ? hth_model_check_scales(m, op->layer, err) : st;
}

static hearth_status open_op(loader *o, uint32_t i_op, hearth_error *err)
{
    const hth_op *op = &o->g->model->program->ops[i_op];
    const hth_layer *l = &o->g->model->layers[op->layer];
    hth_gpu_op *to = &o->g->ops[i_op];
    hearth_status st = HEARTH_OK;
    if (op->kind == HTH_OP_NORM) st = copy_norm(o->g, &op->norm, to->vectors, err);
    if (op->kind == HTH_OP_CONV) st = copy_conv(o->g, op->conv.conv, to->vectors, err);
    if (op->kind == HTH_OP_RATES) st = copy_rates(o->g, l, to->vectors, err);
    if (op->kind == HTH_OP_SCAN) st = copy_scan(o->g, &l->ssm, &to->vectors[0], err);
    if (op->kind == HTH_OP_ROUTE) st = copy_router(o->g, op, to->vectors, err);
    if (op->kind == HTH_OP_SCALE && op->vector.by)
        st = copy_vector(o->g, *op->vector.by, 1, &to->vectors[0], err);
    if (op->kind == HTH_OP_HEADS && l->mixer == HTH_MIXER_LATENT)
        st = copy_vector(o->g, l->latent.kv_norm, o->g->model->hparams.latent.rank, &to->vectors[0], err);
    else if (op->kind == HTH_OP_HEADS) st = copy_head_norms(o->g, op->layer, to->vectors, err);
    if (op->kind == HTH_OP_ATTEND)
        st = copy_head_terms(o->g, &l->attn, &o->g->layers[op->layer].head_terms, err);
    if (op->kind == HTH_OP_FFN) o->g->layers[op->layer].ffn = to, st = open_ffn(o, op->layer, err);
    if (op->kind == HTH_OP_EXPERTS && !op->experts.shared) st = copy_scale_max(o->g, op->layer, err);
    return st == HEARTH_OK ? open_matrices(o, op, to, err) : st;
}

static hearth_status open_vectors(hth_gpu *g, hearth_error *err)
{
    hth_gpu_vector none;
    if (!add_vector(g, 1, &none)) return hth_fail_memory(err, sizeof(float), "vectors of weights");
    hearth_status st =
        hth_buffer_new(g->device, HTH_MEMORY_DEVICE, g->n_staging_vector * sizeof *g->staging_vectors,
                       "norms and biases", &g->vectors, err);
    if (st == HEARTH_OK)
        st = hth_device_upload((hth_buffer_range){g->vectors, 0, 0}, g->staging_vectors, err);
    hth_free(g->staging_vectors);
    g->staging_vectors = NULL;
    return st;
}

hearth_status hth_gpu_upload_scale_max(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = g->params.first_layer; st == HEARTH_OK && i < g->params.end_layer; i++) {
        hth_gpu_vector v = g->layers[i].scale_max;
        hth_buffer_range to = {g->vectors, v.offset, v.n * sizeof(float)};
        if (v.n > 0) st = hth_device_upload(to, hth_layer_transposed_down(&g->model->layers[i])->scale_max, err);
    }
    return st;
}

hearth_status hth_gpu_weights_open(hth_gpu *g, hth_gpu_read_fn *read, void *user, hearth_error *err)
{
    loader o = {.g = g, .read = read, .user = user};
    hearth_status st = hth_pool_open(hth_pool_default_threads(g->params.n_thread), &o.pool, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < g->model->program->n_op; i++)
        if (g->ops[i].is_on_device) st = open_op(&o, i, err);
    if (st == HEARTH_OK) st = write_head_numbers(g, err);
    if (st == HEARTH_OK) st = open_vectors(g, err);
    hth_pool_close(o.pool);
    hth_free(o.row_scales);
    hth_free(o.rows);
    hth_free(o.planes);
    return st;
}

static void close_group(hth_gpu_fused_matrix *group)
{
    for (uint32_t i = 0; i < group->n_matrix; i++) hth_buffer_free(group->matrices[i].weights);
    hth_free(group->matrices);
}

void hth_gpu_weights_close(hth_gpu *g)
{
    for (uint32_t i = 0; g->ops && i < g->model->program->n_op; i++)
        for (uint32_t k = 0; k < g->ops[i].n_fused; k++) close_group(&g->ops[i].fused[k]);
    hth_buffer_free(g->vectors);
    hth_free(g->staging_vectors);
}
