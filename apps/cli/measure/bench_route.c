/* --route of bench and plan: parses the option; bench draws the experts of all tokens before anything is timed. */
#define _POSIX_C_SOURCE 200809L
#include "cli/measure/bench.h"
#include "common/input.h"
#include "common/output.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

enum { STICKY, FORESEEN, SEED, FILE_NAME, N_FIELD };

int bench_parse_route(const char *verb, const char *text, bench_route *r)
{
    static const char *const names[N_FIELD] = {"sticky=", "foreseen=", "seed=", "file="};
    double values[N_FIELD] = {[SEED] = 1.0};
    bool given[N_FIELD] = {false};
    const bench_fields fields = {names, N_FIELD, values, given, r->path, sizeof r->path};
    r->given = true;
    bool uniform = strncmp(text, "uniform", 7) == 0 && (text[7] == ',' || text[7] == '\0');
    const char *rest = uniform ? text + 7 + (text[7] == ',') : text;
    if (!bench_parse_fields(rest, &fields) || uniform == given[FILE_NAME] || values[STICKY] > 1.0 ||
        values[FORESEEN] > 1.0)
        return usage_error("%s --route '%s': uniform or file=FILE and, as wanted, sticky=0,foreseen=0,seed=1; "
                           "sticky and foreseen are from 0 to 1",
                           verb, text);
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
        if (!ok) report_text("%s: number %zu, '%s', is not a frequency", printable(path), *n + 1, printable(word));
    }
    free(text);
    if (ok) return numbers;
    free(numbers);
    return NULL;
}

/* Maximum number of tokens with lists; after the last, the first is used again. */
enum { MAX_LISTS = 4096 };

bool bench_read_route(bench_route *r)
{
    if (!r->given || !*r->path || r->frequency) return true;
    r->spec.frequency = r->frequency = read_numbers(r->path, &r->spec.n_frequency);
    return r->frequency != NULL;
}

void bench_close_route(bench_route *r)
{
    hth_route_trace_close(r->lists);
    free(r->frequency);
}

bool bench_open_route(bench *b, const hearth_model *model, uint64_t n_token)
{
    bench_route *r = &b->route;
    hearth_error err;
    if (!r->given) return true;
    if (!bench_read_route(r)) return false;
    uint32_t n = n_token < MAX_LISTS ? (uint32_t)n_token : MAX_LISTS;
    hearth_status st = hth_route_trace_open(model->model, &r->spec, n, &r->lists, &err);
    if (st == HEARTH_OK) hth_step_set_route(hth_session_step(b->session), hth_route_trace_get, r->lists);
    else if (*r->path) report_text("%s: %s", printable(r->path), err.message);
    else report(&err);
    return st == HEARTH_OK;
}
