/* What the files of this folder share: the GPU description, its clocks, and its cost rules.
 *
 * A simulated device is the reference device (C functions compute; results are real) with the limits and the
 * timing of a GPU that a file describes. The file gives the rates; these are the rules:
 *   dispatch dispatch_us + bytes / bandwidth. Bytes: what hth_cmdlist_hint_bytes gives, or
 *            hth_cmdlist_hint_bytes_masked for the bits set when it begins; else the size of the smallest
 *            binding, because a token's vectors are small and the other bindings may be whole caches; none for
 *            an empty grid. Dispatches of a command list run one after the other. With hth_cmdlist_hint_link_bytes
 *            a transfer to the device begins with it, and it ends no earlier than that; then only given bytes count.
 *            A transfer is latency + bytes / pcie_up, one at a time of each queue; those of the host are the first
 *            queue's. One of the first queue that begins while the second transfers has half the rate, and does not
 *            delay that. An empty grid transfers nothing and has no latency.
 *   copy     to or from host-visible memory: latency + bytes / link rate; one queue per direction, concurrent
 *            with the following dispatches until the next barrier or the end of the command list. Within the
 *            device: dispatch_us, and bytes read and written at its bandwidth.
 *   upload, download   of device memory: as a copy, after the device's current work; the host waits for it
 *   submit   host time per call, whatever the number of command lists. A signal costs nothing, and neither
 *            signals nor fences have latency: copies carry it.
 *   host     the caller charges the bytes that the host reads (hth_device_charge_host), at host_bandwidth H. While
 *            the second queue transfers, from now to the end of the transfers that it has started, the link takes
 *            L = pcie_up of the same memory, and the host has R = max(H - L, H / 4). With b the time to that end:
 *            T = bytes / R if that is at most b, else b + (bytes - b R) / H. If its products take longer than that at
 *            host_products, it is their time.
 *   wait     until the fence, then wake_us if the fence was not reached yet. A poll that finds it not reached
 *            costs what queue.c says.
 *   second queue  has a time of its own: its dispatches cost as the others and delay none of them. A command list begins behind those before it and behind the host's
 *            call; one of the first queue that waits for it, behind its end.
 * Each cost is multiplied by one random draw from [1 - jitter, 1 + jitter). */
#ifndef HTH_DEVICE_SIMULATED_SIMULATED_INT_H
#define HTH_DEVICE_SIMULATED_SIMULATED_INT_H

#include "device/device_int.h"

#include <pthread.h>

/* ---- GPU description (gpu_config.c) ------------------------------------------------------------------- */

enum { HTH_SIM_MAX_FAULTS = 64, HTH_SIM_MAX_BUDGETS = 16 };

/* From submission `step` on (from 1): the budget, bytes. */
typedef struct hth_sim_budget {
    uint64_t step, bytes;
} hth_sim_budget;

typedef struct hth_sim_gpu {
    char name[64];
    uint64_t vram_bytes, seed;
    double bandwidth, pcie_up, pcie_down; /* bytes per second; up: host to device */
    double host_bandwidth;                /* weight bytes per second that the host reads; 0: not given */
    double host_products;                 /* of a weight and a value, per second; 0: they cost nothing */
    uint64_t max_binding_bytes;           /* 0: not given */
    uint64_t pinned_bytes;                /* of the host, that may be imported in all; UINT64_MAX: any number */
    /* per second; affects no cost, only where command lists are split into segments */
    double flops;
    double pcie_latency_ns, dispatch_ns, submit_ns, wake_ns;
    double jitter;   /* fraction, below 1 */
    bool wall_clock; /* false: virtual clock */
    bool no_values;  /* keeps its clock and computes nothing but the lists of chosen experts, on which the clock depends */
    hth_sim_budget budgets[HTH_SIM_MAX_BUDGETS];
    size_t n_budget;
    hth_fault faults[HTH_SIM_MAX_FAULTS];
    size_t n_fault;
} hth_sim_gpu;

/* IO: cannot read the file. FORMAT: file, line and problem. */
hearth_status hth_sim_describe(const char *path, hth_sim_gpu *gpu, hearth_error *err);
/* The same for n bytes of text; path is for messages. */
hearth_status hth_sim_describe_text(const char *path, const char *text, size_t n, hth_sim_gpu *gpu,
                                    hearth_error *err);

/* ---- a device ------------------------------------------------------------------------------------------ */

typedef struct hth_sim_submit {
    hth_cmdlist *cmdlist;
    uint64_t wait, ready_ns, after_ns, end_ns; /* when the host let it start; when the second queue did; its end */
} hth_sim_submit;

/* The clock of a queue: when it has nothing left to do, and its random numbers. They differ from those of the host and
 * of the other queue, so that threads do not affect each other's costs. */
