/* hearth plan: chooses the parts of a model for a GPU, estimates the speed, and the gain from more memory;
 * plan_storage.c plans a limit of memory without one. */
#include "base/format_bytes.h"
#include "base/system/system_memory.h"
#include "cli/device/calibration.h"
#include "cli/device/plan_storage.h"
#include "cli/device/plan_tiers.h"
#include "cli/commands.h"
#include "common/options/field_names.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "common/options/route_option.h"
#include "common/terminal/table.h"
#include "engine/engine.h"
#include "placement/plan_context.h"
#include "forward/gpu/shader_params.h"
#include "sparse/selector.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    OPT_FILE("profile", 0, "P", "a profile of this file: how often neurons fire"),
    OPT_FILE("out", 'o', "FILE", "write the placement, for --placement"),
    OPT_UINT("prompt", 'p', "N", 0, 65536, "expect the speed of a prompt of N; default 512"),
    OPT_UINT("predict", 'n', "N", 1, 4096, "expect the speed of N tokens; default 128"),
    OPT_UINT("parallel", 0, "N", 1, 256, "plan for N sequences at once; default 1"),
    OPT_TEXT("route", 0, "SPEC", "experts drawn: uniform or file=F, sticky=0.3...", ADVANCED),
    OPT_FILE("placement", 0, "FILE", "expect the speed of this one, of --out", ADVANCED),
    OPT_FLAG("again", 0, "measure the machine again, drop cached calibrations"),
    OPT_FLAG("what-if", 0, "a table over sizes of the GPU's memory"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

enum { MAX_IF = 24, ROUTE_TOKENS = 1024 }; /* as many as hth_expert_slot_shares plays */

/* All inputs of a plan; close_all closes them. */
typedef struct plan_state {
    const args *a;
    hth_gguf *file;
    hth_model *model;
    hth_kernels kernels;
    hth_pool *pool;
    hth_placement_part devices[HEARTH_MAX_GPU]; /* as hth_placement_builder_open wants them */
    uint32_t n_device;
    hth_profile *profile;
    route_option route;
    hth_route_trace *route_lists; /* NULL: no experts are given */
    hth_placement given;           /* --placement */
    hth_placement_builder builder; /* parameters from the best plan */
    hth_plan_context context;
    hth_plan by_share;
    plan_tiers tiers;
    uint64_t ram, host_bytes; /* bytes usable for weights on the host, 0: unknown; bytes used */
    size_t n_what_if;
    struct {
        uint64_t vram;
        double seconds;
    } what_if[MAX_IF];
} plan_state;

static void close_plan(plan_state *p)
{
    hth_plan_context_close(&p->context);
    hth_placement_builder_close(&p->builder);
    for (uint32_t i = 0; i < p->n_device; i++) hth_device_close(p->devices[i].device);
    p->n_device = 0;
}

static void close_all(plan_state *p)
{
    hth_plan_free(&p->by_share);
    close_plan(p);
    hth_placement_close(&p->given);
    hth_profile_close(p->profile);
    hth_route_trace_close(p->route_lists);
    close_route(&p->route);
    hth_pool_close(p->pool);
    hth_model_close(p->model);
    hth_gguf_close(p->file);
}

static double rate(double seconds) { return seconds > 0.0 ? 1.0 / seconds : 0.0; }

/* ---- computing the plan ---------------------------------------------------------------------------- */

static hearth_status open_model_alone(plan_state *p, hth_offload_params *params, hearth_error *err)
{
    hth_cpu level;
    const char *why;
    hth_model_overrides other = {.activation = args_text(p->a, "activation", NULL),
                                 .allow_unused = args_has(p->a, "allow-unused")};
    const hearth_model_options wanted = wanted_model(p->a, args_operand(p->a, 0), 0);
    hearth_status st = hth_gguf_open(args_operand(p->a, 0), &p->file, err);
    if (st == HEARTH_OK) st = hth_engine_override(p->file, &wanted, err);
    if (st == HEARTH_OK) st = hth_model_open(p->file, &other, &p->model, err);
    if (st == HEARTH_OK)
        st = hth_selector_choose(p->model, wanted_selector(p->a), &params->selector, &why, err);
    if (st == HEARTH_OK) st = hth_cpu_choose(NULL, &level, err);
    if (st == HEARTH_OK && args_has(p->a, "profile"))
        st = hth_profile_open(args_text(p->a, "profile", NULL), p->model, &p->profile, err);
    if (st == HEARTH_OK && args_has(p->a, "placement"))
        st = hth_placement_open(&p->given, args_text(p->a, "placement", NULL), p->model, err);
    if (st == HEARTH_OK && p->given.n_device > 1)
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s is of %u devices; hearth plan expects the speed on one",
                      args_text(p->a, "placement", NULL), p->given.n_device);
    if (st != HEARTH_OK) return st;
    hth_kernels_init(&p->kernels, level);
    return hth_pool_open(hth_pool_default_threads((uint32_t)args_uint(p->a, "threads", 0)), &p->pool, err);
}

