/* Helpers behind engine.h. Used by tests/golden, tests/engine and tests/model. */
#include "support/engine.h"
#include "common/options/options.h"

#include "base/system/cpu.h"
#include "engine/engine.h"
#include "support/test.h"

size_t engine_levels(const char *names[ENGINE_MAX_LEVELS])
{
    size_t n = 0;
    for (int level = HTH_CPU_GENERIC; level <= HTH_CPU_I8MM; level++)
        if (hth_cpu_has(hth_cpu_detect(), (hth_cpu)level)) names[n++] = hth_cpu_name((hth_cpu)level);
    return n;
}

void engine_set_cpu(const char *name)
{
    if (name) setenv("HEARTH_CPU", name, 1);
    else unsetenv("HEARTH_CPU");
}

/* ---- files ---------------------------------------------------------------------------- */

int32_t *engine_read_ids(const char *path, size_t *n)
{
    char *text = path ? test_read_file(path, NULL) : NULL, *at = text, *behind;
    int32_t *ids = text ? malloc(strlen(text) * sizeof *ids + sizeof *ids) : NULL;
    if (!ids) return NULL;
    for (*n = 0;; at = behind) {
        long id = strtol(at, &behind, 10);
        if (behind == at) break;
        ids[(*n)++] = (int32_t)id;
    }
    free(text);
    return ids;
}

float *engine_read_floats(const char *path, size_t *n)
{
    size_t size;
    char *bytes = path ? test_read_file(path, &size) : NULL;
    if (!bytes) return NULL;
    float *x = malloc(size ? size : 1);
    if (!x) abort();
    memcpy(x, bytes, size);
    free(bytes);
    *n = size / sizeof *x;
    return x;
}

/* ---- logits ---------------------------------------------------------------------------- */

typedef struct gathering {
    float *logits;
    size_t n_vocab, n;
} gathering;

static hearth_status gather(void *user, size_t i_token, const float *logits, hearth_error *err)
{
    gathering *g = user;
    memcpy(g->logits + i_token * g->n_vocab, logits, g->n_vocab * sizeof *logits);
    g->n++;
    return HEARTH_OK;
}

static hearth_session *open_session(const hearth_model *model, const engine_setting *setting, size_t n_ctx)
{
    hearth_session_options o = {.n_ctx = (uint32_t)n_ctx, .n_batch = setting->n_batch,
                                .n_thread = setting->n_thread, .kv = setting->kv};
    hearth_session *session = OPENED(hearth_session, model, &o);
    return session;
}

static size_t n_vocab_of(const hearth_model *model)
{
    hearth_model_info info = test_model_info(model);
    return info.n_vocab;
}

float *engine_model_logits(const hearth_model *model, const engine_setting *setting, const int32_t *ids,
                           size_t n)
{
    gathering g = {.n_vocab = n_vocab_of(model)};
    hearth_session *session = open_session(model, setting, n);
    if (!session) return NULL;
    g.logits = calloc(n * g.n_vocab, sizeof *g.logits);
    if (!g.logits) abort();
    CHECK_OK(hearth_session_eval_each(session, ids, n, gather, &g, err));
    hearth_session_close(session);
    if (CHECK_INT(g.n, n)) return g.logits;
    free(g.logits);
    return NULL;
}

float *engine_logits(const char *path, const engine_setting *setting, const int32_t *ids, size_t n,
                     size_t *n_vocab)
{
    hearth_model_options o = {.n_thread = setting->n_thread, .mmap = setting->mmap, .selector = setting->selector};
    engine_set_cpu(setting->cpu);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    engine_set_cpu(NULL);
    if (!model) return NULL;
    *n_vocab = n_vocab_of(model);
    float *logits = engine_model_logits(model, setting, ids, n);
    return logits;
}

float *engine_last_logits(const hearth_model *model, const engine_setting *setting, const int32_t *ids,
                          size_t n)
{
    size_t size = n_vocab_of(model) * sizeof(float);
    CLOSED(hearth_session) *session = open_session(model, setting, n);
    if (!session) return NULL;
    float *logits = malloc(size);
    if (!logits) abort();
    CHECK_OK(hearth_session_eval(session, ids, n, err));
    const float *last = hearth_session_logits(session);
    if (CHECK(last != NULL)) memcpy(logits, last, size);
    return logits;
}

bool engine_greedy(const hearth_model *model, const engine_setting *setting, const int32_t *ids, size_t n,
                   int32_t *out, size_t n_predict)
{
    size_t n_vocab = n_vocab_of(model);
    hearth_session *session = open_session(model, setting, n + n_predict);
    if (!session) return false;
    hearth_status st = hearth_session_eval(session, ids, n, NULL);
    for (size_t i = 0; st == HEARTH_OK && i < n_predict; i++) {
        const float *logits = hearth_session_logits(session);
        out[i] = 0;
        for (size_t k = 1; k < n_vocab; k++)
            if (logits[k] > logits[out[i]]) out[i] = (int32_t)k;
        st = hearth_session_eval(session, &out[i], 1, NULL);
    }
    hearth_session_close(session);
    return CHECK_INT(st, HEARTH_OK);
}

hearth_model *engine_open_streamed(const char *path, const char *io, uint64_t more, hearth_selector selector)
{
    hearth_model *model = NULL;
    hearth_model_options o = {
        .ram = 1, .io = io, .n_thread = 2, .selector = selector, .gpu = {.n_ctx = 64, .kv = HEARTH_KV_F32}};
    hth_engine_set_store_memory(more);
    CHECK_OK(hearth_model_open(path, &o, &model, err));
    hth_engine_set_store_memory(UINT64_MAX);
    return model;
}

bool engine_flushes(const hearth_model *model)
{
    return model->n_device > 0 && test_driver_flushes(hth_device_get_info(model->devices[0].device)->driver);
}

void engine_check_bit_exact(const hearth_model *model)
{
    hearth_model_info info = test_model_info(model);
    const char *reason = info.gpu_bit_exact_reason;
    CHECK_INT(info.gpu_bit_exact, reason[0] == '\0');
    if (!info.gpu_bit_exact && !(engine_flushes(model) && strstr(reason, "float_rules differs from the CPU")))
        test_fail(__FILE__, __LINE__, "%s: %s", info.gpu, reason);
}

/* ---- distances ---------------------------------------------------------------------------- */

uint64_t engine_bytes_behind(const char *text, const char *words, uint64_t *too_few)
{
    static const char letters[] = "KMGT";
    const char *at = strstr(text, words), *letter = NULL;
    char number[24] = "";
    uint64_t bytes = 0;
    size_t n = at ? strspn(at + strlen(words), "0123456789.KMGT") : 0;
    *too_few = 0;
    if (n == 0 || n >= sizeof number) return 0;
    memcpy(number, at + strlen(words), n);
    if (!parse_size(number, &bytes)) return 0;
    letter = strchr(letters, number[n - 1]);
    uint64_t hundredth = letter ? ((uint64_t)1024 << (10 * (letter - letters))) / 100 : 0;
    *too_few = bytes - hundredth - 1;
    return bytes;
}

double engine_max_error(const float *a, const float *b, size_t n)
{
    double max = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= max)) max = d; /* NaN too */
        if (fabs((double)b[i]) > size) size = fabs((double)b[i]);
    }
    return max / size;
}

double engine_rms_error(const float *a, const float *b, size_t n)
{
    double sum = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / size);
}
