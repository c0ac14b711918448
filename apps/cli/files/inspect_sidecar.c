/* `hearth inspect` for sidecar files: profiles, traces, predictors, thresholds, placements. Only the contents of the
 * file are shown. Whether a sidecar matches a model is checked where it is used. */
#include "cli/files/inspect_facts.h"
#include "common/options/field_names.h"
#include "common/json.h"
#include "common/output.h"
#include "planner/placement.h"
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 48 };

typedef struct sidecar_kind {
    const char *name;
    /* A tensor whose last dimension is the number of neurons of a layer, or an array of that number for each layer. */
    const char *neurons, *numbers;
    const char *use;
} sidecar_kind;

static const sidecar_kind kinds[] = {
    {"profile", "fired", NULL, "hearth pack MODEL --profile FILE, hearth bench MODEL --fire profile=FILE"},
    {"trace", NULL, "hearth.trace.experts", "hearth bench MODEL --route trace=FILE, hearth plan"},
    {"predictors", "fc2.weight", NULL, "hearth run MODEL --predictors FILE, hearth pack"},
    {"thresholds", "ffn_floor.weight", NULL, "hearth run MODEL --thresholds FILE, hearth pack"},
    {"placement", NULL, "hearth.placement.hot", "hearth run MODEL --gpu DEVICE --placement FILE"},
};

static hth_str architecture_of(const hth_gguf *file)
{
    const hth_gguf_value *v = hth_gguf_find(file, "general.architecture");
    return v && v->type == HTH_GGUF_TEXT ? v->as.text : (hth_str){"", 0};
}

bool is_sidecar(const hth_gguf *file)
{
    hth_str name = architecture_of(file);
    return name.n > 7 && memcmp(name.bytes, "hearth.", 7) == 0;
}

/* NULL: a kind unknown to this version. */
static const sidecar_kind *kind_of(const hth_gguf *file)
{
    hth_str name = architecture_of(file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (hth_str_eq((hth_str){name.bytes + 7, name.n - 7}, kinds[i].name)) return &kinds[i];
    return NULL;
}

static bool find_uint(const hth_gguf *file, const char *key, uint64_t *value)
{
    bool found = false;
    return hth_gguf_get_uint(file, key, 0, UINT64_MAX, value, &found, NULL) == HEARTH_OK && found;
}

static bool find_text(const hth_gguf *file, const char *key, hth_str *value)
{
    bool found = false;
    return hth_gguf_get_text(file, key, value, &found, NULL) == HEARTH_OK && found;
}

static const hth_gguf_value *find_uints(const hth_gguf *file, const char *key)
{
    const hth_gguf_value *v = hth_gguf_find(file, key);
    return v && v->type == HTH_GGUF_ARRAY && v->element_type == HTH_GGUF_U32 ? v : NULL;
}

static const hth_gguf_tensor *tensor_of(const hth_gguf *file, uint32_t i_layer, const char *rest)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "blk.%u.%s", i_layer, rest);
    return hth_gguf_find_tensor(file, name);
}

static bool is_kind(const sidecar_kind *k, const char *name) { return k && strcmp(k->name, name) == 0; }

static uint64_t neurons_of(const hth_gguf *file, const sidecar_kind *k, uint32_t i_layer)
{
    if (k->numbers) return hth_gguf_element_uint(find_uints(file, k->numbers), i_layer);
    const hth_gguf_tensor *t = tensor_of(file, i_layer, k->neurons);
    return t ? t->dim[t->n_dim - 1] : 0;
}

/* The rank of a layer's predictor, which is the number of rows of its first matrix; 0: the layer has none. */
static uint64_t rank_of(const hth_gguf *file, const sidecar_kind *k, uint32_t i_layer)
{
    const hth_gguf_tensor *t = tensor_of(file, i_layer, "fc1.weight");
    (void)k;
    return t ? t->dim[1] : 0;
}

static uint32_t n_layer_of(const hth_gguf *file, const sidecar_kind *k)
{
    const hth_gguf_value *numbers = k && k->numbers ? find_uints(file, k->numbers) : NULL;
    uint32_t n = 0;
    if (k && k->numbers) return numbers && numbers->n_element < UINT32_MAX ? (uint32_t)numbers->n_element : 0;
    while (k && tensor_of(file, n, k->neurons)) n++;
    return n;
}

static uint64_t bytes_of(const hth_gguf *file)
{
    uint64_t size = 0;
    for (size_t i = 0; i < hth_gguf_n_tensor(file); i++) size += hth_gguf_tensor_at(file, i)->size;
    return size;
}

