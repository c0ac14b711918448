/* Reads the fields of a request for text that are the same in all APIs: sampling, length, stop strings, stream. */
#define _GNU_SOURCE
#include "common/sampling.h"
#include "serve/api/generation.h"
#include "serve/api/refused_fields.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint64_t random_number(void)
{
    uint64_t x = 0;
    while (getrandom(&x, sizeof x, 0) != sizeof x) {
    }
    return x;
}

/* ---- sampling -------------------------------------------------------------------------------------------- */

static void read_float(fields *f, const char *name, double least, double most, float *value)
{
    double x = (double)*value;
    if (fields_float(f, name, least, most, &x)) *value = (float)x;
}

static void read_int(fields *f, const char *name, int64_t least, int64_t most, int32_t *value)
{
    int64_t n = *value;
    if (fields_int(f, name, least, most, &n)) *value = (int32_t)n;
}

/* The texts live as long as the document. */
static void read_breakers(generation *g, fields *f)
{
    static const char name[] = "dry_sequence_breakers";
    const hth_json *list;
    if (!fields_array(f, name, &list) || !list) return;
    if (list->n > MAX_BREAKERS) fields_fail(f, name, "%u texts; at most %d are taken", list->n, MAX_BREAKERS);
    for (const hth_json *v = list->child; v && fields_ok(f); v = v->next) {
        g->breakers[v->index] = hth_json_text(v);
        if (!g->breakers[v->index] || !*g->breakers[v->index]) fields_fail(f, name, "[%u]: a text is expected", v->index);
    }
    g->sampler.dry_breakers = g->breakers, g->sampler.n_dry_breaker = list->n;
}

/* Adds a sampler to a list as sampling_keep takes it. */
static bool add_sampler(const generation *g, buffer *list, const char *name)
{
    if (g->fills_gap && strcmp(name, "infill") == 0) return true;
    return buffer_add(list, name, strlen(name)) && buffer_add(list, ";", 1);
}

static const char *sampler_of_letter(char c)
{
    static const char letters[] = "edskypmxt"; /* letters of sampler_names, in their order */
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? sampler_names[at - letters] : "?";
}

/* The samplers that are used, as llama.cpp has them: a list, or letters. None is as if the field were missing. */
static void read_samplers(generation *g, fields *f)
{
    const hth_json *v = fields_value(f, "samplers");
    const hth_json_kind kind = hth_json_kind_of(v);
    buffer list = {0};
    bool ok = true;
    if (!v || !fields_ok(f)) return;
    if (kind != HTH_JSON_TEXT && kind != HTH_JSON_ARRAY) {
        fields_fail(f, "samplers", "an array of names, or a text of letters, is expected");
        return;
    }
    for (size_t i = 0; ok && kind == HTH_JSON_TEXT && i < v->text.n; i++)
        ok = add_sampler(g, &list, sampler_of_letter(v->text.bytes[i]));
    for (const hth_json *one = hth_json_first(v); ok && one; one = one->next)
        ok = add_sampler(g, &list, hth_json_text(one) ? hth_json_text(one) : "?");
    const char *why = ok && list.n > 0 ? sampling_keep(&g->sampler, list.bytes) : NULL;
    if (why) fields_fail(f, "samplers", "%s", why);
    if (!ok) fields_no_memory(f);
    free(list.bytes);
}

void sampling_read(generation *g, fields *f)
{
    hearth_sampler_options *o = &g->sampler;
    int64_t seed = 0;
    fields_refuse_common(f);
    read_float(f, "temperature", 0.0, 5.0, &o->temperature);
    read_float(f, "top_p", 0.0, 1.0, &o->top_p);
    read_float(f, "min_p", 0.0, 1.0, &o->min_p);
    read_float(f, "typical_p", 0.0, 1.0, &o->typical_p);
    read_float(f, "repeat_penalty", 1e-3, 1e3, &o->repeat_penalty);
    read_float(f, "presence_penalty", -2.0, 2.0, &o->presence_penalty);
    read_float(f, "frequency_penalty", -2.0, 2.0, &o->frequency_penalty);
    read_float(f, "top_n_sigma", -1.0, 1000.0, &o->top_n_sigma);
    read_float(f, "xtc_probability", 0.0, 1.0, &o->xtc_probability);
    read_float(f, "xtc_threshold", 0.0, 1.0, &o->xtc_threshold);
    read_float(f, "dynatemp_range", 0.0, 100.0, &o->dynatemp_range);
    read_float(f, "dynatemp_exponent", 0.0, 100.0, &o->dynatemp_exponent);
    read_float(f, "dry_multiplier", 0.0, 1000.0, &o->dry_multiplier);
    read_float(f, "dry_base", 0.0, 100.0, &o->dry_base);
    read_float(f, "mirostat_tau", 0.0, 100.0, &o->mirostat_tau);
    read_float(f, "mirostat_eta", 0.0, 10.0, &o->mirostat_eta);
    read_int(f, "mirostat", 0, 2, &o->mirostat);
    read_int(f, "dry_allowed_length", 0, 1 << 20, &o->dry_allowed_length);
    read_int(f, "dry_penalty_last_n", -1, 1 << 20, &o->dry_last_n);
    read_int(f, "top_k", -1, INT32_MAX, &o->top_k);
    read_int(f, "repeat_last_n", -1, INT32_MAX, &o->repeat_last_n);
    read_breakers(g, f);
    read_samplers(g, f);
    if (o->top_k < 0) o->top_k = 0; /* off */
    if (o->top_n_sigma < 0.0f) o->top_n_sigma = 0.0f;
    if (o->dry_base > 0.0f && o->dry_base < 1.0f) o->dry_multiplier = o->dry_base = 0.0f; /* off, as in llama.cpp */
    if (fields_int(f, "seed", INT64_MIN, INT64_MAX, &seed) && fields_value(f, "seed"))
        o->seed = seed < 0 ? random_number() >> 1 : (uint64_t)seed; /* half: JSON's readers have signed numbers */
}