/* Opens the GPUs that --gpu names, or the best one; limited: within --vram. */
static hearth_status open_gpus(plan_state *p, bool limited, hearth_error *err)
{
    char gpu[32];
    const char *name = args_text(p->a, "gpu", "auto");
    hearth_gpu_options o = {0};
    if (strcmp(name, "auto") == 0) {
        if (!hth_device_find_discrete(gpu))
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                            "no GPU to plan for: see hearth devices, and name one with --gpu");
        name = gpu;
    }
    wanted_gpu_limits(p->a, &o);
    hearth_status st = hth_placement_open_devices(name, &o, limited, p->devices, &p->n_device, err);
    for (uint32_t i = 0; i < p->n_device; i++) {
        hth_placement_part *d = &p->devices[i];
        d->is_user_limit = d->budget > 0;
        if (!d->is_user_limit) d->budget = hth_device_free_memory(d->info);
    }
    return st;
}

static hearth_status open_builder(plan_state *p, const hth_offload_params *params, hearth_error *err)
{
    hearth_session_options s = session_options(p->a, 0);
    uint32_t n_ctx = hth_context_for(&p->model->hparams, s.n_ctx);
    for (uint32_t i = 0; i < p->n_device; i++) {
        hth_offload_params *to = &p->devices[i].params;
        *to = *params;
        to->n_position = hth_gpu_positions(n_ctx);
        to->kv = s.kv;
        to->has_given_experts = p->route_lists != NULL;
        if (args_has(p->a, "parallel")) to->n_session = (uint32_t)args_uint(p->a, "parallel", 1) + 1;
        to->n_row = hth_placement_step_rows(p->model, &p->devices[i], s.n_batch, n_ctx);
    }
    hearth_status st = hth_placement_builder_open(&p->builder, p->model, p->devices, p->n_device, err);
    if (p->given.n_device > 0) p->builder.given = &p->given;
    if (p->route_lists) p->builder.uses = (hth_expert_uses){hth_route_trace_get, p->route_lists, ROUTE_TOKENS};
    return st;
}

static uint32_t n_layer_there(const plan_state *p) { return hth_placement_builder_n_layer(&p->builder); }

static bool is_empty_placement(const plan_state *p)
{
    return n_layer_there(p) == 0 &&
           hth_placement_builder_least_bytes(&p->builder) > p->builder.parts[0].budget;
}

/* Opens the GPUs and builds the plan context. */
static hearth_status open_plan(plan_state *p, bool limited, const hth_offload_params *params,
                               hearth_error *err)
{
    hearth_status st = open_gpus(p, limited, err);
    for (uint32_t i = 0; st == HEARTH_OK && args_has(p->a, "again") && i < p->n_device; i++)
        hth_calibration_cache_evict_others(
            hth_calibration_fingerprint(p->devices[i].info, &p->kernels, hth_pool_n_thread(p->pool)), NULL,
            0);
    if (st == HEARTH_OK) st = open_builder(p, params, err);
    return st == HEARTH_OK
               ? hth_plan_context_build(&p->context, &p->builder, p->profile, &p->kernels, p->pool, err)
               : st;
}

/* Within --vram, as a run opens the GPU, because measurements depend on it. If measuring does not fit in that
 * limit, with the whole memory: nothing of the model is computed here. */
static hearth_status plan_with_budget(plan_state *p, const hth_offload_params *params, hearth_error *err)
{
    hearth_status st = open_plan(p, true, params, err);
    if (st != HEARTH_ERROR_MEMORY || !args_has(p->a, "vram")) return st;
    close_plan(p);
    return open_plan(p, false, params, err);
}

/* Plans for up to sixteen memory sizes, in steps of a power of two, until the whole model fits. */
static hearth_status plan_sizes(plan_state *p, hearth_error *err)
{
    uint64_t whole = hth_placement_builder_whole_bytes(&p->builder), step = (uint64_t)1 << 20;
    if (whole == UINT64_MAX) whole = (uint64_t)32 << 30;          /* more than its bindings can hold */
    /* Attention and neurons of each layer are rounded up, and so are the head and what is there besides. */
    whole += (2 * (uint64_t)p->model->hparams.n_layer + 2) * HTH_PLAN_UNIT;
    while (step * 16 < whole) step *= 2;
    for (bool done = false; !done && p->n_what_if < MAX_IF; p->n_what_if++) {
        hth_plan_machine machine = p->context.machine;
        hth_plan plan;
        uint64_t vram = machine.homes[HTH_HOME_DEVICE].capacity = (p->n_what_if + 1) * step;
        done = vram >= whole;
        hearth_status st = hth_plan_solve(&p->context.input, &machine, &p->context.options, &plan, err);
        if (st != HEARTH_OK) return st;
        p->what_if[p->n_what_if].vram = vram;
        p->what_if[p->n_what_if].seconds = plan.seconds / p->context.options.n_seq;
        hth_plan_free(&plan);
    }
    return HEARTH_OK;
}

