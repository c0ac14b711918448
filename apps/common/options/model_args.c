/* The common options, and functions that open a model with them. */
#define _GNU_SOURCE
#include "common/options/model_args.h"

#include "base/clock.h"
#include "base/format_bytes.h"
#include "base/switches.h"
#include "common/buffer.h"
#include "common/sampling.h"
#include "engine/engine.h"
#include "measure/check_weights.h"
#include "measure/chunks.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* clang-format off: a table */
const option_spec model_options[] = {
    OPT_UINT("threads", 't', "N", 1, 256, "threads; default: one for each core", .flags = OPTION_AUTO),
    OPT_FLAG("no-pin", 0, "let the system move threads between cores", ADVANCED),
    OPT_UINT("ctx", 'c', "N", 0, 16777216, "context; 0: as trained; if not given, at most 4096"),
    OPT_CHOICE("kv", 0, "TYPE", "f16|f32|q8_0", "KV cache: f16, f32, or q8_0, which is approximate",
               .flags = OPTION_SAME),
    OPT_FLAG("bf16-dot", 0,
             "compute prompts of BF16 weights in bf16: approximate; --io mmap, --no-repack and --batch 1 may "
             "change "
             "bits",
             ADVANCED),
    OPT_FLAG("mmap", 0, "the same as --io mmap", ADVANCED),
    OPT_SIZE("ram", 0, "BYTES", 1, 9e18, "limit of memory: 8G, auto; other weights are read"),
    OPT_TEXT("io", 0, "HOW", "how weights are read: auto, uring, pread, sim:DISK; mmap: the file is mapped",
             .choices = "auto|uring|pread|mmap", ADVANCED),
    OPT_FLAG("no-repack", 0, "weights in the file's order: same text, slower", ADVANCED),
    OPT_CHOICE("selector", 0, "S", "auto|dense|gate|predictor|threshold",
               "neuron selector: auto, dense, gate, ..."),
    OPT_FILE("predictors", 0, "Q", "file of hearth predictors, if the model has none", ADVANCED),
    OPT_FILE("thresholds", 0, "T", "file of hearth thresholds, if the model has none", ADVANCED),
    OPT_TEXT("activation", 0, "A", "activation of the FFN, instead of the file's", ADVANCED),
    ALLOW_UNUSED_OPTION,
    OPT_FLAG("check-tensors", 0, "read all weights before, and refuse a file with one that is not finite", ADVANCED),
    OPT_UINT("batch", 'b', "N", 1, 65536, "prompt tokens at once; default 256, --ram: to 1024, mixtures on a GPU: to 4096", ADVANCED),
    OPT_TEXT("override-kv", 0, "KEY=TYPE:VALUE", "metadata instead of the file's, TYPE int, float, bool, str; a KEY as "
             ".rope.freq_base stands behind the architecture's name", .flags = OPTION_REPEATS | OPTION_ADVANCED),
    OPT_CHOICE("rope-scaling", 0, "TYPE", "none|linear|yarn|longrope", "how positions are scaled, instead of the file's", ADVANCED),
    OPT_FLOAT("rope-freq-base", 0, "X", 1.001, 1e12, "base of the rotation, instead of the file's", ADVANCED),
    OPT_FLOAT("rope-freq-scale", 0, "X", 1e-6, 1000, "positions times X: 0.25 for 4 times the context", ADVANCED),
    OPT_FLOAT("rope-scale", 0, "X", 1e-3, 1e6, "the same as --rope-freq-scale 1/X", ADVANCED),
    OPT_UINT("yarn-orig-ctx", 0, "N", 1, 16777216, "context before it was scaled, instead of the file's", ADVANCED),
    {0},
};

#define HOST_KV_OPTION                                                                                       \
    OPT_FLAG("no-kv-offload", 0, "keys and values stay in host memory, the CPU computes attention", ADVANCED)
#define DEVICE_OPTIONS                                                                                       \
    OPT_TEXT("gpu", 0, "DEVICE", "auto (default), none, or devices with commas", .choices = "auto|none"),                       \
        OPT_SIZE("vram", 0, "BYTES", 1, 9e18, "limit of GPU memory: 8G, 500M; of each: 8G,6G",                 \
                 .flags = OPTION_EACH)

_Static_assert((int)OPTION_EACH_MAX == (int)HEARTH_MAX_GPU, "--vram has a value for each GPU");

const option_spec device_options[] = {DEVICE_OPTIONS, {0}}, plan_options[] = {DEVICE_OPTIONS, HOST_KV_OPTION, {0}};

