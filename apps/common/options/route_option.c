/* Parses --route and reads its file. */
#define _POSIX_C_SOURCE 200809L
#include "common/options/route_option.h"

#include "common/input.h"
#include "common/options/option_fields.h"
#include "common/options/options.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>

enum { STICKY, FORESEEN, SEED, FILE_NAME, TRACE, N_FIELD };

int parse_route(const char *verb, const char *text, route_option *r)
{
    static const char *const names[N_FIELD] = {"sticky=", "foreseen=", "seed=", "file=", "trace="};
    double values[N_FIELD] = {[SEED] = 1.0};
    bool given[N_FIELD] = {false};
    const option_fields fields = {names, N_FIELD, N_FIELD - FILE_NAME, values, given, r->path, sizeof r->path};
    r->given = true;
    bool uniform = strncmp(text, "uniform", 7) == 0 && (text[7] == ',' || text[7] == '\0');
    const char *rest = uniform ? text + 7 + (text[7] == ',') : text;
    if (!parse_fields(rest, &fields) || uniform + given[FILE_NAME] + given[TRACE] != 1 || values[STICKY] > 1.0 ||
        values[FORESEEN] > 1.0 || (given[TRACE] && given[STICKY]))
        return usage_error(
            "%s --route '%s': uniform, file=FILE or trace=FILE and, as wanted, sticky=0,foreseen=0,seed=1; "
            "sticky and foreseen are from 0 to 1, and a trace takes no sticky",
            verb, text);
    r->is_trace = given[TRACE];
    r->spec = (hth_route_trace_spec){
        .sticky = values[STICKY], .foreseen = values[FORESEEN], .seed = (uint64_t)values[SEED]};
    return 0;
}

/* Reads the numbers of a text, separated by white space or commas; *n of them, freed with free. NULL: an error was
 * reported. */
static double *read_numbers(const char *path, size_t *n)
{
    size_t n_text;
    char *text = read_text_file(path, &n_text), *at = text;
    double *numbers = text ? malloc((n_text / 2 + 1) * sizeof *numbers) : NULL;
    bool ok = numbers != NULL;
    *n = 0;
    if (text && !numbers) report_text("out of memory");
    for (char *word; ok && (word = strtok_r(at, " ,\t\r\n", &at)) != NULL; ++*n) {
        ok = parse_float(word, &numbers[*n]) && numbers[*n] >= 0.0 && numbers[*n] <= 1e9;
        if (!ok)
            report_text("%s: number %zu, '%s', is not a frequency", printable(path), *n + 1, printable(word));
    }
    free(text);
    if (ok) return numbers;
    free(numbers);
    return NULL;
}

bool read_route(route_option *r)
{
    hearth_error err;
    if (!r->given || !*r->path || r->frequency || r->trace) return true;
    if (r->is_trace) {
        if (hth_expert_trace_open(r->path, NULL, &r->trace, &err) != HEARTH_OK) return report(&err), false;
        r->spec.recorded = r->trace;
        return true;
    }
    r->spec.frequency = r->frequency = read_numbers(r->path, &r->spec.n_frequency);
    return r->frequency != NULL;
}

/* Whether the experts are a trace of another model. */
static bool is_foreign(const route_option *r, const hth_model *m)
{
    uint64_t hash;
    return r->trace && hth_model_hash(m->file, &hash, NULL) == HEARTH_OK && hash != r->trace->model_hash;
}

route_text describe_route(const route_option *r, const hth_model *m)
{
    route_text t;
    if (r->trace)
        snprintf(t.text, sizeof t.text, "trace %s%s, its %u tokens from number %u on, foreseen %g", printable(r->path),
                 is_foreign(r, m) ? " of another model" : "", r->trace->n_tok,
                 hth_route_trace_first_token(r->trace, r->spec.seed), r->spec.foreseen);
    else
        snprintf(t.text, sizeof t.text, "%s%s, sticky %g, foreseen %g", *r->path ? "frequencies of " : "uniform",
                 printable(r->path), r->spec.sticky, r->spec.foreseen);
    return t;
}

void json_route(json *j, const route_option *r, const hth_model *m)
{
    if (!r->given) return;
    json_open(j, "drawn_experts", '{');
    if (r->trace) {
        json_word(j, "trace", r->path);
        json_bool(j, "of_another_model", is_foreign(r, m));
        json_uint(j, "tokens", r->trace->n_tok);
        json_uint(j, "first_token", hth_route_trace_first_token(r->trace, r->spec.seed));
    } else {
        if (*r->path) json_word(j, "frequencies", r->path);
        json_float(j, "sticky", r->spec.sticky, 6);
    }
    json_float(j, "foreseen", r->spec.foreseen, 6);
    json_uint(j, "seed", r->spec.seed);
    json_close(j, '}');
}

void close_route(route_option *r)
{
    free(r->frequency);
    hth_expert_trace_close(r->trace);
}