/* Bytes of experts on a device that the host has, too: those of layers of which it computes others. */
static uint64_t bytes_of_both(const plan_state *p)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < p->model->hparams.n_layer; i++) {
        const hth_plan_layer *l = &p->context.input.layers[i];
        uint64_t n_host = p->context.best.divisions[i].n_cluster[p->n_device];
        all += l->has_experts && n_host > 0 ? (l->n_cluster - n_host) * l->cluster_bytes[HTH_PLAN_HOST] : 0;
    }
    return all;
}

/* Bytes of weights on the host: all that are not on a device, or not only there. */
static uint64_t host_bytes(const plan_state *p)
{
    const hth_plan_bytes *b = &p->context.best.bytes[p->n_device];
    return bytes_of_both(p) + b->attention + b->clusters + (p->model->tied ? 0 : b->head) +
           p->model->token_embd.n_row * p->model->token_embd.row_size;
}

/* As a run, which does not map weights within a limit of memory. */
static hearth_status check_io(const plan_state *p, hearth_error *err)
{
    hearth_model_options o = wanted_model(p->a, args_operand(p->a, 0), 0);
    return hth_engine_choose_io(&o, err);
}

static hearth_status make_plan(plan_state *p, hth_offload_params *params, hearth_error *err)
{
    hearth_status st = plan_with_budget(p, params, err);
    const hth_plan_context *o = &p->context;
    const hth_plan_options one = {.n_ctx = o->options.n_ctx, .context = o->options.context};
    if (st == HEARTH_OK && p->n_device == 1)
        st = hth_plan_greedy_baseline(&o->input, &o->machine, &one, &p->by_share, err);
    if (st != HEARTH_OK) return st;
    if (args_has(p->a, "what-if")) st = plan_sizes(p, err);
    hth_plan_context_apply(o, &p->builder);
    p->ram = args_size(p->a, "ram", 0);
    if (p->ram == 0) p->ram = hth_engine_auto_limit(hth_memory_resident(), false);
    if (p->ram == UINT64_MAX) p->ram = 0;
    p->host_bytes = host_bytes(p);
    return st;
}

/* "the least is --vram 7.89M; ...": an option that works unchanged, if the device has that much. */
typedef struct budget_text {
    char text[120];
} budget_text;

static budget_text min_budget_of(const plan_state *p)
{
    budget_text w = {"not even one fits into what it binds at once"};
    uint64_t min = hth_placement_builder_least_bytes(&p->builder);
    bool is_there = min <= hth_device_free_memory(p->builder.parts[0].info);
    if (min < UINT64_MAX)
        snprintf(w.text, sizeof w.text, "the least is %s%s", is_there ? "--vram " : "",
                 is_there ? hth_format_size_arg(min).text : hth_format_bytes(min).text);
    return w;
}

static hearth_status write_placement(const plan_state *p, const char *path, hearth_error *err)
{
    hth_placement to = {.n_layer = n_layer_there(p),
                        .n_hot = p->builder.n_hot,
                        .read_experts = p->builder.parts[0].params.read_experts,
                        .head = hth_placement_builder_has_head(&p->builder),
                        .host_kv = p->context.host_kv,
                        .n_device = p->n_device,
                        .seconds = p->builder.seconds};
    uint64_t hash;
    if (is_empty_placement(p))
        return hth_fail(
            err, HEARTH_ERROR_MEMORY,
            "no layer fits there: %s; a smaller -c or --batch takes less; no placement is written",
            min_budget_of(p).text);
    if (to.n_layer == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "nothing gains by lying there: no placement is written");
    for (uint32_t i = 0; i < p->n_device; i++) {
        const hth_placement_part *from = &p->builder.parts[i];
        hth_placement_device *d = &to.devices[i];
        snprintf(d->name, sizeof d->name, "%s", from->info->name);
        snprintf(d->driver, sizeof d->driver, "%s", from->info->driver);
        d->end_layer = from->params.end_layer;
        d->submit_on_demand = from->params.submit_mode == HTH_SUBMIT_ON_DEMAND;
        memcpy(d->streams, from->params.streams, sizeof d->streams);
    }
    hearth_status st = hth_model_hash(p->file, &hash, err);
    return st == HEARTH_OK ? hth_placement_write(&to, hash, path, err) : st;
}

/* ---- output ------------------------------------------------------------------------------------------- */

static const char *limit_of(const plan_state *p, const hth_plan_time *t)
{
    return t->bound == HTH_PLAN_BOUND_SYNC ? "handoff" : t->bound < p->n_device ? "GPU" : "CPU";
}

