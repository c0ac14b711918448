/* Injects faults into the reads of another disk. A read with a fault of size is made whole; the bytes behind the
 * size that is reported are then overwritten. One that fails is not made. Results are held back until they are due. */
#define _GNU_SOURCE
#include "store/disk_faults.h"

#include "base/alloc.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { MAX_READ = 64 };

typedef struct faulty_read {
    hth_disk_read read;
    uint32_t max; /* bytes that are reported */
    bool runs, flips;
} faulty_read;

typedef struct faulty_disk {
    hth_disk disk;
    hth_disk *inner;
    pthread_mutex_t lock; /* guards the members up to the next line */
    hth_disk_faults faults;
    uint64_t n_started, n_fault;

    faulty_read reads[MAX_READ];     /* reads that the inner disk runs */
    hth_disk_result results[MAX_READ]; /* results that are held back */
    uint32_t n_running, n_result;
} faulty_disk;

static bool start_inner(faulty_disk *d, const hth_disk_read *read, uint32_t max, bool flips)
{
    uint32_t i = 0;
    while (d->reads[i].runs) i++;
    hth_disk_read same = *read;
    same.id = i;
    if (!d->inner->ops->start(d->inner, &same)) return false;
    d->reads[i] = (faulty_read){*read, max, true, flips};
    d->n_running++;
    return true;
}

static hth_disk_fault next_fault(faulty_disk *d, const hth_disk_read *read, int *error)
{
    hth_disk_fault fault = HTH_FAULT_NONE;
    pthread_mutex_lock(&d->lock);
    const hth_disk_faults *f = &d->faults;
    if (f->end == 0 || (read->at < f->end && read->at + read->size > f->begin)) {
        uint64_t number = ++d->n_started;
        if (number >= f->first && number - f->first < f->n) fault = f->fault;
    }
    d->n_fault += fault != HTH_FAULT_NONE;
    *error = f->error;
    pthread_mutex_unlock(&d->lock);
    return fault;
}

static bool start_faults(hth_disk *disk, const hth_disk_read *read)
{
    faulty_disk *d = (faulty_disk *)disk;
    int error;
    if (d->n_running + d->n_result == MAX_READ) return false;
    hth_disk_fault fault = next_fault(d, read, &error);
    if (fault == HTH_FAULT_FULL) return false;
    if (fault == HTH_FAULT_ERROR || fault == HTH_FAULT_END) {
        d->results[d->n_result++] = (hth_disk_result){read->id, fault == HTH_FAULT_END ? 0 : -error};
        return true;
    }
    uint32_t max = fault == HTH_FAULT_ONE                                  ? 1
                   : fault == HTH_FAULT_HALF                               ? (read->size + 1) / 2
                   : fault == HTH_FAULT_BUT_ONE && read->size > 1 ? read->size - 1
                                                                           : read->size;
    return start_inner(d, read, max, fault == HTH_FAULT_FLIP);
}

static hth_disk_result result_of(const faulty_read *r, int64_t n)
{
    uint8_t *to = r->read.to;
    if (r->flips && n > 0) *to ^= 1;
    if (n <= (int64_t)r->max) return (hth_disk_result){r->read.id, n};
    memset(to + r->max, 0xEE, r->read.size - r->max);
    return (hth_disk_result){r->read.id, r->max};
}

static void take_inner(faulty_disk *d, uint64_t timeout_ns)
{
    hth_disk_result results[MAX_READ];
    uint32_t n = d->inner->ops->wait(d->inner, timeout_ns, results, MAX_READ - d->n_result);
    for (uint32_t i = 0; i < n; i++) {
        faulty_read *r = &d->reads[results[i].id];
        d->results[d->n_result++] = result_of(r, results[i].n);
        r->runs = false;
        d->n_running--;
    }
}

static uint32_t wait_faults(hth_disk *disk, uint64_t timeout_ns, hth_disk_result *results, uint32_t max)
{
    faulty_disk *d = (faulty_disk *)disk;
    pthread_mutex_lock(&d->lock);
    hth_disk_order order = d->faults.order;
    uint64_t delay = d->faults.delay_ns;
    pthread_mutex_unlock(&d->lock);
    uint32_t n = 0;
    if (d->n_result == 0) take_inner(d, timeout_ns);
    /* The last one is known when all are there. */
    while (order == HTH_ORDER_REVERSED && d->n_running > 0 && d->n_result > 0) take_inner(d, UINT64_MAX);
    if (order == HTH_ORDER_SINGLE && max > 1) max = 1;
    for (; n < max && d->n_result > 0; n++) {
        if (delay > 0) nanosleep(&(struct timespec){(time_t)(delay / 1000000000), (long)(delay % 1000000000)}, NULL);
        d->n_result--;
        if (order == HTH_ORDER_REVERSED) {
            results[n] = d->results[d->n_result];
        } else {
            results[n] = d->results[0];
            memmove(d->results, d->results + 1, d->n_result * sizeof *d->results);
        }
    }
    return n;
}

static void wake(hth_disk *disk) { ((faulty_disk *)disk)->inner->ops->wake(((faulty_disk *)disk)->inner); }
static uint64_t now(hth_disk *disk) { return ((faulty_disk *)disk)->inner->ops->now(((faulty_disk *)disk)->inner); }

static void close_faults(hth_disk *disk)
{
    faulty_disk *d = (faulty_disk *)disk;
    d->inner->ops->close(d->inner);
    pthread_mutex_destroy(&d->lock);
    hth_free(d);
}

hearth_status hth_disk_open_faults(hth_disk *inner, const hth_disk_faults *faults, hth_disk **out, hearth_error *err)
{
    static const hth_disk_ops ops = {start_faults, wait_faults, wake, now, close_faults};
    *out = NULL;
    faulty_disk *d = hth_alloc(1, sizeof *d);
    if (!d) {
        inner->ops->close(inner);
        return hth_fail_memory(err, sizeof *d, "a disk with faults");
    }
    *d = (faulty_disk){.disk = {&ops, inner->name, inner->model}, .inner = inner, .faults = *faults};
    pthread_mutex_init(&d->lock, NULL);
    *out = &d->disk;
    return HEARTH_OK;
}

void hth_disk_set_faults(hth_disk *disk, const hth_disk_faults *faults)
{
    faulty_disk *d = (faulty_disk *)disk;
    pthread_mutex_lock(&d->lock);
    d->faults = *faults;
    d->n_started = d->n_fault = 0;
    pthread_mutex_unlock(&d->lock);
}

uint64_t hth_disk_n_fault(hth_disk *disk)
{
    faulty_disk *d = (faulty_disk *)disk;
    pthread_mutex_lock(&d->lock);
    uint64_t n = d->n_fault;
    pthread_mutex_unlock(&d->lock);
    return n;
}
