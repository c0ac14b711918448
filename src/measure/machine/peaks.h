/* Loops of one instruction on registers only: what a core computes without loads. One file per CPU level, as
 * for kernels. They measure the instructions that the kernels of the level use. */
#ifndef HTH_MEASURE_PEAKS_H
#define HTH_MEASURE_PEAKS_H

#include "base/system/cpu.h"
#include "base/pool.h"

/* Type of the factors; sums have 32 bits. */
typedef enum hth_peak_kind { HTH_PEAK_INT8, HTH_PEAK_F32, HTH_PEAK_BF16, HTH_N_PEAK_KIND } hth_peak_kind;

/* One round runs n_instruction instructions, which compute n_product multiply-adds. */
typedef struct hth_peak {
    const char *name; /* in assembler notation: "vpdpbusd zmm" */
    hth_peak_kind kind;
    uint32_t n_instruction, n_product;
    void (*run)(uint64_t n_round);
} hth_peak;

/* A NULL name ends each list. The bf16 loops are last, because a level may lack them. */
extern const hth_peak hth_peaks_ref[], hth_peaks_avx2[], hth_peaks_avx512[], hth_peaks_neon[],
    hth_peaks_dotprod[], hth_peaks_i8mm[];

enum { HTH_PEAK_MAX = 12 };

/* "int8", "fp32", "bf16" */
const char *hth_peak_kind_name(hth_peak_kind kind);

/* The loops that this machine can run at a level, highest level first. Returns their number. */
size_t hth_peaks(hth_cpu level, hth_peak out[HTH_PEAK_MAX]);

/* Number of rounds that take one thread about 1 ms, at least 1000. */
uint64_t hth_peak_rounds(const hth_peak *peak);
/* Rounds per second of all threads of the pool together, over some milliseconds. */
double hth_peak_measure(const hth_peak *peak, uint64_t n_round, hth_pool *pool);

/* The fastest loop of each kind on this pool: multiply-adds per second; 0: the level has none. Run the probe
 * before a sample. It is kept open so that it counts rounds once. */
typedef struct hth_peak_probe {
    hth_peak peaks[HTH_PEAK_MAX];
    uint64_t n_round[HTH_PEAK_MAX];
    size_t n;
} hth_peak_probe;
void hth_peak_probe_open(hth_peak_probe *probe, hth_cpu level);
void hth_peak_probe_measure(const hth_peak_probe *probe, hth_pool *pool, double rate[HTH_N_PEAK_KIND]);

#endif
