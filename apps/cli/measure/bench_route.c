/* hearth bench --route: draws the experts of all tokens before anything is timed. */
#include "cli/measure/bench.h"
#include "common/output.h"
#include "engine/engine.h"

/* Maximum number of tokens with lists; after the last, the first is used again. */
enum { MAX_LISTS = 4096 };

bool bench_open_route(bench *b, const hearth_model *model, uint64_t n_token)
{
    const route_option *r = &b->route;
    hearth_error err;
    if (!r->given) return true;
    uint32_t n = n_token < MAX_LISTS ? (uint32_t)n_token : MAX_LISTS;
    hearth_status st = hth_route_trace_open(model->model, &r->spec, n, &b->route_lists, &err);
    if (st == HEARTH_OK)
        hth_step_set_route(hth_session_step(b->session), hth_route_trace_get, b->route_lists);
    else if (*r->path) report_text("%s: %s", printable(r->path), err.message);
    else report(&err);
    return st == HEARTH_OK;
}
