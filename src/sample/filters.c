/* Truncation of the candidates, and their weights. Called by sampler.c in the order that sampler.h states. All
 * sums run over candidates in order, best first, in double precision with Hearth's own exp and log, so the bits
 * are the same on every machine. */
#include "sample/filters.h"

#include "kernels/vector/math.h"

#include <math.h>

/* exp of smaller arguments is 0 in double precision. Prevents -infinity as an argument of hth_exp_d. */
static const double MIN_EXPONENT = -800.0;
static const double LOG_2 = 0x1.62e42fefa39efp-1; /* bits to nats */

double hth_sample_weigh(hth_sample_candidate *c, size_t n, double temperature)
{
    double sum = 0.0, best = (double)c[0].logit;
    for (size_t i = 0; i < n; i++) {
        double x = ((double)c[i].logit - best) / temperature;
        c[i].p = x < MIN_EXPONENT ? 0.0 : hth_exp_d(x);
        sum += c[i].p;
    }
    return sum;
}

/* Entropy of the distribution p / sum: log(sum) - sum of p (logit - best) / sum. */
static double entropy(const hth_sample_candidate *c, size_t n, double sum)
{
    double weighted = 0.0;
    for (size_t i = 0; i < n; i++)
        if (c[i].p > 0.0) weighted += c[i].p * ((double)c[i].logit - (double)c[0].logit);
    return hth_log_d(sum) - weighted / sum;
}

static double magnitude(double x)
{
    return x < 0.0 ? -x : x;
}

size_t hth_sample_typical(hth_sample_candidate *c, hth_sample_candidate *scratch, size_t n,
                          double typical_p)
{
    const double sum = hth_sample_weigh(c, n, 1.0), log_sum = hth_log_d(sum);
    const double h = entropy(c, n, sum), best = (double)c[0].logit;
    for (size_t i = 0; i < n; i++) {
        double surprise = log_sum - ((double)c[i].logit - best);
        c[i].key = hth_sample_key_of_distance(magnitude(surprise - h));
    }
    hth_sample_sort(c, scratch, n, 64);
    double share = 0.0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || share < typical_p * sum)) share += c[kept++].p;

    /* restores the order of probability; sorts by id first, so that ties are right */
    for (size_t i = 0; i < kept; i++) c[i].key = (uint64_t)(uint32_t)c[i].id;
    hth_sample_sort(c, scratch, kept, 32);
    for (size_t i = 0; i < kept; i++) c[i].key = hth_sample_key_of_logit(c[i].logit);
    hth_sample_sort(c, scratch, kept, 32);
    return kept;
}

size_t hth_sample_top_p(hth_sample_candidate *c, size_t n, double top_p)
{
    const double sum = hth_sample_weigh(c, n, 1.0);
    double share = 0.0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || share < top_p * sum)) share += c[kept++].p;
    return kept;
}

size_t hth_sample_min_p(hth_sample_candidate *c, size_t n, double min_p)
{
    hth_sample_weigh(c, n, 1.0);
    size_t kept = 1;
    while (kept < n && c[kept].p >= min_p) kept++;
    return kept;
}

double hth_sample_variance(const float *logits, size_t n)
{
    double sum = 0.0, squares = 0.0;
    size_t n_allowed = 0;
    for (size_t i = 0; i < n; i++)
        if (logits[i] != -INFINITY) sum += (double)logits[i], n_allowed++;
    const double mean = n_allowed > 0 ? sum / (double)n_allowed : 0.0;
    for (size_t i = 0; i < n; i++)
        if (logits[i] != -INFINITY) squares += ((double)logits[i] - mean) * ((double)logits[i] - mean);
    return n_allowed > 0 ? squares / (double)n_allowed : 0.0;
}

size_t hth_sample_xtc(hth_sample_candidate *c, size_t n, double threshold)
{
    const double sum = hth_sample_weigh(c, n, 1.0);
    size_t last = 0;
    for (size_t i = 0; i < n && c[i].p >= threshold * sum; i++) last = i;
    return last;
}

/* x^y for x from 0. */
static double power(double x, double y) { return x > 0.0 ? hth_exp_d(y * hth_log_d(x)) : y > 0.0 ? 0.0 : 1.0; }

double hth_sample_dynamic_temperature(hth_sample_candidate *c, size_t n, double low, double high, double exponent)
{
    if (n < 2) return high;
    const double sum = hth_sample_weigh(c, n, 1.0);
    double share = entropy(c, n, sum) / hth_log_d((double)n);
    share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    return low + (high - low) * power(share, exponent);
}

/* Basu et al. 2021, algorithm 1: the exponent of Zipf's law by the first candidates, and how many tokens have together the
 * wanted surprise. */
size_t hth_sample_mirostat_1(const hth_sample_candidate *c, size_t n, int32_t n_vocab, double temperature, double mu)
{
    enum { N_ESTIMATE = 100 };
    double products = 0.0, squares = 0.0;
    for (size_t i = 0; i + 1 < n && i + 1 < N_ESTIMATE; i++) {
        const double t = hth_log_d((double)(i + 2) / (double)(i + 1));
        products += t * ((double)c[i].logit - (double)c[i + 1].logit) / temperature;
        squares += t * t;
    }
    const double s = squares > 0.0 ? products / squares : 0.0, epsilon = s - 1.0;
    if (!(s > 0.0)) return n;
    const double all = 1.0 - hth_exp_d(-epsilon * hth_log_d((double)n_vocab)), two_to_mu = hth_exp_d(mu * LOG_2);
    const double k = magnitude(epsilon) > 1e-9 ? epsilon * two_to_mu / all : two_to_mu / hth_log_d((double)n_vocab);
    const double n_kept = k > 0.0 ? power(k, 1.0 / s) : 1.0;
    return n_kept < 1.0 ? 1 : n_kept < (double)n ? (size_t)n_kept : n;
}

double hth_sample_surprise(double probability) { return probability > 0.0 ? -hth_log_d(probability) / LOG_2 : 1074.0; }

size_t hth_sample_mirostat_2(const hth_sample_candidate *c, size_t n, double sum, double mu)
{
    size_t kept = 0;
    while (kept < n && c[kept].p > 0.0 && hth_sample_surprise(c[kept].p / sum) <= mu) kept++;
    return kept > 0 ? kept : 1;
}
