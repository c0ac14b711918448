/* Block types: as near to the truth as llama.cpp's logits are, one answer everywhere. */
#include "support/models/golden.h"
#include "support/test.h"

/* peer: how far llama.cpp's logits of the same file are from the truth, rms of the differences over rms of the truth.
 * Measured on the files of tests/data/quant.py with llama.cpp v0.5.0 (September 2026; de3ff81), its CPU code for
 * AVX-512 VNNI, one thread, KV cache F32, no flash attention, all tokens in one batch. */
static void check_file(const char *name, double peer)
{
    CLEANUP(golden_close) golden g;
    if (golden_open_quant_file(&g, name)) {
        float *logits = golden_logits(&g, HEARTH_KV_F32);
        double ours = logits ? engine_rms_error(logits, g.truth, g.n_truth) : 1.0;
        printf("     %-14s %.4e, llama.cpp %.4e, ratio %.3f\n", name, ours, peer, ours / peer);
        if (!(ours <= 1.05 * peer)) test_fail(__FILE__, __LINE__, "%s: too far from the truth", name);
        if (logits) golden_same_sampled(&g, HEARTH_KV_F32, logits);
        free(logits);
        logits = golden_logits(&g, HEARTH_KV_F16);
        if (logits) golden_same_on_levels(&g, HEARTH_KV_F16, logits);
        free(logits);
    }
}

static void check_type(const char *type, double peer)
{
    char name[40];
    snprintf(name, sizeof name, "llama-%s", type);
    check_file(name, peer);
}

TEST(f16_weights_are_as_near_as_the_peer) { check_type("F16", 4.1227e-4); }
TEST(bf16_weights_are_as_near_as_the_peer) { check_type("BF16", 3.3156e-3); }
TEST(q8_0_weights_are_as_near_as_the_peer) { check_type("Q8_0", 1.3471e-2); }
TEST(q4_0_weights_are_as_near_as_the_peer) { check_type("Q4_0", 1.9268e-2); }
TEST(q4_1_weights_are_as_near_as_the_peer) { check_type("Q4_1", 1.4009e-2); }
TEST(q5_0_weights_are_as_near_as_the_peer) { check_type("Q5_0", 1.2718e-2); }
TEST(q5_1_weights_are_as_near_as_the_peer) { check_type("Q5_1", 1.3914e-2); }
TEST(q2_k_weights_are_as_near_as_the_peer) { check_type("Q2_K", 3.5449e-2); }
TEST(q3_k_weights_are_as_near_as_the_peer) { check_type("Q3_K", 3.0132e-2); }
TEST(q4_k_weights_are_as_near_as_the_peer) { check_type("Q4_K", 3.2203e-2); }
TEST(q5_k_weights_are_as_near_as_the_peer) { check_type("Q5_K", 3.0923e-2); }
TEST(q6_k_weights_are_as_near_as_the_peer) { check_type("Q6_K", 3.1246e-2); }
TEST(iq4_nl_weights_are_as_near_as_the_peer) { check_type("IQ4_NL", 1.3635e-2); }
TEST(iq4_xs_weights_are_as_near_as_the_peer) { check_type("IQ4_XS", 3.0917e-2); }
TEST(mxfp4_weights_are_as_near_as_the_peer) { check_type("MXFP4", 1.9309e-2); }
TEST(iq2_xxs_weights_are_as_near_as_the_peer) { check_type("IQ2_XXS", 3.5209e-2); }
TEST(iq2_xs_weights_are_as_near_as_the_peer) { check_type("IQ2_XS", 3.2322e-2); }
TEST(iq2_s_weights_are_as_near_as_the_peer) { check_type("IQ2_S", 3.3885e-2); }
TEST(iq3_xxs_weights_are_as_near_as_the_peer) { check_type("IQ3_XXS", 3.1988e-2); }
TEST(iq3_s_weights_are_as_near_as_the_peer) { check_type("IQ3_S", 3.1391e-2); }
TEST(iq1_s_weights_are_as_near_as_the_peer) { check_type("IQ1_S", 3.4083e-2); }
TEST(iq1_m_weights_are_as_near_as_the_peer) { check_type("IQ1_M", 3.2131e-2); }
TEST(tq1_0_weights_are_as_near_as_the_peer) { check_type("TQ1_0", 1.5736e-2); }
TEST(tq2_0_weights_are_as_near_as_the_peer) { check_type("TQ2_0", 1.5736e-2); }
TEST(nvfp4_weights_are_as_near_as_the_peer) { check_type("NVFP4", 1.8257e-2); }

/* Mixtures of experts, whose routers are decided by more than rounding changes (tests/data/arch.py): MXFP4 experts
 * among F32 matrices; the types of Q4_K_M, by llama.cpp one token at a time. */
TEST(mixtures_with_mxfp4_experts_are_as_near_as_the_peer)
{
    check_file("mixtral-MXFP4", 1.1103e-2);
    check_file("gpt-oss-MXFP4", 1.4526e-2);
}
/* llama.cpp does not read it: what 8-bit inputs cost the other Q4_0 file is the limit. */
TEST(experts_by_neuron_of_4_bits_are_near_the_truth) { check_file("smallthinker-downt-Q4_0", 1.9268e-2); }
TEST(a_mixture_of_experts_in_a_mixture_of_types_is_as_near_as_the_peer) { check_file("mixture-Q4_K_M", 3.2952e-2); }
