/* Counts ages between uses. store_uses.c calls it. */
#include "store/reuse.h"

/* Ages 1, 2, 3 to 4, 5 to 8, 9 to 16. What few uses say is not believed: MIN_USES without a gain are assumed. */
enum { MIN_USES = 100, MAX_USES = 1 << 16 };
/* A use is not taken to stand for more than 16 uses: the least probability that none follows. */
#define MIN_NONE (1.0 / 16.0)

uint32_t hth_reuse_first_age(uint32_t i_class) { return i_class < 2 ? i_class + 1 : (1u << (i_class - 1)) + 1; }

void hth_reuse_add(hth_reuse *r, float rate_now, uint32_t age, float rate_before)
{
    r->n_use += 1.0;
    r->rate += (double)rate_now;
    if (age < 1 || age > HTH_REUSE_AGES) return;
    r->n_again[age - 1] += 1.0;
    r->rate_again[age - 1] += (double)rate_before;
}

/* Over all uses: of the items that were not needed until an age, the share that was then, less their rate. */
static void find_gains(hth_reuse *r)
{
    double n = r->n_use, rate = r->rate;
    for (uint32_t c = 0; c < HTH_REUSE_CLASSES; c++) {
        double n_seen = MIN_USES, n_more = 0.0;
        for (uint32_t age = hth_reuse_first_age(c); age < hth_reuse_first_age(c + 1); age++) {
            n_seen += n;
            n_more += r->n_again[age - 1] - rate;
            n -= r->n_again[age - 1], rate -= r->rate_again[age - 1];
        }
        r->gain[c] = n_more > 0.0 ? (float)(n_more / n_seen) : 0.0f;
    }
}

/* From the gains. Each use that follows may be followed by others, as the first one. */
static void find_extras(hth_reuse *r)
{
    double none[HTH_REUSE_AGES], next = 1.0; /* the probability that no use follows from an age on */
    for (uint32_t age = HTH_REUSE_AGES; age >= 1; age--)
        next = none[age - 1] = next * (1.0 - (double)hth_reuse_gain(r, age));
    double all = 1.0 / (next > MIN_NONE ? next : MIN_NONE); /* uses that a use stands for, itself included */
    for (uint32_t i = 0; i < HTH_REUSE_AGES; i++) r->extra[i] = (float)((1.0 - none[i]) * all);
}

void hth_reuse_advance(hth_reuse *r)
{
    find_gains(r);
    find_extras(r);
    if (r->n_use < (r->n_max > 0 ? r->n_max : MAX_USES)) return;
    r->n_use /= 2.0, r->rate /= 2.0;
    for (uint32_t i = 0; i < HTH_REUSE_AGES; i++) r->n_again[i] /= 2.0, r->rate_again[i] /= 2.0;
}

float hth_reuse_gain(const hth_reuse *r, uint32_t age)
{
    if (age < 1) age = 1; /* used in this step: needed in the next one at the earliest */
    for (uint32_t c = 0; c < HTH_REUSE_CLASSES; c++)
        if (age < hth_reuse_first_age(c + 1)) return r->gain[c];
    return 0.0f;
}

float hth_reuse_extra(const hth_reuse *r, uint32_t age)
{
    return age > HTH_REUSE_AGES ? 0.0f : r->extra[age < 1 ? 0 : age - 1];
}