/* Minimum score for a neuron to be computed, one per layer. NULL: not in the file. */
static const hth_gguf_value *thresholds_of(const hth_gguf *file)
{
    const hth_gguf_value *v = NULL;
    uint64_t n = n_layer_of(file, kind_of(file));
    hearth_status st = hth_gguf_get_array(file, "hearth.predictor.threshold", HTH_GGUF_F32, n, &v, NULL);
    return st == HEARTH_OK ? v : NULL;
}

/* Checks every value of a file of thresholds, which has few. Other kinds are not checked. */
hearth_error sidecar_check(const hth_gguf *file)
{
    hearth_error err = {0};
    const sidecar_kind *k = is_sidecar(file) ? kind_of(file) : NULL;
    if (is_kind(k, "thresholds")) err.status = hth_sidecar_check_thresholds(file, &err);
    return err;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void label(const char *text) { printf("  %-14s ", text); }

static void print_shown(hth_str text)
{
    char shown[200];
    fputs(hth_escape(shown, sizeof shown, text.bytes, text.n), stdout);
}

typedef uint64_t layer_fn(const hth_gguf *file, const sidecar_kind *k, uint32_t i_layer);

/* Prints the common value of all layers, or the smallest and the largest. */
static void print_range(const hth_gguf *file, const sidecar_kind *k, uint32_t n_layer, layer_fn *fn)
{
    uint64_t min = UINT64_MAX, max = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        uint64_t x = fn(file, k, i);
        if (x < min) min = x;
        if (x > max) max = x;
    }
    if (min == max) printf("%llu", (unsigned long long)max);
    else printf("%llu to %llu", (unsigned long long)min, (unsigned long long)max);
}

static void print_predictors(const hth_gguf *file, const sidecar_kind *k, uint32_t n_layer)
{
    const hth_gguf_value *thresholds = thresholds_of(file);
    hth_str input;
    label("ranks");
    print_range(file, k, n_layer, rank_of);
    putchar('\n');
    if (thresholds && n_layer > 0) {
        double min = hth_gguf_element_float(thresholds, 0), max = min;
        for (uint32_t i = 1; i < n_layer; i++) {
            double x = hth_gguf_element_float(thresholds, i);
            if (x < min) min = x;
            if (x > max) max = x;
        }
        label("thresholds");
        printf("%.6g to %.6g\n", min, max);
    }
    if (!find_text(file, "hearth.predictor.input", &input)) return;
    label("input");
    print_shown(input);
    putchar('\n');
}

/* ---- placements --------------------------------------------------------------------------------------- */

/* At least one; a file of another version may name none. */
static uint32_t n_device_of(const hth_gguf *file)
{
    hth_str name;
    uint32_t n = 1;
    while (n < HEARTH_MAX_GPU && find_text(file, hth_placement_key_of("hearth.placement.device", n).text, &name)) n++;
    return n;
}

/* The end of the layers of device i; the first one starts with layer 0, each other where the one before it ends. */
static uint64_t end_layer_of(const hth_gguf *file, uint32_t i)
{
    const hth_gguf_value *ends = find_uints(file, "hearth.placement.ends"), *hot = find_uints(file, "hearth.placement.hot");
    if (ends && i < ends->n_element) return hth_gguf_element_uint(ends, i);
    return hot ? hot->n_element : 0;
}

static uint64_t first_layer_of(const hth_gguf *file, uint32_t i) { return i > 0 ? end_layer_of(file, i - 1) : 0; }

/* Pairs of hth_placement_stream; NULL: none. */
static const hth_gguf_value *streams_of(const hth_gguf *file, uint32_t i_device)
{
    return find_uints(file, hth_placement_key_of("hearth.placement.stream", i_device).text);
}

static void print_streams(const hth_gguf *file, uint32_t i_device)
{
    const hth_gguf_value *streams = streams_of(file, i_device);
    for (uint64_t i = 0; streams && i + 1 < streams->n_element; i += 2) {
        uint64_t parts = hth_gguf_element_uint(streams, i + 1);
        label(i ? "" : "prompts");
        printf("from %llu tokens on, the other weights pass through the device",
               (unsigned long long)hth_gguf_element_uint(streams, i));
        if (parts > 0) printf(", but for %.0f %% on the CPU", 100.0 * (double)parts / HTH_PLACEMENT_PARTS);
        putchar('\n');
    }
}

