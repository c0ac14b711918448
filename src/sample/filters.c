/* Truncation of the candidates, and their weights. Called by sampler.c in the order that sampler.h states. All
 * sums run over candidates in order, best first, in double precision with Hearth's own exp and log, so the bits
 * are the same on every machine. */
#include "sample/filters.h"

#include "kernels/vector/math.h"

/* exp of smaller arguments is 0 in double precision. Prevents -infinity as an argument of hth_exp_d. */
static const double MIN_EXPONENT = -800.0;

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
