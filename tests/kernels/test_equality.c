/* One answer on every machine: a hash of what each entry of the table makes of seeded inputs, at every level,
 * equals the constant below. The constants hold on x86-64 and on AArch64; one that changes is a change of
 * docs/arithmetic.md. (A NaN counts as any NaN: its sign and payload are the machine's.) */
#include "base/bits.h"
#include "base/hash.h"
#include "kernels/kernels.h"
#include "kernels/vector/math.h"
#include "support/kernels/attn_case.h"
#include "support/kernels/axpy_case.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

enum { SEED = 20, N = 1027 };

static uint64_t hash_floats(uint64_t h, float *x, size_t n)
{
    proof_one_nan(x, n);
    return hth_hash_more(h, x, n * sizeof *x);
}

static uint64_t hash_halves(uint64_t h, uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((x[i] & 0x7fffu) > 0x7c00u) x[i] = 0x7e00u;
    return hth_hash_more(h, x, n * sizeof *x);
}

/* Calls hash(table) at the reference and every level of this machine. */
static void check_levels(uint64_t (*hash)(const hth_kernels *k), uint64_t expected)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    int n = 1 + proof_levels(levels + 1);
    for (int i = 0; i < n; i++) {
        hth_kernels k = proof_kernels(levels[i]);
        uint64_t h = hash(&k);
        if (h != expected)
            test_fail(__FILE__, __LINE__, "%s: hash 0x%016llx, expected 0x%016llx", hth_cpu_name(levels[i]),
                      (unsigned long long)h, (unsigned long long)expected);
    }
}

/* ---- rows ------------------------------------------------------------------------------ */

static uint64_t hash_rows_of(const hth_kernels *k, hth_type type)
{
    static const size_t blocks[] = {1, 2, 7, 8, 9, 15, 16, 17, 30, 65}, floats[] = {1, 15, 16, 17, 33, 352};
    bool quantised = rows_quantised(type);
    size_t n = quantised ? sizeof blocks / sizeof *blocks : sizeof floats / sizeof *floats;
    CLEANUP(rows_case_close) rows_case c;
    uint64_t h = 0;
    test_random r = {SEED};
    rows_case_open(&c, 1 << 19, 1 << 18);
    for (size_t i = 0; i < n; i++)
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            rows_shape s = {.type = type, .n_row = 19, .n_tok = 13}; /* enough for every tile */
            s.n_col = quantised ? rows_block(type) * blocks[i] : floats[i];
            s.kind = (proof_kind)kind, s.list = kind % 4;
            rows_case_make(&c, &r, &s);
            k->rows[type](&c.job);
            h = hash_floats(h, c.job.y, rows_case_n_y(&c));
        }
    return h;
}

static uint64_t hash_f32(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_F32); }
static uint64_t hash_f16(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_F16); }
static uint64_t hash_bf16(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_BF16); }
static uint64_t hash_q8_0(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q8_0); }
static uint64_t hash_q4_0(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q4_0); }
static uint64_t hash_q4_1(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q4_1); }
static uint64_t hash_q5_0(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q5_0); }
static uint64_t hash_q5_1(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q5_1); }
static uint64_t hash_q2_k(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q2_K); }
static uint64_t hash_q3_k(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q3_K); }
static uint64_t hash_q4_k(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q4_K); }
static uint64_t hash_q5_k(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q5_K); }
static uint64_t hash_q6_k(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_Q6_K); }
static uint64_t hash_iq4_nl(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ4_NL); }
static uint64_t hash_iq4_xs(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ4_XS); }
static uint64_t hash_mxfp4(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_MXFP4); }
static uint64_t hash_iq2_xxs(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ2_XXS); }
static uint64_t hash_iq2_xs(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ2_XS); }
static uint64_t hash_iq2_s(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ2_S); }
static uint64_t hash_iq3_xxs(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ3_XXS); }
static uint64_t hash_iq3_s(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ3_S); }
static uint64_t hash_iq1_s(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ1_S); }
static uint64_t hash_iq1_m(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_IQ1_M); }
static uint64_t hash_tq1_0(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_TQ1_0); }
static uint64_t hash_tq2_0(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_TQ2_0); }
static uint64_t hash_nvfp4(const hth_kernels *k) { return hash_rows_of(k, HTH_TYPE_NVFP4); }

