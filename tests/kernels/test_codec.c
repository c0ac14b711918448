/* Packing and unpacking of weights: the golden blocks, bit for bit, and bounds for
 * the rounding of what is packed. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

static hth_kernels table(void)
{
    hth_kernels k = proof_kernels(hth_cpu_detect());
    return k;
}

/* "HBLK", type, blocks, weights of a block, bytes of a block; blocks; floats. */
static void check_golden(hth_type type)
{
    char name[64];
    snprintf(name, sizeof name, "golden/quant/blocks-%s.bin", rows_type_name(type));
    const char *path = test_data(name);
    if (!path) return;
    size_t size = 0;
    FREED char *file = test_read_file(path, &size);
    if (!CHECK(file && size >= 20 && memcmp(file, "HBLK", 4) == 0)) return;
    CHECK_INT(hth_load_u32(file + 4), type);
    size_t n_block = hth_load_u32(file + 8), per_block = hth_load_u32(file + 12),
           bytes = hth_load_u32(file + 16);
    size_t n = n_block * per_block;
    CHECK_INT(bytes, rows_bytes(type, per_block));
    if (CHECK_INT(size, 20 + n_block * bytes + 4 * n)) {
        FREED float *x = malloc(n * sizeof *x);
        table().unpack[type]((const uint8_t *)file + 20, n, x);
        CHECK_BYTES(x, file + 20 + n_block * bytes, 4 * n);
    }
}

TEST(golden_f16_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_F16); }
TEST(golden_bf16_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_BF16); }
TEST(golden_q8_0_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q8_0); }
TEST(golden_q4_0_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q4_0); }
TEST(golden_q4_1_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q4_1); }
TEST(golden_q5_0_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q5_0); }
TEST(golden_q5_1_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q5_1); }
TEST(golden_q2_k_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q2_K); }
TEST(golden_q3_k_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q3_K); }
TEST(golden_q4_k_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q4_K); }
TEST(golden_q5_k_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q5_K); }
TEST(golden_q6_k_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_Q6_K); }
TEST(golden_iq4_nl_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_IQ4_NL); }
TEST(golden_iq4_xs_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_IQ4_XS); }
TEST(golden_mxfp4_blocks_unpack_to_the_bit) { check_golden(HTH_TYPE_MXFP4); }

/* ---- llama.cpp's floats ------------------------------------------------------------------- */

/* FNV-1a, begun with `hash`; unchanged if a float is not finite. */
static uint64_t hash_block(uint64_t hash, const float *x, size_t n)
{
    uint64_t h = hash;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return hash;
    for (size_t i = 0; i < n * sizeof *x; i++) h = (h ^ ((const uint8_t *)x)[i]) * 0x100000001b3u;
    return h;
}

/* Vigna's SplitMix64. */
static uint64_t split_mix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Hashes of floats by tests/peers/llama.c: "HHSH", type, blocks, runs, blocks of a run; quantised blocks and a hash of
 * each; a hash of each run of blocks of random bytes. */
static void check_llama(hth_type type)
{
    char name[64];
    snprintf(name, sizeof name, "golden/blocks-%s.bin", rows_type_name(type));
    const char *path = test_data(name);
    if (!path) return;
    size_t file_size = 0, size = rows_bytes(type, rows_block(type)), n = rows_block(type), n_finite = 0;
    FREED char *file = test_read_file(path, &file_size);
    if (!CHECK(file && file_size >= 20 && memcmp(file, "HHSH", 4) == 0)) return;
    CHECK_INT(hth_load_u32(file + 4), type);
    size_t n_block = hth_load_u32(file + 8), n_run = hth_load_u32(file + 12), per_run = hth_load_u32(file + 16);
    if (!CHECK_INT(file_size, 20 + n_block * (size + 8) + n_run * 8)) return;
    const uint8_t *blocks = (const uint8_t *)file + 20, *hashes = blocks + n_block * size;
    hth_kernels k = table();
    float x[256];
    uint64_t state = type, bytes[32], start = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n_block; i++) {
        k.unpack[type](blocks + i * size, n, x);
        CHECK(hash_block(start, x, n) == hth_load_u64(hashes + 8 * i));
    }
    for (size_t i = 0; i < n_run; i++) {
        uint64_t hash = start;
        for (size_t b = 0; b < per_run; b++) {
            for (size_t j = 0; j < 32; j++) bytes[j] = split_mix(&state);
            k.unpack[type]((const uint8_t *)bytes, n, x);
            n_finite += hash_block(start, x, n) != start;
            hash = hash_block(hash, x, n);
        }
        CHECK(hash == hth_load_u64(hashes + 8 * (n_block + i)));
    }
    CHECK(n_block >= 32 && n_run >= 64 && per_run >= 64 && n_finite > n_run * per_run * 9 / 10);
}

