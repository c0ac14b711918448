/* The pipelines of real runs, for radv_stats.c: one layer and the head of models of 7 billion weights are put on
 * the null device, with the limits and features of another one, and what the command lists of their steps dispatch
 * is listed. Constants follow from shapes and types alone, so the weights are zeros: files with holes. */
#include "device/radv_stats.h"

#include "convert/synth.h"
#include "device/device_int.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/models/gguf_build.h"
#include "support/test.h"

#include <fcntl.h>
#include <unistd.h>

enum { D_MODEL = 4096, N_HEAD = 32, D_HEAD = 128, N_VOCAB = 32000, N_CTX = 4096, N_PROMPT = 512, RANK = 256 };
enum { ALIGNMENT = 32, KEY_F32 = 6, KEY_BOOL = 7 };

/* ---- models ---------------------------------------------------------------------------------------------- */

typedef struct recipe {
    const char *name;
    hth_type type;
    uint32_t n_kv, d_ff;
    hearth_kv_type kv;
    bool packed;     /* transposed down and predictors, ReLU */
    bool head_norms; /* qwen3 */
    uint32_t n_hot;  /* neurons on the device; 0: all */
} recipe;

/* The heads and neurons of Llama 2 7B, and of Mistral 7B with fewer KV heads. */
static const recipe models[] = {
    {.name = "q4_0", .type = HTH_TYPE_Q4_0, .n_kv = 32, .d_ff = 11008, .kv = HEARTH_KV_F16},
    {.name = "q4_k", .type = HTH_TYPE_Q4_K, .n_kv = 32, .d_ff = 11008, .kv = HEARTH_KV_F16},
    {.name = "q5_k", .type = HTH_TYPE_Q5_K, .n_kv = 32, .d_ff = 11008, .kv = HEARTH_KV_F16},
    {.name = "q6_k", .type = HTH_TYPE_Q6_K, .n_kv = 8, .d_ff = 14336, .kv = HEARTH_KV_F32},
    {.name = "q8_0", .type = HTH_TYPE_Q8_0, .n_kv = 8, .d_ff = 14336, .kv = HEARTH_KV_Q8_0},
    {.name = "f16", .type = HTH_TYPE_F16, .n_kv = 8, .d_ff = 14336, .kv = HEARTH_KV_F16, .head_norms = true},
    {.name = "packed-q4_0",
     .type = HTH_TYPE_Q4_0,
     .n_kv = 32,
     .d_ff = 11008,
     .kv = HEARTH_KV_F16,
     .packed = true},
    {.name = "divided-q4_0",
     .type = HTH_TYPE_Q4_0,
     .n_kv = 32,
     .d_ff = 11008,
     .kv = HEARTH_KV_F16,
     .packed = true,
     .n_hot = 4096},
    {.name = "divided-q4_k",
     .type = HTH_TYPE_Q4_K,
     .n_kv = 8,
     .d_ff = 14336,
     .kv = HEARTH_KV_Q8_0,
     .packed = true,
     .n_hot = 4096},
    {.name = "packed-f16",
     .type = HTH_TYPE_F16,
     .n_kv = 8,
     .d_ff = 14336,
     .kv = HEARTH_KV_F16,
     .packed = true},
};

/* ---- the file -------------------------------------------------------------------------------------------- */

typedef struct file {
    gguf_bytes keys, infos;
    uint64_t n_key, n_tensor, size; /* bytes of the tensors */
    const char *arch;
} file;

static void number(file *f, const char *key, uint32_t value)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%s", f->arch, key);
    gguf_pair_u32(&f->keys, name, value);
    f->n_key++;
}

static void text(file *f, const char *key, const char *value)
{
    gguf_pair_text(&f->keys, key, value);
    f->n_key++;
}

static void write_float(gguf_bytes *b, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_word(b, bits, 4);
}