TEST(f32_rows_are_the_same_everywhere) { check_levels(hash_f32, 0x1a34d5892f6cf4f4u); }
TEST(f16_rows_are_the_same_everywhere) { check_levels(hash_f16, 0x6dd73bf572c95a92u); }
TEST(bf16_rows_are_the_same_everywhere) { check_levels(hash_bf16, 0x93c5d4c9ba4d1b96u); }
TEST(q8_0_rows_are_the_same_everywhere) { check_levels(hash_q8_0, 0xf3fb97cfc735c550u); }
TEST(q4_0_rows_are_the_same_everywhere) { check_levels(hash_q4_0, 0x3d02048a6b98d0eeu); }
TEST(q4_1_rows_are_the_same_everywhere) { check_levels(hash_q4_1, 0xf9ad43b04aa91438u); }
TEST(q5_0_rows_are_the_same_everywhere) { check_levels(hash_q5_0, 0x546e6841289542cfu); }
TEST(q5_1_rows_are_the_same_everywhere) { check_levels(hash_q5_1, 0x5981281fb5e59eacu); }
TEST(q2_k_rows_are_the_same_everywhere) { check_levels(hash_q2_k, 0x8ff21eeb2cdc4d8du); }
TEST(q3_k_rows_are_the_same_everywhere) { check_levels(hash_q3_k, 0x649bdd276d62c5e4u); }
TEST(q4_k_rows_are_the_same_everywhere) { check_levels(hash_q4_k, 0x88f7b92c9c3a12a7u); }
TEST(q5_k_rows_are_the_same_everywhere) { check_levels(hash_q5_k, 0x3a31021372dd0be4u); }
TEST(q6_k_rows_are_the_same_everywhere) { check_levels(hash_q6_k, 0xe86faabe187a4427u); }
TEST(iq4_nl_rows_are_the_same_everywhere) { check_levels(hash_iq4_nl, 0x7d58ccb2813ba741u); }
TEST(iq4_xs_rows_are_the_same_everywhere) { check_levels(hash_iq4_xs, 0x0a8312272fd465b2u); }
TEST(mxfp4_rows_are_the_same_everywhere) { check_levels(hash_mxfp4, 0xc53f58c04cc719a0u); }
TEST(iq2_xxs_rows_are_the_same_everywhere) { check_levels(hash_iq2_xxs, 0xf60fdf957ec79cd5u); }
TEST(iq2_xs_rows_are_the_same_everywhere) { check_levels(hash_iq2_xs, 0x60d2ac4ecd6b290du); }
TEST(iq2_s_rows_are_the_same_everywhere) { check_levels(hash_iq2_s, 0x65b79d2b234ee8aau); }
TEST(iq3_xxs_rows_are_the_same_everywhere) { check_levels(hash_iq3_xxs, 0x4b9481d0384b03d0u); }
TEST(iq3_s_rows_are_the_same_everywhere) { check_levels(hash_iq3_s, 0xc0200d5867c01d06u); }
TEST(iq1_s_rows_are_the_same_everywhere) { check_levels(hash_iq1_s, 0xef452d9ac81e8784u); }
TEST(iq1_m_rows_are_the_same_everywhere) { check_levels(hash_iq1_m, 0xcba24372df4a0750u); }
TEST(tq1_0_rows_are_the_same_everywhere) { check_levels(hash_tq1_0, 0x321b2a09ee8ad8ccu); }
TEST(tq2_0_rows_are_the_same_everywhere) { check_levels(hash_tq2_0, 0xe03109dacc6d4ff6u); }
TEST(nvfp4_rows_are_the_same_everywhere) { check_levels(hash_nvfp4, 0x9b197c3e6ad2e6b5u); }

/* ---- neuron-major down ---------------------------------------------------------------- */