/* Whether layers divide experts, not neurons. */
static bool divides_experts(const plan_state *p)
{
    uint32_t i = 0, n = p->model->hparams.n_layer;
    while (i < n && !hth_layer_divides_experts(&p->model->layers[i])) i++;
    return i < n;
}

/* Whether the layer has what is counted: experts, if the model divides them. */
static bool has_units(const plan_state *p, uint32_t i)
{
    return !divides_experts(p) || hth_layer_divides_experts(&p->model->layers[i]);
}

static uint64_t units_of(const plan_state *p)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->model->hparams.n_layer; i++) n += has_units(p, i) ? hth_layer_n_unit(&p->model->layers[i]) : 0;
    return n;
}

static uint64_t n_hot_total(const plan_state *p)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_layer_there(p); i++) n += has_units(p, i) ? p->builder.n_hot[i] : 0;
    return n;
}

/* The name of device i within a sentence: "the GPU", or "GPU 2, NAME". */
typedef struct label {
    char text[300];
} label;

static label label_of(const plan_state *p, uint32_t i)
{
    label l = {"the GPU"};
    if (p->n_device > 1) snprintf(l.text, sizeof l.text, "GPU %u, %.250s", i + 1, printable(p->devices[i].info->name));
    return l;
}

static void print_machine(const plan_state *p)
{
    for (uint32_t i = 0; i < p->n_device; i++) {
        const hth_calibration *c = &p->context.parts[i].calibration;
        if (p->n_device > 1) printf("%s: ", label_of(p, i).text);
        printf("%s: rows of %s %.1f GB/s there, %.1f GB/s here (%u threads), neurons at 5 %% %.1f GB/s "
               "here; handoff %.0f us "
               "(99th of 100: %.0f), %s; a program %.1f us\n",
               p->n_device > 1 ? "measured" : "Measured", hth_type_find((uint32_t)c->type)->name,
               c->device_rate.median * 1e-9, c->cpu_rate.median * 1e-9, hth_pool_n_thread(p->pool),
               c->cpu_down[0] * 1e-9, c->sync_latency[hth_calibration_submit_mode(c)] * 1e6,
               c->sync_latency_99[hth_calibration_submit_mode(c)] * 1e6,
               hth_calibration_submit_mode(c) == HTH_SUBMIT_ON_DEMAND ? "submitted when the host is ready"
                                                                      : "queued",
               c->dispatch * 1e6);
        if (p->devices[i].info->kind != HTH_DEVICE_SIMULATED)
            print_calibration_date("GPU and cores were", c->measured_at);
    }
}

/* Layers with the same share in one line. */
static void print_layers(const plan_state *p)
{
    uint32_t n = p->model->hparams.n_layer;
    printf("\n");
    table_begin(0);
    table_add("| layers | %s there | GPU us | CPU us | way us | limit |\n|---|---|---|---|---|---|\n",
              divides_experts(p) ? "experts" : "neurons");
    for (uint32_t i = 0, end; i < n; i = end) {
        const hth_plan_division *d = p->context.best.divisions;
        for (end = i + 1; end < n && memcmp(&d[end], &d[i], sizeof *d) == 0; end++)
            ;
        const hth_plan_time *t = &p->context.best.layers[i];
        uint32_t home = d[i].attention;
        char range[32], hot[40], where[40] = "";
        snprintf(range, sizeof range, end > i + 1 ? "%u-%u" : "%u", i, end - 1);
        if (i < n_layer_there(p) && !has_units(p, i)) snprintf(hot, sizeof hot, "whole");
        else if (i < n_layer_there(p))
            snprintf(hot, sizeof hot, "%u of %u", p->builder.n_hot[i], hth_layer_n_unit(&p->model->layers[i]));
        else snprintf(hot, sizeof hot, "on the CPU");
        if (p->n_device > 1 && home < p->n_device) snprintf(where, sizeof where, ", on GPU %u", home + 1);
        table_add("| %s | %s | %.1f | %.1f | %.1f | %s%s |\n", range, hot,
               home < p->n_device ? t->home[home] * 1e6 : 0.0, t->home[p->n_device] * 1e6, t->sync * 1e6,
               limit_of(p, t), where);
    }
    table_end();
}

static void print_what_if(const plan_state *p)
{
    bool in_gib = p->what_if[0].vram >= (uint64_t)256 << 20;
    printf("\n");
    table_begin(2);
    table_add("| %s | tokens/s |\n|---|---|\n", in_gib ? "GiB there" : "MiB there");
    for (size_t i = 0; i < p->n_what_if; i++)
        table_add("| %.*f | %.2f |\n", in_gib ? 2 : 0, (double)p->what_if[i].vram * (in_gib ? 0x1p-30 : 0x1p-20),
               rate(p->what_if[i].seconds));
    table_end();
}

