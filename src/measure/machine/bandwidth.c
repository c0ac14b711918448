/* Memory bandwidth, measured by loads only. bench calls it before each sample, with as many threads as the
 * sample uses; bench --limits and doctor call it too. */
#include "measure/machine/limits.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>

/* Each line is loaded once: memory transfers the whole line with its first byte. A loop that loads every byte
 * was slower than the row kernels. */
enum { UNIT_SIZE = 1 << 20, LINE_SIZE = 64, PREFETCH_SIZE = 4096, N_STREAM = 4 };

const char *hth_bandwidth_name(hth_bandwidth_loop loop)
{
    static const char *const names[] = {"plain", "four streams", "prefetch"};
    return names[loop];
}

hearth_status hth_bandwidth_open(hth_bandwidth_probe *probe, size_t size, hearth_error *err)
{
    size = size < UNIT_SIZE ? UNIT_SIZE : size / UNIT_SIZE * UNIT_SIZE;
    *probe = (hth_bandwidth_probe){.memory = hth_pages_alloc(size), .size = size};
    if (!probe->memory) return hth_fail_memory(err, size, "a bandwidth probe");
    memset(probe->memory, 1, size);
    return HEARTH_OK;
}

void hth_bandwidth_close(hth_bandwidth_probe *probe)
{
    hth_pages_free(probe->memory, probe->size);
    probe->memory = NULL;
}

/* ---- loops ------------------------------------------------------------------------------ */

static inline uint64_t word_at(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static uint64_t read_plain(const uint8_t *p)
{
    uint64_t a = 0, b = 0;
    for (size_t at = 0; at < UNIT_SIZE; at += 2 * LINE_SIZE) {
        a ^= word_at(p + at);
        b ^= word_at(p + at + LINE_SIZE);
    }
    return a ^ b;
}

static uint64_t read_streams(const uint8_t *p)
{
    enum { STREAM_SIZE = UNIT_SIZE / N_STREAM };
    uint64_t sum[N_STREAM] = {0};
    for (size_t at = 0; at < STREAM_SIZE; at += LINE_SIZE)
        for (size_t s = 0; s < N_STREAM; s++) sum[s] ^= word_at(p + s * STREAM_SIZE + at);
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

/* The next unit follows the end of this one, and is needed too. */
static uint64_t read_prefetch(const uint8_t *p)
{
    uint64_t a = 0, b = 0;
    for (size_t at = 0; at < UNIT_SIZE; at += 2 * LINE_SIZE) {
        __builtin_prefetch(p + at + PREFETCH_SIZE);
        __builtin_prefetch(p + at + PREFETCH_SIZE + LINE_SIZE);
        a ^= word_at(p + at);
        b ^= word_at(p + at + LINE_SIZE);
    }
    return a ^ b;
}

/* ---- passes ----------------------------------------------------------------------------- */

typedef struct read_pass {
    const uint8_t *memory;
    uint64_t (*read)(const uint8_t *unit);
    _Atomic uint64_t sum;
} read_pass;

static void read_unit(void *arg, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    read_pass *pass = arg;
    atomic_fetch_add_explicit(&pass->sum, pass->read(pass->memory + i * UNIT_SIZE), memory_order_relaxed);
}

double hth_bandwidth_pass(hth_bandwidth_probe *probe, hth_bandwidth_loop loop, hth_pool *pool)
{
    static uint64_t (*const reads[])(const uint8_t *) = {read_plain, read_streams, read_prefetch};
    read_pass pass = {.memory = probe->memory, .read = reads[loop]};
    uint64_t start = hth_clock_ns();
    hth_pool_run(pool, read_unit, &pass, probe->size / UNIT_SIZE);
    double seconds = hth_clock_since(start);
    probe->sum += atomic_load(&pass.sum);
    return seconds > 0.0 ? (double)probe->size / seconds : 0.0;
}

double hth_bandwidth_measure(hth_bandwidth_probe *probe, hth_pool *pool)
{
    double best = 0.0;
    for (int loop = 0; loop < HTH_N_BANDWIDTH_LOOP; loop++) {
        double rate = hth_bandwidth_pass(probe, (hth_bandwidth_loop)loop, pool);
        if (rate > best) best = rate;
    }
    return best;
}