/* Every type, kinds of scales and of coefficients; the outputs before they are rounded, and then. */
static uint64_t hash_down(const hth_kernels *k)
{
    enum { MAX_OUT = 2048 };
    static int64_t acc64[MAX_OUT];
    static float y[MAX_OUT];
    CLEANUP(down_case_close) down_case c;
    uint64_t h = 0;
    test_random r = {SEED};
    down_case_open(&c, 1 << 18, MAX_OUT);
    for (int t = 0; t < ROWS_N_FULL; t++)
        for (int kind = 0; kind < 2 * PROOF_N_KIND; kind++) {
            down_shape s = {.rows = {.type = rows_types[t], .n_row = 23, .n_col = 768}};
            s.rows.kind = (proof_kind)(kind % PROOF_N_KIND), s.h_kind = (proof_kind)(kind * 5 % PROOF_N_KIND);
            s.list = 2 + kind % 2;
            if (rows_block(s.rows.type) < 256) s.rows.n_col = 352;
            down_case_make(&c, &r, &s);
            memset(acc64, 0, sizeof acc64);
            k->axpy[s.rows.type](&c.job);
            h += down_flush(k, s.rows.type, &c.job, acc64);
            h = hth_hash_more(h, acc64, s.rows.n_col * sizeof *acc64);
            hth_axpy_finish(acc64, s.rows.n_col, y);
            h = hash_floats(h, y, s.rows.n_col);
        }
    return h;
}

/* Clusters with the scales of their values, added up in Q31.32. */
static uint64_t hash_clusters(const hth_kernels *k)
{
    enum { N_OUT = 512, N_CLUSTER = 6 };
    CLEANUP(down_case_close) down_case c;
    uint64_t h = 0;
    test_random r = {SEED};
    down_case_open(&c, 1 << 18, N_OUT);
    for (int t = 0; t < ROWS_N_FULL; t++) {
        int64_t acc64[N_OUT] = {0};
        for (int i = 0; i < N_CLUSTER && rows_quantised(rows_types[t]); i++) {
            down_shape s = {.rows = {.type = rows_types[t], .n_row = 23, .n_col = N_OUT, .kind = PROOF_PLAIN},
                            .h_kind = i % 2 ? PROOF_PLAIN : PROOF_OUTLIER, .list = 3};
            int safe = hth_axpy_safe_exponent(rows_types[t], N_CLUSTER);
            down_case_make(&c, &r, &s);
            c.job.scale = hth_axpy_scale(c.job.h, c.job.n, c.d_max, safe);
            h = hth_hash_more(h, &c.job.scale, sizeof c.job.scale);
            if (c.job.scale == 0.0f) continue;
            k->axpy[s.rows.type](&c.job);
            k->axpy_flush(s.rows.type, N_OUT, c.job.scale, c.job.sums, c.job.offsets, acc64);
        }
        h = hth_hash_more(h, acc64, sizeof acc64);
    }
    return h;
}

TEST(sums_of_clusters_are_the_same_everywhere) { check_levels(hash_clusters, 0x6bc294346cfb0f4eu); }

TEST(neuron_major_down_is_the_same_everywhere) { check_levels(hash_down, 0xae26bfd649e82d4du); }

/* ---- vectors ----------------------------------------------------------------------------- */

static float in_a[N], in_b[N], in_c[N], out[N];

static void fill(test_random *r, int kind)
{
    proof_fill_f32(r, (proof_kind)kind, in_a, N);
    proof_fill_f32(r, (proof_kind)kind, in_b, N);
    proof_fill_f32(r, (proof_kind)kind, in_c, N);
}

static uint64_t hash_norms(const hth_kernels *k)
{
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->rms_norm(in_a, in_b, N, 1.0f / N, 1e-5f, out);
        h = hash_floats(h, out, N);
        k->layer_norm(in_a, in_b, in_c, N, 1.0f / N, 1e-5f, out);
        h = hash_floats(h, out, N);
        k->layer_norm(in_a, in_b, NULL, N, 1.0f / N, 1e-5f, out);
        h = hash_floats(h, out, N);
    }
    return h;
}

static uint64_t hash_elements(const hth_kernels *k)
{
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        memcpy(out, in_a, sizeof out);
        k->rope_interleaved(out, in_b, in_c, N / 2);
        k->rope_neox(out, in_b, in_c, N / 2);
        h = hash_floats(h, out, N);
        k->add(in_a, in_b, N, out);
        h = hash_floats(h, out, N);
        uint16_t halves[N];
        k->to_f16(in_a, N, halves);
        h = hash_halves(h, halves, N);
        memcpy(out, in_a, sizeof out);
        k->softmax(out, N);
        h = hash_floats(h, out, N);
    }
    return h;
}

