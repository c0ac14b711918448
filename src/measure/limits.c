/* Memory bandwidth by loads alone. Called by bench before each sample, with as
 * many threads as the sample uses. */
#include "measure/limits.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>

enum { UNIT_SIZE = 1 << 20 };

typedef uint64_t words __attribute__((vector_size(64)));

hearth_status hth_bandwidth_open(hth_bandwidth_probe *probe, size_t size, hearth_error *err)
{
    *probe = (hth_bandwidth_probe){.memory = hth_pages_alloc(size), .size = size};
    if (!probe->memory) return hth_fail_memory(err, size, "a bandwidth probe");
    memset(probe->memory, 1, size);
    return HEARTH_OK;
}

void hth_bandwidth_close(hth_bandwidth_probe *probe) { hth_pages_free(probe->memory, probe->size); }

typedef struct read_pass {
    const uint8_t *memory;
    _Atomic uint64_t sum;
} read_pass;

static void read_unit(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    read_pass *pass = arg;
    const words *p = (const words *)(const void *)(pass->memory + i * UNIT_SIZE);
    words a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t k = 0; k < UNIT_SIZE / sizeof *p; k += 4) {
        a ^= p[k];
        b ^= p[k + 1];
        c ^= p[k + 2];
        d ^= p[k + 3];
    }
    a = (a ^ b) ^ (c ^ d);
    atomic_fetch_add_explicit(&pass->sum, a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7], memory_order_relaxed);
}

double hth_bandwidth_measure(hth_bandwidth_probe *probe, hth_pool *pool)
{
    read_pass pass = {.memory = probe->memory};
    size_t n_unit = probe->size / UNIT_SIZE;
    uint64_t start = hth_clock_ns();
    hth_pool_run(pool, read_unit, &pass, n_unit);
    double seconds = (double)(hth_clock_ns() - start) * 1e-9;
    probe->sum += atomic_load(&pass.sum);
    return (double)(n_unit * UNIT_SIZE) / seconds;
}
