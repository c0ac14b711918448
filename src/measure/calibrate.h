/* What a device and this CPU do with neurons of one type, measured in some seconds: what a plan is
 * computed from (docs/plan.md). Wall-clock time; on devices that compute on the CPU the figures say
 * nothing of a card. */
#ifndef HTH_MEASURE_CALIBRATE_H
#define HTH_MEASURE_CALIBRATE_H

#include "base/pool.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "run/gpu/gpu.h"

typedef struct hth_calibration {
    hth_type type;
    double device_rate; /* bytes a second of rows_q or rows_f, one token */
    double cpu_rate;    /* of rows by all threads, */
    double
        cpu_down[HTH_PLAN_N_KNOT]; /* and of neuron-major rows of which the knots' shares fire, at random */
    double hand[2],
        hand_99[2];  /* seconds from the host's signal to the device's answer, by hth_gpu_handoff: the
                                   median, and the 99th of 100 */
    double dispatch; /* seconds: a program with nothing to do, and the order behind it */
    double up, down; /* bytes a second to the device and back */
} hth_calibration;

/* Takes a sixteenth of the device's free memory at most, for a few seconds. MEMORY, DEVICE. */
hearth_status hth_calibrate(hth_device *device, const hth_kernels *kernels, hth_pool *pool, hth_type type,
                            hth_calibration *out, hearth_error *err);
/* The quicker handoff. */
hth_gpu_handoff hth_calibration_handoff(const hth_calibration *c);

/* What of a cluster's bytes either side reads for a token of which that share of its neurons fires: what
 * plans call a share. Where no predictor foretells it, the gate is read whole. */
double hth_calibration_share(hearth_selector selector, double fires);
/* What a plan knows of the machine. The device reads live rows as fast as whole matrices. */
void hth_calibration_machine(const hth_calibration *c, hearth_selector selector, hth_plan_machine *out);

#endif