static uint64_t hash_functions(const hth_kernels *k)
{
    hth_map_fn *const maps[] = {k->exp, k->tanh, k->rcp, k->rsqrt};
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        for (int i = 0; i < 4; i++) {
            maps[i](in_a, N, out);
            h = hash_floats(h, out, N);
        }
        for (int i = 0; i <= HTH_ACTIVATION_DRELU; i++) {
            k->activate[i](in_a, in_b, N, out);
            h = hash_floats(h, out, N);
            if (i == HTH_ACTIVATION_DRELU) continue; /* needs a gate */
            k->activate[i](NULL, in_b, N, out);
            h = hash_floats(h, out, N);
        }
    }
    return h;
}

/* What routers and experts add to the functions above. */
static uint64_t hash_expert_functions(const hth_kernels *k)
{
    enum { N_ROW = 13, N_COL = N / N_ROW };
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->sigmoid(in_a, N, out);
        h = hash_floats(h, out, N);
        k->activate[HTH_ACTIVATION_SWIGLU_OAI](in_a, in_b, N, out);
        h = hash_floats(h, out, N);
        for (int i = 0; i < N; i++) in_a[i] *= 10.0f, in_b[i] *= 10.0f; /* beyond the limits of 7 */
        k->activate[HTH_ACTIVATION_SWIGLU_OAI](in_a, in_b, N, out);
        h = hash_floats(h, out, N);
        k->dot_rows(in_c, N_ROW, N_COL, in_b, out);
        h = hash_floats(h, out, N_ROW);
    }
    return h;
}

/* What recurrent mixers add. */
static uint64_t hash_recurrent_functions(const hth_kernels *k)
{
    enum { N_TAP = 4, N_CHANNEL = N / N_TAP - 3 };
    const float *rows[N_TAP];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        for (int j = 0; j < N_TAP; j++) rows[j] = in_a + j * N_CHANNEL;
        k->conv(rows, in_b, N_TAP, N_CHANNEL, out);
        h = hash_floats(h, out, N_CHANNEL);
        k->mul(in_a, in_b, N, out);
        h = hash_floats(h, out, N);
    }
    return h;
}

/* What state spaces add. */
static uint64_t hash_ssm(const hth_kernels *k)
{
    enum { N_CHANNEL = 77, N_STATE = 5, N_TOK = 7 };
    static float state[80 * N_STATE];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->softplus(in_a, N, out);
        h = hash_floats(h, out, N);
        for (int form = 0; form < 2; form++) {
            memset(state, 0, sizeof state);
            k->ssm_scan(&(hth_ssm_scan){.n_channel = N_CHANNEL, .n_state = N_STATE, .n_tok = N_TOK, .now = state,
                                        .next = state, .x = in_a, .delta = in_b, .decay = in_c, .a = form ? in_c : NULL,
                                        .d = in_b + 9, .b = in_a + 5, .c = in_c + 3, .y = out, .x_stride = N_CHANNEL,
                                        .delta_stride = N_CHANNEL, .a_stride = N_CHANNEL, .bc_stride = N_STATE,
                                        .y_stride = N_CHANNEL});
            h = hash_floats(hash_floats(h, out, N_CHANNEL * N_TOK), state, sizeof state / sizeof *state);
        }
    }
    return h;
}

static uint64_t hash_rounding(const hth_kernels *k)
{
    enum { BLOCKS = 32 };
    int8_t q[32 * BLOCKS];
    float d[BLOCKS];
    int32_t sum[BLOCKS];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->quant_act(in_a, 32 * BLOCKS, q, d, sum);
        h = hash_floats(h, d, BLOCKS);
        h = hth_hash_more(hth_hash_more(h, q, sizeof q), sum, sizeof sum);
    }
    return h;
}