static void put_keys(file *f, const recipe *m)
{
    char eps[80];
    text(f, "general.architecture", f->arch);
    number(f, "block_count", 1);
    number(f, "context_length", N_CTX);
    number(f, "embedding_length", D_MODEL);
    number(f, "feed_forward_length", m->d_ff);
    number(f, "attention.head_count", N_HEAD);
    number(f, "attention.head_count_kv", m->n_kv);
    number(f, "attention.key_length", D_HEAD);
    number(f, "attention.value_length", D_HEAD);
    snprintf(eps, sizeof eps, "%s.attention.layer_norm_rms_epsilon", f->arch);
    gguf_key(&f->keys, eps, KEY_F32), write_float(&f->keys, 1e-5f), f->n_key++;
    if (!m->packed) return;
    text(f, "hearth.ffn.activation", "reglu");
    gguf_pair_u32(&f->keys, "hearth.pack.version", 1), f->n_key++;
    text(f, "hearth.pack.source", "0123456789abcdef");
    text(f, "hearth.selector", "predictor");
    text(f, "hearth.predictor.input", "normed");
    gguf_array(&f->keys, "hearth.predictor.threshold", KEY_F32, 1), write_float(&f->keys, 0.0f), f->n_key++;
}

static void tensor(file *f, const char *name, hth_type type, uint64_t n_col, uint64_t n_row)
{
    const uint64_t dim[] = {n_col, n_row};
    gguf_info(&f->infos, name, n_row > 1 ? 2 : 1, dim, (uint32_t)type, f->size);
    f->size += (hth_type_row_size(type, n_col) * n_row + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    f->n_tensor++;
}

static void put_tensors(file *f, const recipe *m)
{
    const uint64_t d = D_MODEL, kv = (uint64_t)m->n_kv * D_HEAD;
    tensor(f, "token_embd.weight", m->type, d, N_VOCAB);
    tensor(f, "blk.0.attn_norm.weight", HTH_TYPE_F32, d, 1);
    tensor(f, "blk.0.attn_q.weight", m->type, d, N_HEAD * D_HEAD);
    tensor(f, "blk.0.attn_k.weight", m->type, d, kv);
    tensor(f, "blk.0.attn_v.weight", m->type, d, kv);
    tensor(f, "blk.0.attn_output.weight", m->type, N_HEAD * D_HEAD, d);
    if (m->head_norms) {
        tensor(f, "blk.0.attn_q_norm.weight", HTH_TYPE_F32, D_HEAD, 1);
        tensor(f, "blk.0.attn_k_norm.weight", HTH_TYPE_F32, D_HEAD, 1);
    }
    tensor(f, "blk.0.ffn_norm.weight", HTH_TYPE_F32, d, 1);
    tensor(f, "blk.0.ffn_gate.weight", m->type, d, m->d_ff);
    tensor(f, "blk.0.ffn_up.weight", m->type, d, m->d_ff);
    if (m->packed) {
        tensor(f, "blk.0.ffn_down_t.weight", m->type, d, m->d_ff);
        tensor(f, "blk.0.fc1.weight", HTH_TYPE_Q8_0, d, RANK);
        tensor(f, "blk.0.fc2.weight", HTH_TYPE_Q8_0, RANK, m->d_ff);
    } else tensor(f, "blk.0.ffn_down.weight", m->type, m->d_ff, d);
    tensor(f, "output_norm.weight", HTH_TYPE_F32, d, 1);
    tensor(f, "output.weight", m->type, d, N_VOCAB);
}

/* The directory, then a hole of the tensors' size. */
static bool write_file(const recipe *m, const char *path)
{
    file f = {.arch = m->head_norms ? "qwen3" : "llama"};
    gguf_bytes all = {0};
    put_keys(&f, m);
    put_tensors(&f, m);
    gguf_header(&all, 3, f.n_tensor, f.n_key);
    gguf_put(&all, f.keys.data, f.keys.n);
    gguf_put(&all, f.infos.data, f.infos.n);
    gguf_pad(&all, ALIGNMENT);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, all.data, all.n) == (ssize_t)all.n &&
              ftruncate(fd, (off_t)(all.n + f.size)) == 0;
    if (fd >= 0) close(fd);
    gguf_free(&f.keys), gguf_free(&f.infos), gguf_free(&all);
    return ok;
}

