/* Implements models of hearth.h: a file that is opened, bound and loaded, with its tokenizer. hearth_model_close
 * undoes everything in reverse order. */
#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/switches.h"
#include "engine/engine.h"
#include "engine/struct_size.h"
#include "file/sigbus_guard.h"
#include "sparse/selector.h"

#include <string.h>

const char *hearth_selector_name(hearth_selector selector) { return hth_selector_name(selector); }

bool hearth_handle_sigbus(const void *address) { return hth_sigbus_guard_handle(address); }

hearth_model_options hearth_model_defaults(void)
{
    return (hearth_model_options){.size = sizeof(hearth_model_options)};
}

hearth_status hth_engine_choose_io(hearth_model_options *o, hearth_error *err)
{
    const char *variable = o->io || o->mmap ? NULL : hth_default_io();
    hearth_error why;
    if (variable) o->io = variable;
    bool maps = o->io && strcmp(o->io, "mmap") == 0;
    o->mmap |= maps;
    if (o->mmap && o->ram > 0)
        return hth_fail(
            err, HEARTH_ERROR_UNSUPPORTED,
            "%sa limit of memory cannot be combined with mapped weights; hearth_model_options.io auto reads them",
            variable ? "HEARTH_IO=mmap: " : "");
    if (maps) return HEARTH_OK;
    hearth_status st = hth_disk_check_name(o->io, &why);
    if (st == HEARTH_OK) return st;
    return variable ? hth_fail(err, st, "HEARTH_IO=%s: %s", variable, why.message) : hth_fail(err, st, "%s", why.message);
}

/* Allocates and frees a cache of the announced context, so that one that is too large fails before weights are
 * read. A device has checked it already. */
static hearth_status try_cache(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    hth_kv_pool *pool;
    hth_sequence s = {0};
    if (o->n_ctx == 0) return HEARTH_OK;
    const hth_sequence_options sequence = {.n_ctx = hth_context_for(&m->model->hparams, o->n_ctx)};
    hearth_status st = hth_engine_kv_pool(m, o->kv, &pool, err);
    if (st == HEARTH_OK) st = hth_sequence_open(&s, pool, &sequence, err);
    hth_sequence_close(&s);
    return st;
}

/* Copies the options, and refuses what no model can be opened with. */
static hearth_status read_options(const hearth_model_options *options, hearth_model_options *o,
                                  hearth_error *err)
{
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_model_options, options, o, err);
    if (st == HEARTH_OK)
        st = hth_engine_check_reserved("hearth_model_options.gpu", o->gpu.reserved, sizeof o->gpu.reserved,
                                       err);
    if (st == HEARTH_OK) st = hth_engine_check_selector("hearth_model_options.selector", o->selector, err);
    if (st == HEARTH_OK) st = hth_engine_check_kv("hearth_model_options.gpu.kv", o->gpu.kv, err);
    if (st == HEARTH_OK) st = hth_engine_check_threads("hearth_model_options.n_thread", o->n_thread, err);
    return st == HEARTH_OK ? hth_engine_choose_io(o, err) : st;
}

/* Reads the hyperparameters of a model that is opened without its tensors. They stay zero, but for n_vocab, if this
 * library does not support the model. */
static hearth_status read_known(hearth_model *m, hearth_error *err)
{
    hearth_error why;
    hth_arena arena = {0};
    hth_layer_sizes *sizes;
    const hth_model_overrides other = {.may_lack_tensors = true};
    const hth_gguf_tensor *embedding = hth_gguf_find_tensor(m->file, "token_embd.weight");
    hearth_status st = hth_model_read_hparams(m->file, &other, &arena, &m->known, &sizes, &why);
    hth_arena_free(&arena);
    if (st == HEARTH_ERROR_MEMORY) {
        if (err) *err = why;
        return st;
    }
    if (st != HEARTH_OK) m->known = (hth_hparams){0};
    uint32_t n_token = m->tokenizer ? (uint32_t)hth_tokenizer_n_vocab(m->tokenizer) : 0;
    bool has_rows = embedding && embedding->dim[1] >= n_token && embedding->dim[1] <= INT32_MAX;
    m->known.n_vocab = has_rows ? (uint32_t)embedding->dim[1] : n_token;
    return HEARTH_OK;
}