TEST(iq2_xxs_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ2_XXS); }
TEST(iq2_xs_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ2_XS); }
TEST(iq2_s_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ2_S); }
TEST(iq3_xxs_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ3_XXS); }
TEST(iq3_s_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ3_S); }
TEST(iq1_s_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ1_S); }
TEST(iq1_m_blocks_have_llamas_bits) { check_llama(HTH_TYPE_IQ1_M); }
TEST(tq1_0_blocks_have_llamas_bits) { check_llama(HTH_TYPE_TQ1_0); }
TEST(tq2_0_blocks_have_llamas_bits) { check_llama(HTH_TYPE_TQ2_0); }
TEST(nvfp4_blocks_have_llamas_bits) { check_llama(HTH_TYPE_NVFP4); }

/* ---- rounding --------------------------------------------------------------------------- */

enum { N = 32 * 400 };

static float original[N], back[N];
static uint8_t packed[4 * N];

static void pack_and_back(hth_type type, proof_kind kind)
{
    test_random r = proof_random();
    proof_fill_f32(&r, kind, original, N);
    hth_kernels k = table();
    k.pack[type](original, N, packed);
    k.unpack[type](packed, N, back);
}

static double largest_of(const float *x, size_t n)
{
    double top = 0;
    for (size_t i = 0; i < n; i++) top = fabs((double)x[i]) > top ? fabs((double)x[i]) : top;
    return top;
}

