/* What plans take from a calibration: shares of bytes that are read, and rates at which. */
#include "placement/calibrate.h"
#include "placement/plan_model.h"
#include "support/test.h"

static bool is_near(double a, double b) { return a >= b * (1.0 - 1e-12) && a <= b * (1.0 + 1e-12); }

static const hearth_selector marking[] = {HEARTH_SELECTOR_GATE, HEARTH_SELECTOR_PREDICTOR, HEARTH_SELECTOR_THRESHOLD};

/* Gate, up and down are a third each. */
TEST(the_gate_is_read_whole_without_a_predictor)
{
    CHECK(hth_calibration_share(HEARTH_SELECTOR_DENSE, true, 0.1) == 1.0);
    CHECK(hth_calibration_share(HEARTH_SELECTOR_PREDICTOR, true, 0.1) == 0.1);
    for (int i = 0; i < 3; i += 2) {
        CHECK(is_near(hth_calibration_share(marking[i], true, 0.0), 1.0 / 3.0));
        CHECK(is_near(hth_calibration_share(marking[i], true, 0.5), 2.0 / 3.0));
        CHECK(is_near(hth_calibration_share(marking[i], true, 1.0), 1.0));
        CHECK(is_near(hth_calibration_share(marking[i], false, 0.0), 0.5)); /* up, without a gate */
    }
}

/* The file has shares of 64 neurons; the last block and the last cluster are shorter. */
TEST(a_cluster_is_active_as_its_blocks_are)
{
    const float blocks[] = {0.5f, 0.25f, 0.125f, 0.125f, 1, 1, 0, 0, 0.5f, 0.25f};
    const hth_layer l = {.ffn = {.d_ff = 600, .act_freq = blocks}}, unknown = {.ffn = {.d_ff = 600}};
    CHECK(is_near(hth_plan_active_share(&l, 0, HEARTH_SELECTOR_GATE), 0.25));
    CHECK(is_near(hth_plan_active_share(&l, 1, HEARTH_SELECTOR_GATE), 0.5));
    CHECK(is_near(hth_plan_active_share(&l, 2, HEARTH_SELECTOR_GATE), (0.5 * 64 + 0.25 * 24) / 88));
    CHECK(hth_plan_active_share(&unknown, 2, HEARTH_SELECTOR_GATE) == hth_plan_assumed(HEARTH_SELECTOR_GATE));
}

/* Seconds of a cluster are its bytes by its share, by the rate at that share: of rows that are read alone. */
TEST(a_device_takes_its_time_for_rows_that_are_read)
{
    const hth_calibration c = {.device_rate = {100e9, 90e9, 110e9}, .cpu_rate = {50e9, 40e9, 60e9},
                               .cpu_down = {20e9, 30e9, 40e9, 50e9}};
    for (int s = 0; s < 3; s++)
        for (double fires = 0.0; fires <= 1.0; fires += 0.25) {
            hth_plan_machine m;
            double share = hth_calibration_share(marking[s], true, fires);
            double read = marking[s] == HEARTH_SELECTOR_PREDICTOR ? fires : (1.0 + 2.0 * fires) / 3.0;
            hth_calibration_machine(&c, marking[s], true, HTH_ESTIMATE_MEDIAN, &m);
            CHECK(is_near(3e9 * share / hth_plan_rate(&m.homes[HTH_HOME_DEVICE].rates, share), 3e9 * read / 100e9));
        }
}
