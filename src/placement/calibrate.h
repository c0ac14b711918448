/* Calibration: measures within seconds the rates of a device and this CPU for neurons of one type; plans are
 * computed from it (docs/plan.md). Wall-clock time; figures of devices that compute on the CPU say nothing about a
 * GPU. */
#ifndef HTH_PLACEMENT_CALIBRATE_H
#define HTH_PLACEMENT_CALIBRATE_H

#include "base/pool.h"
#include "base/sample_stats.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "planner/plan.h"
#include "forward/gpu/gpu.h"

typedef struct hth_calibration {
    hth_type type;
    uint64_t bytes; /* bytes of device weights that were read repeatedly; larger than caches */
    hth_sample_stats
        device_rate; /* bytes per second of mul_mat_vec_q or mul_mat_vec_f for one token, over some rounds */
    hth_sample_stats cpu_rate; /* bytes per second of rows, all threads */
    hth_sample_stats cpu_packed; /* the same in the layout of weights that stay in memory; zeros: not measured */
    double
        cpu_down[HTH_PLAN_N_KNOT]; /* the same for a transposed down with the knots' shares of rows active, at random */
    /* seconds from the host's signal to the device's answer, by hth_submit_mode: median, and 99th percentile */
    double sync_latency[2], sync_latency_99[2];
    double dispatch;           /* seconds: a small program, from an empty one, and the barrier after it */
    double h2d_rate, d2h_rate; /* bytes per second, host to device and back */
    double read_rate;          /* of the host's memory where it lies (hth_gpu_measure_reads); 0: the device cannot */
    /* Rates of prompts with quantised weights, else 0: bytes times tokens per second of rows on the device and on the
     * CPU; bytes of host rows per second that are packed into the device layout. */
    double device_prompt, cpu_prompt, pack_rate;
    double device_prompts[HTH_N_COOPMAT_LEVEL]; /* by level (hth_gpu_measure_prompts); device_prompt is the highest */
    /* Set only without a device: cpu_prompt for rows in the order of the file; multiply-adds per second of
     * attention. */
    double cpu_prompt_rows, cpu_attention;
    int64_t measured_at; /* seconds since 1970, 0: nothing was measured; set by the functions of calibration_cache.c */
    /* hth_calibration_cache_doubt: the speed that was measured, as a share of what a plan expected; how often that marked
     * this calibration or the ones before it; whether it is marked now, and measured again before a plan uses it. */
    double doubt_ratio;
    uint32_t n_doubt, is_doubted;
} hth_calibration;

/* Uses a sixteenth of the device's free memory, or about 30 MB, for a few seconds. MEMORY, DEVICE. */
hearth_status hth_calibrate(hth_device *device, const hth_kernels *kernels, hth_pool *pool, hth_type type,
                            hth_calibration *out, hearth_error *err);
/* Measures only cpu_rate, cpu_packed, cpu_down, without a device: about half a second, and HTH_CALIBRATION_SIZE, or
 * max_size if that is less: then the figures may be those of caches. MEMORY. */
#define HTH_CALIBRATION_SIZE ((uint64_t)256 << 20)
hearth_status hth_calibrate_cpu(const hth_kernels *kernels, hth_pool *pool, hth_type type, uint64_t max_size,
                                hth_calibration *out, hearth_error *err);
/* The value of `bytes` that a calibration would have now. */
uint64_t hth_calibration_bytes(const hth_device *device, hth_type type);
/* calibrate_prefill.c, called by hth_calibrate: measures device_prompt, cpu_prompt and pack_rate. */
hearth_status hth_calibrate_prompts(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                    hth_type type, hth_calibration *out, hearth_error *err);
/* The same for the CPU alone, of weights of any type: cpu_prompt and cpu_prompt_rows. MEMORY. */
hearth_status hth_calibrate_cpu_prompts(const hth_kernels *kernels, hth_pool *pool, hth_type type, hth_calibration *out,
                                        hearth_error *err);
/* Measures cpu_attention. MEMORY. */
hearth_status hth_calibrate_attention(const hth_kernels *kernels, hth_pool *pool, hth_calibration *out,
                                      hearth_error *err);
/* Bytes of the layers that are divided between a device and the CPU. */
typedef struct hth_stream_work {
    double hot, cold;            /* of neurons on the device, and on the CPU */
    double slots, missing, used; /* of experts in slots, and of all others; the share of both that a token uses */
} hth_stream_work;
/* The minimum batch sizes, up to `max` tokens, from which streaming the CPU's weights through the device is faster than
 * computing them on the CPU concurrently; and the CPU's share of neurons then. */
