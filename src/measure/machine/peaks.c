/* Selects the loops that a machine can run, and times them. bench and doctor call it. A sample is many units of
 * about 1 ms, so that a thread that loses its core delays the sample little. */
#include "measure/machine/peaks.h"

#include "base/clock.h"

#include <stdbool.h>

#if defined(__x86_64__)
static const hth_peak *peaks_of(hth_cpu level)
{
    return level == HTH_CPU_AVX512 ? hth_peaks_avx512
           : level == HTH_CPU_AVX2 ? hth_peaks_avx2
                                   : hth_peaks_ref;
}
#elif defined(__aarch64__)
static const hth_peak *peaks_of(hth_cpu level)
{
    return level == HTH_CPU_I8MM      ? hth_peaks_i8mm
           : level == HTH_CPU_DOTPROD ? hth_peaks_dotprod
           : level == HTH_CPU_NEON    ? hth_peaks_neon
                                      : hth_peaks_ref;
}
#else
static const hth_peak *peaks_of(hth_cpu level) { return (void)level, hth_peaks_ref; }
#endif

const char *hth_peak_kind_name(hth_peak_kind kind)
{
    static const char *const names[] = {"int8", "fp32", "bf16"};
    return names[kind];
}

size_t hth_peaks(hth_cpu level, hth_peak out[HTH_PEAK_MAX])
{
    static const hth_cpu levels[] = {HTH_CPU_I8MM,   HTH_CPU_DOTPROD, HTH_CPU_NEON,
                                     HTH_CPU_AVX512, HTH_CPU_AVX2,    HTH_CPU_GENERIC};
    size_t n = 0;
    bool bf16 = hth_cpu_has_bf16_dot();
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!hth_cpu_has(level, levels[l])) continue;
        for (const hth_peak *p = peaks_of(levels[l]); p->name && n < HTH_PEAK_MAX; p++)
            if (p->kind != HTH_PEAK_BF16 || bf16) out[n++] = *p;
    }
    return n;
}

/* ---- timing --------------------------------------------------------------------------- */

enum { MIN_ROUND = 1000, UNIT_NS = 1000000, N_UNIT = 8 };

static double seconds_of(const hth_peak *peak, uint64_t n_round)
{
    uint64_t start = hth_clock_ns();
    peak->run(n_round);
    return hth_clock_since(start);
}

uint64_t hth_peak_rounds(const hth_peak *peak)
{
    /* The better of two: the first may be cold, and either may lose its core. */
    double a = seconds_of(peak, MIN_ROUND), b = seconds_of(peak, MIN_ROUND), best = a < b ? a : b;
    if (best <= 0.0) return MIN_ROUND;
    double n = MIN_ROUND * (UNIT_NS * 1e-9 / best);
    return n < MIN_ROUND ? MIN_ROUND : n > 1e9 ? 1000000000u : (uint64_t)n;
}

typedef struct job {
    const hth_peak *peak;
    uint64_t n_round;
} job;

static void run_unit(void *arg, size_t i, uint32_t i_thread)
{
    const job *j = arg;
    (void)i, (void)i_thread;
    j->peak->run(j->n_round);
}

double hth_peak_measure(const hth_peak *peak, uint64_t n_round, hth_pool *pool)
{
    job j = {peak, n_round};
    size_t n_unit = (size_t)hth_pool_n_thread(pool) * N_UNIT;
    uint64_t start = hth_clock_ns();
    hth_pool_run(pool, run_unit, &j, n_unit);
    double ns = (double)(hth_clock_ns() - start);
    return ns > 0.0 ? (double)n_unit * (double)n_round / (ns * 1e-9) : 0.0;
}

void hth_peak_probe_open(hth_peak_probe *probe, hth_cpu level)
{
    probe->n = hth_peaks(level, probe->peaks);
    for (size_t i = 0; i < probe->n; i++) probe->n_round[i] = hth_peak_rounds(&probe->peaks[i]);
}

void hth_peak_probe_measure(const hth_peak_probe *probe, hth_pool *pool, double rate[HTH_N_PEAK_KIND])
{
    for (size_t k = 0; k < HTH_N_PEAK_KIND; k++) rate[k] = 0.0;
    for (size_t i = 0; i < probe->n; i++) {
        const hth_peak *p = &probe->peaks[i];
        double r = hth_peak_measure(p, probe->n_round[i], pool) * p->n_product;
        if (r > rate[p->kind]) rate[p->kind] = r;
    }
}
