/* GET /metrics: figures in the text format of Prometheus, 0.0.4. Values of labels come from fixed sets, but for
 * those of the build. */
#define _GNU_SOURCE
#include "serve/endpoints.h"

#include "base/system/system_memory.h"

#include <stdio.h>
#include <stdlib.h>

static void write_counter(FILE *out, const char *name, const char *help, double value)
{
    figures_describe(out, name, "counter", help);
    fprintf(out, "%s %.17g\n", name, value);
}

/* Counters of storage begin from zero when a model is loaded. */
static void write_models(const engine *e, FILE *out)
{
    hearth_storage_stats s = {0};
    size_t n = 0;
    bool is_streamed = false;
    for (served_model *m = engine_next_loaded(e, NULL); m; m = engine_next_loaded(e, m)) {
        is_streamed |= live_figures_add_storage(m, &s);
        n++;
    }
    figures_describe(out, "hearth_models_loaded", "gauge", "Models that are loaded.");
    fprintf(out, "hearth_models_loaded %zu\n", n);
    if (!is_streamed) return;
    write_counter(out, "hearth_cluster_hits_total",
                  "Experts or pieces that were in memory when they were needed.", (double)s.n_hit);
    write_counter(out, "hearth_cluster_misses_total", "Experts or pieces that were not.", (double)s.n_miss);
    write_counter(out, "hearth_store_read_bytes_total", "Bytes of weights that were read from storage.",
                  (double)s.read_bytes);
    write_counter(out, "hearth_store_stall_seconds_total", "Seconds that steps waited for storage.",
                  s.stall_seconds);
}

static void write_metrics(const request *r, FILE *out)
{
    engine *e = server_user(r->server);
    engine_lock(e);
    const served_model *first = engine_next_loaded(e, NULL);
    size_t n_waiting, n_running;
    exchange_count(server_exchange(r->server), &n_waiting, &n_running);
    figures_describe(out, "hearth_build_info", "gauge", "The version and how it computes; always 1.");
    fprintf(out, "hearth_build_info{version=\"%s\",cpu=\"%s\",selector=\"%s\"} 1\n", hearth_version(),
            first ? first->info.cpu : "", first ? hearth_selector_name(first->info.selector) : "");
    figures_describe(out, "hearth_process_resident_bytes", "gauge",
                     "Memory of the process that is not swapped out.");
    fprintf(out, "hearth_process_resident_bytes %llu\n", (unsigned long long)hth_memory_resident());
    figures_describe(out, "hearth_http_connections", "gauge", "Open connections.");
    fprintf(out, "hearth_http_connections %zu\n", server_n_connection(r->server));
    figures_describe(out, "hearth_requests_waiting", "gauge", "Requests that wait for the engine.");
    fprintf(out, "hearth_requests_waiting %zu\n", n_waiting);
    figures_describe(out, "hearth_requests_running", "gauge", "Requests that the engine has.");
    fprintf(out, "hearth_requests_running %zu\n", n_running);
    figures_write(&e->figures, out);
    write_models(e, out);
    engine_unlock(e);
    figures_describe(out, "hearth_http_requests_total", "counter",
                     "Requests by endpoint and status; code 0: no answer, or a rarer status.");
    server_write_counters(r->server, out);
}

void metrics_answer(const request *r, reply *out)
{
    char *bytes = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&bytes, &n);
    if (f) write_metrics(r, f);
    bool ok = f && !ferror(f);
    if (f && fclose(f) != 0) ok = false;
    out->status = ok ? 200 : 503;
    if (!ok) {
        free(bytes);
        return;
    }
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    out->body = bytes;
    out->n = n;
}
