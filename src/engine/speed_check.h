/* Compares the speed of a run with what the plan of its placement expected, and doubts calibrations that were off
 * (docs/plan.md). Steps of one token count, behind any context, if no other step of the model ran beside them. */
#ifndef HTH_ENGINE_SPEED_CHECK_H
#define HTH_ENGINE_SPEED_CHECK_H

#include "placement/policy.h"

enum { HTH_SPEED_WINDOW = 32 }; /* steps of which the median counts: a few may be late for any reason */

/* Steps of one batch, which one thread runs. */
typedef struct hth_speed_window {
    double ratios[HTH_SPEED_WINDOW]; /* expected seconds / measured ones */
    uint32_t n;
} hth_speed_window;

/* What a model compares. All zeros if no plan by calibrations expects anything: then nothing is compared. */
typedef struct hth_speed_check {
    double seconds[3];   /* expected of a token behind none, half and all of n_position */
    uint32_t n_position;
    uint32_t n_thread;   /* with which the CPU was calibrated */
    hth_type type;
    uint32_t n_device;
    struct {
        char name[256];
        uint64_t fingerprint;
    } devices[HEARTH_MAX_GPU];
    uint32_t n_begun, n_running; /* steps; changed atomically */
    double ratio; /* of the window that was nearest to what was expected, atomically; 0: there was none */
} hth_speed_check;

/* Takes what was planned for these devices, unless that predicts another machine: a file's plan, or a simulated device. */
void hth_speed_check_expect(hth_speed_check *c, const hth_placement_builder *placed, const hth_kernels *kernels,
                            uint32_t n_thread);
/* Seconds that are expected of a token behind `context` positions. */
double hth_speed_check_expected(const hth_speed_check *c, uint32_t context);
/* Adds a step that took so long. */
void hth_speed_check_add(hth_speed_check *c, hth_speed_window *w, uint32_t context, double seconds);
/* When the model is closed: if no window was within HTH_CALIBRATION_TOLERANCE, marks the calibrations, so that the next
 * plan measures again, and logs a line for each that is marked. */
void hth_speed_check_report(const hth_speed_check *c);

/* Around each step; window NULL: the step is not one that the plan is for. */
typedef struct hth_speed_step {
    uint64_t start_ns;
    uint32_t i_step;
    bool alone;
} hth_speed_step;
hth_speed_step hth_speed_begin(hth_speed_check *c);
void hth_speed_end(hth_speed_check *c, const hth_speed_step *step, hth_speed_window *w, uint32_t context);

#endif
