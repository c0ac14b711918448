/* Positions of tokens, and sums over them and over splits of them (docs/arithmetic.md 5). The shader declares
 * step_words. */
const uint SPLIT = 256; /* HTH_ATTN_SPLIT */

uint position_of(uint t) { return step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_POSITION]; }

/* The first position that a token at `position` sees, within its sequence: of its chunk, or of its window. */
uint first_seen(uint position, uint window, uint chunk)
{
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 && position >= window ? position + 1 - window : 0;
}

/* ---- sums: each operation rounded once --------------------------------------------------------------- */

float add(float a, float b)
{
    precise float y = a + b;
    return y;
}

/* sum + a b */
float add_product(float sum, float a, float b)
{
    precise float product = a * b;
    precise float y = sum + product;
    return y;
}

vec2 add_products(vec2 sum, vec2 a, vec2 b)
{
    return vec2(add_product(sum.x, a.x, b.x), add_product(sum.y, a.y, b.y));
}

float times(float a, float b)
{
    precise float y = a * b;
    return y;
}

/* ---- merging of splits (docs/arithmetic.md 5) -------------------------------------------------------- */

/* The splits so far, or one of them: its largest score and the sum of its weights. A split that is seen has a
 * weight of 1, or NaN, so no sum is 0. */
struct part { float largest, sum; };

/* Factors of the values of both. */
struct shares { float before, now; };

shares shares_of(part before, part now)
{
    float top = larger_of(before.largest, now.largest);
    precise float a = before.largest - top;
    precise float b = now.largest - top;
    return shares(exp_by_rule(a), exp_by_rule(b));
}

/* before s.before + now s.now */
float merged(float before, float now, shares s)
{
    precise float a = before * s.before;
    precise float b = now * s.now;
    precise float y = a + b;
    return y;
}

part merge(part before, part now, shares s)
{
    float top = larger_of(before.largest, now.largest);
    return part(top, merged(before.sum, now.sum, s));
}
