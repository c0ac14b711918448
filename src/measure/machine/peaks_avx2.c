/* Peaks of AVX2: the fused multiply-add, and the three instructions that compute a byte product (bytes to
 * words, words to 32-bit sums, the addition). */
#include "measure/machine/peaks_x86.h"

PEAK_LOOP(fma_ymm, "ymm", TWELVE("vfmadd231ps %%ymm14, %%ymm15, %%ymm", "\n\t"))

#define BYTES(SUM)                                                                                           \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n\t"                                                               \
    "vpmaddwd %%ymm13, %%ymm12, %%ymm13\n\t"                                                                 \
    "vpaddd %%ymm13, %%ymm" SUM ", %%ymm" SUM "\n\t"
PEAK_LOOP(bytes_ymm, "ymm",
          BYTES("0") BYTES("1") BYTES("2") BYTES("3") BYTES("4") BYTES("5") BYTES("6") BYTES("7"))

const hth_peak hth_peaks_avx2[] = {
    {"vpmaddubsw, vpmaddwd, vpaddd ymm", HTH_PEAK_INT8, 24, 8 * 32, bytes_ymm},
    {"vfmadd231ps ymm", HTH_PEAK_F32, 12, 12 * 8, fma_ymm},
    {0},
};