/* ---- steps ----------------------------------------------------------------------------------------------- */

typedef struct listing {
    radv_use_fn *fn;
    void *user;
    const char *model;
} listing;

/* A line for each pipeline of these segments. */
static void list_segments(const listing *l, const hth_device *device, const hth_gpu_segments *all,
                          const char *step)
{
    for (const hth_pipeline *p = hth_pipeline_next(device, NULL); p; p = hth_pipeline_next(device, p)) {
        const uint32_t *consts;
        hth_shader_id id = hth_pipeline_get_info(p, &consts);
        uint32_t n = 0;
        for (uint32_t i = 0; i < all->n; i++)
            for (size_t k = 0; k < all->segments[i].cmdlist->n_cmd; k++)
                n += all->segments[i].cmdlist->cmds[k].pipeline == p;
        if (n > 0) l->fn(l->user, l->model, step, id, consts, n);
    }
}

/* Experts that leave for the device. */
static void list_moves(const listing *l, const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->params.end_layer; i++) {
        hth_gpu_segment one = {.cmdlist = g->layers[i].slots ? g->layers[i].slots->cmdlist : NULL};
        const hth_gpu_segments all = {.segments = &one, .n = one.cmdlist != NULL};
        list_segments(l, g->device, &all, "moves");
    }
}

static void list_steps(const listing *l, const hth_gpu *g)
{
    static const char *const names[HTH_GPU_N_CLASS] = {"token", "two", "four", "few", "some", "prompt"};
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) list_segments(l, g->device, &g->segments[c], names[c]);
    for (uint32_t i = 0; i < g->n_stream; i++)
        list_segments(l, g->device, &g->streams[i].segments, "streamed");
    list_segments(l, g->device, &g->head_segments[0], "head");
    list_segments(l, g->device, &g->head_segments[1], "heads");
    list_segments(l, g->device, &g->copy_segment, "pages");
    list_moves(l, g);
}

static hearth_status read_zeros(void *user, const hth_matrix *matrix, uint64_t first, uint64_t n,
                                uint8_t *rows, hearth_error *err)
{
    (void)user, (void)first, (void)err;
    memset(rows, 0, n * matrix->row_size);
    return HEARTH_OK;
}

/* The null device with the limits and features of another. */
static hearth_status open_device(const hth_device_info *info, hth_device **out, hearth_error *err)
{
    const hth_device_spec spec = {.name = "null", .shader_refs = hth_shader_ref_table};
    hearth_status st = hth_device_open(&spec, out, err);
    if (st != HEARTH_OK) return st;
    (*out)->info = *info;
    (*out)->info.memory = UINT64_MAX;
    return HEARTH_OK;
}

static hearth_status record(const hearth_model *of, hth_device *device, const hth_offload_params *params,
                            const listing *l, hearth_error *err)
{
    hth_gpu *g = NULL;
    hearth_status st = hth_gpu_open(of->model, &of->kernels, device, params, read_zeros, NULL, &g, err);
    if (st == HEARTH_OK) st = hth_gpu_bind_cpu_rows(g, err);
    if (st == HEARTH_OK) list_steps(l, g);
    hth_gpu_close(g);
    return st;
}

/* All layers and the head; no matrix is divided. */
static hth_offload_params params_of(const hearth_model *of, const uint32_t *n_hot, hearth_kv_type kv)
{
    return (hth_offload_params){.end_layer = of->model->hparams.n_layer,
                                .n_hot = n_hot,
                                .head = true,
                                .n_row = N_PROMPT,
                                .n_position = hth_gpu_positions(N_CTX),
                                .kv = kv,
                                .max_work = UINT64_MAX / 2};
}

