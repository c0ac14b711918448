/* hearth list: lists the models on this machine, whether they run, and their estimated speed. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "common/output.h"
#include "hub/hub.h"

#include <stdlib.h>
#include <string.h>

static const option_spec options[] = {
    OPT_FLAG("paths", 0, "show the path of each"),
    OPT_FLAG("json", 0, "print a JSON object"),
    OPT_FLAG("names", 0, "print only the names, one a line; look at no file"),
    {0},
};

/* The GPU used in the estimates. */
typedef struct gpu_used {
    char name[256];
    bool is_simulated;
} gpu_used;

static int look_at_all(const args *a, const hub_models *models, hub_facts *facts, gpu_used *used)
{
    hub_machine *machine;
    hearth_error own, *err = &own;
    progress p;
    hearth_status st = hub_machine_open(args_text(a, "gpu", "auto"), args_size(a, "vram", 0), &machine, err);
    if (st != HEARTH_OK) return report(err);
    progress_init(&p, "looking at models", NULL, 1.0);
    hearth_log_set(NULL, NULL); /* warnings about a file are printed when it is used */
    for (size_t i = 0; i < models->n && st == HEARTH_OK; i++) {
        st = hub_look(machine, &models->at[i], &facts[i], err);
        progress_update(&p, i + 1, models->n);
    }
    progress_end(&p);
    const char *name = hub_machine_gpu(machine, &used->is_simulated);
    if (name) snprintf(used->name, sizeof used->name, "%s", name);
    hub_machine_close(machine);
    return st == HEARTH_OK ? 0 : report(err);
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static const char *runs_word(const hub_facts *f) { return !f->runs ? "no" : f->is_tight ? "tight" : "yes"; }

static void print_speed(const hub_facts *f)
{
    if (f->speed >= 10.0) printf("about %.0f tokens/s", f->speed);
    else if (f->speed > 0.0) printf("about %.1f tokens/s", f->speed);
    if (f->speed > 0.0 && f->on_gpu) printf(", with the GPU");
    if (f->why[0]) printf("%s%s", f->speed > 0.0 ? "; " : "", printable(f->why));
    putchar('\n');
}

/* Columns of a UTF-8 text on a terminal; each character counts as one. */
static int columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_path(const hub_model *m)
{
    printf("    %s: ", hub_place_name(m->place));
    write_text(m->path, strlen(m->path), false);
    putchar('\n');
}

static void print_text(const args *a, const hub_models *models, const hub_facts *facts, const gpu_used *used)
{
    int width = 4;
    for (size_t i = 0; i < models->n; i++) {
        int n = columns(printable(models->at[i].name));
        if (n > width) width = n;
    }
    printf("%-*s  %-8s %-6s %10s  %-5s %s\n", width, "NAME", "FAMILY", "TYPE", "SIZE", "RUNS",
           "SPEED (estimate)");
    for (size_t i = 0; i < models->n; i++) {
        const hub_model *m = &models->at[i];
        const char *name = printable(m->name);
        printf("%s%*s  %-8s %-6s %10s  %-5s ", name, width - columns(name), "", facts[i].family,
               facts[i].type, hth_format_bytes(m->size).text, runs_word(&facts[i]));
        print_speed(&facts[i]);
        if (args_has(a, "paths")) print_path(m);
    }
    if (used->name[0])
        printf("\nThe GPU is %s%s.\n", printable(used->name),
               used->is_simulated ? ": its figures come from its description" : "");
}

static void print_none(void)
{
    printf("There are no models on this machine yet. A small one, 0.3 GiB:\n"
           "  hearth pull bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M\n");
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void print_model(json *j, const hub_model *m, const hub_facts *f)
{
    json_open(j, NULL, '{');
    json_word(j, "name", m->name);
    json_word(j, "path", m->path);
    json_word(j, "place", hub_place_name(m->place));
    json_word(j, "family", f->family);
    json_word(j, "type", f->type);
    json_uint(j, "size_bytes", m->size);
    json_uint(j, "parts", m->n_part);
    json_bool(j, "runs", f->runs);
    json_bool(j, "tight", f->is_tight);
    json_word(j, "why", f->why);
    if (f->memory > 0) json_uint(j, "memory_bytes", f->memory);
    if (f->speed > 0.0) json_float(j, "estimated_tokens_per_second", f->speed, 3);
    json_bool(j, "on_gpu", f->on_gpu);
    json_close(j, '}');
}

static void print_json(const hub_models *models, const hub_facts *facts, const gpu_used *used)
{
    json j = json_begin(stdout);
    json_open(&j, "models", '[');
    for (size_t i = 0; i < models->n; i++) print_model(&j, &models->at[i], &facts[i]);
    json_close(&j, ']');
    json_word(&j, "gpu", used->name);
    json_bool(&j, "gpu_simulated", used->is_simulated);
    json_end(&j);
}

static int run_list(const args *a)
{
    hub_models models;
    hearth_error err;
    if (hub_find_models(&models, &err) != HEARTH_OK) return report(&err);
    if (args_has(a, "names")) {
        for (size_t i = 0; i < models.n; i++) printf("%s\n", printable(models.at[i].name));
        hub_free_models(&models);
        return 0;
    }
    gpu_used used = {.name = ""};
    hub_facts *facts = calloc(models.n + 1, sizeof *facts);
    int status = facts ? look_at_all(a, &models, facts, &used) : report_text("out of memory for a list");
    if (status == 0 && args_has(a, "json")) print_json(&models, facts, &used);
    else if (status == 0 && models.n == 0) print_none();
    else if (status == 0) print_text(a, &models, facts, &used);
    free(facts);
    hub_free_models(&models);
    return status;
}

const command command_list = {
    .name = "list",
    .operands = "",
    .summary = "list the models on this machine, and how they would run",
    .details = "From the caches of Hugging Face (hearth pull) and llama.cpp, Ollama, LM Studio,\n"
               "and the folders in HEARTH_MODELS (separated by ':'). Every command accepts a\n"
               "NAME of this list, or a unique part of one, instead of a file.\n"
               "\n"
               "RUNS: \"tight\" needs more memory than is free now. SPEED is an estimate, as of\n"
               "hearth plan, from rates that the first list measures; hearth bench measures.\n",
    .example = "hearth list",
    .groups = {options, device_options},
    .run = run_list,
};
