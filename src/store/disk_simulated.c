/* Simulated disks. A read ends when the disk has worked on its latency, when the bus has moved its bytes after those
 * of earlier reads, and not before the disk can start another one. Its bytes are read from the file when it starts.
 *
 * UFS 4.0: Xue et al. 2024 (PowerInfer-2), Table 1 and section 2.3.2: 4 KiB at random within 128 MB 1.08 GB/s, over
 * 512 MB 0.85 GB/s, over all of it 100,000 reads a second; 512 KiB 3.5 GB/s at random and 4 GB/s in order. The
 * others: data sheets' usual figures of a SATA SSD, PCIe 3 and 4 NVMe SSDs, an SD card of class A2. */
#define _GNU_SOURCE
#include "store/disk_simulated.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

static const hth_disk_model models[] = {
    {"ufs4", 100000, 3.57, 4.27, 2800, 10000, 128 * MIB, 32},
    {"sata", 90000, 0.55, 0.56, 10500, 11000, 1024 * MIB, 32},
    {"nvme3", 80000, 3.4, 3.5, 2000, 2900, 1024 * MIB, 64},
    {"nvme4", 60000, 6.8, 7.0, 1000, 1400, 1024 * MIB, 64},
    {"sd", 600000, 0.09, 0.095, 250000, 250000, 1024 * MIB, 1},
};

const hth_disk_model *hth_disk_model_find(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

const char *hth_disk_model_names(void) { return "ufs4, sata, nvme3, nvme4, sd"; }

/* ---- times ------------------------------------------------------------------------------------ */

uint64_t hth_disk_timing_end(hth_disk_timing *t, uint64_t now_ns, uint64_t at, uint64_t size)
{
    const hth_disk_model *m = t->model;
    uint64_t distance = at > t->last_end ? at - t->last_end : t->last_end - at;
    bool sequential = at == t->last_end;
    double rate = sequential ? m->sequential_bytes_per_ns : m->bytes_per_ns;
    uint64_t latency = m->latency_ns * 3 / 4 + hth_random_next(&t->seed) % (m->latency_ns / 2 + 1);
    uint64_t start = hth_max_u64(now_ns, hth_max_u64(t->next_start_ns, t->ends_ns[t->i_end]));
    t->next_start_ns = start + (sequential ? 0 : distance <= m->near_size ? m->gap_ns : m->far_gap_ns);
    t->bus_free_ns = hth_max_u64(t->bus_free_ns, start + latency) + (uint64_t)((double)size / rate);
    t->last_end = at + size;
    t->ends_ns[t->i_end] = t->bus_free_ns;
    t->i_end = (t->i_end + 1) % m->n_parallel;
    return t->bus_free_ns;
}

/* ---- the disk --------------------------------------------------------------------------------- */

enum { MAX_READ = 64 };

typedef struct simulated_read {
    hth_disk_result result; /* known when it starts */
    uint64_t end_ns;
} simulated_read;

typedef struct simulated_disk {
    hth_disk disk;
    char name[40];
    hth_disk_timing timing;
    bool virtual_clock;
    hth_disk_end_fn *ended; /* instead of reading; NULL: bytes are read */
    void *user;
    uint64_t now_ns;             /* time of the virtual clock */
    simulated_read reads[MAX_READ]; /* reads that run, in the order of their ends */
    uint32_t n_read;
    pthread_mutex_t lock; /* guards woken */
    pthread_cond_t changed;
    bool woken;
} simulated_disk;

static uint64_t now(hth_disk *disk)
{
    const simulated_disk *d = (const simulated_disk *)disk;
    return d->virtual_clock ? d->now_ns : hth_clock_ns();
}

static bool start_simulated(hth_disk *disk, const hth_disk_read *read)
{
    simulated_disk *d = (simulated_disk *)disk;
    if (d->n_read == MAX_READ) return false;
    uint64_t end_ns = hth_disk_timing_end(&d->timing, now(disk), read->at, read->size);
    ssize_t n = d->ended ? (ssize_t)read->size : pread(read->fd, read->to, read->size, (off_t)read->at);
    if (d->ended) d->ended(d->user, read, end_ns);
    d->reads[d->n_read++] = (simulated_read){{read->id, n < 0 ? -errno : n}, end_ns};
    return true;
}

static hth_disk_result end_first(simulated_disk *d)
{
    hth_disk_result result = d->reads[0].result;
    memmove(d->reads, d->reads + 1, --d->n_read * sizeof *d->reads);
    return result;
}

/* Until a time of the real clock, or wake. */
static void sleep_until(simulated_disk *d, uint64_t end_ns)
{
    pthread_mutex_lock(&d->lock);
    while (!d->woken && hth_cond_wait_until(&d->changed, &d->lock, end_ns)) {}
    d->woken = false;
    pthread_mutex_unlock(&d->lock);
}

static uint32_t wait_simulated(hth_disk *disk, uint64_t timeout_ns, hth_disk_result *results, uint32_t max)
{
    simulated_disk *d = (simulated_disk *)disk;
    uint64_t start_ns = now(disk), end_ns = timeout_ns < UINT64_MAX - start_ns ? start_ns + timeout_ns : UINT64_MAX;
    uint32_t n = 0;
    if (d->n_read > 0 && d->reads[0].end_ns < end_ns) end_ns = d->reads[0].end_ns;
    if (d->virtual_clock && end_ns != UINT64_MAX) d->now_ns = hth_max_u64(d->now_ns, end_ns);
    else sleep_until(d, end_ns);
    while (n < max && d->n_read > 0 && d->reads[0].end_ns <= now(disk)) results[n++] = end_first(d);
    return n;
}

static void wake(hth_disk *disk)
{
    simulated_disk *d = (simulated_disk *)disk;
    pthread_mutex_lock(&d->lock);
    d->woken = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static void close_simulated(hth_disk *disk)
{
    simulated_disk *d = (simulated_disk *)disk;
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    hth_free(d);
}

hearth_status hth_disk_open_simulated(const hth_disk_model *model, uint64_t seed, bool virtual_clock, hth_disk **out,
                                      hearth_error *err)
{
    static const hth_disk_ops ops = {start_simulated, wait_simulated, wake, now, close_simulated};
    *out = NULL;
    simulated_disk *d = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "a simulated disk");
    snprintf(d->name, sizeof d->name, "simulated %s", model->name);
    d->disk = (hth_disk){&ops, d->name, model};
    d->timing = (hth_disk_timing){.model = model, .seed = seed};
    d->virtual_clock = virtual_clock;
    pthread_mutex_init(&d->lock, NULL);
    hth_cond_init(&d->changed);
    *out = &d->disk;
    return HEARTH_OK;
}

hearth_status hth_disk_open_timer(const hth_disk_model *model, uint64_t seed, hth_disk_end_fn *ended, void *user,
                                  hth_disk **out, hearth_error *err)
{
    hearth_status st = hth_disk_open_simulated(model, seed, true, out, err);
    if (st != HEARTH_OK) return st;
    simulated_disk *d = (simulated_disk *)*out;
    d->ended = ended, d->user = user;
    return HEARTH_OK;
}

void hth_disk_timer_set(hth_disk *disk, uint64_t now_ns) { ((simulated_disk *)disk)->now_ns = now_ns; }

uint64_t hth_disk_timer_free(const hth_disk *disk) { return ((const simulated_disk *)disk)->timing.bus_free_ns; }
