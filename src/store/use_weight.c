/* Weights of uses: their growth, and the value that follows from them. */
#include "store/use_weight.h"

enum { HALF_LIFE = 128 };
/* Sums are scaled down when a use weighs more: they keep their precision, and do not overflow. */
#define MAX_WEIGHT 1e18f

/* The factor whose n-th power is 2: by bisection, since the library has no libm. */
static float growth_of(uint32_t n_half_life)
{
    double low = 1.0, high = 2.0;
    for (int k = 0; k < 60; k++) {
        double mid = (low + high) / 2.0, power = 1.0, base = mid;
        for (uint32_t n = n_half_life; n > 0; n /= 2, base = base < 1e100 ? base * base : base)
            if (n % 2) power *= base;
        if (power > 2.0) high = mid;
        else low = mid;
    }
    return (float)low;
}

void hth_use_weight_open(hth_use_weight *w, uint32_t n_half_life)
{
    *w = (hth_use_weight){.now = 1.0f, .growth = growth_of(n_half_life ? n_half_life : HALF_LIFE), .all = 1.0f};
}

float hth_use_weight_advance(hth_use_weight *w, uint32_t n_tok)
{
    float factor = 1.0f;
    w->all += w->now;
    for (uint32_t i = 0; i < n_tok; i++) {
        w->now *= w->growth;
        if (w->now < MAX_WEIGHT) continue;
        float down = 1.0f / w->now;
        w->now = 1.0f;
        w->all *= down, factor *= down;
    }
    return factor;
}

float hth_use_weight_key(const hth_use_weight *w, const hth_reuse *reuse, float uses, uint32_t age)
{
    return age > HTH_REUSE_AGES ? uses : uses + w->all * hth_reuse_gain(reuse, age);
}