/* Errors in steps of the block, whose step is its largest magnitude divided by `steps`. */
static double worst_error_in_steps(double steps)
{
    double worst = 0;
    for (size_t b = 0; b < N / 32; b++) {
        double step = largest_of(original + 32 * b, 32) / steps;
        for (size_t i = 32 * b; i < 32 * (b + 1); i++) {
            double error = step > 0 ? fabs((double)original[i] - (double)back[i]) / step : 0;
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

/* Half a step, and the rounding of the scale (by 2^-11 at most) over 127 steps. */
TEST(q8_0_errs_by_half_a_step)
{
    pack_and_back(HTH_TYPE_Q8_0, PROOF_PLAIN);
    double worst = worst_error_in_steps(127.0);
    CHECK(worst > 0.4 && worst < 0.5 + 127.0 / 2048);
}

/* The largest weight is -8 steps, so the other end reaches 7 only: a whole step there. */
TEST(q4_0_errs_by_a_step_at_most)
{
    pack_and_back(HTH_TYPE_Q4_0, PROOF_PLAIN);
    double worst = worst_error_in_steps(8.0);
    CHECK(worst > 0.4 && worst < 1.0 + 8.0 / 2048);
}

TEST(f32_packs_to_itself)
{
    pack_and_back(HTH_TYPE_F32, PROOF_BITS);
    CHECK_BYTES(original, back, sizeof original);
}

static void check_relative(hth_type type, double bound)
{
    pack_and_back(type, PROOF_PLAIN);
    double worst = 0;
    for (size_t i = 0; i < N; i++) {
        double error = fabs((double)original[i] - (double)back[i]);
        if (fabs((double)original[i]) > 1e-4 && error / fabs((double)original[i]) > worst)
            worst = error / fabs((double)original[i]);
    }
    CHECK(worst > bound / 2 && worst <= bound);
}

/* The root of the mean square error against that of the values, bounded 3 % above what
 * was measured when each type stood level with llama-quantize (bench/quantize.py). */
static void check_rms(hth_type type, double bound)
{
    pack_and_back(type, PROOF_PLAIN);
    double error = 0, size = 0;
    for (size_t i = 0; i < N; i++) {
        double e = (double)original[i] - (double)back[i];
        error += e * e, size += (double)original[i] * (double)original[i];
    }
    double ratio = sqrt(error / size);
    printf("     %s: %.5f of %.5f\n", hth_type_find(type)->name, ratio, bound);
    CHECK(ratio > 0.8 * bound && ratio <= bound);
}

TEST(searched_types_err_no_more_than_their_kind)
{
    check_rms(HTH_TYPE_Q4_1, 0.0622);
    check_rms(HTH_TYPE_Q5_0, 0.0322);
    check_rms(HTH_TYPE_Q5_1, 0.0303);
    check_rms(HTH_TYPE_IQ4_NL, 0.0638);
    check_rms(HTH_TYPE_Q2_K, 0.2304);
    check_rms(HTH_TYPE_Q3_K, 0.1255);
    check_rms(HTH_TYPE_Q4_K, 0.0566);
    check_rms(HTH_TYPE_Q5_K, 0.0280);
    check_rms(HTH_TYPE_Q6_K, 0.0136);
}

/* Each value of the format, times a scale, packs to itself. */
TEST(values_of_iq4_nl_pack_to_themselves)
{
    static const float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    float x[32], y[32];
    uint8_t row[18];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 32; i++) x[i] = 0.125f * (float)sign * values[(5 * i + 3) % 16];
        hth_kernels k = table();
        k.pack[HTH_TYPE_IQ4_NL](x, 32, row);
        k.unpack[HTH_TYPE_IQ4_NL](row, 32, y);
        CHECK_BYTES(x, y, sizeof x);
    }
}

TEST(f16_errs_by_half_a_unit) { check_relative(HTH_TYPE_F16, 0x1p-11); }
TEST(bf16_errs_by_half_a_unit) { check_relative(HTH_TYPE_BF16, 0x1p-8); }

/* Zeros stay zeros, and what has no good scale is packed without a fault. */
TEST(blocks_of_any_numbers_can_be_packed)
{
    for (int t = 0; t < ROWS_N_TYPE; t++) {
        if (!table().pack[rows_types[t]]) continue; /* not written by this version */
        for (int kind = 0; kind < PROOF_N_KIND; kind++) pack_and_back(rows_types[t], (proof_kind)kind);
        pack_and_back(rows_types[t], PROOF_ZEROS);
        CHECK(largest_of(back, N) == 0.0);
    }
}

/* Both directions between guard pages: no byte outside a row is read or written. */
TEST(packing_stays_inside_its_rows)
{
    hth_kernels k = table();
    guard x, row;
    guard_open(&x, 4 * 32 * 320);
    guard_open(&row, 4 * 32 * 320);
    test_random r = proof_random();
    for (size_t n_block = 0; n_block < 40; n_block++)
        for (int t = 0; t < ROWS_N_TYPE; t++)
            for (int side = 0; side < 2; side++) {
                size_t n = (rows_block(rows_types[t]) < 32 ? 32 : rows_block(rows_types[t])) * n_block;
                float *values = guard_place(&x, 4 * n, (guard_side)side, 0);
                uint8_t *bytes = guard_place(&row, rows_bytes(rows_types[t], n), (guard_side)side, 0);
                proof_fill_f32(&r, PROOF_PLAIN, values, n);
                proof_fill_bytes(&r, bytes, rows_bytes(rows_types[t], n));
                if (k.pack[rows_types[t]]) k.pack[rows_types[t]](values, n, bytes);
                k.unpack[rows_types[t]](bytes, n, values);
                CHECK(guard_is_whole(&x) && guard_is_whole(&row));
            }
    guard_close(&x);
    guard_close(&row);
}

/* Values of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 in units of the scale; the smaller one of two equally near ones. */
TEST(mxfp4_rounds_to_the_nearest_value)
{
    static const float from[8] = {5.0f, -5.1f, 0.25f, -0.75f, 2.5f, -3.6f, 7.9f, -0.2f},
                       to[8] = {4.0f, -6.0f, 0.0f, -0.5f, 2.0f, -4.0f, 6.0f, 0.0f};
    hth_kernels k = table();
    for (int power = -120; power <= 100; power += 20) {
        float x[32] = {0}, y[32], unit = ldexpf(1.0f, power);
        uint8_t block[17];
        for (int i = 0; i < 8; i++) x[4 * i + 1] = from[i] * unit;
        k.pack[HTH_TYPE_MXFP4](x, 32, block);
        k.unpack[HTH_TYPE_MXFP4](block, 32, y);
        for (int i = 0; i < 8; i++) CHECK(y[4 * i + 1] == to[i] * unit && y[4 * i] == 0.0f);
    }
}

/* The largest magnitude is the scale; halves of it round away from zero. */
TEST(ternary_types_round_by_the_largest)
{
    static const float from[8] = {-2.0f, 1.0f, -1.0f, 0.99f, -0.99f, 1.9f, 0.0f, 2.0f},
                       to[8] = {-2.0f, 2.0f, -2.0f, 0.0f, 0.0f, 2.0f, 0.0f, 2.0f};
    static const hth_type types[2] = {HTH_TYPE_TQ1_0, HTH_TYPE_TQ2_0};
    hth_kernels k = table();
    for (int t = 0; t < 2; t++) {
        float x[256], y[256];
        uint8_t block[66];
        for (int i = 0; i < 256; i++) x[i] = from[(i + i / 8) % 8];
        k.pack[types[t]](x, 256, block);
        k.unpack[types[t]](block, 256, y);
        for (int i = 0; i < 256; i++)
            if (!CHECK(y[i] == to[(i + i / 8) % 8])) break;
        memset(x, 0, sizeof x);
        k.pack[types[t]](x, 256, block);
        k.unpack[types[t]](block, 256, y);
        for (int i = 0; i < 256; i++)
            if (!CHECK(y[i] == 0.0f)) break;
    }
}