static hearth_status record_recipe(const recipe *m, const hth_device_info *info, const listing *l, const char *path,
                                   hearth_error *err)
{
    const hearth_model_options options = {.n_thread = 1, .mmap = true, .no_repack = true};
    const uint32_t n_hot = m->n_hot > 0 ? m->n_hot : m->d_ff;
    hth_device *device = NULL;
    hearth_model *model = NULL;
    if (!write_file(m, path)) return hth_fail(err, HEARTH_ERROR_IO, "%s: it cannot be written", path);
    hearth_status st = hearth_model_open(path, &options, &model, err);
    if (st == HEARTH_OK) st = open_device(info, &device, err);
    if (st == HEARTH_OK) {
        hth_offload_params params = params_of(model, &n_hot, m->kv);
        params.selector = m->packed ? HEARTH_SELECTOR_PREDICTOR : HEARTH_SELECTOR_DENSE;
        if (m->n_hot > 0) params.streams[0] = (hth_placement_stream){64, HTH_PLACEMENT_PARTS / 4};
        st = record(model, device, &params, l, err);
    }
    hth_device_close(device);
    hearth_model_close(model);
    return st;
}

/* ---- mixtures and hybrids -------------------------------------------------------------------------------- */

/* First layers of shapes, one of each kind: of their experts a half have slots, and of every second layer the device
 * reads missing ones. */
static const struct {
    const char *shape, *type;
    uint32_t n_layer;
} shapes[] = {{"qwen3-30b-a3b", "q4_k_m", 2}, {"gpt-oss-20b", "mxfp4_moe", 2}, {"qwen35-35b-a3b", "q4_k_m", 4},
              {"deepseek-v2-lite", "q4_0", 3}};

static hearth_status record_shape(size_t i, const hth_device_info *info, const listing *l, const char *path,
                                  hearth_error *err)
{
    const hth_synth_options synth = {.shape = shapes[i].shape,
                                     .n_layer = shapes[i].n_layer,
                                     .ftype = hth_ftype_find(shapes[i].type),
                                     .seed = 1};
    const hearth_model_options options = {.n_thread = 1};
    uint32_t n_hot[HTH_MAX_LAYER];
    uint64_t size;
    hth_device *device = NULL;
    hearth_model *model = NULL;
    hearth_status st = hth_synth(path, &synth, &size, err);
    if (st == HEARTH_OK) st = hearth_model_open(path, &options, &model, err);
    if (st == HEARTH_OK) st = open_device(info, &device, err);
    if (st == HEARTH_OK) {
        hth_offload_params params = params_of(model, n_hot, HEARTH_KV_F16);
        params.reads_host = true;
        for (uint32_t k = 0; k < params.end_layer; k++) {
            const hth_layer *layer = &model->model->layers[k];
            n_hot[k] = hth_layer_n_unit(layer) / (hth_layer_divides_experts(layer) ? 2 : 1);
            if (k % 2) hth_layer_set_add(&params.read_experts, k);
        }
        st = record(model, device, &params, l, err);
    }
    hth_device_close(device);
    hearth_model_close(model);
    return st;
}

bool radv_models_record(const hth_device_info *info, radv_use_fn *fn, void *user)
{
    enum { N_MODEL = sizeof models / sizeof *models, N_SHAPE = sizeof shapes / sizeof *shapes };
    hearth_error err = {0};
    hearth_status st = HEARTH_OK;
    const char *path = test_program_scratch("radv.gguf");
    for (size_t i = 0; st == HEARTH_OK && i < N_MODEL + N_SHAPE; i++) {
        const listing l = {fn, user, i < N_MODEL ? models[i].name : shapes[i - N_MODEL].shape};
        st = i < N_MODEL ? record_recipe(&models[i], info, &l, path, &err)
                         : record_shape(i - N_MODEL, info, &l, path, &err);
        remove(path);
    }
    if (st != HEARTH_OK) fprintf(stderr, "radv_stats: %s\n", err.message);
    return st == HEARTH_OK;
}
