/* Shared by the shaders over caches: offsets in the step block and in caches (forward/gpu/shader_params.h, cache.h).
 * The shader declares D_HEAD, KV and step_words. */
#include "splits.glsl"

const uint KV_F16 = 0, KV_F32 = 1, KV_Q8_0 = 2; /* hearth_kv_type */
const uint GROUP = 16;                          /* positions whose keys are interleaved */
const uint PAGE = 32, PAGES = SPLIT / PAGE;     /* HTH_KV_PAGE; pages of a split */
const uint BLOCK = 32, N_BLOCK = D_HEAD / BLOCK, N_QUANT = D_HEAD / 4; /* of Q8_0: quants, then scales */

/* Words of a position. */
const uint N_WORD = KV == KV_Q8_0 ? N_QUANT + N_BLOCK : KV == KV_F16 ? D_HEAD / 2 : D_HEAD;

/* hth_round_to_13_bits: products with halves are exact then. */
float round_to_13_bits(float x)
{
    uint u = floatBitsToUint(x), magnitude = u & 0x7fffffffu;
    if (magnitude < 0x21800000u) return 0.0; /* 2^-60 */
    if (magnitude > 0x5d800000u) return uintBitsToFloat(0x7fc00000u); /* 2^60 */
    return uintBitsToFloat(u + 0x3ffu + (u >> 11 & 1u) & ~0x7ffu);
}

/* Page i of the sequence of token t, in layers of this class. */
uint page_of(uint t, uint kv_class, uint i)
{
    return step_words[step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_TABLE + kv_class] + i];
}

/* Word 0 of a position, relative to its KV head; the next word of a key is GROUP further on, that of a value 1. */
uint key_at(uint at) { return at / GROUP * N_WORD * GROUP + at % GROUP; }
uint value_at(uint at) { return at * N_WORD; }
