/* Networks whose weights come from elsewhere, late, in any order, into memory that is used again: the bits of a model
 * that is in memory, with every selector, any number of tokens and threads. Only clusters that a predictor names are
 * requested. A source that fails ends the step with its error, a cancelled step drops what was requested, and
 * the same step can be done again. */
#include "engine/engine.h"
#include "forward/ffn_source.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/test.h"

#include <pthread.h>
#include <time.h>

enum { N_ID = 40, MAX_CLUSTER = 8, N_SLOT = 3, MAX_PART = 2 }; /* clusters of a layer, of a part */

/* ---- a late source ---------------------------------------------------------------------------------------- */

/* A thread copies one or two clusters at a time, in any order, to slots that are free. */
typedef struct late {
    const hth_model *model;
    test_random random;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot {
        enum { FREE, READY, HELD } state;
        hth_ffn_part part;
        uint8_t *memory;
        size_t size;
    } slots[N_SLOT];
    uint32_t i_layer, n_pending, n_copying;
    bool pending[MAX_CLUSTER];
    int32_t only;                                             /* cluster that the predictor names in layer 1; -1: any */
    uint64_t n_wanted, n_cluster, n_take, fail_at, cancel_at; /* fail_at, cancel_at: n_take; 0: never */
    bool closing;
} late;

static volatile int cancel_flag;

static const uint8_t *copy_rows(const hth_matrix *m, const hth_ffn_part *part, uint8_t **to)
{
    size_t size = part->n_neuron * m->row_size;
    if (m->n_row == 0) return NULL;
    const uint8_t *copy = memcpy(*to, m->data + part->first * m->row_size, size);
    *to += size;
    return copy;
}

static struct slot *slot_in(late *s, int state)
{
    for (int i = 0; i < N_SLOT; i++)
        if ((int)s->slots[i].state == state) return &s->slots[i];
    return NULL;
}

/* A pending cluster, and often the one behind it. */
static hth_ffn_part choose_part(late *s)
{
    const hth_ffn *f = &s->model->layers[s->i_layer].ffn;
    uint32_t i = test_random_below(&s->random, MAX_CLUSTER), n = 1;
    while (!s->pending[i]) i = (i + 1) % MAX_CLUSTER;
    if (i + 1 < MAX_CLUSTER && s->pending[i + 1] && test_random_below(&s->random, 2)) n = MAX_PART;
    for (uint32_t k = 0; k < n; k++) s->pending[i + k] = false;
    s->n_pending -= n;
    uint32_t first = i * HTH_CLUSTER_NEURONS, left = f->d_ff - first, size = n * HTH_CLUSTER_NEURONS;
    return (hth_ffn_part){.first = first, .n_neuron = left < size ? left : size};
}

static void deliver(late *s, struct slot *to)
{
    const hth_ffn *f = &s->model->layers[s->i_layer].ffn;
    uint8_t *at = to->memory;
    to->part.gate = copy_rows(&f->gate, &to->part, &at);
    to->part.up = copy_rows(&f->up, &to->part, &at);
    to->part.down = copy_rows(&f->down_t.rows, &to->part, &at);
}

