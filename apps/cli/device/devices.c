/* hearth devices: lists the GPUs, and why one is not used. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/json.h"
#include "common/output.h"

#include <hearth/device.h>
#include <string.h>

static const option_spec options[] = {
    OPT_FLAG("json", 0, "as JSON"),
    {0},
};

static const char *const kinds[] = {[HEARTH_DEVICE_DISCRETE] = "card",
                                    [HEARTH_DEVICE_INTEGRATED] = "integrated",
                                    [HEARTH_DEVICE_CPU] = "computes on the CPU"};

/* Why `auto` uses another one, or none. */
static const char *status_text(const hearth_device_info *d)
{
    if (!d->is_usable) return d->problem;
    if (d->kind == HEARTH_DEVICE_DISCRETE)
        return d->is_auto ? "--gpu auto takes it" : "by name: --gpu auto takes the one with most memory";
    if (d->kind == HEARTH_DEVICE_INTEGRATED)
        return "by name, or by --gpu auto after hearth doctor --gpu measured that it is faster than the CPU";
    return "by name: for tests, it is slower than the CPU by itself";
}

static void print_features(const hearth_device_info *d)
{
    if (d->kind != HEARTH_DEVICE_CPU && !d->has_byte_dot)
        printf("          dot products of bytes are no instruction: generation may be limited by computing\n");
    if (d->matrix_shapes[0]) printf("          matrix units of bytes: %s\n", d->matrix_shapes);
    if (d->has_cooperative_matrix2) printf("          NV_cooperative_matrix2: used\n");
    if (d->lists_cooperative_matrix2) printf("          NV_cooperative_matrix2: listed, not used\n");
}

static void print_text(const hearth_device_info *d)
{
    printf("%s  %s (%s), %s", d->device, printable(d->description), kinds[d->kind], hth_format_bytes(d->memory_bytes).text);
    if (d->free_bytes > 0) printf(", %s free", hth_format_bytes(d->free_bytes).text);
    printf("\n          %s; %s\n", printable(d->driver), status_text(d));
    print_features(d);
}

static void print_shapes(json *j, const char *shapes)
{
    char shape[40];
    json_open(j, "matrix_shapes", '[');
    for (size_t n; (n = strcspn(shapes, " ")) > 0; shapes += n + (shapes[n] == ' ')) {
        snprintf(shape, sizeof shape, "%.*s", (int)n, shapes);
        json_word(j, NULL, shape);
    }
    json_close(j, ']');
}

static void print_json(json *j, const hearth_device_info *d)
{
    json_open(j, NULL, '{');
    json_word(j, "device", d->device);
    json_word(j, "name", d->description);
    json_word(j, "kind", kinds[d->kind]);
    json_word(j, "driver", d->driver);
    json_word(j, "uuid", d->uuid);
    json_uint(j, "memory_bytes", d->memory_bytes);
    json_uint(j, "budget_bytes", d->free_bytes);
    json_uint(j, "binding_bytes", d->binding_bytes);
    print_shapes(j, d->matrix_shapes);
    json_bool(j, "fast_dot", d->has_byte_dot);
    json_bool(j, "matrix_2", d->has_cooperative_matrix2);
    json_bool(j, "matrix_2_unused", d->lists_cooperative_matrix2);
    json_word(j, "problem", d->problem);
    json_close(j, '}');
}

static void list_as_text(const hearth_devices *devices)
{
    const char *note = hearth_devices_note(devices);
    size_t n = hearth_devices_count(devices);
    if (n == 0) printf("no GPU: %s\n", note[0] ? printable(note) : "Vulkan knows none");
    for (size_t i = 0; i < n; i++) {
        hearth_device_info d = {.size = sizeof d};
        if (hearth_devices_get(devices, i, &d) == HEARTH_OK) print_text(&d);
    }
    printf("null      functions of C in place of a GPU's programs; by name: for tests\n");
    printf("sim:FILE  the same with the memory, rates and waits that a file describes (bench/devices); by "
           "name\n");
}

static void list_as_json(const hearth_devices *devices)
{
    json j = json_begin(stdout);
    json_open(&j, "devices", '[');
    for (size_t i = 0; i < hearth_devices_count(devices); i++) {
        hearth_device_info d = {.size = sizeof d};
        if (hearth_devices_get(devices, i, &d) == HEARTH_OK) print_json(&j, &d);
    }
    json_close(&j, ']');
    json_word(&j, "note", hearth_devices_note(devices));
    json_end(&j);
}

static int run_devices(const args *a)
{
    hearth_devices *devices;
    hearth_error err;
    hearth_status st = hearth_devices_open(&devices, &err);
    if (st != HEARTH_OK) return report(&err);
    if (args_has(a, "json")) list_as_json(devices);
    else list_as_text(devices);
    hearth_devices_close(devices);
    return 0;
}

const command command_devices = {
    .name = "devices",
    .operands = "",
    .summary = "list GPUs, and why one is not used",
    .details = "A name from this list, or the UUID that --json shows, is a value of --gpu of\n"
               "run, chat, serve, logits, perplexity, bench, plan, doctor and list\n"
               "(docs/gpu.md). Layers with experts run on the CPU.\n",
    .example = "hearth devices",
    .groups = {options},
    .run = run_devices,
};