static uint64_t hash_rounding_256(const hth_kernels *k)
{
    enum { BLOCKS = 4 };
    int8_t q[256 * BLOCKS];
    float d[BLOCKS];
    int16_t sum_16[16 * BLOCKS];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->quant_act_256(in_a, 256 * BLOCKS, q, d, sum_16);
        h = hash_floats(h, d, BLOCKS);
        h = hth_hash_more(hth_hash_more(h, q, sizeof q), sum_16, sizeof sum_16);
    }
    return h;
}

/* What any bytes unpack to, of the types that cannot be packed too. */
static uint64_t hash_unpacked(const hth_kernels *k, int first, int end)
{
    test_random r = {SEED};
    uint64_t h = 0;
    CLEANUP(rows_case_close) rows_case c;
    float x[1024];
    rows_case_open(&c, 1 << 16, 1 << 12);
    for (int t = first; t < end; t++)
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            rows_shape s = {.type = rows_types[t], .n_row = 1, .n_tok = 1, .n_col = 1024};
            s.kind = (proof_kind)kind;
            rows_case_make(&c, &r, &s);
            k->unpack[s.type](c.job.w, s.n_col, x);
            h = hash_floats(h, x, s.n_col);
        }
    return h;
}

static uint64_t hash_unpacking(const hth_kernels *k) { return hash_unpacked(k, 0, ROWS_N_FULL); }
static uint64_t hash_unpacking_grids(const hth_kernels *k) { return hash_unpacked(k, ROWS_N_FULL, ROWS_N_TYPE); }

static uint64_t hash_codecs(const hth_kernels *k)
{
    enum { N_COL = 1024 };
    uint8_t row[4 * N_COL];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        proof_one_nan(in_a, N);
        for (int t = 0; t < ROWS_N_TYPE; t++) {
            hth_type type = rows_types[t];
            if (!k->pack[type] || type == HTH_TYPE_IQ4_XS || type == HTH_TYPE_IQ3_S) continue; /* not written, or below */
            k->pack[rows_types[t]](in_a, N_COL, row);
            h = hth_hash_more(h, row, rows_bytes(rows_types[t], N_COL));
            k->unpack[rows_types[t]](row, N_COL, out);
            h = hash_floats(h, out, N_COL);
        }
    }
    return h;
}

/* Rounding by importance, and of a type `alike` whose rounding is a search in either case. */
static uint64_t hash_packing(const hth_kernels *k, const hth_type *types, size_t n_type, hth_type alike)
{
    enum { N_COL = 1024 };
    uint8_t row[4 * N_COL];
    float importance[N_COL];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        for (int c = 0; c < N_COL; c++) /* others are refused before they are packed */
            in_a[c] = in_a[c] >= -65504.0f && in_a[c] <= 65504.0f ? in_a[c] : 1.0f;
        for (int c = 0; c < N_COL; c++) importance[c] = 1.0f / (float)(1 + test_random_below(&r, 1000));
        for (size_t t = 0; t < n_type; t++) {
            k->pack_by[types[t]](in_a, importance, N_COL, row);
            h = hth_hash_more(h, row, rows_bytes(types[t], N_COL));
        }
        k->pack[alike](in_a, N_COL, row);
        h = hth_hash_more(h, row, rows_bytes(alike, N_COL));
    }
    return h;
}

static uint64_t hash_packing_by_importance(const hth_kernels *k)
{
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q4_1, HTH_TYPE_Q5_0, HTH_TYPE_Q5_1,   HTH_TYPE_Q2_K,  HTH_TYPE_Q3_K,
                                     HTH_TYPE_Q4_K, HTH_TYPE_Q5_K, HTH_TYPE_Q6_K, HTH_TYPE_IQ4_NL, HTH_TYPE_IQ4_XS};
    return hash_packing(k, types, sizeof types / sizeof *types, HTH_TYPE_IQ4_XS);
}

static uint64_t hash_packing_of_grids(const hth_kernels *k)
{
    static const hth_type types[] = {HTH_TYPE_IQ2_XXS, HTH_TYPE_IQ2_XS, HTH_TYPE_IQ2_S, HTH_TYPE_IQ3_XXS,
                                     HTH_TYPE_IQ3_S,   HTH_TYPE_IQ1_S,  HTH_TYPE_IQ1_M};
    return hash_packing(k, types, sizeof types / sizeof *types, HTH_TYPE_IQ3_S);
}

