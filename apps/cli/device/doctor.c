/* hearth doctor: capabilities of this machine for models, and problems with their remedies. This file collects
 * facts; doctor_checks.c evaluates them. docs/bench.md lists the fields of --json. */
#define _GNU_SOURCE
#include "cli/device/calibration.h"
#include "cli/device/doctor.h"
#include "cli/commands.h"
#include "common/options/field_names.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "device/driver_faults.h"
#include "measure/machine/limits.h"
#include "model/model.h"

#include <string.h>
#include <sys/resource.h>

static const option_spec options[] = {
    OPT_TEXT("gpu", 0, "DEVICE", "to measure: auto (default), none, or a name", .choices = "auto|none"),
    OPT_TEXT("device", 0, "DEVICE", "the same as --gpu", .choices = "auto|none", ADVANCED),
    OPT_FLAG("again", 0, "calibrate the GPU again, drop cached calibrations"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

enum { REGION_SIZE = 256 << 20, N_PASS = 5, WATCH_MS = 400 };
static const uint64_t disk_sample = (uint64_t)512 << 20;

/* ---- facts ---------------------------------------------------------------------------------- */

/* got: what getrlimit returned. */
static uint64_t limit_of(int got, const struct rlimit *r)
{
    return got != 0 || r->rlim_cur == RLIM_INFINITY ? UINT64_MAX : r->rlim_cur;
}

static hearth_status measure_bandwidth(hth_bandwidth_probe *region, uint32_t n_thread, hth_sample_stats *out,
                                       hearth_error *err)
{
    double rate[N_PASS];
    hth_pool *pool;
    hearth_status st = hth_pool_open(n_thread, &pool, err);
    if (st != HEARTH_OK) return st;
    hth_bandwidth_measure(region, pool); /* wakes the threads */
    for (int i = 0; i < N_PASS; i++) rate[i] = hth_bandwidth_measure(region, pool);
    *out = hth_sample_stats_of(rate, N_PASS);
    hth_pool_close(pool);
    return HEARTH_OK;
}

static hearth_status look_at_machine(system_info *f, hearth_error *err)
{
    hth_bandwidth_probe region = {0};
    struct rlimit locked, address;
    hearth_status st = hth_cpu_choose(NULL, &f->level, err);
    if (st != HEARTH_OK) return st;
    f->machine_level = hth_cpu_detect();
    f->lack = hth_cpu_missing_feature();
    f->load_known = hth_cpu_load_sample(WATCH_MS, &f->load); /* before this process adds load */
    hth_machine_read("", &f->machine);
    f->locked_limit = limit_of(getrlimit(RLIMIT_MEMLOCK, &locked), &locked);
    f->address_limit = limit_of(getrlimit(RLIMIT_AS, &address), &address);
    if ((st = hth_bandwidth_open(&region, REGION_SIZE, err)) != HEARTH_OK) return st;
    st = measure_bandwidth(&region, 1, &f->one, err);
    if (st == HEARTH_OK && f->n_thread > 1) st = measure_bandwidth(&region, f->n_thread, &f->all, err);
    hth_bandwidth_close(&region);
    return st;
}

/* With weights of the model's type, or of the two most common types. */
static void check_gpu(system_info *f, const args *a)
{
    const hth_type common_types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q8_0};
    const doctor_gpu_options requested = {.name = args_text(a, args_has(a, "gpu") ? "gpu" : "device", "auto"),
                                          .again = args_has(a, "again"),
                                          .types = f->path ? &f->type : common_types,
                                          .n_type = f->path ? 1 : DOCTOR_MAX_TYPE,
                                          .n_thread = f->n_thread};
    doctor_look_at_gpu(&f->gpu, &requested);
}

/* Reads the tensor infos only, before anything is measured or loaded. False: the model cannot be run, and an
 * error was reported. */
static bool check_file(system_info *f, const args *a)
{
    hth_gguf *file = NULL;
    hth_model *model = NULL;
    hearth_error err;
    hearth_status st = hth_gguf_open(f->path, &file, &err);
    hth_model_overrides other = {.allow_unused = args_has(a, "allow-unused")};
    if (st == HEARTH_OK) st = hth_model_open(file, &other, &model, &err);
    if (st == HEARTH_OK) f->weight_bytes = model->weight_size, f->type = hth_model_row_type(model);
    else report(&err);
    f->mmap = wants_mapping(a);
    hth_model_close(model);
    hth_gguf_close(file);
    return st == HEARTH_OK;
}

static bool fits(const system_info *f)
{
    const hth_machine *m = &f->machine;
    uint64_t capacity = m->memory.available ? m->memory.available : UINT64_MAX;
    if (m->memory.group_limit && m->memory.group_limit < capacity) capacity = m->memory.group_limit;
    return f->mmap || f->weight_bytes < capacity;
}

/* False: an error was reported. A model that does not fit is not loaded. */
static bool check_model(system_info *f, const args *a)
{
    uint64_t ignored, before = hth_huge_page_bytes();
    hearth_model *model;
    hth_disk_read_rate(f->path, disk_sample, &f->disk_rate, &ignored, NULL);
    f->fits = fits(f);
    if (!f->fits) return true;
    if (!open_model(a, f->path, &model)) return false;
    uint64_t after = hth_huge_page_bytes();
    hearth_session_options o = session_options(a, 0);
    f->opened = true;
    f->huge_bytes = after > before ? after - before : 0;
    f->session_bytes = hearth_session_bytes(model, &o);
    hearth_model_close(model);
    return true;
}

/* ---- results -------------------------------------------------------------------------------- */

static void print_faults(const hth_device_info *info)
{
    for (const hth_driver_fault *f = NULL; (f = hth_driver_fault_next(info, f));)
        printf("        driver:     %s. Here: %s. [%s]\n", f->fault, with_options(f->hearth).text,
               f->sources);
}

static void print_text(const system_info *facts, const check_result *list, size_t n)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        const check_result *f = &list[i];
        printf("%-7s %-11s %s\n", f->ok ? "ok" : "better:", f->name, printable(f->text));
        if (!f->ok) printf("%20s-> %s\n", "", printable(f->fix));
        n_bad += !f->ok;
    }
    print_faults(&facts->gpu.info);
    if (n_bad) printf("\n%zu of %zu could be better.\n", n_bad, n);
    else printf("\nNothing to do.\n");
}

