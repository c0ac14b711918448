/* What the files of this folder share: a described card, its clocks, and what things cost on it.
 *
 * A simulated device is the null device (functions of C compute; results are real) with the limits of a card
 * that a file describes, and with its time. The rates are what the file says; the rules are these:
 *   run      dispatch + bytes / bandwidth. Bytes are those that hth_cmdlist_hint_bytes names, or hth_cmdlist_hint_bytes_masked
 *            for the bits that are set when it begins; else those of its smallest binding, because vectors of
 *            a token count little and what a run binds beside them may be whole caches; none where its grid
 *            is empty. Runs of a tape follow each other.
 *   copy     to or from memory that the host sees: latency + bytes / rate of the link, one queue each way,
 *            beside the runs behind it until the next order or the end of the tape. Within the device:
 *            dispatch, and bytes read and written at its bandwidth.
 *   upload, download   of device memory: as a copy, behind what the device does now; the host waits for it
 *   submit   host time of a call, however many tapes it has. A signal costs none, and neither it nor a tick
 *            takes time to cross: copies bear the latency.
 *   host     what it computes itself is charged by who lets it compute (forward/gpu/sim_host_cost.c), at its rate
 *   wait     until the tick, and then the wake, if it was not reached yet. A look that finds it not reached
 *            costs what queue.c says.
 * Each cost is drawn once from [1 - jitter, 1 + jitter). */
#ifndef HTH_DEVICE_SIMULATED_INT_H
#define HTH_DEVICE_SIMULATED_INT_H

#include "device/device_int.h"

#include <pthread.h>

/* ---- a description (gpu_config.c) --------------------------------------------------------------------- */

enum { HTH_SIM_MAX_FAULTS = 64, HTH_SIM_MAX_BUDGETS = 16 };

/* From submission `step` on (from 1) no more than so many bytes. */
typedef struct hth_sim_budget {
    uint64_t step, bytes;
} hth_sim_budget;

typedef struct hth_sim_gpu {
    char name[64];
    uint64_t vram_bytes, seed;
    double bandwidth, pcie_up, pcie_down; /* bytes a second; up: to the device */
    double host_bandwidth;                /* bytes of weights a second that the host reads; 0: nobody says */
    double flops;                         /* a second; no cost goes by them, but how tapes are cut */
    double pcie_latency_ns, dispatch_ns, submit_ns, wake_ns;
    double jitter;   /* a share, below 1 */
    bool wall_clock; /* the clock */
    hth_sim_budget budgets[HTH_SIM_MAX_BUDGETS];
    size_t n_budget;
    hth_fault faults[HTH_SIM_MAX_FAULTS];
    size_t n_fault;
} hth_sim_gpu;

/* IO: it cannot be read. FORMAT: file, line and what is wrong there. */
hearth_status hth_sim_describe(const char *path, hth_sim_gpu *gpu, hearth_error *err);
/* The same of n bytes of text; path serves in messages. */
hearth_status hth_sim_describe_text(const char *path, const char *text, size_t n, hth_sim_gpu *gpu,
                                    hearth_error *err);

/* ---- a device ------------------------------------------------------------------------------------------ */

typedef struct hth_sim_submit {
    hth_cmdlist *cmdlist;
    uint64_t wait, ready_ns, end_ns; /* when it could run; when it is over */
} hth_sim_submit;

/* With a virtual clock everything happens in the caller's thread. With a real one a thread (wall_clock.c) runs
 * tapes and holds back their ticks; lock then guards the turns, the gate and, while no tape runs, all times
 * but host_random. */
typedef struct hth_sim {
    hth_sim_gpu gpu;
    hth_device ref;                                  /* nobody but this device knows it */
    hth_sim_submit submits[HTH_QUEUE_MAX_IN_FLIGHT]; /* a ring, by tick */
    hth_fence submitted, computed, completed;
    uint64_t host_value, n_submit;
    uint64_t host_ns;                    /* the host's virtual clock */
    uint64_t device_ns, up_ns, down_ns;  /* until then the device, the links are busy */
    uint64_t host_random, device_random; /* apart, so that threads do not change each other's costs */
    uint64_t opened_ns;                  /* of the monotonic clock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, ending;
} hth_sim;

/* ---- costs (cost.c); all times in ns since opening ---------------------------------------------- */

/* ns with its jitter. */
uint64_t hth_sim_cost(const hth_sim *sim, uint64_t *random, double ns);
/* When a transfer of the link that is busy until *link_ns is over, if it can begin at start. */
uint64_t hth_sim_transfer(const hth_sim *sim, uint64_t *random, uint64_t *link_ns, double rate,
                          uint64_t bytes, uint64_t start);
/* Runs a tape that begins at start; when it is over. */
uint64_t hth_sim_execute(hth_sim *sim, const hth_cmdlist *cmdlist, uint64_t start);

/* ---- turns (submit_ring.c) ---------------------------------------------------------------------------- */

/* n turns that end at ticks first and on, submitted now. */
hearth_status hth_sim_enqueue(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                              uint64_t now, hearth_error *err);
/* The gate reaches value now. */
void hth_sim_signal(hth_sim *sim, uint64_t value, uint64_t now);
/* The next turn, if the gate lets it run; or NULL. */
hth_sim_submit *hth_sim_next(hth_sim *sim);
hearth_status hth_sim_not_done(const hth_device *d, hth_fence fence, bool *late, hearth_error *err);

/* ---- the real clock (wall_clock.c) -------------------------------------------------------------------- */

uint64_t hth_sim_now(const hth_sim *sim);
hearth_status hth_sim_start(hth_sim *sim, hearth_error *err);
/* Ends the thread behind the tape that it runs; what waits is dropped. */
void hth_sim_quiesce(hth_sim *sim);
/* The same, and waits for it; what is given back may still look at the ticks. */
void hth_sim_stop(hth_sim *sim);
void hth_sim_finish(hth_sim *sim);
/* Until that time: asleep, then awake for the last of it. */
void hth_sim_sleep_until(const hth_sim *sim, uint64_t until_ns);
/* Takes the lock once no tape runs or could. */
void hth_sim_lock_when_idle(hth_sim *sim);
hearth_status hth_sim_wait_wall(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late,
                                hearth_error *err);

#endif