static void print_memory_bar(const char *name, uint64_t bytes, uint64_t shown, uint64_t of)
{
    if (shown > 0 && of > 0)
        printf("  %-18s %12s  %s\n", name, hth_format_bytes(bytes).text, bar_of((double)shown / (double)of, BAR_COLUMNS).text);
}

/* On a terminal: each purpose as a share of all, and all as a share of the limit. */
static void print_memory_bars(const plan_state *p, const hth_plan_bytes *b, uint64_t budget)
{
    if (!shows_bars()) return;
    print_memory_bar("attention, layers", b->attention, b->attention, b->total);
    print_memory_bar(divides_experts(p) ? "experts" : "neurons", b->clusters, b->clusters, b->total);
    print_memory_bar("caches", b->kv, b->kv, b->total);
    print_memory_bar("head", b->head, b->head, b->total);
    print_memory_bar("workspace", b->fixed, b->fixed, b->total);
    if (budget < UINT64_MAX) print_memory_bar("all, of the limit", budget, b->total, budget);
}

/* Memory of device i in use, by purpose. */
static void print_device_memory(const plan_state *p, uint32_t i)
{
    const hth_plan_bytes *b = &p->context.best.bytes[i];
    const hth_placement_part *part = &p->builder.parts[i];
    uint64_t n_hot = 0;
    for (uint32_t l = part->params.first_layer; l < part->params.end_layer; l++)
        n_hot += has_units(p, l) ? p->builder.n_hot[l] : 0;
    printf("%sOn %s: %s", i == 0 ? "\n" : "", label_of(p, i).text, hth_format_bytes(b->total).text);
    if (part->budget < UINT64_MAX) printf(", and %s", with_options(hth_budget_text_of(part).text).text);
    bool experts = divides_experts(p), divides = experts || p->model->down_transposed;
    printf(": %s %s, caches %s", !divides ? "whole layers" : experts ? "all but experts" : "attention",
           hth_format_bytes(b->attention).text, hth_format_bytes(b->kv).text);
    if (divides)
        printf(", %s %s (%.0f %%)", experts ? "experts" : "neurons", hth_format_bytes(b->clusters).text,
               100.0 * (double)n_hot / (double)units_of(p));
    printf(", head %s, workspace %s\n", hth_format_bytes(b->head).text, hth_format_bytes(b->fixed).text);
    print_memory_bars(p, b, part->budget);
    uint64_t is_free = hth_device_free_memory(part->info);
    if (part->is_user_limit && part->budget > is_free)
        printf("Now %s are free there, which is all that a run can take.\n", hth_format_bytes(is_free).text);
}

static void print_devices(const plan_state *p)
{
    for (uint32_t i = 0; i < p->n_device; i++) print_device_memory(p, i);
    if (is_empty_placement(p))
        printf("No layer fits there: %s; a smaller -c or --batch takes less.\n", min_budget_of(p).text);
    else if (n_layer_there(p) == 0) printf("Nothing gains by lying there.\n");
}

/* Experts of a mixture that memory does not hold are read while tokens are computed. */
static hearth_status make_tiers(plan_state *p, hearth_error *err)
{
    if (!args_has(p->a, "ram") || p->ram == 0 || p->host_bytes <= p->ram || !divides_experts(p)) return HEARTH_OK;
    return plan_tiers_make(p->a, &p->context, p->route.given ? &p->route.spec : NULL, p->ram, p->model->tied,
                           &p->tiers, err);
}

static void print_host_memory(const plan_state *p)
{
    printf("Here: %s of weights", hth_format_bytes(p->host_bytes).text);
    if (p->ram > 0) printf(", of %s", hth_format_bytes(p->ram).text);
    printf("\n");
    if (p->ram > 0 && p->host_bytes > p->ram && !p->tiers.applies)
        printf("They do not fit: with this --ram a run reads the rest from storage when it is needed, slower "
               "than what follows; --gpu none plans that without the GPU.\n");
}

static void print_streams(const plan_state *p, uint32_t i_device)
{
    const hth_placement_stream *streams = p->context.parts[i_device].streams;
    for (int i = 0; i < HTH_PLACEMENT_STREAMS && streams[i].n_tok > 0; i++) {
        printf("%s from %u tokens on, the other weights pass through %s",
               i ? "        " : "Prompts:", streams[i].n_tok,
               label_of(p, i_device).text);
        if (i == 0) printf(", in steps of up to %u; with fewer, the CPU computes them", p->devices[i_device].params.n_row);
        if (streams[i].cpu_share > 0)
            printf("; the CPU computes %.0f %% of them meanwhile",
                   100.0 * streams[i].cpu_share / HTH_PLACEMENT_PARTS);
        printf("\n");
    }
}

