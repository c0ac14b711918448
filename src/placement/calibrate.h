/* What a device and this CPU do with neurons of one type, measured in some seconds: what a plan is
 * computed from (docs/plan.md). Wall-clock time; on devices that compute on the CPU the figures say
 * nothing of a card. */
#ifndef HTH_PLACE_CALIBRATE_H
#define HTH_PLACE_CALIBRATE_H

#include "base/pool.h"
#include "base/sample_stats.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "planner/plan.h"
#include "forward/gpu/gpu.h"

typedef struct hth_calibration {
    hth_type type;
    uint64_t bytes; /* of weights there that were read again and again; caches hold few */
    hth_sample_stats
        device_rate; /* bytes a second of mul_mat_vec_q or mul_mat_vec_f, one token, over some rounds */
    hth_sample_stats cpu_rate; /* of rows by all threads, */
    double
        cpu_down[HTH_PLAN_N_KNOT]; /* and of neuron-major rows of which the knots' shares fire, at random */
    double sync_latency[2], sync_latency_99[2]; /* seconds from the host's signal to the device's answer, by
                                   hth_submit_mode: the median, and the 99th of 100 */
    double dispatch;           /* seconds: a program with nothing to do, and the order behind it */
    double h2d_rate, d2h_rate; /* bytes a second to the device and back */
    /* Of prompts, quantised weights; else 0: bytes times tokens a second of rows there and here; bytes of
     * rows here a second that become planes. */
    double device_prompt, cpu_prompt, pack_rate;
} hth_calibration;

/* Takes a sixteenth of the device's free memory, or some 30 MB, for a few seconds. MEMORY, DEVICE. */
hearth_status hth_calibrate(hth_device *device, const hth_kernels *kernels, hth_pool *pool, hth_type type,
                            hth_calibration *out, hearth_error *err);
/* Of it cpu_rate and cpu_down alone, which need no device: some half a second, and 256 MiB. MEMORY. */
hearth_status hth_calibrate_cpu(const hth_kernels *kernels, hth_pool *pool, hth_type type,
                                hth_calibration *out, hearth_error *err);
/* What stands as `bytes` in it then. */
uint64_t hth_calibration_bytes(const hth_device *device, hth_type type);
/* calibrate_prefill.c, called by hth_calibrate: what stands last in it. */
hearth_status hth_calibrate_prompts(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                    hth_type type, hth_calibration *out, hearth_error *err);
/* Steps of up to `most` tokens for which it is quicker to let `cold` bytes of the host's weights pass through
 * a device that has `hot` bytes itself, than to compute them here at the same time; and what the host
 * computes of them then. */
void hth_calibration_stream_thresholds(const hth_calibration *c, double hot, double cold, uint32_t max,
                                       hth_placement_stream streams[HTH_PLACEMENT_STREAMS]);

/* Products of weights and bytes that the device makes in a second, for many tokens; 0: not known. */
double hth_calibration_products(const hth_calibration *c);

/* The quicker handoff. */
hth_submit_mode hth_calibration_submit_mode(const hth_calibration *c);

/* What of a cluster's bytes either side reads for a token of which that share of its neurons fires: what
 * plans call a share. Where no predictor predicts it, the gate is read whole; without a gate: up. */
double hth_calibration_share(hearth_selector selector, bool gated, double fires);
/* What a plan knows of the machine: by the medians, or by the slowest and the fastest of what was measured.
 * The device reads live rows as fast as whole matrices. */
typedef enum hth_estimate { HTH_ESTIMATE_MEDIAN = 0, HTH_ESTIMATE_WORST, HTH_ESTIMATE_BEST } hth_estimate;
void hth_calibration_machine(const hth_calibration *c, hearth_selector selector, bool gated,
                             hth_estimate estimate, hth_plan_machine *out);

/* ---- kept between runs (base/disk_cache.h) ---------------------------------------------------------- */

/* A hash of all that the figures of these two depend on: machine, threads, level, device, driver. */
uint64_t hth_calibration_fingerprint(const hth_device_info *info, const hth_kernels *kernels,
                                     uint32_t n_thread);
/* What was measured before for this type of weights, with so many bytes of them at least, and is kept. */
bool hth_calibration_cache_load(uint64_t mark, hth_type type, uint64_t bytes, hth_calibration *out);
/* Keeps it beside those of other types, in place of what was measured of this one. */
void hth_calibration_cache_store(uint64_t mark, const hth_calibration *c);
/* What was measured of types that are not among these is kept no more. */
void hth_calibration_cache_evict_others(uint64_t mark, const hth_type *types, size_t n);
/* What is kept, unless the device now has room for more weights, or it is to be measured again; else
 * hth_calibrate, and its figures kept. Those of simulated devices never are: their descriptions change. */
hearth_status hth_calibration_cache_get(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                        hth_type type, bool again, hth_calibration *out, hearth_error *err);

#endif