hearth_status hth_engine_need_model(const hearth_model *m, const char *what, hearth_error *err)
{
    if (m->model) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: %s needs weights, but the model was opened with vocab_only, without any: open it without that",
                    hth_gguf_path(m->file), what);
}

static hearth_status open_tokenizer(hearth_model *m, hearth_error *err)
{
    hearth_status st = hth_tokenizer_open(m->file, &m->tokenizer, &m->tokenizer_error);
    if (st != HEARTH_ERROR_MEMORY) return HEARTH_OK;
    if (err) *err = m->tokenizer_error;
    return st;
}

/* Neither weights nor what depends on them. */
static hearth_status open_vocabulary(hearth_model *m, hearth_error *err)
{
    hearth_status st = open_tokenizer(m, err);
    return st == HEARTH_OK ? read_known(m, err) : st;
}

/* All that evaluates tokens. */
static hearth_status open_weights(hearth_model *m, const hearth_model_options *options, const char *dense_for,
                                  hth_memory_division *division, hearth_error *err)
{
    hth_sidecar sidecars[2] = {{0}};
    hth_model_overrides other = {.activation = options->activation, .allow_unused = options->allow_unused};
    hearth_status st = hth_model_open(m->file, &other, &m->model, err);
    if (st == HEARTH_OK && dense_for) st = hth_model_check_dense(m->model, dense_for, err);
    if (st != HEARTH_OK || (st = hth_engine_open_sidecars(m, options, sidecars, err)) != HEARTH_OK) goto done;
    hearth_selector requested = hth_selector_default(m->model, options->selector, &sidecars[0], &sidecars[1]);
    st = hth_selector_choose(m->model, requested, &m->selector, &m->selector_why, err);
    if (st != HEARTH_OK) goto done;
    if ((st = open_tokenizer(m, err)) != HEARTH_OK) goto done;
    if ((st = hth_engine_load_vectors(m, err)) != HEARTH_OK) goto done;
    if ((st = hth_engine_read_sidecars(m, sidecars, err)) != HEARTH_OK) goto done;
    m->n_thread = options->n_thread;
    m->cancel = options->cancel;
    if ((st = hth_engine_open_gpu(m, options, err)) != HEARTH_OK) goto done;
    bool has_cache = !m->gpu || hth_gpu_get_params(m->gpu)->host_kv;
    if (has_cache && (st = try_cache(m, &options->gpu, err)) != HEARTH_OK) goto done;
    if (division) {
        st = hth_engine_divide_memory(m, options, division, err);
        goto done;
    }
    if ((st = hth_engine_open_store(m, options, err)) != HEARTH_OK) goto done;
    hth_engine_warn_of_memory(m, options);
    if ((st = hth_engine_load(m, options, err)) != HEARTH_OK) goto done;
    st = hth_engine_finish_gpu_load(m, options, err);
done:
    hth_sidecar_close(&sidecars[0]);
    hth_sidecar_close(&sidecars[1]);
    return st;
}

hearth_status hth_engine_override(hth_gguf *file, const hearth_model_options *o, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (!o->overrides && o->n_override > 0) return hth_fail_null(err, "hearth_model_options.overrides");
    for (size_t i = 0; st == HEARTH_OK && i < o->n_override; i++)
        st = o->overrides[i] ? hth_gguf_override(file, o->overrides[i], err)
                             : hth_fail_null(err, "hearth_model_options.overrides");
    return st;
}

/* Takes ownership of file, also on failure. dense_for: what mixtures of experts are refused for; NULL: nothing.
 * division: set instead of reading matrices; NULL: they are read. */