void hth_calibration_stream_thresholds(const hth_calibration *c, const hth_stream_work *w, uint32_t max,
                                       hth_placement_stream streams[HTH_PLACEMENT_STREAMS]);

/* Products of a weight and a byte per second on the device, for many tokens, by dot products: matrix units compute no
 * attention, whose work is counted in such products too. 0: unknown. */
double hth_calibration_products(const hth_calibration *c);

/* The mode with the lower latency. */
hth_submit_mode hth_calibration_submit_mode(const hth_calibration *c);

/* Fraction of a cluster's bytes that either side reads for a token when the fraction `fires` of its neurons is
 * active: the share of plans. Without a predictor, the gate is read whole (without a gate: up). */
double hth_calibration_share(hearth_selector selector, bool gated, double fires);
/* The machine description of a plan, a device and a host of unlimited capacity: from the medians, or from the slowest
 * and the fastest measurements. The device reads active rows as fast as whole matrices. */
enum { HTH_HOME_DEVICE = 0, HTH_HOME_HOST, HTH_N_HOME };
typedef enum hth_estimate { HTH_ESTIMATE_MEDIAN = 0, HTH_ESTIMATE_WORST, HTH_ESTIMATE_BEST } hth_estimate;
/* The figure of a rate that an estimate takes. */
double hth_estimate_rate(hth_sample_stats rate, hth_estimate estimate);
void hth_calibration_machine(const hth_calibration *c, hearth_selector selector, bool gated,
                             hth_estimate estimate, hth_plan_machine *out);

/* ---- disk cache (base/disk_cache.h) ----------------------------------------------------------------- */

/* A hash of everything that the figures depend on: machine, threads, CPU level, device, driver. */
uint64_t hth_calibration_fingerprint(const hth_device_info *info, const hth_kernels *kernels,
                                     uint32_t n_thread);
/* The same of this CPU alone. */
uint64_t hth_calibration_cpu_fingerprint(const hth_kernels *kernels, uint32_t n_thread);
/* Loads a cached calibration for this type, measured with at least `bytes` bytes of weights. */
bool hth_calibration_cache_load(uint64_t fingerprint, hth_type type, uint64_t bytes, hth_calibration *out);
/* Stores it with those of other types; replaces the one of its type. */
void hth_calibration_cache_store(uint64_t fingerprint, const hth_calibration *c);
/* hth_gpu_measure_prompts for weights of one type, as it was measured when the device was first opened. A cache without
 * a calibration has it, because models that fit whole need no plan. */
bool hth_calibration_cache_load_prompts(const hth_device_info *info, hth_type type, double rates[HTH_N_COOPMAT_LEVEL]);
void hth_calibration_cache_store_prompts(const hth_device_info *info, hth_type type,
                                         const double rates[HTH_N_COOPMAT_LEVEL]);
/* Marks the calibration of a type because a placement by it ran at `ratio` times the speed that was expected. False: the
 * ratio is within HTH_CALIBRATION_TOLERANCE of 1, the calibration is marked already or not cached, or measuring again
 * did not help before: it was marked twice, or once with a ratio on the same side of 1. */
#define HTH_CALIBRATION_TOLERANCE 0.25
bool hth_calibration_cache_doubt(uint64_t fingerprint, hth_type type, double ratio);
/* Removes the calibrations of all other types; n 0: of all. */
void hth_calibration_cache_evict_others(uint64_t fingerprint, const hth_type *types, size_t n);
/* The cached calibration, unless it is doubted, the device now has capacity for more weights or `again` is set; else
 * hth_calibrate, and stores the result. Simulated devices are never cached: their descriptions change. */
hearth_status hth_calibration_cache_get(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                        hth_type type, bool again, hth_calibration *out, hearth_error *err);

/* The same for this CPU alone (hth_calibrate_cpu, _cpu_prompts, _attention); what concerns a device is 0. With less
 * than HTH_CALIBRATION_SIZE the result is not stored. */
hearth_status hth_calibration_cache_get_cpu(const hth_kernels *kernels, hth_pool *pool, hth_type type,
                                            uint64_t max_size, hth_calibration *out, hearth_error *err);

#endif