static void print_text(const hth_gguf *file, const char *name, const char *key, uint32_t i_device)
{
    hth_str text;
    if (!find_text(file, hth_placement_key_of(key, i_device).text, &text)) return;
    label(name);
    print_shown(text);
    putchar('\n');
}

static void print_placement(const hth_gguf *file)
{
    uint64_t head = 0, host_kv = 0;
    uint32_t n = n_device_of(file);
    label("head");
    puts(!find_uint(file, "hearth.placement.head", &head) ? "not said"
         : head > 0                                       ? "on the device"
                                                          : "on the CPU");
    if (find_uint(file, "hearth.placement.host_kv", &host_kv) && host_kv > 0) label("KV cache"), puts("in host memory");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t first = first_layer_of(file, i), end = end_layer_of(file, i);
        print_text(file, "device", "hearth.placement.device", i);
        if (n > 1) {
            label("its layers");
            if (first < end) printf("%llu to %llu\n", (unsigned long long)first, (unsigned long long)end - 1);
            else puts("none");
        }
        print_text(file, "driver", "hearth.placement.driver", i);
        print_text(file, "handoff", "hearth.placement.handoff", i);
        print_streams(file, i);
    }
}

/* ---- profiles ----------------------------------------------------------------------------------------- */

static void print_profile(const hth_gguf *file)
{
    uint64_t n_tok = 0, n_done = 0, n_ctx = 0, n_sample = 0;
    hth_str activation;
    label("text");
    if (find_uint(file, "hearth.profile.tokens_done", &n_done))
        printf("%llu of ", (unsigned long long)n_done);
    if (find_uint(file, "hearth.profile.tokens", &n_tok)) printf("%llu tokens", (unsigned long long)n_tok);
    if (find_uint(file, "hearth.profile.context", &n_ctx))
        printf(" in chunks of %llu", (unsigned long long)n_ctx);
    if (find_uint(file, "hearth.profile.samples", &n_sample))
        printf(", %llu samples", (unsigned long long)n_sample);
    puts(n_done > 0 ? "; not finished: the command that began it goes on from there" : "");
    if (!find_text(file, "hearth.profile.activation", &activation)) return;
    label("activation");
    print_shown(activation);
    putchar('\n');
}

static void print_trace(const hth_gguf *file)
{
    uint64_t n_tok = 0, n_ctx = 0;
    label("text");
    if (find_uint(file, "hearth.trace.tokens", &n_tok)) printf("%llu tokens", (unsigned long long)n_tok);
    if (find_uint(file, "hearth.trace.context", &n_ctx)) printf(" in chunks of %llu", (unsigned long long)n_ctx);
    putchar('\n');
}