const option_spec gpu_options[] = {
    DEVICE_OPTIONS,
    OPT_UINT("gpu-layers", 0, "N|all", 0, 1e6, "layers on the GPU; auto, -1: as is fastest",
             .choices = "auto|all", .flags = OPTION_OPEN),
    OPT_UINT("n-cpu-moe", 0, "N|all", 0, 1e6, "the CPU computes the experts of the first N layers",
             .choices = "all", .flags = OPTION_OPEN | OPTION_ADVANCED),
    OPT_TEXT("override-tensor", 0, "PATTERN=CPU", "the CPU computes the experts of layers whose tensors have such names",
             .flags = OPTION_REPEATS | OPTION_ADVANCED),
    OPT_FLAG("cpu-moe", 0, "the CPU computes all experts: --n-cpu-moe all", ADVANCED),
    OPT_FILE("placement", 0, "FILE", "a file of hearth plan; or plan, even, or all", .choices = "plan|even|all", ADVANCED),
    HOST_KV_OPTION,
    OPT_FLAG("gpu-strict", 0, "refuse a GPU that does not give the CPU's bits", ADVANCED),
    {0},
};

const option_spec sampling_options[] = {
    OPT_FLOAT("temperature", 0, "X", 0, 100, "0 is greedy; default 0.8"),
    OPT_FLAG("greedy", 0, "always the most likely token: temperature 0"),
    OPT_INT("top-k", 0, "N", -1, 4194304, "keep the N likeliest tokens; 0, -1: all; default 40"),
    OPT_FLOAT("top-p", 0, "X", 0, 1, "keep the likeliest up to this sum; default 0.95"),
    OPT_FLOAT("min-p", 0, "X", 0, 1, "keep tokens of X times the best; default 0.05"),
    OPT_FLOAT("typical", 0, "X", 0, 1, "locally typical sampling; default 1: off", ADVANCED),
    OPT_FLOAT("repeat-penalty", 0, "X", 0.01, 100, "weaken tokens seen lately; default 1: off", ADVANCED),
    OPT_FLOAT("presence-penalty", 0, "X", -100, 100, "subtract X from tokens seen lately; default 0",
              ADVANCED),
    OPT_FLOAT("frequency-penalty", 0, "X", -100, 100, "subtract X for each time seen; default 0", ADVANCED),
    OPT_INT("repeat-last-n", 0, "N", -1, 1048576, "how far back lately reaches; -1: all; default 64",
            ADVANCED),
    OPT_FLOAT("top-nsigma", 0, "X", 0, 1000, "leave out logits X standard deviations below the largest; default 0: off",
              ADVANCED),
    OPT_FLOAT("xtc-probability", 0, "X", 0, 1, "leave out the likeliest tokens but one, so often; default 0: off", ADVANCED),
    OPT_FLOAT("xtc-threshold", 0, "X", 0, 1, "tokens of at least this probability; above 0.5: off; default 0.1", ADVANCED),
    OPT_FLOAT("dynatemp-range", 0, "X", 0, 100, "the temperature changes by up to X with the entropy; default 0: off",
              ADVANCED),
    OPT_FLOAT("dynatemp-exp", 0, "X", 0.01, 100, "its exponent; default 1", ADVANCED),
    OPT_FLOAT("dry-multiplier", 0, "X", 0, 1000, "weaken tokens that would lengthen a repetition; default 0: off", ADVANCED),
    OPT_FLOAT("dry-base", 0, "X", 1, 100, "times this for each token more; default 1.75", ADVANCED),
    OPT_INT("dry-allowed-length", 0, "N", 1, 1048576, "longest repetition that is free; default 2", ADVANCED),
    OPT_INT("dry-penalty-last-n", 0, "N", -1, 1048576, "tokens looked at; -1: a context; 0: off; default -1", ADVANCED),
    OPT_TEXT("dry-sequence-breaker", 0, "TEXT", "no repetition goes across it; instead of line end : \" *; may be given often",
             .flags = OPTION_REPEATS | OPTION_ADVANCED),
    OPT_INT("mirostat", 0, "N", 0, 2, "hold the surprise of the text: version 1 or 2; default 0: off", ADVANCED),
    OPT_FLOAT("mirostat-ent", 0, "X", 0.01, 100, "the surprise, in bits; default 5", ADVANCED),
    OPT_FLOAT("mirostat-lr", 0, "X", 0.0001, 10, "how fast it is reached; default 0.1", ADVANCED),
    OPT_TEXT("samplers", 0, "LIST", "these alone: top_k;temperature, in the order in which they are applied", ADVANCED),
    OPT_TEXT("logit-bias", 0, "ID=X", "add X to the logit of a token; may be given often",
             .flags = OPTION_REPEATS | OPTION_ADVANCED),
    OPT_UINT("seed", 's', "N", 0, 18446744073709551615.0, "same seed, same text; default, or -1: random",
             .flags = OPTION_OPEN),
    {0},
};

