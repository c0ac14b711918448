/* hearth devices: lists the GPUs, and why one is not used. */
#include "cli/commands.h"
#include "common/json.h"
#include "common/output.h"
#include "device/device.h"

#include <string.h>

static const option_spec options[] = {
    OPT_FLAG("json", 0, "as JSON"),
    {0},
};

static const char *const kinds[] = {[HTH_DEVICE_DISCRETE] = "card",
                                    [HTH_DEVICE_INTEGRATED] = "integrated",
                                    [HTH_DEVICE_CPU] = "computes on the CPU",
                                    [HTH_DEVICE_REF] = "null",
                                    [HTH_DEVICE_SIMULATED] = "simulated"};

/* Why `auto` uses another one, or none. */
static const char *status_text(const hth_device_info *d, bool is_best)
{
    if (d->unsupported_reason[0]) return d->unsupported_reason;
    if (d->kind == HTH_DEVICE_DISCRETE)
        return is_best ? "--gpu auto takes it" : "by name: --gpu auto takes the one with most memory";
    if (d->kind == HTH_DEVICE_INTEGRATED)
        return "by name, or by --gpu auto after hearth doctor --gpu measured that it is faster than the CPU";
    return "by name: for tests, it is slower than the CPU by itself";
}

/* Shape of byte matrices, as "8x8x8". */
static void write_shape(char *text, size_t size, const hth_coopmat_shape *s)
{
    snprintf(text, size, "%ux%ux%u", s->m, s->n, s->k);
}

static void print_features(const hth_device_info *d)
{
    char shape[40];
    if (hth_device_is_gpu(d) && !(d->features & HTH_FEATURE_FAST_DOT))
        printf("          dot products of bytes are no instruction: generation may be limited by computing\n");
    if (d->n_shape > 0) printf("          matrix units of bytes:");
    for (uint32_t i = 0; i < d->n_shape; i++) {
        write_shape(shape, sizeof shape, &d->shapes[i]);
        printf(" %s", shape);
    }
    if (d->n_shape > 0) printf("\n");
    if (d->features & HTH_FEATURE_COOPMAT2) printf("          NV_cooperative_matrix2: used\n");
    if (d->unused_features & HTH_FEATURE_COOPMAT2)
        printf("          NV_cooperative_matrix2: listed, not used\n");
}

static void print_text(const hth_device_info *found, size_t n, const char *note)
{
    size_t best = hth_device_best(found, n);
    if (n == 0) printf("no GPU: %s\n", note[0] ? printable(note) : "Vulkan knows none");
    for (size_t i = 0; i < n; i++) {
        const hth_device_info *d = &found[i];
        printf("vulkan:%zu  %s (%s), %.1f GB", i, printable(d->name), kinds[d->kind],
               (double)d->memory * 1e-9);
        if (d->budget > 0) printf(", %.1f GB free", (double)d->budget * 1e-9);
        printf("\n          %s; %s\n", printable(d->driver), status_text(d, i == best));
        print_features(d);
    }
    printf("null      functions of C in place of a GPU's programs; by name: for tests\n");
    printf("sim:FILE  the same with the memory, rates and waits that a file describes (bench/devices); by "
           "name\n");
}

static void print_uuid(json *j, const uint8_t uuid[16])
{
    char text[33];
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", uuid[i]);
    json_word(j, "uuid", text);
}

static void print_json(const hth_device_info *found, size_t n, const char *note)
{
    json j = json_begin(stdout);
    json_open(&j, "devices", '[');
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "vulkan:%zu", i);
        json_open(&j, NULL, '{');
        json_word(&j, "device", name);
        json_word(&j, "name", found[i].name);
        json_word(&j, "kind", kinds[found[i].kind]);
        json_word(&j, "driver", found[i].driver);
        print_uuid(&j, found[i].uuid);
        json_uint(&j, "memory_bytes", found[i].memory);
        json_uint(&j, "budget_bytes", found[i].budget);
        json_uint(&j, "binding_bytes", found[i].max_binding_size);
        json_open(&j, "matrix_shapes", '[');
        for (uint32_t k = 0; k < found[i].n_shape; k++) {
            write_shape(name, sizeof name, &found[i].shapes[k]);
            json_word(&j, NULL, name);
        }
        json_close(&j, ']');
        json_bool(&j, "fast_dot", found[i].features & HTH_FEATURE_FAST_DOT);
        json_bool(&j, "matrix_2", found[i].features & HTH_FEATURE_COOPMAT2);
        json_bool(&j, "matrix_2_unused", found[i].unused_features & HTH_FEATURE_COOPMAT2);
        json_word(&j, "problem", found[i].unsupported_reason);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_word(&j, "note", note);
    json_end(&j);
}

static int run(const args *a)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    if (args_has(a, "json")) print_json(found, n, note);
    else print_text(found, n, note);
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
    .run = run,
};