static hearth_status open_file(hth_gguf *file, const hearth_model_options *options, const char *dense_for,
                               hth_memory_division *division, hearth_model **out, hearth_error *err)
{
    hth_cpu level;
    const hth_settings settings = {.no_huge_pages = options->no_huge_pages, .cache = options->cache};
    hearth_model *m = hth_alloc(1, sizeof *m);
    if (!m) {
        hth_gguf_close(file);
        return hth_fail_memory(err, sizeof *m, "a model");
    }
    m->file = file;
    m->n_batch = HTH_DEFAULT_BATCH;
    m->max_tokens = UINT32_MAX;
    if (options->ram > 0 && !options->vocab_only && !hth_disk_is_simulated(options->io)) hth_gguf_read_uncached(file);
    pthread_mutex_init(&m->gpu_lock, NULL);
    pthread_mutex_init(&m->trie_lock, NULL);
    pthread_mutex_init(&m->mtp_lock, NULL);
    hth_engine_init_budget(m);
    hearth_status st = hth_settings_hold(&settings, err);
    m->has_settings = st == HEARTH_OK;
    if (st == HEARTH_OK) st = hth_engine_override(file, options, err);
    if (st == HEARTH_OK) st = hth_cpu_choose(options->cpu, &level, err);
    if (st == HEARTH_OK) {
        hth_kernels_init(&m->kernels, level);
        st = options->vocab_only ? open_vocabulary(m, err) : open_weights(m, options, dense_for, division, err);
    }
    if (st != HEARTH_OK) hearth_model_close(m);
    else *out = m;
    return st;
}

hearth_status hth_engine_open_dense(const char *path, const hearth_model_options *options, const char *what,
                                    hearth_model **out, hearth_error *err)
{
    hearth_model_options o;
    hth_gguf *file;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!path) return hth_fail_null(err, "path");
    hearth_status st = read_options(options, &o, err);
    if (st == HEARTH_OK) st = hth_gguf_open(path, &file, err);
    return st == HEARTH_OK ? open_file(file, &o, what, NULL, out, err) : st;
}

hearth_status hth_engine_open_divided(const char *path, const hearth_model_options *options, hearth_model **out,
                                      hth_memory_division *division, hearth_error *err)
{
    hearth_model_options o;
    hth_gguf *file;
    *out = NULL;
    hearth_status st = read_options(options, &o, err);
    o.gpu.device = "none";
    if (st == HEARTH_OK) st = hth_gguf_open(path, &file, err);
    return st == HEARTH_OK ? open_file(file, &o, NULL, division, out, err) : st;
}

hearth_status hearth_model_open(const char *path, const hearth_model_options *options, hearth_model **out,
                                hearth_error *err)
{
    HTH_FP_SCOPE;
    return hth_engine_open_dense(path, options, NULL, out, err);
}

hearth_status hearth_model_open_memory(const void *data, size_t size, const char *name,
                                       const hearth_model_options *options, hearth_model **out,
                                       hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_model_options o;
    hth_gguf *file;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!data || !name) return hth_fail_null(err, data ? "name" : "data");
    hearth_status st = read_options(options, &o, err);
    o.mmap = true; /* the weights are already in memory */
    if (st == HEARTH_OK) st = hth_gguf_open_memory(data, size, name, &file, err);
    return st == HEARTH_OK ? open_file(file, &o, NULL, NULL, out, err) : st;
}

hearth_status hearth_model_open_descriptors(const int *fds, size_t n_fd, const char *name,
                                            const hearth_model_options *options, hearth_model **out,
                                            hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_model_options o;
    hth_gguf *file;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!fds || !name) return hth_fail_null(err, fds ? "name" : "fds");
    hearth_status st = read_options(options, &o, err);
    if (st == HEARTH_OK) st = hth_gguf_open_descriptors(fds, n_fd, name, &file, err);
    return st == HEARTH_OK ? open_file(file, &o, NULL, NULL, out, err) : st;
}

const hearth_model *hth_engine_hold_model(const hearth_model *m)
{
    hth_ref_take(&hth_engine_mutable(m->part_of ? m->part_of : m)->ref);
    return m;
}

void hth_engine_release_model(const hearth_model *m)
{
    if (m) hearth_model_close(hth_engine_mutable(m->part_of ? m->part_of : m));
}

