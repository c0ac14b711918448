/* Takes samples of the library's counters twice a second, between tokens, and shows their differences. */
#include "common/terminal/live_stats.h"

#include "base/clock.h"
#include "common/terminal/live_line.h"
#include "common/placement_info.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BARS = 128, MIN_BARS = 4 };
static const uint64_t second = 1000000000u;

/* ---- samples ------------------------------------------------------------------------------------ */

static void take_sample(const live_stats *s, live_sample *out)
{
    out->time_ns = hth_clock_ns();
    hearth_model_get_storage(s->model, &out->storage);
    if (s->sparse) {
        double n = (double)hearth_session_sparsity_stats(s->session, out->part);
        for (uint32_t i = 0; i < s->n_layer; i++) out->part[i] *= n, out->whole[i] = n;
    }
    for (uint32_t i = 0; s->streamed && i < s->n_layer; i++) {
        hearth_storage_stats layer = {0};
        hearth_model_get_layer_storage(s->model, i, &layer);
        out->part[i] = (double)layer.n_hit, out->whole[i] = (double)(layer.n_hit + layer.n_miss);
    }
}

static void exchange(live_sample *a, live_sample *b)
{
    live_sample kept = *a;
    *a = *b, *b = kept;
}

/* ---- text ----------------------------------------------------------------------------------------- */

/* Bars for the shares of the layers, as high as theirs to the largest one; n cells, each of some layers. */
static void add_bars(const live_stats *s, uint32_t n, char *out, size_t size)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double shares[MAX_BARS], most = 0.0;
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        double part = 0.0, whole = 0.0;
        for (uint32_t k = i * s->n_layer / n; k < (i + 1) * s->n_layer / n; k++) {
            part += s->now.part[k] - s->from.part[k];
            whole += s->now.whole[k] - s->from.whole[k];
        }
        shares[i] = whole > 0.0 ? part / whole : -1.0; /* a layer of another kind */
        if (shares[i] > most) most = shares[i];
    }
    for (uint32_t i = 0; i < n && used + 4 <= size; i++) {
        double height = most > 0.0 ? 8.0 * shares[i] / most : 0.0;
        int k = height < 8.0 ? (int)height : 7;
        used += (size_t)snprintf(out + used, size - used, "%s", shares[i] < 0.0 ? " " : bars[k]);
    }
}

/* The share over all layers; negative: no layer was asked for anything. */
static double mean_share(const live_stats *s)
{
    double part = 0.0, whole = 0.0;
    for (uint32_t i = 0; i < s->n_layer; i++)
        part += s->now.part[i] - s->from.part[i], whole += s->now.whole[i] - s->from.whole[i];
    return whole > 0.0 ? part / whole : -1.0;
}

/* "3.2 tokens/s  hits 93.1 % ▆▇█  412 MiB/s  stalls 14/s, 31 %"; as much as fits. */
static void write_text_of(live_stats *s, unsigned width)
{
    const live_sample *a = &s->from, *b = &s->now;
    double seconds = (double)(b->time_ns - a->time_ns) * 1e-9;
    char bars[3 * MAX_BARS + 1] = "", share[40] = "", reads[80] = "";
    int n = snprintf(s->text, sizeof s->text, "%.1f tokens/s", (double)(b->n_token - a->n_token) / seconds), more = 0;
    double mean = s->streamed || s->sparse ? mean_share(s) : -1.0;
    if (mean >= 0.0) n += snprintf(share, sizeof share, "  %s %.1f %%", s->streamed ? "hits" : "live", 100.0 * mean);
    if (s->streamed)
        more = snprintf(reads, sizeof reads, "  %.0f MiB/s  stalls %.0f/s, %.0f %%",
                        (double)(b->storage.read_bytes - a->storage.read_bytes) * 0x1p-20 / seconds,
                        (double)(b->storage.n_stall - a->storage.n_stall) / seconds,
                        100.0 * (b->storage.stall_seconds - a->storage.stall_seconds) / seconds);
    int left = (int)width - 2 - n - more;
    uint32_t n_bar = s->n_layer < MAX_BARS ? s->n_layer : MAX_BARS;
    if (left < (int)n_bar) n_bar = left < MIN_BARS ? 0 : (uint32_t)left;
    if (*share && n_bar > 0) add_bars(s, n_bar, bars, sizeof bars);
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%s%s%s%s", share, *bars ? " " : "", bars,
             reads);
}

/* ---- from token to token ------------------------------------------------------------------------------ */

void live_stats_open(live_stats *s, const args *a, const hearth_model *model, hearth_session *session)
{
    const char *choice = args_text(a, "stats", NULL);
    *s = (live_stats){.model = model, .session = session};
    s->on = choice && strcmp(choice, "live") == 0 && live_line_is_possible();
    if (!s->on) return;
    hearth_model_info info = model_info(model);
    s->streamed = info.n_streamed > 0;
    s->sparse = !s->streamed && info.sparse_activation;
    s->n_layer = info.n_layer;
    hearth_session_enable_sparsity_stats(session, s->sparse);
    live_line_open();
}

void live_stats_begin(live_stats *s)
{
    if (!s->on) return;
    live_sample *const samples[] = {&s->from, &s->since, &s->now};
    s->values = calloc(6 * (size_t)s->n_layer, sizeof *s->values);
    if (!s->values) s->streamed = s->sparse = false; /* shown without layers */
    for (size_t i = 0; i < 3; i++) {
        samples[i]->part = s->values ? s->values + 2 * i * s->n_layer : NULL;
        samples[i]->whole = s->values ? samples[i]->part + s->n_layer : NULL;
        take_sample(s, samples[i]);
    }
}

/* Text that reached the line has erased it: it is drawn again below. */
void live_stats_token(live_stats *s)
{
    if (!s->on) return;
    s->now.n_token++;
    uint64_t now = hth_clock_ns();
    if (now - s->now.time_ns < second / 2) {
        if (*s->text && !live_line_is_shown()) live_line_show(s->text);
        return;
    }
    unsigned width = live_line_width();
    take_sample(s, &s->now);
    if (width > 0) {
        write_text_of(s, width);
        live_line_show(s->text);
    }
    if (now - s->since.time_ns < second) return;
    uint64_t n_token = s->now.n_token;
    exchange(&s->from, &s->since);
    exchange(&s->since, &s->now);
    s->now.n_token = n_token, s->now.time_ns = s->since.time_ns;
}

void live_stats_end(live_stats *s)
{
    if (!s->on) return;
    s->on = false;
    live_line_close();
    free(s->values);
    s->values = NULL;
}
