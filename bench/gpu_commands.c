/* Where the time of a step on a GPU goes: each shader with its constants and workgroups, from timestamps behind every
 * command, for one token at a time and for a prompt.
 *
 *     gpu_commands MODEL.gguf DEVICE [TOKENS [PROMPT [DEPTH [VRAM [PLACEMENT]]]]]
 *
 * TOKENS are generated one at a time (64) behind DEPTH positions (0), then a prompt of PROMPT tokens is evaluated
 * (512); 0: not. VRAM bytes (0: all that is free) and PLACEMENT are those of hearth_gpu_options. Of tokens the first
 * quarter is not counted, while an idle GPU's clock rises. Commands without a barrier between them share a time.
 * Microseconds are means of a command; GB/s counts the weights that it reads. Timestamps slow a step down by some
 * microseconds a command: for the speed of a model use hearth bench. */
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"

#include <hearth/hearth.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 512 };

typedef struct line {
    char what[160];
    uint64_t n_run, ns, bytes; /* runs of commands, and the times and bytes of these */
} line;

typedef struct table {
    line lines[MAX_LINE];
    size_t n;
    uint64_t ns;
} table;

static void add(void *user, const hth_command_time *time)
{
    table *t = user;
    line now = {.n_run = time->n_run, .ns = time->ns, .bytes = time->read_bytes * time->n_run};
    int n = snprintf(now.what, sizeof now.what, "%s", time->name);
    for (uint32_t i = 0; i < time->n_const && n < (int)sizeof now.what; i++)
        n += snprintf(now.what + n, sizeof now.what - (size_t)n, "%s%u", i ? "," : " ", time->consts[i]);
    if (time->consts && n < (int)sizeof now.what)
        snprintf(now.what + n, sizeof now.what - (size_t)n, " | %ux%ux%u", time->grid[0], time->grid[1],
                 time->grid[2]);
    else if (n < (int)sizeof now.what) snprintf(now.what + n, sizeof now.what - (size_t)n, " |");
    t->ns += now.ns;
    for (size_t i = 0; i < t->n; i++) {
        line *l = &t->lines[i];
        if (strcmp(l->what, now.what) != 0) continue;
        l->n_run += now.n_run, l->ns += now.ns, l->bytes += now.bytes;
        return;
    }
    if (t->n < MAX_LINE) t->lines[t->n++] = now;
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const line *)a)->ns, y = ((const line *)b)->ns;
    return (x < y) - (x > y);
}

/* What ran since the last call. n_step: by how many steps a sum is divided. */
static void report(hth_device *device, const char *title, uint32_t n_step)
{
    static table t;
    t = (table){0};
    hth_device_command_times(device, add, &t);
    qsort(t.lines, t.n, sizeof *t.lines, by_time);
    printf("\n%s: %.3f ms\n\n| shader, constants | workgroups | in a step | us each | share | GB/s "
           "|\n|---|---|---|---|---|---|\n",
           title, (double)t.ns * 1e-6 / n_step);
    for (size_t i = 0; i < t.n; i++) {
        const line *l = &t.lines[i];
        printf("| %s | %.1f | %.2f | %.1f %% | ", l->what, (double)l->n_run / n_step,
               (double)l->ns * 1e-3 / (double)l->n_run, 100.0 * (double)l->ns / (double)t.ns);
        if (l->bytes > 0) printf("%.1f |\n", (double)l->bytes / (double)l->ns);
        else printf("- |\n");
    }
}

static void die(const hearth_error *err)
{
    fprintf(stderr, "gpu_commands: %s\n", err->message);
    exit(1);
}

static void eval(hearth_session *s, uint32_t n)
{
    hearth_error err;
    int32_t *ids = malloc(n * sizeof *ids);
    if (!ids) exit(1);
    for (uint32_t i = 0; i < n; i++) ids[i] = 5 + (int32_t)(i % 200);
    if (hearth_session_eval(s, ids, n, &err) != HEARTH_OK) die(&err);
    free(ids);
}

static void ignore(void *user, const hth_command_time *time) { (void)user, (void)time; }

static bool parse_bytes(const char *text, uint64_t *bytes)
{
    char *end;
    errno = 0;
    *bytes = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && errno == 0;
}

int main(int argc, char **argv)
{
    uint32_t n[] = {64, 512, 0};
    hearth_model *model;
    hearth_session *session;
    hearth_error err;
    if (argc < 3 || argc > 8) {
        fprintf(stderr, "gpu_commands MODEL.gguf DEVICE [TOKENS [PROMPT [DEPTH [VRAM [PLACEMENT]]]]]\n");
        return 2;
    }
    for (int i = 3; i < argc && i < 6; i++) n[i - 3] = (uint32_t)strtoul(argv[i], NULL, 10);
    hearth_model_options options = hearth_model_defaults();
    hearth_session_options so = hearth_session_defaults();
    so.n_ctx = n[0] + n[1] + n[2] + 1;
    options.gpu = (hearth_gpu_options){.device = argv[2], .n_ctx = so.n_ctx, .kv = so.kv};
    if (argc > 6 && !parse_bytes(argv[6], &options.gpu.vram)) {
        fprintf(stderr, "gpu_commands: VRAM '%s': expected bytes in decimal digits\n", argv[6]);
        return 2;
    }
    if (argc > 7) options.gpu.placement = argv[7];
    hth_device_time_commands_on_open(true);
    if (hearth_model_open(argv[1], &options, &model, &err) != HEARTH_OK) die(&err);
    if (!model->gpu) {
        fprintf(stderr, "gpu_commands: nothing lies on %s: %s\n", argv[2], hth_engine_gpu_status(model));
        return 1;
    }
    hth_device *device = model->gpu->device;
    printf("%s, %s, %s: %u of %u layers\n", argv[1], hth_device_get_info(device)->name,
           hth_device_get_info(device)->driver, model->gpu->params.end_layer, model->model->hparams.n_layer);
    if (hearth_session_open(model, &so, &session, &err) != HEARTH_OK) die(&err);
    if (n[2] > 0) eval(session, n[2]);
    for (uint32_t i = 0; i < n[0] / 4; i++) eval(session, 1);
    hth_device_command_times(device, ignore, NULL);
    for (uint32_t i = n[0] / 4; i < n[0]; i++) eval(session, 1);
    if (n[0] > 0) report(device, "one token", n[0] - n[0] / 4);
    if (n[1] > 0) {
        if (hearth_session_truncate(session, n[2], &err) != HEARTH_OK) die(&err);
        eval(session, n[1]);
        report(device, "a prompt", 1);
    }
    hearth_session_close(session);
    hearth_model_close(model);
    return 0;
}
