/* hearth bench --fire: parses the option, and makes the lists for all tokens before anything is timed. */
#include "cli/measure/bench.h"
#include "common/options/option_fields.h"
#include "common/output.h"
#include "engine/engine.h"

#include <string.h>

/* ---- the option ------------------------------------------------------------------------------ */

enum { FIRE_SHARE, FIRE_RUN, FIRE_SKEW, FIRE_STICKY, FIRE_SEED, FIRE_PROFILE, N_FIRE };

int bench_parse_traces(const char *text, bench_traces *f)
{
    static const char *const names[N_FIRE] = {"share=", "run=", "skew=", "sticky=", "seed=", "profile="};
    double values[N_FIRE] = {[FIRE_RUN] = 64.0, [FIRE_SEED] = 1.0};
    bool given[N_FIRE] = {false};
    const option_fields fields = {names, N_FIRE, 1, values, given, f->profile, sizeof f->profile};
    f->given = true;
    if (!parse_fields(text, &fields))
        return usage_error("bench --fire '%s': share=0.1 and, as wanted, run=64,skew=0,sticky=0,seed=1; or "
                           "profile=FILE and, as wanted, seed=1",
                           text);
    bool draws = given[FIRE_SHARE] || given[FIRE_RUN] || given[FIRE_SKEW] || given[FIRE_STICKY];
    if (given[FIRE_PROFILE] && draws)
        return usage_error(
            "bench --fire: the profile says who fires; share, run, skew and sticky are for lists "
            "that are drawn");
    f->spec = (hth_act_trace_spec){values[FIRE_SHARE], (uint32_t)values[FIRE_RUN], values[FIRE_SKEW],
                                   values[FIRE_STICKY], (uint64_t)values[FIRE_SEED]};
    if (given[FIRE_PROFILE]) return 0;
    if (given[FIRE_SHARE] && f->spec.share <= 1.0 && f->spec.block >= 1 && f->spec.correlation <= 1.0 &&
        f->spec.zipf_s <= 10.0)
        return 0;
    return usage_error("bench --fire '%s': share and sticky are from 0 to 1, share must be there, run is at "
                       "least 1, skew at most 10",
                       text);
}

/* Maximum number of tokens with lists; after the last, the first is used again. */
enum { MAX_LISTS = 4096 };

/* ---- the lists --------------------------------------------------------------------------------- */

static bool replay(bench_traces *f, const hearth_model *model)
{
    hth_profile *p;
    hearth_error err;
    if (hth_profile_open(f->profile, model->model, &p, &err) != HEARTH_OK) {
        report(&err);
        return false;
    }
    f->n_sample = p->n_sample;
    f->is_top_decile = p->coact_is_top_decile;
    f->first_sample = hth_act_trace_draw_sample(p, f->spec.seed);
    uint32_t n = p->n_sample < MAX_LISTS ? p->n_sample : MAX_LISTS; /* all samples in turn, for any number of tokens */
    hearth_status st = hth_act_trace_replay(p, f->first_sample, n, &f->lists, &err);
    if (st != HEARTH_OK) report_text("%s: %s", f->profile, err.message);
    hth_profile_close(p);
    return st == HEARTH_OK;
}

static bool draw(bench_traces *f, const hearth_model *model, uint32_t n_token)
{
    hearth_error err;
    uint32_t n = n_token < MAX_LISTS ? n_token : MAX_LISTS;
    if (hth_act_trace_open(model->model, &f->spec, n, &f->lists, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

bool bench_open_traces(bench *b, const hearth_model *model, uint32_t n_token)
{
    bench_traces *f = &b->traces;
    if (!f->given) return true;
    if (b->info.selector == HEARTH_SELECTOR_DENSE) {
        report_text("%s: --fire wants a selector that skips: --selector gate, predictor or threshold",
                    b->info.path);
        return false;
    }
    if (!(*f->profile ? replay(f, model) : draw(f, model, n_token))) return false;
    hth_step_select(hth_session_step(b->session), hth_act_trace_next, f->lists);
    return true;
}