#define EMBEDDED_NAME "(embedded model)"

/* clang-format on */

/* ---- models ------------------------------------------------------------------------- */

hearth_selector wanted_selector(const args *a)
{
    const char *name = args_text(a, "selector", "auto");
    hearth_selector s = HEARTH_SELECTOR_AUTO;
    while (strcmp(hearth_selector_name(s), name) != 0) s++; /* the options allow no other name */
    return s;
}

/* NULL: as HEARTH_IO says. */
static const char *wanted_io(const args *a)
{
    return args_has(a, "mmap") ? "mmap" : args_text(a, "io", NULL);
}

bool wants_mapping(const args *a)
{
    const char *io = wanted_io(a) ? wanted_io(a) : hth_default_io();
    return io && strcmp(io, "mmap") == 0;
}

/* --gpu-layers, --n-cpu-moe and --override-tensor as a placement, which stays until the next call; NULL: not given. */
static const char *placement_by_layers(const args *a)
{
    static buffer words;
    const uint64_t most = UINT32_MAX;
    uint64_t n = args_uint(a, "gpu-layers", UINT64_MAX), n_host = args_uint(a, "n-cpu-moe", args_has(a, "cpu-moe") ? most : 0);
    const char *rule = args_text_at(a, "override-tensor", 0);
    if (n == UINT64_MAX && n_host == 0 && !rule) return NULL;
    char first[80];
    int n_char = snprintf(first, sizeof first, "layers:%llu", (unsigned long long)(n < most ? n : most));
    if (n_host > 0)
        n_char += snprintf(first + n_char, sizeof first - (size_t)n_char, ",cpu-experts:%llu",
                           (unsigned long long)(n_host < most ? n_host : most));
    words.n = 0;
    bool added = buffer_add(&words, first, (size_t)n_char);
    for (size_t i = 0; added && (rule = args_text_at(a, "override-tensor", i)); i++)
        added = buffer_add(&words, i > 0 ? "," : ",cpu:", i > 0 ? 1 : 5) && buffer_add(&words, rule, strlen(rule));
    return added ? words.bytes : "layers:"; /* without memory, one that is refused */
}

void wanted_gpu_limits(const args *a, hearth_gpu_options *o)
{
    if (args_sizes(a, "vram", o->vrams, HEARTH_MAX_GPU) == 1) o->vram = o->vrams[0], o->vrams[0] = 0;
}

/* GPU options and the context, which some commands have without GPU options. n_position: of all sessions
 * together; 0: of one session. */
static hearth_gpu_options gpu_options_of(const args *a, uint32_t n_position)
{
    hearth_gpu_options o = {.n_ctx = n_position, .n_session = n_position == 0};
    if (!command_offers(a, "ctx")) return o;
    hearth_session_options session = session_options(a, 0);
    if (n_position == 0) o.n_ctx = session.n_ctx;
    o.kv = session.kv;
    o.n_batch = session.n_batch;
    if (!command_offers(a, "gpu-strict")) return o;
    const char *by_layers = command_offers(a, "gpu-layers") ? placement_by_layers(a) : NULL;
    bool none = by_layers && args_uint(a, "gpu-layers", UINT64_MAX) == 0;
    o.device = none ? "none" : args_text(a, "gpu", "auto");
    wanted_gpu_limits(a, &o);
    o.placement = by_layers ? by_layers : args_text(a, "placement", NULL);
    o.bit_exact = args_has(a, "gpu-strict");
    o.host_kv = args_has(a, "no-kv-offload");
    return o;
}

/* The memory limit of the model at path; 0: none. With --against the first model gets half of the limit. The second
 * one gets the whole limit, which counts all memory of the process. */
static uint64_t wanted_ram(const args *a, const char *path)
{
    const char *second = command_offers(a, "against") ? args_text(a, "against", NULL) : NULL;
    if (!args_has(a, "ram")) return 0;
    uint64_t ram = args_size(a, "ram", 0);
    if (ram == 0) ram = HEARTH_RAM_AUTO;
    if (!second || path == second) return ram;
    return (ram == HEARTH_RAM_AUTO ? hth_engine_auto_limit(hth_memory_resident(), false) : ram) / 2;
}

/* Progress that is shown, and the caller's. */
typedef struct reading {
    progress shown;
    hearth_progress_fn *fn;
    void *user;
} reading;

