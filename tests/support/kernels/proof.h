/* What the proofs of kernels share: the seed, the levels of this machine, kinds of
 * numbers to try, and equality of bits (a NaN equals any NaN). */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_PROOF_H
#define HEARTH_TESTS_SUPPORT_KERNELS_PROOF_H

#include "base/system/cpu.h"
#include "kernels/kernels.h"
#include "support/test.h"

/* A generator that begins at $HEARTH_SEED (default 1); the first call prints it. */
test_random proof_random(void);

/* Levels above generic that this machine has, lowest first; where it has none, generic itself, whose kernels then
 * are held to all but equality with another level. A failure where the highest is not
 * the one in $HEARTH_EXPECT_CPU, which the cross build sets, so that its emulator hides none. */
enum { PROOF_MAX_LEVEL = 4 };
int proof_levels(hth_cpu levels[PROOF_MAX_LEVEL]);

/* The table of kernels of a level. */
hth_kernels proof_kernels(hth_cpu level);

/* Kinds of floats, from plain to extreme. */
typedef enum proof_kind {
    PROOF_PLAIN,     /* within -1..1 */
    PROOF_ZEROS,     /* of both signs */
    PROOF_WIDE,      /* all sizes that stay finite in sums of products */
    PROOF_LARGEST,   /* at the upper end of the format */
    PROOF_SUBNORMAL, /* smaller than the smallest normal number */
    PROOF_OUTLIER,   /* one large value among small ones */
    PROOF_SPECIAL,   /* infinities and NaNs among plain ones */
    PROOF_BITS,      /* any bits */
    PROOF_N_KIND,
} proof_kind;
const char *proof_kind_name(proof_kind kind);
void proof_fill_f32(test_random *r, proof_kind kind, float *x, size_t n);
void proof_fill_f16(test_random *r, proof_kind kind, uint16_t *h, size_t n);
void proof_fill_bf16(test_random *r, proof_kind kind, uint16_t *h, size_t n);
void proof_fill_bytes(test_random *r, void *p, size_t n);

/* Index of the first value that differs, or n. */
size_t proof_differ_f32(const float *a, const float *b, size_t n);
size_t proof_differ_f16(const uint16_t *a, const uint16_t *b, size_t n);

/* Makes every NaN the same one, so that bytes can be hashed. */
void proof_one_nan(float *x, size_t n);

#endif
