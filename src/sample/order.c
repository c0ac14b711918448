/* Radix sort and radix selection: linear time without a worst case; ties are deterministic. Used by sampler.c
 * (candidates by logit) and filters.c (typical). */
#include "sample/order.h"

#include <math.h>
#include <string.h>

enum { DIGIT_BITS = 11, N_DIGIT = 1 << DIGIT_BITS, INSERTION_MAX = 48 };

uint32_t hth_sample_key_of_logit(float logit)
{
    uint32_t bits;
    logit += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &logit, sizeof bits);
    uint32_t ascending = bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
    return ~ascending;
}

uint64_t hth_sample_key_of_distance(double distance)
{
    uint64_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return bits;
}

static void insertion_sort(hth_sample_candidate *items, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        hth_sample_candidate c = items[i];
        size_t k = i;
        for (; k > 0 && items[k - 1].key > c.key; k--) items[k] = items[k - 1];
        items[k] = c;
    }
}

static unsigned digit(uint64_t key, unsigned shift)
{
    return (unsigned)(key >> shift) & (N_DIGIT - 1);
}

/* One stable pass over the digit at `shift`. */
static void pass(const hth_sample_candidate *from, hth_sample_candidate *to, size_t n,
                 unsigned shift)
{
    size_t start[N_DIGIT] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++) start[digit(from[i].key, shift)]++;
    for (size_t d = 0; d < N_DIGIT; d++) {
        size_t count = start[d];
        start[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) to[start[digit(from[i].key, shift)]++] = from[i];
}

void hth_sample_sort(hth_sample_candidate *items, hth_sample_candidate *scratch, size_t n,
                     unsigned n_bit)
{
    if (n <= INSERTION_MAX) {
        insertion_sort(items, n);
        return;
    }
    hth_sample_candidate *from = items, *to = scratch;
    for (unsigned shift = 0; shift < n_bit; shift += DIGIT_BITS) {
        pass(from, to, n, shift);
        hth_sample_candidate *t = from;
        from = to;
        to = t;
    }
    if (from != items) memcpy(items, from, n * sizeof *items);
}

/* Digits from the most significant: 11, 11 and 10 bits. */
uint32_t hth_sample_select(const float *logits, size_t n_vocab, size_t k, size_t *n_below)
{
    static const struct { unsigned shift, bits; } digits[3] = {{21, 11}, {10, 11}, {0, 10}};
    uint32_t prefix = 0;
    size_t below = 0;
    for (int round = 0; round < 3; round++) {
        const unsigned shift = digits[round].shift, bits = digits[round].bits;
        size_t count[N_DIGIT] = {0};
        for (size_t i = 0; i < n_vocab; i++) {
            uint32_t key = hth_sample_key_of_logit(logits[i]);
            bool here = round == 0 || key >> (shift + bits) == prefix;
            if (here && logits[i] != -INFINITY) count[(key >> shift) & ((1u << bits) - 1)]++;
        }
        uint32_t d = 0;
        while (below + count[d] <= k) below += count[d++];
        prefix = prefix << bits | d;
    }
    *n_below = below;
    return prefix;
}
