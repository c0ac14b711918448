/* Shared by the attention shaders: offsets in the step block and in caches (forward/gpu/shader_params.h, cache.h),
 * and common sums. The shader declares D_HEAD, KV and step_words. */
const uint KV_F16 = 0, KV_F32 = 1, KV_Q8_0 = 2; /* hearth_kv_type */
const uint SPLIT = 256;                         /* HTH_ATTN_SPLIT */
const uint GROUP = 16;                          /* positions whose keys are interleaved */
const uint PAGE = 32, PAGES = SPLIT / PAGE;     /* HTH_KV_PAGE; pages of a split */
const uint BLOCK = 32, N_BLOCK = D_HEAD / BLOCK, N_QUANT = D_HEAD / 4; /* of Q8_0: quants, then scales */

/* Words of a position. */
const uint N_WORD = KV == KV_Q8_0 ? N_QUANT + N_BLOCK : KV == KV_F16 ? D_HEAD / 2 : D_HEAD;

uint position_of(uint t) { return step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_POSITION]; }
/* Page i of the sequence of token t, in layers of this class. */
uint page_of(uint t, uint kv_class, uint i)
{
    return step_words[step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_TABLE + kv_class] + i];
}

/* Word 0 of a position, relative to its KV head; the next word of a key is GROUP further on, that of a value 1. */
uint key_at(uint at) { return at / GROUP * N_WORD * GROUP + at % GROUP; }
uint value_at(uint at) { return at * N_WORD; }

/* The first position that a token at `position` sees, within its sequence. */
uint first_seen(uint position, uint window)
{
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