static bool show_reading(void *user, uint64_t done, uint64_t total)
{
    reading *r = user;
    progress_update(&r->shown, done, total);
    return !r->fn || r->fn(r->user, done, total);
}

enum { MAX_OVERRIDE = 64, N_ROPE = 4 };

/* --override-kv and the options about positions, as the library has them. They stay until the next call. */
static size_t overrides_of(const args *a, const char *const **list)
{
    static const char *all[MAX_OVERRIDE + N_ROPE];
    static char rope[N_ROPE][80];
    size_t n = 0, n_rope = 0;
    const char *text;
    const char *scaling = args_text(a, "rope-scaling", NULL);
    uint64_t n_ctx = args_uint(a, "yarn-orig-ctx", 0);
    double base = args_float(a, "rope-freq-base", 0.0), factor = args_float(a, "rope-scale", 0.0);
    if (args_has(a, "rope-freq-scale")) factor = 1.0 / args_float(a, "rope-freq-scale", 1.0);
    if (scaling) snprintf(rope[n_rope++], sizeof *rope, ".rope.scaling.type=str:%s", scaling);
    if (base > 0.0) snprintf(rope[n_rope++], sizeof *rope, ".rope.freq_base=float:%.17g", base);
    if (factor > 0.0) snprintf(rope[n_rope++], sizeof *rope, ".rope.scaling.factor=float:%.17g", factor);
    if (n_ctx > 0)
        snprintf(rope[n_rope++], sizeof *rope, ".rope.scaling.original_context_length=int:%llu", (unsigned long long)n_ctx);
    for (size_t i = 0; i < n_rope; i++) all[n++] = rope[i];
    for (size_t i = 0; i < MAX_OVERRIDE && (text = args_text_at(a, "override-kv", i)); i++) all[n++] = text;
    return *list = all, n;
}

static hearth_model_options options_of(const args *a, const char *path, hearth_selector selector,
                                       const char *activation, hearth_gpu_options gpu)
{
    hearth_model_options o = hearth_model_defaults();
    o.n_thread = (uint32_t)args_uint(a, "threads", 0);
    o.ram = wanted_ram(a, path);
    o.io = wanted_io(a);
    o.no_repack = args_has(a, "no-repack");
    o.selector = selector;
    o.activation = activation;
    o.gpu = gpu;
    o.allow_unused = args_has(a, "allow-unused");
    o.n_override = overrides_of(a, &o.overrides);
    if (selector != HEARTH_SELECTOR_DENSE) { /* dense does not use them */
        o.predictors = args_text(a, "predictors", NULL);
        o.thresholds = args_text(a, "thresholds", NULL);
    }
    return o;
}

hearth_model_options wanted_model(const args *a, const char *path, uint32_t n_position)
{
    return options_of(a, path, wanted_selector(a), args_text(a, "activation", NULL),
                      gpu_options_of(a, n_position));
}

static hearth_status check_weights(const args *a, const char *path, hearth_error *err)
{
    hth_gguf *file;
    hth_check_result result;
    progress p;
    progress_init(&p, "checking", "MiB", 0x1p20);
    hearth_status st = hth_gguf_open(path, &file, err);
    if (st != HEARTH_OK) return st;
    st = hth_check_weights(file, (uint32_t)args_uint(a, "threads", 0), progress_show, &p, &result, err);
    progress_end(&p);
    hth_gguf_close(file);
    return st;
}

/* path NULL: the embedded model. dense_for: as hth_engine_open_dense. */
static hearth_status open_path(const args *a, const char *path, hearth_model_options o, const char *dense_for,
                               hearth_model **model, hearth_error *err)
{
    hearth_status st;
    reading r = {.fn = o.progress, .user = o.progress_user};
    progress_init(&r.shown, "reading", "MiB", 0x1p20);
    if (args_has(a, "no-pin")) setenv("HEARTH_PIN", "0", 1);
    o.cancel = interrupt_flag();
    o.progress = show_reading;
    o.progress_user = &r;
    if (path && args_has(a, "check-tensors") && (st = check_weights(a, path, err)) != HEARTH_OK) return st;
    bool before = interrupt_at_once(true);
    if (path) {
        st = hth_engine_open_dense(path, &o, dense_for, model, err);
    } else {
        st = hearth_model_open_memory(embedded_model, embedded_model_size, EMBEDDED_NAME, &o, model, err);
    }
    interrupt_at_once(before);
    progress_end(&r.shown);
    return st;
}

