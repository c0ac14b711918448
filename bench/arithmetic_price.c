/* What the settled arithmetic costs (docs/arithmetic.md): tables in Markdown. Run it
 * pinned to one CPU. Words select groups: rows, down, vectors; none: all. -r N sets the
 * number of rounds. */
#define _GNU_SOURCE
#include "arithmetic_price.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const price_level_name[PRICE_N_LEVEL] = {"AVX2", "AVX-512"};

void price_table(int level, hth_kernels *k)
{
    hth_kernels_init(k, level == PRICE_AVX512 ? HTH_CPU_AVX512 : HTH_CPU_AVX2);
}

/* ---- time -------------------------------------------------------------------------------- */

/* Of this thread: what other programs took in between does not count. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(const price_variant *v, size_t n_call)
{
    if (v->before) v->before(v->arg);
    double start = cpu_seconds();
    for (size_t i = 0; i < n_call; i++) v->run(v->arg);
    return (cpu_seconds() - start) / (double)n_call;
}

void price_measure(price_variant *v, size_t n, size_t n_round)
{
    for (size_t i = 0; i < n; i++) {
        double once = seconds_of(&v[i], 1);
        if (v[i].before) v[i].n_call = 1;
        else if (v[i].n_call == 0) v[i].n_call = once > 5e-3 ? 1 : (size_t)(5e-3 / once) + 1;
    }
    for (size_t round = 0; round < n_round; round++)
        for (size_t i = 0; i < n; i++) v[i].rate[round] = v[i].work / seconds_of(&v[i], v[i].n_call);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sorted(const double *from, size_t n, double *to)
{
    memcpy(to, from, n * sizeof *to);
    qsort(to, n, sizeof *to, by_size);
}

double price_median(const price_variant *v, size_t n_round)
{
    double rate[PRICE_MAX_ROUND];
    sorted(v->rate, n_round, rate);
    return rate[n_round / 2];
}

double price_ratio(const price_variant *a, const price_variant *b, size_t n_round)
{
    double ratio[PRICE_MAX_ROUND];
    for (size_t i = 0; i < n_round; i++) ratio[i] = a->rate[i] / b->rate[i];
    qsort(ratio, n_round, sizeof *ratio, by_size);
    return ratio[n_round / 2];
}

const price_variant *price_best(const price_variant *v, size_t n, size_t n_round)
{
    const price_variant *best = v;
    for (size_t i = 1; i < n; i++)
        if (!strstr(v[i].name, "settled") && price_median(&v[i], n_round) > price_median(best, n_round))
            best = &v[i];
    return best;
}

const char *price_text(const price_variant *v, size_t n_round)
{
    static char text[8][64];
    static int next;
    double rate[PRICE_MAX_ROUND];
    sorted(v->rate, n_round, rate);
    int digits = rate[n_round / 2] < 10 ? 2 : rate[n_round / 2] < 100 ? 1 : 0;
    char *t = text[next++ % 8];
    snprintf(t, sizeof text[0], "%.*f (%.*f-%.*f)", digits, rate[n_round / 2], digits, rate[0], digits,
             rate[n_round - 1]);
    return t;
}

void price_line(const char *what, const price_variant *v, size_t n, size_t n_round)
{
    const price_variant *best = price_best(v + 1, n - 1, n_round);
    printf("| %s | %s | %s | %s | %+.0f %% |\n", what, price_text(v, n_round), price_text(best, n_round),
           best->name, 100.0 * (price_ratio(v, best, n_round) - 1.0));
    fflush(stdout);
}

/* ---- the groups ----------------------------------------------------------------------------- */

static void print_machine(void)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0) {
            printf("CPU: %s", strchr(line, ':') + 2);
            break;
        }
    if (f) fclose(f);
    printf("Compiler: %s. Median (min-max); price: median over rounds of settled / free, less 1.\n",
           __VERSION__);
}

static int chosen(int argc, char **argv, const char *name)
{
    int any = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') i++;
        else if (strcmp(argv[i], name) == 0) return 1;
        else any = 1;
    }
    return !any;
}

int main(int argc, char **argv)
{
    size_t n_round = 9;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "-r") == 0) n_round = (size_t)atoi(argv[i + 1]);
    if (n_round < 1 || n_round > PRICE_MAX_ROUND) n_round = 9;
    if (hth_cpu_detect() != HTH_CPU_AVX512) {
        printf("skipped: this probe needs a CPU of level avx512\n");
        return 0;
    }
    price_level levels[PRICE_N_LEVEL] = {0};
    price_q4_0_avx2(&levels[PRICE_AVX2]), price_q4_0_avx512(&levels[PRICE_AVX512]);
    price_q8_0_avx2(&levels[PRICE_AVX2]), price_q8_0_avx512(&levels[PRICE_AVX512]);
    price_float_avx2(&levels[PRICE_AVX2]), price_float_avx512(&levels[PRICE_AVX512]);
    price_vector_avx2(&levels[PRICE_AVX2]), price_vector_avx512(&levels[PRICE_AVX512]);
    print_machine();
    if (chosen(argc, argv, "rows")) price_rows_tables(levels, n_round);
    int failed = chosen(argc, argv, "down") ? price_down_tables(levels, n_round < 5 ? n_round : 5) : 0;
    if (chosen(argc, argv, "vectors")) price_vector_tables(levels, n_round);
    return failed;
}