void inspect_print_sidecar(const facts *f)
{
    const hth_gguf *file = f->file;
    const sidecar_kind *k = kind_of(file);
    uint32_t n_layer = n_layer_of(file, k);
    uint64_t version, hash;
    puts("\nBelongs to a model");
    label("kind");
    print_shown(architecture_of(file));
    if (find_uint(file, "hearth.sidecar.version", &version))
        printf(", version %llu", (unsigned long long)version);
    puts(k ? "" : ", which this program does not know");
    label("of the model");
    if (find_uint(file, "hearth.model.hash", &hash)) printf("%016llx\n", (unsigned long long)hash);
    else puts("not said");
    if (!k) return;
    label("layers");
    printf("%u", n_layer);
    if (n_layer > 0) {
        printf(" of ");
        print_range(file, k, n_layer, neurons_of);
        printf(is_kind(k, "trace") ? " experts" : " neurons");
    }
    if (is_kind(k, "placement")) puts(" on the device");
    else printf(", %.2f MiB\n", (double)bytes_of(file) / (1 << 20));
    if (is_kind(k, "predictors") && n_layer > 0) print_predictors(file, k, n_layer);
    if (is_kind(k, "profile")) print_profile(file);
    if (is_kind(k, "trace")) print_trace(file);
    if (is_kind(k, "placement")) print_placement(file);
    label("use");
    puts(k->use);
    if (f->no_use.status != HEARTH_OK)
        printf("\nCannot be used: %s\n", printable(with_options(f->no_use.message).text));
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_layers(json *j, const char *key, const hth_gguf *file, const sidecar_kind *k, layer_fn *fn)
{
    uint32_t n = n_layer_of(file, k);
    json_open_compact(j, key, '[');
    for (uint32_t i = 0; i < n; i++) json_uint(j, NULL, fn(file, k, i));
    json_close(j, ']');
}

static void json_found_uint(json *j, const char *name, const hth_gguf *file, const char *key)
{
    uint64_t value;
    if (find_uint(file, key, &value)) json_uint(j, name, value);
}

static void json_found_text(json *j, const char *name, const hth_gguf *file, const char *key)
{
    hth_str value;
    if (find_text(file, key, &value)) json_text(j, name, value.bytes, value.n);
}

static void json_predictors(json *j, const hth_gguf *file, const sidecar_kind *k)
{
    const hth_gguf_value *thresholds = thresholds_of(file);
    uint32_t n_layer = n_layer_of(file, k);
    json_layers(j, "ranks", file, k, rank_of);
    json_open_compact(j, "thresholds", '[');
    for (uint32_t i = 0; thresholds && i < n_layer; i++)
        json_float(j, NULL, hth_gguf_element_float(thresholds, i), 9);
    json_close(j, ']');
    json_found_text(j, "input", file, "hearth.predictor.input");
}

static void json_profile(json *j, const hth_gguf *file)
{
    json_found_uint(j, "tokens", file, "hearth.profile.tokens");
    json_found_uint(j, "tokens_done", file, "hearth.profile.tokens_done");
    json_found_uint(j, "samples", file, "hearth.profile.samples");
    json_found_uint(j, "n_ctx", file, "hearth.profile.context");
    json_found_text(j, "activation", file, "hearth.profile.activation");
    json_found_text(j, "settings", file, "hearth.profile.settings");
}

static void json_trace(json *j, const hth_gguf *file)
{
    json_found_uint(j, "tokens", file, "hearth.trace.tokens");
    json_found_uint(j, "n_ctx", file, "hearth.trace.context");
    json_found_text(j, "settings", file, "hearth.trace.settings");
}

static void json_streams(json *j, const hth_gguf_value *streams)
{
    json_open_compact(j, "streams", '[');
    for (uint64_t i = 0; streams && i + 1 < streams->n_element; i += 2) {
        json_open(j, NULL, '{');
        json_uint(j, "from_tokens", hth_gguf_element_uint(streams, i));
        json_float(j, "cpu_share", (double)hth_gguf_element_uint(streams, i + 1) / HTH_PLACEMENT_PARTS, 6);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_placement(json *j, const hth_gguf *file)
{
    uint64_t head, host_kv = 0;
    if (find_uint(file, "hearth.placement.head", &head)) json_bool(j, "head", head > 0);
    json_bool(j, "host_kv", find_uint(file, "hearth.placement.host_kv", &host_kv) && host_kv > 0);
    json_open(j, "devices", '[');
    for (uint32_t i = 0, n = n_device_of(file); i < n; i++) {
        json_open(j, NULL, '{');
        json_found_text(j, "device", file, hth_placement_key_of("hearth.placement.device", i).text);
        json_found_text(j, "driver", file, hth_placement_key_of("hearth.placement.driver", i).text);
        json_found_text(j, "handoff", file, hth_placement_key_of("hearth.placement.handoff", i).text);
        json_uint(j, "first_layer", first_layer_of(file, i));
        json_uint(j, "end_layer", end_layer_of(file, i));
        json_streams(j, streams_of(file, i));
        json_close(j, '}');
    }
    json_close(j, ']');
}

void inspect_json_sidecar(json *j, const facts *f)
{
    const hth_gguf *file = f->file;
    const sidecar_kind *k = kind_of(file);
    hth_str name = architecture_of(file);
    uint64_t hash;
    json_open(j, "sidecar", '{');
    json_text(j, "kind", name.bytes + 7, name.n - 7);
    json_bool(j, "known", k != NULL);
    json_found_uint(j, "version", file, "hearth.sidecar.version");
    if (find_uint(file, "hearth.model.hash", &hash)) json_hash(j, "model_hash", hash);
    json_uint(j, "bytes", bytes_of(file));
    if (k) json_uint(j, "layers", n_layer_of(file, k));
    if (k) json_layers(j, is_kind(k, "trace") ? "experts" : "neurons", file, k, neurons_of);
    if (is_kind(k, "predictors")) json_predictors(j, file, k);
    if (is_kind(k, "profile")) json_profile(j, file);
    if (is_kind(k, "trace")) json_trace(j, file);
    if (is_kind(k, "placement")) json_placement(j, file);
    if (is_kind(k, "thresholds")) json_bool(j, "possible", f->no_use.status == HEARTH_OK);
    if (f->no_use.status != HEARTH_OK) json_word(j, "reason", with_options(f->no_use.message).text);
    json_close(j, '}');
}