void hearth_model_close(hearth_model *m)
{
    HTH_FP_SCOPE;
    if (!m || !hth_ref_drop(&m->ref)) return;
    hth_engine_close_mtp(m);
    hth_speed_check_report(&m->speed_check);
    hth_engine_close_gpu(m);
    hth_engine_close_store(m);
    for (int i = 0; i < HTH_N_KV_TYPE; i++) hth_kv_pool_close(m->kv_pools[i]);
    hth_pages_free(m->weights, m->weights_size);
    for (uint32_t i = 0; i < m->n_reloaded; i++) hth_pages_free(m->reloaded[i].weights, m->reloaded[i].size);
    hth_pages_free(m->predictors, m->predictors_size);
    hth_arena_free(&m->vectors);
    hth_engine_close_trie(m);
    hth_tokenizer_close(m->tokenizer);
    hth_model_close(m->model);
    hth_gguf_close(m->file);
    hth_engine_close_budget(m);
    if (m->has_settings) hth_settings_release();
    pthread_mutex_destroy(&m->gpu_lock);
    pthread_mutex_destroy(&m->trie_lock);
    pthread_mutex_destroy(&m->mtp_lock);
    hth_free(m);
}

static hth_sidecar_kind sidecar_kind_of(const hth_model *m, const hth_binding *b)
{
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_layer *l = &m->layers[i];
        const hth_predictor *p = &l->ffn.predictor;
        if (b->matrix == &p->in || b->matrix == &p->out || b->vector == &p->bias)
            return HTH_SIDECAR_PREDICTORS;
        if (b->vector == &l->ffn.thresholds) return HTH_SIDECAR_THRESHOLDS;
    }
    return HTH_SIDECAR_NONE;
}

static bool reads_part(hearth_selector selector, hth_sidecar_kind part)
{
    if (part == HTH_SIDECAR_NONE) return true;
    return selector ==
           (part == HTH_SIDECAR_PREDICTORS ? HEARTH_SELECTOR_PREDICTOR : HEARTH_SELECTOR_THRESHOLD);
}

/* The share of neurons that lie on devices, those of dense networks and of divided experts. */
static double share_on_gpu(const hearth_model *m)
{
    uint64_t there = 0, all = 0;
    for (uint32_t i = 0; i < hth_gpu_end_layer(m->gpu); i++) {
        const hth_layer *l = &m->model->layers[i];
        uint64_t d_ff = hth_layer_divides_experts(l) ? l->experts.d_ff : 0;
        there += (hth_gpu_has_ffn(m->gpu, i) ? hth_gpu_n_hot(m->gpu, i) : 0) + d_ff * hth_gpu_n_expert(m->gpu, i);
        all += l->ffn.d_ff + d_ff * l->experts.router.n_expert;
    }
    return all > 0 ? (double)there / (double)all : 1.0;
}

/* Why a part that is or was on the device is not bit-exact with the CPU; "": all parts are. */
static const char *bit_exact_note(const hearth_model *m)
{
    const char *note = m->gpu ? hth_gpu_bit_exact_reason(m->gpu) : "";
    for (uint32_t i = 0; i < m->n_evicted && !note[0]; i++) note = hth_gpu_bit_exact_reason(m->evicted[i]);
    return note;
}

static void describe_gpu(const hearth_model *m, hearth_model_info *info)
{
    info->gpu = m->gpu && !m->lost ? m->gpu_names[m->n_evicted] : NULL;
    info->gpu_note = hth_engine_gpu_status(m);
    info->gpu_bit_exact_reason = bit_exact_note(m);
    info->gpu_bit_exact = !info->gpu_bit_exact_reason[0];
    if (!info->gpu) return;
    info->gpu_n_layer = hth_gpu_end_layer(m->gpu);
    info->gpu_head = hth_gpu_has_head(m->gpu);
    info->gpu_neuron_share = share_on_gpu(m);
    info->gpu_product_share = hth_engine_product_share(m);
    info->gpu_predicted_tps = m->gpu_seconds > 0.0 ? 1.0 / m->gpu_seconds : 0.0;
    info->gpu_divides_experts = hth_engine_divides_experts(m);
    info->gpu_host_kv = hth_gpu_get_params(m->gpu)->host_kv;
    info->gpu_sim_seconds = (double)hth_gpu_model_time(m->gpu) * 1e-9;
    for (const hth_gpu *g = m->gpu; g; g = hth_gpu_next(g)) {
        info->gpu_bytes += hth_device_state(hth_gpu_get_device(g)).used;
        info->gpu_simulated |= hth_device_get_info(hth_gpu_get_device(g))->kind == HTH_DEVICE_SIMULATED;
    }
}

