/* GET /stats: what the model does, and whether its answers are exact. The figures are those of live_figures.h. */
#include "serve/endpoints.h"

static bool is_approximate(hearth_selector s)
{
    return s == HEARTH_SELECTOR_PREDICTOR || s == HEARTH_SELECTOR_THRESHOLD;
}

/* What differs from the model's own arithmetic. Files have no measured price of it: hearth compare measures it. */
static void write_exactness(json *j, const engine *e)
{
    bool by_selector = is_approximate(e->info.selector), by_cache = e->scheduling.kv == HEARTH_KV_Q8_0;
    bool by_device = e->info.gpu && !e->info.gpu_bit_exact;
    json_word(j, "selector", hearth_selector_name(e->info.selector));
    json_word(j, "selector_why", e->info.selector_why);
    json_bool(j, "exact", !by_selector && !by_cache && !by_device);
    json_open_compact(j, "approximate", '[');
    if (by_selector) json_word(j, NULL, "selector");
    if (by_cache) json_word(j, NULL, "kv");
    if (by_device) json_word(j, NULL, "device");
    json_close(j, ']');
}

static void write_device(json *j, const engine *e)
{
    if (!e->info.gpu) return;
    json_open_compact(j, "device", '{');
    json_word(j, "name", e->info.gpu);
    json_uint(j, "layers", e->info.gpu_n_layer);
    json_float(j, "neuron_share", e->info.gpu_neuron_share, 6);
    json_bool(j, "simulated", e->info.gpu_simulated);
    if (!e->info.gpu_bit_exact) json_word(j, "why_not_exact", e->info.gpu_bit_exact_reason);
    json_close(j, '}');
}

void stats_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, false)) return;
    if (json_line_begin(&l)) {
        json_word(&l.j, "model", e->id);
        json_uint(&l.j, "n_layer", e->info.n_layer);
        write_exactness(&l.j, e);
        write_device(&l.j, e);
        live_figures_write(e, &l.j);
    }
    reply_line(out, &l);
}