static void print_limit(json *j, const char *key, uint64_t bytes)
{
    if (bytes != UINT64_MAX) json_uint(j, key, bytes); /* absent: no limit */
}

static void print_machine(json *j, const system_info *f)
{
    static const char *const huge[] = {"none", "never", "madvise", "always"};
    const hth_machine *m = &f->machine;
    json_word(j, "cpu_name", m->cpu_name);
    json_word(j, "level", hth_cpu_name(f->level));
    json_word(j, "machine_level", hth_cpu_name(f->machine_level));
    if (f->lack) json_word(j, "lack", f->lack);
    json_uint(j, "cores", m->n_core);
    json_uint(j, "usable_cpus", m->n_allowed);
    json_uint(j, "online_cpus", m->n_online);
    json_uint(j, "threads", f->n_thread);
    if (m->cpu_quota > 0.0) json_float(j, "cpu_quota", m->cpu_quota, 6);
    json_uint(j, "memory_bytes", m->memory.total);
    json_uint(j, "free_bytes", m->memory.available);
    json_uint(j, "swap_bytes", m->memory.swap);
    if (m->memory.group_limit) {
        json_uint(j, "group_limit_bytes", m->memory.group_limit);
        json_uint(j, "group_used_bytes", m->memory.group_used);
    }
    json_word(j, "huge_pages", huge[m->huge]);
    json_uint(j, "overcommit", m->memory.overcommit);
    print_limit(j, "address_space_bytes", f->address_limit);
    print_limit(j, "locked_memory_bytes", f->locked_limit);
    json_float(j, "bytes_per_second_1", f->one.median, 6);
    json_float(j, "bytes_per_second", f->n_thread > 1 ? f->all.median : f->one.median, 6);
    if (!f->load_known) return;
    json_float(j, "busy_cpus", f->load.busy, 4);
    json_float(j, "stolen_cpus", f->load.stolen, 4);
}