void sampling_write(json *j, const hearth_sampler_options *o)
{
    json_float(j, "temperature", (double)o->temperature, 6);
    json_int(j, "top_k", o->top_k);
    json_float(j, "top_p", (double)o->top_p, 6);
    json_float(j, "min_p", (double)o->min_p, 6);
    json_float(j, "repeat_penalty", (double)o->repeat_penalty, 6);
    json_int(j, "repeat_last_n", o->repeat_last_n);
    json_float(j, "presence_penalty", (double)o->presence_penalty, 6);
    json_float(j, "frequency_penalty", (double)o->frequency_penalty, 6);
}

enum { MAX_BIASES = 1024 };

typedef struct bias_list {
    fields *f;
    const served_model *served;
    hearth_logit_bias at[MAX_BIASES];
    size_t n;
} bias_list;

static bool add_bias(bias_list *l, int64_t id, float bias)
{
    uint32_t n_vocab = l->served->info.n_vocab;
    if (id < 0 || id >= (int64_t)n_vocab)
        return fields_fail(l->f, "logit_bias", "the vocabulary has the ids 0 to %u, not %lld", n_vocab - 1, (long long)id);
    if (l->n == MAX_BIASES) return fields_fail(l->f, "logit_bias", "at most %d tokens are taken", MAX_BIASES);
    l->at[l->n++] = (hearth_logit_bias){.id = (int32_t)id, .bias = bias};
    return true;
}

/* -100 bans a token, and so does llama.cpp's false. */
static bool read_bias(bias_list *l, const hth_json *v, float *bias)
{
    double x = hth_json_is_number(v) ? v->real : hth_json_kind_of(v) == HTH_JSON_BOOL && !v->integer ? -100.0 : 1000.0;
    *bias = x <= -100.0 ? -__builtin_inff() : (float)x;
    return (x >= -100.0 && x <= 100.0) || fields_fail(l->f, "logit_bias", "numbers from -100 to 100 are expected");
}

/* Each token of a text. */
static bool add_biases(bias_list *l, size_t i, const char *text, size_t n_text, float bias)
{
    hearth_error err;
    int32_t *ids;
    size_t n;
    if (hearth_tokenize(l->served->model, text, n_text, 0, &ids, &n, &err) != HEARTH_OK)
        return fields_fail(l->f, "logit_bias", "[%zu]: %s", i, err.message);
    bool ok = true;
    for (size_t k = 0; k < n && ok; k++) ok = add_bias(l, ids[k], bias);
    hearth_free(ids);
    return ok;
}

/* OpenAI's form: {"ID": BIAS}; llama.cpp takes {"TEXT": BIAS} too. */
static bool add_member(bias_list *l, const hth_json *v)
{
    const char *key = v->key.bytes;
    char *end;
    float bias;
    long long id = strtoll(key, &end, 10);
    bool is_text = end == key || end != key + v->key.n;
    if (!read_bias(l, v, &bias)) return false;
    return is_text ? add_biases(l, v->index, key, v->key.n, bias) : add_bias(l, id, bias);
}

/* llama.cpp's form: [ID, BIAS], or [TEXT, BIAS]. */
static bool add_pair(bias_list *l, const hth_json *v)
{
    const hth_json *of = hth_json_first(v), *value = of ? of->next : NULL;
    float bias;
    bool is_text = hth_json_kind_of(of) == HTH_JSON_TEXT;
    if (hth_json_kind_of(v) != HTH_JSON_ARRAY || v->n != 2 || (!is_text && of->kind != HTH_JSON_INTEGER))
        return fields_fail(l->f, "logit_bias", "[%u]: an id or a text, and a number are expected", v->index);
    if (!read_bias(l, value, &bias)) return false;
    return is_text ? add_biases(l, v->index, of->text.bytes, of->text.n, bias) : add_bias(l, of->integer, bias);
}

