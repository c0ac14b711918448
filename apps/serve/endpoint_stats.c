/* GET /stats: what the model does, and whether its answers are exact. The figures are those of live_figures.h. */
#include "serve/endpoints.h"

static bool is_approximate(hearth_selector s)
{
    return s == HEARTH_SELECTOR_PREDICTOR || s == HEARTH_SELECTOR_THRESHOLD;
}

/* Writes which parts of the computation are approximate. Files do not have the measured error: hearth compare
 * measures it. */
static void write_exactness(json *j, const served_model *m)
{
    bool by_selector = is_approximate(m->info.selector), by_cache = m->scheduling.kv == HEARTH_KV_Q8_0;
    bool by_device = m->info.gpu && !m->info.gpu_bit_exact;
    json_word(j, "selector", hearth_selector_name(m->info.selector));
    json_word(j, "selector_why", m->info.selector_why);
    json_bool(j, "exact", !by_selector && !by_cache && !by_device);
    json_open_compact(j, "approximate", '[');
    if (by_selector) json_word(j, NULL, "selector");
    if (by_cache) json_word(j, NULL, "kv");
    if (by_device) json_word(j, NULL, "device");
    json_close(j, ']');
}

static void write_device(json *j, const served_model *m)
{
    if (!m->info.gpu) return;
    json_open_compact(j, "device", '{');
    json_word(j, "name", m->info.gpu);
    json_uint(j, "layers", m->info.gpu_n_layer);
    json_float(j, "neuron_share", m->info.gpu_neuron_share, 6);
    json_bool(j, "simulated", m->info.gpu_simulated);
    if (!m->info.gpu_bit_exact) json_word(j, "why_not_exact", m->info.gpu_bit_exact_reason);
    json_close(j, '}');
}

static void write_model(json *j, served_model *m)
{
    json_word(j, "model", m->id);
    json_uint(j, "n_layer", m->info.n_layer);
    write_exactness(j, m);
    write_device(j, m);
    live_figures_write(m, j);
}

void stats_answer(const request *r, reply *out)
{
    engine *e = server_user(r->server);
    json_line l;
    if (!need_model(r, out, FORM_OPENAI)) return;
    if (json_line_begin(&l)) {
        engine_lock(e);
        write_loaded(&l.j, e, write_model);
        engine_unlock(e);
    }
    reply_line(out, &l);
}