enum { ATTEND_POSITIONS = 300, ATTEND_HEAD = 68 };
static float float_k[ATTEND_POSITIONS * ATTEND_HEAD], float_v[ATTEND_POSITIONS * ATTEND_HEAD];
static float wide_k[ATTEND_POSITIONS * ATTEND_HEAD], wide_v[ATTEND_POSITIONS * ATTEND_HEAD];

static void fill_halves(test_random *r, int kind, float *x, size_t n)
{
    static uint16_t halves[ATTEND_POSITIONS * ATTEND_HEAD];
    proof_fill_f16(r, (proof_kind)kind, halves, n);
    for (size_t i = 0; i < n; i++) x[i] = hth_f16_to_f32(halves[i]);
}

static uint64_t hash_attention(const hth_kernels *k)
{
    enum { N_VALUE = ATTEND_POSITIONS * ATTEND_HEAD };
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, PROOF_PLAIN);
        fill_halves(&r, kind, wide_k, N_VALUE);
        fill_halves(&r, kind, wide_v, N_VALUE);
        proof_fill_f32(&r, (proof_kind)kind, float_k, N_VALUE);
        proof_fill_f32(&r, (proof_kind)kind, float_v, N_VALUE);
        attend_alone a = {.type = HEARTH_KV_F16, .d_head = ATTEND_HEAD, .n_pos = ATTEND_POSITIONS};
        a.q = in_a, a.keys = wide_k, a.values = wide_v, a.scale = 0.125f;
        attend_one(k, &a, out);
        h = hash_floats(h, out, ATTEND_HEAD);
        a.type = HEARTH_KV_F32, a.keys = float_k, a.values = float_v;
        attend_one(k, &a, out);
        h = hash_floats(h, out, ATTEND_HEAD);
    }
    return h;
}

/* Rounded caches: every kind of numbers, at the widths that have whole blocks. */
static uint64_t hash_rounded_attention(const hth_kernels *k)
{
    enum { N_VALUE = 280 * 64 };
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++)
        for (size_t d = 32; d <= 64; d += 32) {
            fill(&r, PROOF_PLAIN);
            proof_fill_f32(&r, (proof_kind)kind, float_k, N_VALUE);
            proof_fill_f32(&r, (proof_kind)kind, float_v, N_VALUE);
            attend_alone a = {.type = HEARTH_KV_Q8_0, .d_head = d, .first = 3, .n_pos = 280};
            a.q = in_a, a.keys = float_k, a.values = float_v, a.scale = 0.125f;
            attend_one(k, &a, out);
            h = hash_floats(h, out, d);
        }
    return h;
}

static uint64_t hash_windows_and_caps(const hth_kernels *k)
{
    enum { POSITIONS = 600, HEAD = 20 };
    static float keys[POSITIONS * HEAD], values[POSITIONS * HEAD];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        fill(&r, kind);
        k->scale(in_a, 3.3f, N, out);
        h = hash_floats(h, out, N);
        k->soft_cap(in_a, 30.0f, 1.0f / 30.0f, N, out);
        h = hash_floats(h, out, N);
        fill(&r, PROOF_PLAIN);
        proof_fill_f32(&r, (proof_kind)kind, keys, POSITIONS * HEAD);
        proof_fill_f32(&r, (proof_kind)kind, values, POSITIONS * HEAD);
        attend_alone a = {.type = HEARTH_KV_F32, .d_head = HEAD, .first = 77, .n_pos = POSITIONS};
        a.q = in_a, a.keys = keys, a.values = values, a.scale = 0.125f, a.cap = 50.0f;
        attend_one(k, &a, out);
        h = hash_floats(h, out, HEAD);
    }
    return h;
}