static void *run_late(void *arg)
{
    late *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        struct slot *to = slot_in(s, FREE);
        if (s->n_pending == 0 || !to) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        to->part = choose_part(s);
        const struct timespec pause = {0, (long)test_random_below(&s->random, 100000)};
        s->n_copying++;
        pthread_mutex_unlock(&s->lock);
        nanosleep(&pause, NULL);
        deliver(s, to);
        pthread_mutex_lock(&s->lock);
        s->n_copying--;
        to->state = READY;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void request(void *user, uint32_t i_layer, const uint8_t *wanted)
{
    late *s = user;
    uint32_t n = (uint32_t)hth_n_cluster(s->model->layers[i_layer].ffn.d_ff);
    pthread_mutex_lock(&s->lock);
    CHECK(s->n_pending == 0 && s->n_copying == 0 && !slot_in(s, READY));
    s->i_layer = i_layer;
    for (uint32_t i = 0; i < n; i++) {
        s->pending[i] = !wanted || wanted[i];
        s->n_pending += s->pending[i];
        if (wanted && i_layer == 0) CHECK(!wanted[i]);
        if (wanted && i_layer == 1 && s->only >= 0) CHECK(wanted[i] == ((int32_t)i == s->only));
    }
    s->n_wanted += s->n_pending, s->n_cluster += n;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static hearth_status take(void *user, uint32_t i_layer, hth_ffn_part *part, hearth_error *err)
{
    late *s = user;
    struct slot *from;
    bool fails = ++s->n_take == s->fail_at;
    if (s->n_take == s->cancel_at) cancel_flag = 1;
    pthread_mutex_lock(&s->lock);
    CHECK_INT(i_layer, s->i_layer);
    while (!(from = slot_in(s, READY)) && s->n_pending + s->n_copying > 0) pthread_cond_wait(&s->changed, &s->lock);
    if (from && !fails) from->state = HELD, *part = from->part;
    pthread_mutex_unlock(&s->lock);
    return fails ? hth_fail(err, HEARTH_ERROR_IO, "a cluster that cannot be read") : HEARTH_OK;
}

static void cancel_requests(void *user)
{
    late *s = user;
    pthread_mutex_lock(&s->lock);
    memset(s->pending, 0, sizeof s->pending);
    s->n_pending = 0;
    while (s->n_copying > 0) pthread_cond_wait(&s->changed, &s->lock);
    for (int i = 0; i < N_SLOT; i++) s->slots[i].state = FREE;
    pthread_mutex_unlock(&s->lock);
}

static void give_back(void *user, uint32_t i_layer, const hth_ffn_part *part)
{
    late *s = user;
    (void)i_layer;
    pthread_mutex_lock(&s->lock);
    struct slot *slot = slot_in(s, HELD);
    if (CHECK(slot && slot->part.first == part->first)) {
        memset(slot->memory, 0xff, slot->size); /* a late reader would compute NaN */
        slot->state = FREE;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void open_late(late *s, const hth_model *model)
{
    *s = (late){.model = model, .random = {7}, .only = -1};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int i = 0; i < N_SLOT; i++) {
        size_t most = 0;
        for (uint32_t l = 0; l < model->hparams.n_layer; l++) {
            const hth_ffn *f = &model->layers[l].ffn;
            size_t size = MAX_PART * HTH_CLUSTER_NEURONS * (f->gate.row_size + f->up.row_size + f->down_t.rows.row_size);
            most = size > most ? size : most;
        }
        s->slots[i].memory = malloc(most), s->slots[i].size = most;
        if (!s->slots[i].memory) abort();
    }
    if (pthread_create(&s->thread, NULL, run_late, s) != 0) abort();
}

static void close_late(late *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < N_SLOT; i++) free(s->slots[i].memory);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

/* ---- models ----------------------------------------------------------------------------------------------- */

static void eval_pieces(hearth_session *s, const int32_t *ids, uint32_t n_piece)
{
    for (uint32_t i = 0; i < N_ID; i += n_piece)
        CHECK_OK(hearth_session_eval(s, ids + i, n_piece < N_ID - i ? n_piece : N_ID - i, err));
}

/* Texts in pieces of n_piece tokens, from the source and from memory; first with a take that fails, and one that is
 * the last before a cancellation. */
static void compare(const hearth_model *model, const int32_t *ids, uint32_t n_piece, uint32_t n_thread, late *from)
{
    const hth_ffn_source source = {request, take, give_back, cancel_requests, from};
    const hearth_session_options o = {.n_ctx = N_ID, .n_batch = N_ID, .n_thread = n_thread, .kv = HEARTH_KV_F16};
    CLOSED(hearth_session) *here = OPENED(hearth_session, model, &o);
    CLOSED(hearth_session) *there = OPENED(hearth_session, model, &o);
    if (!here || !there) return;
    CHECK_OK(hth_step_use_source(hth_session_step(there), &source, err));
    eval_pieces(here, ids, n_piece);
    from->fail_at = from->n_take + 2;
    CHECK_FAILS(hearth_session_eval(there, ids, n_piece, err), HEARTH_ERROR_IO, "a cluster that cannot be read");
    from->cancel_at = from->n_take + 2;
    CHECK_FAILS(hearth_session_eval(there, ids, n_piece, err), HEARTH_ERROR_CANCELLED, "interrupted");
    CHECK_INT(from->n_take, from->cancel_at);
    CHECK_INT(hearth_session_position(there), 0);
    cancel_flag = 0;
    eval_pieces(there, ids, n_piece);
    const float *a = hearth_session_logits(here), *b = hearth_session_logits(there);
    if (CHECK(a && b)) CHECK_BYTES(b, a, model->model->hparams.n_vocab * sizeof *a);
}

/* From now on the predictor of layer 1 names all neurons of cluster 2 and no others. */
static void name_one_cluster(hth_model *model, late *from)
{
    static float bias[MAX_CLUSTER * HTH_CLUSTER_NEURONS];
    for (size_t i = 0; i < MAX_CLUSTER * HTH_CLUSTER_NEURONS; i++)
        bias[i] = i / HTH_CLUSTER_NEURONS == 2 ? 1e30f : -1e30f;
    model->layers[1].ffn.predictor.bias = bias;
    from->only = 2;
}

static void check_model(const char *path, hearth_selector selector)
{
    static const uint32_t pieces[] = {1, 5, N_ID};
    const hearth_model_options o = {.n_thread = 2, .selector = selector, .cancel = &cancel_flag};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    int32_t ids[N_ID];
    test_random r = {3};
    late from;
    if (!model) return;
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)test_random_below(&r, 250);
    model->model->layers[0].ffn.predictor.threshold = 1e30f; /* with a predictor nothing is active in this layer */
    open_late(&from, model->model);
    for (uint32_t i = 0; i < 3; i++) compare(model, ids, pieces[i], 1 + i, &from);
    if (selector == HEARTH_SELECTOR_PREDICTOR) name_one_cluster(model->model, &from), compare(model, ids, 5, 2, &from);
    close_late(&from);
    CHECK((from.n_wanted < from.n_cluster) == (selector == HEARTH_SELECTOR_PREDICTOR));
}

TEST(clusters_that_come_late_and_in_any_order_give_the_bits_of_a_model_in_memory)
{
    const char *path = test_scratch("powerinfer.gguf");
    if (!hybrid_pack_powerinfer("opt", path)) return;
    for (int s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++) check_model(path, (hearth_selector)s);
}

TEST(clusters_of_floats_and_of_a_trained_model_give_the_bits_of_a_model_in_memory)
{
    const char *path = test_scratch("floats.gguf");
    if (hybrid_pack_floats("bamboo", path)) check_model(path, HEARTH_SELECTOR_GATE);
    if (hybrid_pack_storyteller("Q4_0", path)) check_model(path, HEARTH_SELECTOR_GATE);
}

TEST(a_down_in_file_order_cannot_be_fetched_apart)
{
    const hth_ffn_source source = {request, take, give_back, cancel_requests, NULL};
    const char *path = test_data("golden/arch/llama-reglu.gguf");
    CLOSED(hearth_model) *model = path ? OPENED(hearth_model, path, &(hearth_model_options){.n_thread = 1}) : NULL;
    if (!model) return;
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, NULL);
    if (s) CHECK_FAILS(hth_step_use_source(hth_session_step(s), &source, err), HEARTH_ERROR_UNSUPPORTED, "not rows of down");
}
