/* Memory bandwidth by loads alone. Called by bench before each sample, with as
 * many threads as the sample uses. */
#include "measure/limits.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>

/* Lines are touched once each, with a prefetch as far ahead as the row kernels
 * have it: a loop that loads every byte was slower than the kernels themselves. */
enum { UNIT_SIZE = 1 << 20, LINE_SIZE = 64, PREFETCH_SIZE = 4096 };

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
    const uint8_t *p = pass->memory + i * UNIT_SIZE;
    uint64_t a = 0, b = 0;
    for (size_t at = 0; at < UNIT_SIZE; at += 2 * LINE_SIZE) {
        uint64_t x, y;
        __builtin_prefetch(p + at + PREFETCH_SIZE);
        __builtin_prefetch(p + at + PREFETCH_SIZE + LINE_SIZE);
        memcpy(&x, p + at, sizeof x);
        memcpy(&y, p + at + LINE_SIZE, sizeof y);
        a ^= x, b ^= y;
    }
    atomic_fetch_add_explicit(&pass->sum, a ^ b, memory_order_relaxed);
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
