/* Parses --route and reads its file. */
#define _POSIX_C_SOURCE 200809L
#include "common/options/route_option.h"

#include "common/input.h"
#include "common/options/option_fields.h"
#include "common/options/options.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>

enum { STICKY, FORESEEN, SEED, FILE_NAME, N_FIELD };

int parse_route(const char *verb, const char *text, route_option *r)
{
    static const char *const names[N_FIELD] = {"sticky=", "foreseen=", "seed=", "file="};
    double values[N_FIELD] = {[SEED] = 1.0};
    bool given[N_FIELD] = {false};
    const option_fields fields = {names, N_FIELD, values, given, r->path, sizeof r->path};
    r->given = true;
    bool uniform = strncmp(text, "uniform", 7) == 0 && (text[7] == ',' || text[7] == '\0');
    const char *rest = uniform ? text + 7 + (text[7] == ',') : text;
    if (!parse_fields(rest, &fields) || uniform == given[FILE_NAME] || values[STICKY] > 1.0 ||
        values[FORESEEN] > 1.0)
        return usage_error(
            "%s --route '%s': uniform or file=FILE and, as wanted, sticky=0,foreseen=0,seed=1; "
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
    if (!r->given || !*r->path || r->frequency) return true;
    r->spec.frequency = r->frequency = read_numbers(r->path, &r->spec.n_frequency);
    return r->frequency != NULL;
}

void close_route(route_option *r) { free(r->frequency); }