/* Counts the weights in use: all of the file except parts that sidecars replace. A token reads what it reads with
 * the selector dense, except data of other selectors. */
static void count_weights(const hearth_model *model, hearth_model_info *info)
{
    const hth_model *m = model->model;
    hth_active_weights active = hth_model_count_active(m);
    uint64_t unread = active.size - active.read_size;
    for (size_t i = 0; i < m->n_binding; i++) {
        const hth_binding *b = &m->bindings[i];
        hth_sidecar_kind part = sidecar_kind_of(m, b);
        if (part != HTH_SIDECAR_NONE && model->from_sidecar[part].size > 0) continue;
        info->n_parameter += b->matrix ? (uint64_t)b->matrix->n_row * b->matrix->n_col : b->n;
        info->weight_bytes += b->size;
        if (!reads_part(model->selector, part)) unread += b->size;
    }
    for (hth_sidecar_kind part = 0; part < HTH_N_SIDECAR; part++) {
        info->n_parameter += model->from_sidecar[part].n_weight;
        info->weight_bytes += model->from_sidecar[part].size;
        if (!reads_part(model->selector, part)) unread += model->from_sidecar[part].size;
    }
    info->bytes_per_token = info->weight_bytes - unread;
}

/* A text of the metadata, "" if there is none. */
static const char *text_of(const hearth_model *m, const char *key)
{
    const hth_gguf_value *v = hth_gguf_find(m->file, key);
    return v && v->type == HTH_GGUF_TEXT ? v->as.text.bytes : "";
}

static void describe(const hearth_model *m, hearth_model_info *info)
{
    const hth_hparams *h = hth_engine_hparams(m);
    const char *name = text_of(m, "general.name");
    *info = (hearth_model_info){.path = hth_gguf_path(m->file),
                                .name = name,
                                .synthetic = strncmp(name, "synthetic", 9) == 0,
                                .architecture = h->architecture ? h->architecture : text_of(m, "general.architecture"),
                                .activation = h->arch ? hth_activation_name(h->activation) : "",
                                .cpu = hth_cpu_name(m->kernels.level),
                                .selector = m->selector,
                                .selector_why = m->model ? m->selector_why : "the model was opened without weights",
                                .down_transposed = m->model && m->model->down_transposed,
                                .mapped = m->mapped,
                                .sparse_activation = h->arch && hth_activation_is_sparse(h->activation),
                                .n_layer = h->n_layer,
                                .d_model = h->d_model,
                                .n_head = h->n_head,
                                .n_head_kv = h->n_head_kv,
                                .d_head = h->d_head,
                                .d_ff = h->d_ff,
                                .n_vocab = h->n_vocab,
                                .n_ctx_train = h->n_ctx_train};
    pthread_mutex_t *lock = &((hearth_model *)(uintptr_t)m)->gpu_lock;
    if (m->model) count_weights(m, info);
    if (m->streamed.reader) info->reader = hth_reader_name(m->streamed.reader);
    pthread_mutex_lock(lock);
    if (m->streamed.store)
        info->n_streamed = m->n_streamed, info->n_streamed_max = hth_engine_n_in_memory(m);
    describe_gpu(m, info);
    pthread_mutex_unlock(lock);
}

hearth_status hearth_model_get_info(const hearth_model *m, hearth_model_info *info)
{
    HTH_FP_SCOPE;
    hearth_model_info all;
    if (!m || !hth_engine_can_write_result(&hth_size_of_hearth_model_info, info))
        return HEARTH_ERROR_ARGUMENT;
    describe(m, &all);
    hth_engine_write_result(&hth_size_of_hearth_model_info, &all, info);
    return HEARTH_OK;
}

uint32_t hearth_model_n_vocab(const hearth_model *m) { return m ? hth_engine_hparams(m)->n_vocab : 0; }
uint32_t hearth_model_d_model(const hearth_model *m) { return m ? hth_engine_hparams(m)->d_model : 0; }