/* Where keys and values are, and what the other home of them would give. */
static void print_kv_home(const plan_state *p)
{
    const hth_plan_context *o = &p->context;
    if (n_layer_there(p) == 0) return;
    printf("KV cache: %s", o->host_kv ? "in host memory, where the CPU computes attention" : "with its layers");
    if (o->seconds_other_kv > 0.0)
        printf("; %s: %.2f tokens/s", o->host_kv ? "with its layers" : "in host memory", rate(o->seconds_other_kv));
    printf("\n");
}

static bool is_whole(const plan_state *p) { return p->context.best.head && n_hot_total(p) == units_of(p); }

static void print_kind(const plan_state *p, uint32_t i)
{
    const hth_device_info *info = p->devices[i].info;
    label name = p->n_device > 1 ? label_of(p, i) : (label){"The device"};
    if (info->kind == HTH_DEVICE_SIMULATED)
        printf("%s is simulated: its figures come from its description.\n", name.text);
    else if (!hth_device_is_gpu(info))
        printf("%s computes on the CPU: the figures say nothing of a GPU.\n", name.text);
}

/* Tokens/s of all sequences together that a step has tokens of. */
static double rate_of(uint32_t n_seq, double seconds) { return n_seq * rate(seconds); }

static void print_sequences(const hth_plan_context *o)
{
    printf("Of several sequences together:");
    for (int i = 1; i < HTH_PLAN_N_SEQ; i++)
        printf("%s %.2f with %u", i > 1 ? "," : "", rate_of(hth_plan_n_seq[i], o->seconds_by_seq[i]), hth_plan_n_seq[i]);
    if (o->options.n_seq > 1)
        printf("; placed for %u: %.2f", o->options.n_seq, rate_of(o->options.n_seq, o->seconds_planned));
    printf("\n");
}