static bool open_file(const args *a, const char *path, hearth_model_options o, const char *dense_for,
                      hearth_model **model)
{
    hearth_error err;
    if (open_path(a, path, o, dense_for, model, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

hearth_status try_open_model(const args *a, const char *path, const hearth_model_options *wanted,
                             hearth_model **model, hearth_error *err)
{
    return open_path(a, path, *wanted, NULL, model, err);
}

bool open_model(const args *a, const char *path, hearth_model **model)
{
    return open_file(a, path, wanted_model(a, path, 0), NULL, model);
}

bool open_model_as(const args *a, const char *path, const hearth_model_options *wanted, hearth_model **model)
{
    return open_file(a, path, *wanted, NULL, model);
}

bool open_reference_model(const args *a, const char *path, hearth_model **model)
{
    return open_file(a, path, options_of(a, path, HEARTH_SELECTOR_DENSE, NULL, gpu_options_of(a, 0)), NULL,
                     model);
}

bool open_on_cpu(const args *a, const char *path, hearth_model **model)
{
    const char *activation = args_text(a, "activation", NULL);
    return open_file(a, path, options_of(a, path, HEARTH_SELECTOR_DENSE, activation, (hearth_gpu_options){0}),
                     NULL, model);
}

static hearth_kv_type kv_type(const args *a)
{
    const char *name = args_text(a, "kv", "f16");
    if (strcmp(name, "q8_0") == 0) return HEARTH_KV_Q8_0;
    return strcmp(name, "f32") == 0 ? HEARTH_KV_F32 : HEARTH_KV_F16;
}

uint32_t args_context(const args *a, uint32_t otherwise)
{
    uint32_t given = (uint32_t)args_uint(a, "ctx", otherwise);
    return args_has(a, "ctx") && given == 0 ? HEARTH_CTX_TRAINED : given;
}

hearth_session_options session_options(const args *a, uint32_t n_ctx_default)
{
    hearth_session_options o = hearth_session_defaults();
    o.n_ctx = args_context(a, n_ctx_default);
    o.n_batch = (uint32_t)args_uint(a, "batch", o.n_batch);
    o.n_thread = (uint32_t)args_uint(a, "threads", 0);
    o.kv = kv_type(a);
    o.bf16_dot = args_has(a, "bf16-dot");
    return o;
}

int check_output_beside(const args *a, const char *text, const char *out, output_kind kind)
{
    const input inputs[] = {{args_operand(a, 0), "the model"},
                            {text, "the text"},
                            {args_text(a, "predictors", NULL), "the predictors"},
                            {args_text(a, "thresholds", NULL), "the thresholds"}};
    return check_output(a, out, kind, inputs, sizeof inputs / sizeof *inputs);
}

static bool open_session_with(const hearth_model *model, const hearth_session_options *o,
                              hearth_session **session)
{
    hearth_error err;
    if (hearth_session_open(model, o, session, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

bool open_session(const args *a, const hearth_model *model, uint32_t n_ctx_default, hearth_session **session)
{
    hearth_session_options o = session_options(a, n_ctx_default);
    return open_session_with(model, &o, session);
}

/* Opens the model and a session, and calls run with the text of -f; what: as in hth_engine_open_dense. Returns the exit
 * status. */
static int open_and_run(const args *a, hearth_selector selector, const char *what,
                        uint32_t (*n_ctx)(const hearth_model *), text_run_fn *run)
{
    const char *path = args_operand(a, 0), *activation = args_text(a, "activation", NULL);
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    size_t n;
    int status = EXIT_OTHER;
    char *text = read_text_file(args_text(a, "file", NULL), &n);
    if (!text) return status;
    install_signal_handlers();
    interrupt_at_once(true); /* until the text is divided into chunks */
    if (open_file(a, path, options_of(a, path, selector, activation, gpu_options_of(a, 0)), what, &model) &&
        open_session(a, model, n_ctx ? n_ctx(model) : 0, &session))
        status = run(a, model, session, text, n);
    free(text);
    hearth_session_close(session);
    hearth_model_close(model);
    return status;
}

int run_on_text(const args *a, text_run_fn *run)
{
    return open_and_run(a, wanted_selector(a), NULL, NULL, run);
}

int run_on_neurons(const args *a, const char *what, text_run_fn *run)
{
    return open_and_run(a, HEARTH_SELECTOR_DENSE, what, hth_chunks_default, run);
}

/* ---- references ----------------------------------------------------------------------- */

bool open_reference(const args *a, const hearth_model *model, const hearth_session *mode,
                    hearth_session **session)
{
    hearth_session_options o = session_options(a, 0);
    o.n_ctx = hearth_session_n_ctx(mode);
    o.n_batch = hth_session_n_row(mode);
    o.selector = HEARTH_SELECTOR_DENSE;
    o.bf16_dot = false;
    if (o.kv == HEARTH_KV_Q8_0) o.kv = HEARTH_KV_F16;
    return open_session_with(model, &o, session);
}

bool selector_is_approximate(hearth_selector selector)
{
    return selector == HEARTH_SELECTOR_PREDICTOR || selector == HEARTH_SELECTOR_THRESHOLD;
}

bool is_approximate_besides(const args *a) { return kv_type(a) == HEARTH_KV_Q8_0 || args_has(a, "bf16-dot"); }

bool is_approximate(const args *a, const hearth_model *model)
{
    hearth_model_info info = model_info(model);
    return selector_is_approximate(info.selector) || is_approximate_besides(a);
}

bool is_reference(const args *a, const hearth_model *model)
{
    hearth_model_info info = model_info(model);
    return info.selector == HEARTH_SELECTOR_DENSE && !is_approximate(a, model);
}

/* Whether the command samples tokens, and not only the most likely one. */
static bool is_seeded(const args *a)
{
    return command_offers(a, "seed") && !args_has(a, "greedy") && args_float(a, "temperature", 1.0) > 0.0;
}

uint64_t sampler_seed(const args *a)
{
    static uint64_t drawn;
    uint64_t given = args_uint(a, "seed", UINT64_MAX);
    if (given != UINT64_MAX) return given;
    uint32_t random;
    if (drawn) return drawn;
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint32_t)hth_clock_ns();
    return drawn = (uint64_t)random + 1; /* 0: not drawn yet */
}

/* ---- the start line ------------------------------------------------------------------- */

enum { LINE_COLUMNS = 80, SOME_NAME = 24 /* columns of a name that are kept before those of a place */ };

/* The end of a text that is longer than `limit` bytes, behind "...". */
static const char *end_of(const char *text, size_t limit, char out[LINE_COLUMNS + 1])
{
    size_t n = strlen(text), from = n > limit ? n - limit + 3 : 0;
    while (((unsigned char)text[from] & 0xc0) == 0x80) from++; /* no part of a character */
    snprintf(out, LINE_COLUMNS + 1, "%s%s", from ? "..." : "", text + from);
    return out;
}

/* Its beginning, before "...". */
static const char *start_of(const char *text, size_t limit, char out[LINE_COLUMNS + 1])
{
    size_t n = strlen(text);
    if (n <= limit) return text;
    n = limit > 3 ? limit - 3 : 0;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    snprintf(out, LINE_COLUMNS + 1, "%.*s...", (int)n, text);
    return out;
}

static void describe_place(const hearth_model_info *info, uint32_t n_thread, char out[LINE_COLUMNS + 1])
{
    const char *many = n_thread == 1 ? "" : "s";
    bool has_all = info->gpu_n_layer == info->n_layer && info->gpu_head;
    if (!info->gpu)
        snprintf(out, LINE_COLUMNS + 1, "on the CPU (%u thread%s)", n_thread, many);
    else if (has_all && info->gpu_product_share >= 1.0)
        snprintf(out, LINE_COLUMNS + 1, "%son %s", info->gpu_host_kv ? "all but KV " : "", info->gpu);
    else
        snprintf(out, LINE_COLUMNS + 1, "%s%u of %u layers %son %s", info->gpu_host_kv ? "KV in RAM, " : "",
                 info->gpu_n_layer, info->n_layer, has_all || info->gpu_neuron_share < 1.0 ? "in part " : "",
                 info->gpu);
}

/* With two digits: "5.3 MiB", "20 MiB". */
static hth_byte_text short_size(uint64_t bytes)
{
    hth_byte_text whole = hth_format_bytes(bytes), out = whole;
    const char *unit = strchr(whole.text, ' '), *point = strchr(whole.text, '.');
    if (!unit || !point) return out;
    int n = point > whole.text + 1 ? 0 : 1; /* digits behind the point */
    snprintf(out.text, sizeof out.text, "%.*f%s", n, strtod(whole.text, NULL), unit);
    return out;
}

/* Model, parameters, size and place, within the columns of a terminal. */
static void print_model_line(const hearth_model_info *info, uint32_t n_thread)
{
    const char *slash = strrchr(info->path, '/'), *name = slash ? slash + 1 : info->path;
    char facts[200], place[LINE_COLUMNS + 1], shown_name[LINE_COLUMNS + 1], shown_place[LINE_COLUMNS + 1];
    snprintf(facts, sizeof facts, ": %s, %.1f M parameters, %s%s, ", info->architecture, (double)info->n_parameter * 1e-6,
             short_size(info->weight_bytes).text, info->synthetic ? ", synthetic weights" : "");
    describe_place(info, n_thread, place);
    size_t n_name = strlen(name) < SOME_NAME ? strlen(name) : SOME_NAME, used = strlen(facts) + n_name;
    const char *where = start_of(place, used < LINE_COLUMNS ? LINE_COLUMNS - used : 0, shown_place);
    used = strlen(facts) + strlen(where);
    print_start("%s%s%s", end_of(name, used < LINE_COLUMNS ? LINE_COLUMNS - used : SOME_NAME, shown_name), facts, where);
}

/* Tells what makes results differ from the CPU's with all neurons, and what is not in memory; nothing else. */
static void print_conditions(const args *a, const hearth_model_info *info)
{
    char line[200] = "";
    if (selector_is_approximate(info->selector))
        snprintf(line, sizeof line, "; skips %s neurons", info->selector == HEARTH_SELECTOR_PREDICTOR ? "predicted" : "small");
    if (kv_type(a) == HEARTH_KV_Q8_0) strcat(line, "; KV cache in q8_0");
    if (args_has(a, "bf16-dot")) strcat(line, "; products of bf16 in prompts");
    if (*line) print_aside("approximate results: %s", line + 2);
    if (info->gpu && !info->gpu_bit_exact)
        print_aside("results may differ in the last digits from the CPU's: %s", info->gpu_bit_exact_reason);
    if (info->n_streamed > 0)
        print_aside("%u of %u parts of the weights in memory, others read by %s", info->n_streamed_max, info->n_streamed,
                    info->reader);
}

/* Prints for --verbose how the model is held and computed. */
static void print_details(const args *a, const hearth_model_info *info)
{
    static const char *const kv_words[] = {[HEARTH_KV_F16] = "f16", [HEARTH_KV_F32] = "f32", [HEARTH_KV_Q8_0] = "q8_0"};
    const char *where = info->n_streamed > 0               ? "read when needed"
                        : strcmp(info->path, EMBEDDED_NAME) == 0 ? "inside the program"
                        : info->mapped                         ? "mapped"
                                                               : "read into memory";
    static const char *const neurons[] = {[HEARTH_SELECTOR_DENSE] = "computes all neurons",
                                          [HEARTH_SELECTOR_GATE] = "skips inactive neurons (same result)",
                                          [HEARTH_SELECTOR_PREDICTOR] = "skips predicted neurons (approximate result)",
                                          [HEARTH_SELECTOR_THRESHOLD] = "skips small neurons (approximate result)"};
    print_aside("weights %s; kernels %s; KV cache %s; %s", where, info->cpu,
                kv_words[kv_type(a)], neurons[info->selector]);
    if (info->gpu) print_aside("%s", placement_text(info).text);
}

void print_start_line(const args *a, const hearth_model *model, const hearth_session *session)
{
    hearth_model_info info = model_info(model);
    print_model_line(&info, hearth_session_n_thread(session));
    print_conditions(a, &info);
    if (args_has(a, "verbose")) print_details(a, &info);
}

repeat_text seed_text(const args *a)
{
    repeat_text t = {""};
    if (is_seeded(a)) snprintf(t.text, sizeof t.text, "; again: --seed %llu", (unsigned long long)sampler_seed(a));
    return t;
}

void warn_of_context(const hearth_model *model, uint32_t n_ctx)
{
    hearth_model_info info = model_info(model);
    if (n_ctx > info.n_ctx_train)
        print_warning("-c takes %u positions, but %s was trained for %u", n_ctx, info.path, info.n_ctx_train);
}

/* ---- samplers ------------------------------------------------------------------------ */

enum { MAX_BIAS = 200, MAX_BREAKER = 64 };

static int parse_bias(const args *a, const hearth_model *model, hearth_logit_bias *bias, size_t *n)
{
    const char *text;
    hearth_model_info info = model_info(model);
    for (*n = 0; (text = args_text_at(a, "logit-bias", *n)) != NULL; (*n)++) {
        char id[16];
        size_t len = strcspn(text, "=+-"); /* ID+X and ID-X are llama.cpp's form */
        const char *number = text + len + (text[len] == '=');
        uint64_t value;
        double x;
        if (*n == MAX_BIAS) return usage_error("--logit-bias: more than %d", MAX_BIAS);
        if (!text[len] || len >= sizeof id)
            return usage_error("--logit-bias '%s': expected ID=X", text);
        memcpy(id, text, len);
        id[len] = '\0';
        bool ban = strcmp(number, "-inf") == 0;
        if (!parse_uint(id, &value) || (!ban && !parse_float(number, &x)))
            return usage_error("--logit-bias '%s': expected ID=X, X a number or -inf", text);
        if (!ban && !(fabs(x) <= (double)FLT_MAX))
            return usage_error("--logit-bias %s: X is too large", text);
        if (value >= info.n_vocab)
            return usage_error("--logit-bias %s: the vocabulary has the ids 0 to %u", text, info.n_vocab - 1);
        bias[*n] = (hearth_logit_bias){.id = (int32_t)value, .bias = ban ? -__builtin_inff() : (float)x};
    }
    return 0;
}

int wanted_sampling(const args *a, const hearth_model *model, hearth_sampler_options *out)
{
    static hearth_logit_bias bias[MAX_BIAS];
    static const char *breakers[MAX_BREAKER];
    const char *text;
    hearth_sampler_options o = sampling_defaults();
    sampling_of_model(model, &o);
    int status = parse_bias(a, model, bias, &o.n_bias);
    if (status) return status;
    o.bias = bias;
    o.temperature = args_has(a, "greedy") ? 0.0f : (float)args_float(a, "temperature", (double)o.temperature);
    o.top_k = (int32_t)args_int(a, "top-k", o.top_k);
    if (o.top_k < 0) o.top_k = 0;
    o.top_p = (float)args_float(a, "top-p", (double)o.top_p);
    o.min_p = (float)args_float(a, "min-p", (double)o.min_p);
    o.typical_p = (float)args_float(a, "typical", (double)o.typical_p);
    o.repeat_penalty = (float)args_float(a, "repeat-penalty", (double)o.repeat_penalty);
    o.presence_penalty = (float)args_float(a, "presence-penalty", (double)o.presence_penalty);
    o.frequency_penalty = (float)args_float(a, "frequency-penalty", (double)o.frequency_penalty);
    o.repeat_last_n = (int32_t)args_int(a, "repeat-last-n", o.repeat_last_n);
    o.top_n_sigma = (float)args_float(a, "top-nsigma", (double)o.top_n_sigma);
    o.xtc_probability = (float)args_float(a, "xtc-probability", (double)o.xtc_probability);
    o.xtc_threshold = (float)args_float(a, "xtc-threshold", (double)o.xtc_threshold);
    o.dynatemp_range = (float)args_float(a, "dynatemp-range", (double)o.dynatemp_range);
    o.dynatemp_exponent = (float)args_float(a, "dynatemp-exp", (double)o.dynatemp_exponent);
    o.dry_multiplier = (float)args_float(a, "dry-multiplier", (double)o.dry_multiplier);
    o.dry_base = (float)args_float(a, "dry-base", (double)o.dry_base);
    o.dry_allowed_length = (int32_t)args_int(a, "dry-allowed-length", o.dry_allowed_length);
    o.dry_last_n = (int32_t)args_int(a, "dry-penalty-last-n", o.dry_last_n);
    o.mirostat = (int32_t)args_int(a, "mirostat", o.mirostat);
    o.mirostat_tau = (float)args_float(a, "mirostat-ent", (double)o.mirostat_tau);
    o.mirostat_eta = (float)args_float(a, "mirostat-lr", (double)o.mirostat_eta);
    while ((text = args_text_at(a, "dry-sequence-breaker", o.n_dry_breaker)) != NULL) {
        if (o.n_dry_breaker == MAX_BREAKER) return usage_error("--dry-sequence-breaker: more than %d", MAX_BREAKER);
        breakers[o.n_dry_breaker++] = text;
    }
    if (o.n_dry_breaker > 0) o.dry_breakers = breakers;
    /* --samplers turns off every sampler that it does not list, even one that another option sets. */
    const char *kept = args_text(a, "samplers", NULL), *why = kept ? sampling_keep(&o, kept) : NULL;
    if (why) return usage_error("--samplers '%s': %s", kept, why);
    *out = o;
    return 0;
}

bool open_sampler(const args *a, const hearth_model *model, hearth_sampler **sampler, int *status)
{
    hearth_error err;
    hearth_sampler_options o;
    *status = wanted_sampling(a, model, &o);
    if (*status) return false;
    o.seed = sampler_seed(a);
    sampling_finish(&o);
    hearth_status st = hearth_sampler_open(model, &o, sampler, &err);
    if (st != HEARTH_OK)
        *status = st == HEARTH_ERROR_ARGUMENT ? usage_error("%s", err.message) : report(&err);
    return st == HEARTH_OK;
}