static void read_biases(fields *f, generation *g)
{
    const hth_json *all = fields_value(f, "logit_bias");
    bias_list l = {.f = f, .served = g->served};
    bool is_list = hth_json_kind_of(all) == HTH_JSON_ARRAY;
    if (!all || (!is_list && !fields_need_kind(f, "logit_bias", HTH_JSON_OBJECT, all))) return;
    for (const hth_json *v = hth_json_first(all); v; v = v->next)
        if (!(is_list ? add_pair(&l, v) : add_member(&l, v))) return;
    if (l.n == 0) return;
    g->biases = malloc(l.n * sizeof *l.at);
    if (!g->biases) {
        fields_no_memory(f);
        return;
    }
    memcpy(g->biases, l.at, l.n * sizeof *l.at);
    g->sampler.bias = g->biases, g->sampler.n_bias = l.n;
}

/* ---- stop strings ---------------------------------------------------------------------------------------- */

static void add_stop(fields *f, const char *name, const hth_json *v, stop_list *to)
{
    if (hth_json_kind_of(v) != HTH_JSON_TEXT)
        fields_fail(f, name, "a text or an array of texts is expected");
    else if (v->text.n > MAX_STOP_SIZE)
        fields_fail(f, name, "texts of at most %d bytes are expected", MAX_STOP_SIZE);
    else if (v->text.n > 0) to->at[to->n].text = v->text.bytes, to->at[to->n++].n = v->text.n;
}

void stops_read(generation *g, fields *f, const char *name)
{
    const hth_json *v = fields_value(f, name);
    size_t n = hth_json_count(v);
    if (!v) return;
    if (hth_json_kind_of(v) != HTH_JSON_ARRAY) {
        add_stop(f, name, v, &g->stops);
    } else if (n > MAX_STOPS) {
        fields_fail(f, name, "%zu texts; at most %d are taken", n, MAX_STOPS);
    } else {
        for (v = hth_json_first(v); v; v = v->next) add_stop(f, name, v, &g->stops);
    }
}

/* ---- all -------------------------------------------------------------------------------------------------- */

static void read_stream(fields *f, generation *g)
{
    const hth_json *options;
    fields_bool(f, "stream", &g->is_stream);
    if (!fields_object(f, "stream_options", &options) || !options) return;
    fields inner = {.object = options, .problem = f->problem};
    snprintf(inner.path, sizeof inner.path, "stream_options");
    fields_bool(&inner, "include_usage", &g->include_usage);
}

bool progress_read(generation *g, fields *f)
{
    return fields_bool(f, "return_progress", &g->each_progress) &&
           fields_bool(f, "timings_per_token", &g->each_timings);
}

bool length_read(generation *g, fields *f, const char *name)
{
    int64_t n = 0;
    const int64_t least = strcmp(name, "n_predict") == 0 ? -2 : -1; /* both: no limit */
    if (!fields_int(f, name, least, UINT32_MAX, &n)) return false;
    if (fields_value(f, name)) g->max_token = n > 0 ? (uint32_t)n : 0, g->prompt_only = n == 0;
    return true;
}

/* The last name that is there decides. */
bool lengths_read(generation *g, fields *f)
{
    return length_read(g, f, "n_predict") && length_read(g, f, "max_output_tokens") && length_read(g, f, "max_tokens") &&
           length_read(g, f, "max_completion_tokens");
}

/* llama.cpp's limit of time, which ends an answer at the end of a line. */
static void read_line_limit(generation *g, fields *f)
{
    int64_t ms = 0;
    if (fields_int(f, "t_max_predict_ms", -1, INT32_MAX, &ms) && ms > 0) g->max_line_ns = (uint64_t)ms * 1000000;
}

bool generation_read(generation *g, fields *f)
{
    static const refused_field others[] = {
        {"best_of", NULL, 1},
        {"system", "a message of the role system", 0},
        {"format", "response_format", 0},
        {"options", "the fields of this API", 0},
        {"stop_sequences", "stop", 0},
        {NULL, NULL, 0},
    };
    int64_t n_choice = 1;
    fields_refuse(f, others);
    sampling_read(g, f);
    read_biases(f, g);
    lengths_read(g, f);
    read_line_limit(g, f);
    if (fields_int(f, "n", 1, MAX_CHOICES, &n_choice)) g->n_choice = (uint32_t)n_choice;
    fields_bool(f, "ignore_eos", &g->ignore_end);
    stops_read(g, f, "stop");
    read_stream(f, g);
    progress_read(g, f);
    return response_format_read(f, &g->constraint);
}