typedef struct hth_sim_clock {
    uint64_t busy_ns, random;
    _Atomic uint64_t up_ns; /* the end of its last transfer to the device; of the first queue: and of the host's */
} hth_sim_clock;

/* The second queue, which only the caller's thread uses (second_queue.c). */
typedef struct hth_sim_beside {
    uint64_t end_ns[HTH_QUEUE_MAX_IN_FLIGHT]; /* ring, indexed by fence */
    hth_fence submitted, completed;
} hth_sim_beside;

/* With a virtual clock everything runs in the caller's thread. With a wall clock a thread (wall_clock.c) runs
 * command lists of the first queue and delays their fences; lock then guards its submissions, the host semaphore and,
 * while no command list runs, its clock. */
typedef struct hth_sim {
    hth_sim_gpu gpu;
    hth_device ref;                                  /* private to this device */
    hth_sim_submit submits[HTH_QUEUE_MAX_IN_FLIGHT]; /* ring, indexed by fence */
    hth_fence submitted, computed, completed;
    uint64_t host_value, n_submit;
    uint64_t host_ns, host_random;       /* the host's virtual clock, and its random numbers */
    hth_sim_clock clocks[HTH_N_QUEUE];
    _Atomic uint64_t down_ns;            /* until when the link back is busy */
    hth_sim_beside beside;
    uint64_t imported;                   /* bytes of the host */
    uint64_t opened_ns;                  /* on the monotonic clock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, ending;
} hth_sim;

/* ---- costs (cost.c); all times in ns since opening ---------------------------------------------- */

/* ns, with jitter. */
uint64_t hth_sim_cost(const hth_sim *sim, uint64_t *random, double ns);
/* Completion time of a transfer to the device, of a queue or the host (then the first), that can begin at start. */
uint64_t hth_sim_transfer_up(hth_sim *sim, hth_queue_id queue, uint64_t *random, uint64_t bytes, uint64_t start);
/* Returns when a transfer ends that begins at start, on a link that is busy until *link_ns. */
uint64_t hth_sim_transfer(const hth_sim *sim, uint64_t *random, _Atomic uint64_t *link_ns, double rate,
                          uint64_t bytes, uint64_t start);
/* Runs a command list of a queue that begins at start; returns its completion time. */
uint64_t hth_sim_execute(hth_sim *sim, hth_queue_id queue, const hth_cmdlist *cmdlist, uint64_t start);

/* ---- submissions (submit_ring.c) ---------------------------------------------------------------------- */

/* Adds n submissions at time now; their fences are first to first + n - 1. */
hearth_status hth_sim_enqueue(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                              uint64_t now, hearth_error *err);
/* Sets the host semaphore to value at time now. */
void hth_sim_signal(hth_sim *sim, uint64_t value, uint64_t now);
/* The next submission if the host semaphore allows it to run; else NULL. */
hth_sim_submit *hth_sim_next(hth_sim *sim);
/* When it begins. */
uint64_t hth_sim_start_of(const hth_sim *sim, const hth_sim_submit *submit);
hearth_status hth_sim_not_done(const hth_device *d, hth_fence fence, bool *late, hearth_error *err);

/* ---- the second queue (second_queue.c) ---------------------------------------------------------------- */

/* hth_backend.submit_beside; completed_value and wait for this queue. */
hearth_status hth_sim_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err);
hth_fence hth_sim_beside_completed(hth_sim *sim);
hearth_status hth_sim_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late, hearth_error *err);
/* hth_backend.charge_host. */
void hth_sim_charge_host(hth_device *d, uint64_t bytes, double products);
/* When a fence is reached that was submitted; 0: it was seen already. */
uint64_t hth_sim_beside_end(const hth_sim *sim, hth_fence fence);

/* ---- the host's time (simulated.c) -------------------------------------------------------------------- */

uint64_t hth_sim_time(const hth_sim *sim);
/* The host blocks until then. */
void hth_sim_advance_host(hth_sim *sim, uint64_t until_ns);

/* ---- wall clock (wall_clock.c) ------------------------------------------------------------------------ */

uint64_t hth_sim_now(const hth_sim *sim);
hearth_status hth_sim_start(hth_sim *sim, hearth_error *err);
/* Ends the thread after its current command list; drops waiting ones. */
void hth_sim_quiesce(hth_sim *sim);
/* The same, and joins the thread; objects freed afterwards may still query fences. */
void hth_sim_stop(hth_sim *sim);
void hth_sim_finish(hth_sim *sim);
/* Sleeps, then spins for the last part. */
void hth_sim_sleep_until(const hth_sim *sim, uint64_t until_ns);
/* Takes the lock once no command list is running or ready. */
void hth_sim_lock_when_idle(hth_sim *sim);
hearth_status hth_sim_wait_wall(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late,
                                hearth_error *err);

#endif