/* Scores that fall with the distance, and sinks, over three splits. */
static uint64_t hash_slopes_and_sinks(const hth_kernels *k)
{
    enum { POSITIONS = 560, HEAD = 32 };
    static float keys[POSITIONS * HEAD], values[POSITIONS * HEAD];
    test_random r = {SEED};
    uint64_t h = 0;
    for (int kind = 0; kind < PROOF_N_KIND; kind++)
        for (int type = 0; type < HTH_N_KV_TYPE; type++) {
            fill(&r, PROOF_PLAIN);
            proof_fill_f32(&r, (proof_kind)kind, keys, POSITIONS * HEAD);
            proof_fill_f32(&r, (proof_kind)kind, values, POSITIONS * HEAD);
            attend_alone a = {.type = (hearth_kv_type)type, .d_head = HEAD, .first = 33, .n_pos = POSITIONS};
            a.q = in_a, a.keys = keys, a.values = values, a.scale = 0.125f;
            a.slope = &(float){0x1.6a09e6p-9f}, a.sink = NULL;
            attend_one(k, &a, out);
            h = hash_floats(h, out, HEAD);
            a.slope = NULL, a.sink = &(float){0.7f};
            attend_one(k, &a, out);
            h = hash_floats(h, out, HEAD);
        }
    return h;
}

TEST(slopes_and_sinks_are_the_same_everywhere) { check_levels(hash_slopes_and_sinks, 0xab8720addfaae76du); }
TEST(state_spaces_are_the_same_everywhere) { check_levels(hash_ssm, 0x19b4386b24b03447u); }
TEST(functions_of_experts_are_the_same_everywhere) { check_levels(hash_expert_functions, 0xfdbfa39c217f736au); }
TEST(functions_of_recurrent_mixers_are_the_same_everywhere)
{
    check_levels(hash_recurrent_functions, 0x830b23c136eb0afcu);
}
TEST(windows_and_caps_are_the_same_everywhere) { check_levels(hash_windows_and_caps, 0xf1d3317c18bbf1a9u); }
TEST(norms_are_the_same_everywhere) { check_levels(hash_norms, 0x0a3187ac15827f35u); }
TEST(elementwise_kernels_are_the_same_everywhere) { check_levels(hash_elements, 0xd4ec56880667b167u); }
TEST(functions_and_activations_are_the_same_everywhere) { check_levels(hash_functions, 0x5c4d30f59ddfc943u); }
TEST(rounded_activations_are_the_same_everywhere) { check_levels(hash_rounding, 0xfdaa993db7a33a63u); }
TEST(activations_rounded_per_256_are_the_same_everywhere) { check_levels(hash_rounding_256, 0xb3e3348b71aa34ceu); }
TEST(unpacked_weights_of_every_type_are_the_same_everywhere) { check_levels(hash_unpacking, 0xc0e8e2f2f8c6a646u); }
TEST(unpacked_weights_of_the_later_types_are_the_same_everywhere) { check_levels(hash_unpacking_grids, 0x466a9f9589a39ce9u); }
TEST(packed_and_unpacked_weights_are_the_same_everywhere) { check_levels(hash_codecs, 0xf51956539c2e69f8u); }
TEST(weights_packed_by_importance_are_the_same_everywhere) { check_levels(hash_packing_by_importance, 0xe8592b3a2b56eb37u); }
TEST(packing_of_grids_is_the_same_everywhere) { check_levels(hash_packing_of_grids, 0x6f66ecb88ea3df79u); }
TEST(attention_is_the_same_everywhere) { check_levels(hash_attention, 0xf53610e01840a374u); }
TEST(attention_over_rounded_caches_is_the_same_everywhere)
{
    check_levels(hash_rounded_attention, 0xb5ef51111f57cb30u);
}

/* ---- double precision --------------------------------------------------------------------- */

static uint64_t hash_doubles(const hth_kernels *k)
{
    (void)k; /* of no level */
    test_random r = {SEED};
    uint64_t h = 0;
    for (int i = 0; i < 5000; i++) {
        double x = (double)test_random_float(&r) * 700, size = x < 0 ? -x : x;
        double values[6] = {hth_exp_d(x), hth_log_d(size), hth_pow_d(size, 0.75), 0, 0, hth_sqrt_d(size)};
        hth_sincos_d(x * 1000, &values[3], &values[4]);
        h = hth_hash_more(h, values, sizeof values);
    }
    return h;
}

TEST(double_functions_are_the_same_everywhere) { check_levels(hash_doubles, 0xf178346525501003u); }