static void print_driver(json *j, const hth_device_info *info)
{
    char version[48];
    hth_driver_version_format(hth_driver_version_of(info), version);
    json_uint(j, "driver_id", info->driver_id);
    json_word(j, "driver_version", version);
    json_open(j, "driver_faults", '[');
    for (const hth_driver_fault *f = NULL; (f = hth_driver_fault_next(info, f));) {
        json_open(j, NULL, '{');
        json_word(j, "fault", f->fault);
        json_word(j, "hearth", with_options(f->hearth).text);
        if (f->remedy) json_word(j, "remedy", with_options(f->remedy).text);
        json_word(j, "sources", f->sources);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void print_gpu(json *j, const doctor_gpu *g)
{
    const hth_device_info *info = &g->info;
    json_open(j, "gpu", '{');
    json_word(j, "name", info->name);
    json_word(j, "problem", g->problem);
    if (g->found) {
        json_word(j, "driver", info->driver);
        json_bool(j, "is_card", hth_device_is_usable_gpu(info));
        json_bool(j, "simulated", info->kind == HTH_DEVICE_SIMULATED);
        print_limit(j, "memory_bytes", info->memory);
        print_limit(j, "free_bytes", hth_device_free_memory(info));
        json_bool(j, "integer_dot", info->features & HTH_FEATURE_INT_DOT);
        json_open(j, "calibrations", '[');
        for (size_t i = 0; i < g->n_calibration; i++) json_calibration(j, NULL, &g->calibrations[i]);
        json_close(j, ']');
    }
    if (info->driver_id) print_driver(j, info);
    json_close(j, '}');
}

static void print_model(json *j, const system_info *f)
{
    json_open(j, "model", '{');
    json_word(j, "path", f->path);
    json_uint(j, "weight_bytes", f->weight_bytes);
    json_bool(j, "fits", f->fits);
    if (f->disk_rate > 0.0) json_float(j, "disk_bytes_per_second", f->disk_rate, 6);
    if (f->opened) {
        json_uint(j, "huge_page_bytes", f->huge_bytes);
        json_uint(j, "session_bytes", f->session_bytes);
    }
    json_close(j, '}');
}

static void print_json(const system_info *facts, const check_result *list, size_t n)
{
    json j = json_begin(stdout);
    json_open(&j, "checks", '[');
    for (size_t i = 0; i < n; i++) {
        json_open(&j, NULL, '{');
        json_word(&j, "name", list[i].name);
        json_bool(&j, "ok", list[i].ok);
        json_word(&j, "text", list[i].text);
        if (!list[i].ok) json_word(&j, "fix", list[i].fix);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open(&j, "machine", '{');
    print_machine(&j, facts);
    json_close(&j, '}');
    print_gpu(&j, &facts->gpu);
    if (facts->path) print_model(&j, facts);
    json_end(&j);
}

/* ---- entry point ---------------------------------------------------------------------------- */

static int run_doctor(const args *a)
{
    system_info facts = {.path = args_operand(a, 0)};
    check_result findings[DOCTOR_MAX_FINDING];
    hearth_error err;
    if (args_has(a, "gpu") && args_has(a, "device"))
        return usage_error("--gpu and --device are the same: give one of them");
    facts.n_thread = hth_pool_default_threads((uint32_t)args_uint(a, "threads", 0));
    /* Ctrl-C ends it at once, like hearth plan, because a partial report is misleading. Cached measurements are
     * kept until new ones replace them. */
    if (facts.path && !check_file(&facts, a)) return EXIT_OTHER;
    if (look_at_machine(&facts, &err) != HEARTH_OK) return report(&err);
    check_gpu(&facts, a);
    if (facts.path && !check_model(&facts, a)) return EXIT_OTHER;
    size_t n = doctor_check(&facts, findings);
    if (args_has(a, "json")) print_json(&facts, findings, n);
    else print_text(&facts, findings, n);
    return facts.gpu.failed ? EXIT_OTHER : 0;
}

const command command_doctor = {
    .name = "doctor",
    .operands = "[MODEL]",
    .summary = "what limits the speed of this machine, and remedies",
    .details = "CPU level, cores, load, memory, huge pages, bandwidth, limits and the GPU; with\n"
               "a model also the speed of its disk, whether it fits, and its pages. Each is ok,\n"
               "or has a remedy on the line below.\n",
    .example = "hearth doctor model.gguf",
    .groups = {options, model_options},
    .models = 1,
    .run = run_doctor,
};