static void print_json_sequences(json *j, const hth_plan_context *o)
{
    json_uint(j, "planned_sequences", o->options.n_seq);
    json_float(j, "tokens_per_second_planned", rate_of(o->options.n_seq, o->seconds_planned), 6);
    json_open(j, "by_sequences", '[');
    for (int i = 0; i < HTH_PLAN_N_SEQ; i++) {
        json_open_compact(j, NULL, '{');
        json_uint(j, "sequences", hth_plan_n_seq[i]);
        json_float(j, "tokens_per_second", rate_of(hth_plan_n_seq[i], o->seconds_by_seq[i]), 6);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void print_text(const plan_state *p)
{
    const hth_plan_context *o = &p->context;
    const hth_plan *b = &o->best;
    hearth_selector selector = p->builder.parts[0].params.selector;
    printf("%s", printable(args_operand(p->a, 0)));
    for (uint32_t i = 0; i < p->n_device; i++)
        printf("%s %s (%s)", i == 0 ? " on" : " and", printable(p->devices[i].info->name),
               printable(p->devices[i].info->driver));
    printf(", selector %s\n", hearth_selector_name(selector));
    for (uint32_t i = 0; i < p->n_device; i++) print_kind(p, i);
    if (is_whole(p)) printf("All of it fits there.\n");
    else if (!p->model->down_transposed && !divides_experts(p))
        printf("Whole layers only: hearth pack would let each layer be divided.\n");
    else if (o->uniform && selector != HEARTH_SELECTOR_DENSE)
        printf("Nothing is known of who fires: %.0f %% of the neurons of each layer are assumed "
               "(hearth profile, then hearth pack).\n",
               100.0 * hth_plan_assumed(selector));
    print_machine(p);
    print_layers(p);
    print_devices(p);
    print_host_memory(p);
    printf("Expected: %.2f tokens/s (%.2f to %.2f) behind %u tokens; %.2f behind none, %.2f behind %u\n",
           rate(b->seconds), rate(o->seconds_worst), rate(o->seconds_best), o->options.context,
           rate(b->seconds_empty), rate(b->seconds_full), o->options.n_ctx);
    print_sequences(o);
    if (p->tiers.applies) plan_tiers_print(&p->tiers);
    printf("The CPU alone: %.2f tokens/s", rate(b->seconds_cpu));
    if (p->n_device == 1) printf("; placed by firings alone: %.2f", rate(p->by_share.seconds));
    printf("\n");
    print_kv_home(p);
    for (uint32_t i = 0; i < p->n_device; i++) print_streams(p, i);
    if (p->n_device == 1) printf("1 GiB more: %+.2f tokens/s%s\n", b->tps_per_gib, o->options.n_seq > 1 ? " of all sequences" : "");
    if (p->n_what_if > 0) print_what_if(p);
}

static void print_json_what_if(json *j, const plan_state *p)
{
    json_open(j, "what_if", '[');
    for (size_t i = 0; i < p->n_what_if; i++) {
        json_open_compact(j, NULL, '{');
        json_uint(j, "vram_bytes", p->what_if[i].vram);
        json_float(j, "tokens_per_second", rate(p->what_if[i].seconds), 6);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void print_json_streams(json *j, const hth_placement_stream *streams)
{
    json_open_compact(j, "streams", '[');
    for (int i = 0; i < HTH_PLACEMENT_STREAMS && streams[i].n_tok > 0; i++) {
        json_open(j, NULL, '{');
        json_uint(j, "from_tokens", streams[i].n_tok);
        json_float(j, "cpu_share", (double)streams[i].cpu_share / HTH_PLACEMENT_PARTS, 6);
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Writes the members of one device. */
static void print_json_device(json *j, const plan_state *p, uint32_t i)
{
    const hth_device_info *info = p->devices[i].info;
    json_word(j, "device", info->name);
    json_word(j, "driver", info->driver);
    json_bool(j, "is_card", hth_device_is_gpu(info));
    json_bool(j, "simulated", info->kind == HTH_DEVICE_SIMULATED);
    json_calibration(j, "calibration", &p->context.parts[i].calibration);
    json_uint(j, "vram_bytes", p->context.best.bytes[i].total);
    json_uint(j, "budget_bytes", p->context.parts[i].budget);
    print_json_streams(j, p->context.parts[i].streams);
}

static void print_json(const plan_state *p)
{
    const hth_plan_context *o = &p->context;
    const hth_plan *b = &o->best;
    json j = json_begin(stdout);
    json_word(&j, "model", args_operand(p->a, 0));
    if (p->n_device == 1) print_json_device(&j, p, 0);
    else json_open(&j, "devices", '[');
    for (uint32_t i = 0; p->n_device > 1 && i < p->n_device; i++) {
        json_open(&j, NULL, '{');
        json_uint(&j, "end_layer", p->builder.parts[i].params.end_layer);
        print_json_device(&j, p, i);
        json_close(&j, '}');
    }
    if (p->n_device > 1) json_close(&j, ']');
    json_word(&j, "selector", hearth_selector_name(p->builder.parts[0].params.selector));
    json_bool(&j, "uniform", o->uniform);
    json_open_compact(&j, divides_experts(p) ? "experts" : "neurons", '[');
    for (uint32_t i = 0; i < n_layer_there(p); i++) json_uint(&j, NULL, has_units(p, i) ? p->builder.n_hot[i] : 0);
    json_close(&j, ']');
    json_bool(&j, "head", b->head);
    json_bool(&j, "host_kv", o->host_kv);
    if (o->seconds_other_kv > 0.0) json_float(&j, "tokens_per_second_other_kv", rate(o->seconds_other_kv), 6);
    uint64_t min = hth_placement_builder_least_bytes(&p->builder);
    if (min < UINT64_MAX) json_uint(&j, "least_bytes", min);
    json_bool(&j, "fits", !is_empty_placement(p));
    json_uint(&j, "host_bytes", p->host_bytes);
    if (p->ram > 0) json_uint(&j, "ram_bytes", p->ram);
    if (p->ram > 0) json_bool(&j, "fits_ram", p->host_bytes <= p->ram);
    if (p->tiers.applies) plan_tiers_json(&j, &p->tiers);
    json_float(&j, "tokens_per_second", rate(b->seconds), 6);
    json_float(&j, "tokens_per_second_least", rate(o->seconds_worst), 6);
    json_float(&j, "tokens_per_second_most", rate(o->seconds_best), 6);
    json_float(&j, "tokens_per_second_empty", rate(b->seconds_empty), 6);
    json_float(&j, "tokens_per_second_full", rate(b->seconds_full), 6);
    json_float(&j, "tokens_per_second_cpu", rate(b->seconds_cpu), 6);
    print_json_sequences(&j, o);
    if (p->n_device == 1) json_float(&j, "tokens_per_second_by_firings", rate(p->by_share.seconds), 6);
    if (p->n_device == 1) json_float(&j, "gain_of_a_gib", b->tps_per_gib, 6);
    if (p->n_what_if > 0) print_json_what_if(&j, p);
    json_end(&j);
}

/* The first given option that needs a GPU; NULL: none was given. */
static const char *option_of_gpu(const args *a)
{
    static const char *const all[] = {"out", "what-if", "vram", "placement"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (args_has(a, all[i])) return all[i];
    return NULL;
}

/* The first given option that is allowed only without a GPU; NULL: none was given. */
static const char *option_of_cpu(const args *a)
{
    static const char *const all[] = {"prompt", "predict"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (args_has(a, all[i])) return all[i];
    return NULL;
}

static int check_args(const args *a)
{
    if (strcmp(args_text(a, "gpu", "auto"), "none") == 0 && option_of_gpu(a))
        return usage_error(
            "plan --gpu none: nothing is placed; leave --%s out, or name a GPU of hearth devices",
            option_of_gpu(a));
    if (args_has(a, "what-if") && strchr(args_text(a, "gpu", "auto"), ','))
        return usage_error("plan --what-if: sizes of one GPU; leave it out, or name one with --gpu");
    if (args_has(a, "placement") && (strchr(args_text(a, "gpu", "auto"), ',') || args_has(a, "out") || args_has(a, "what-if")))
        return usage_error("plan --placement: one GPU, and nothing is planned; leave --out and --what-if out");
    return 0;
}

/* Why the CPU computes all; NULL: there is a GPU to plan for. */
static const char *lack_of_gpu(const args *a)
{
    char gpu[32];
    const char *name = args_text(a, "gpu", "auto");
    if (strcmp(name, "none") == 0) return "";
    return strcmp(name, "auto") == 0 && !option_of_gpu(a) && !hth_device_find_discrete(gpu) ? "no GPU" : NULL;
}

/* Whether only a plan with the GPU will do. */
static bool is_about_gpu(const args *a) { return args_has(a, "out") || args_has(a, "what-if") || args_has(a, "placement"); }

/* Why the plan with a GPU is not printed: it has no layer there, and says nothing of a limit of memory that the weights
 * exceed. NULL: it is printed. */
static const char *why_no_layer(const plan_state *p)
{
    bool fits = !args_has(p->a, "ram") || p->ram == 0 || p->host_bytes <= p->ram;
    if (is_about_gpu(p->a) || n_layer_there(p) > 0 || fits) return NULL;
    return is_empty_placement(p) ? "no layer fits on the GPU" : "nothing gains by lying on the GPU";
}

static hearth_status write_plan(const plan_state *p, hearth_error *err)
{
    const char *out = args_text(p->a, "out", NULL);
    if (args_has(p->a, "json")) print_json(p);
    else print_text(p);
    return out ? write_placement(p, out, err) : HEARTH_OK;
}

/* Draws, or copies, the experts of tokens to come. */
static hearth_status open_route(plan_state *p, hearth_error *err)
{
    if (!p->route.given) return HEARTH_OK;
    return hth_route_trace_open(p->model, &p->route.spec, ROUTE_TOKENS, &p->route_lists, err);
}

/* Prints the plan with a GPU, or sets *why it does not. Returns the exit status. */
static int plan_gpu(plan_state *p, const char **why)
{
    hth_offload_params params = {.n_session = 1,
                                 .kv = session_options(p->a, 0).kv,
                                 .host_kv = args_has(p->a, "no-kv-offload"),
                                 .streams_experts = args_has(p->a, "ram")};
    hearth_error err;
    hearth_status st = check_io(p, &err);
    if (st == HEARTH_OK) st = open_model_alone(p, &params, &err);
    if (st == HEARTH_OK && !is_about_gpu(p->a)) *why = hth_gpu_unsupported_reason(p->model, &params, 0);
    if (*why) st = open_gpus(p, false, &err); /* an unknown GPU is an error all the same */
    if (st == HEARTH_OK && !*why && option_of_cpu(p->a))
        return usage_error("plan with a GPU: --%s is for plans without one; leave it out, or add --gpu none",
                           option_of_cpu(p->a));
    if (st == HEARTH_OK && !*why) st = open_route(p, &err);
    if (st == HEARTH_OK && !*why && (st = make_plan(p, &params, &err)) == HEARTH_OK) *why = why_no_layer(p);
    if (st == HEARTH_OK && !*why) st = make_tiers(p, &err);
    if (st == HEARTH_OK && !*why) st = write_plan(p, &err);
    return st == HEARTH_OK ? 0 : report(&err);
}

static int run_plan(const args *a)
{
    plan_state p = {.a = a};
    const char *out = args_text(a, "out", NULL);
    const input inputs[] = {{args_operand(a, 0), "the model"},
                            {args_text(a, "profile", NULL), "the profile"}};
    const char *route = args_text(a, "route", NULL);
    int status = check_args(a);
    if (!status && route) status = parse_route("plan", route, &p.route);
    if (!status && out)
        status = check_output(a, out, OUTPUT_PLACEMENT, inputs, sizeof inputs / sizeof *inputs);
    if (status) return status;
    const char *no_gpu = lack_of_gpu(a);
    if (!no_gpu && !read_route(&p.route)) return EXIT_OTHER;
    if (!no_gpu) status = plan_gpu(&p, &no_gpu);
    close_all(&p);
    return !status && no_gpu ? plan_storage(a, no_gpu) : status;
}

const command command_plan = {
    .name = "plan",
    .operands = "MODEL",
    .summary = "plan what lies where, and predict the speed",
    .details = "Measures this machine for some seconds, reads no weights. Packed files are\n"
               "divided by neurons, by their cost on either side; other files by layers.\n"
               "Without a GPU: what a limit of memory keeps and reads (--ram; default auto),\n"
               "and the speed to expect.\n",
    .example = "hearth plan packed.gguf --vram 8G --what-if -o packed.placement",
    .groups = {options, output_options, model_options, plan_options},
    .models = 1,
    .run = run_plan,
};
