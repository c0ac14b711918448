/* A disk with the times of another kind of disk: a model of latency, bandwidth and operations per second, over reads of
 * the real file. Whatever prints its figures says that they are simulated. */
#ifndef HTH_STORE_DISK_SIMULATED_H
#define HTH_STORE_DISK_SIMULATED_H

#include "store/disk.h"

typedef struct hth_disk_model {
    const char *name;
    uint64_t latency_ns;   /* time of a single read */
    double bytes_per_ns;   /* rate of reads that do not follow one another; 1.0 is 1 GB/s */
    double sequential_bytes_per_ns;
    uint64_t gap_ns;       /* between the starts of two reads, within near_size bytes */
    uint64_t far_gap_ns;   /* the same over all of the disk */
    uint64_t near_size;
    uint32_t n_parallel;   /* reads that the disk works on at once */
} hth_disk_model;

/* "ufs4", "sata", "nvme3", "nvme4", "sd"; NULL: there is none of that name. Sources of the figures:
 * disk_simulated.c. */
const hth_disk_model *hth_disk_model_find(const char *name);
/* The names, separated by ", ". */
const char *hth_disk_model_names(void);

/* When each of a row of reads ends. */
typedef struct hth_disk_timing {
    const hth_disk_model *model;
    uint64_t seed;        /* seed of latencies, which vary by a quarter */
    uint64_t bus_free_ns, next_start_ns;
    uint64_t last_end;    /* byte */
    uint64_t ends_ns[64]; /* ends of the last n_parallel reads */
    uint32_t i_end;
} hth_disk_timing;
/* The end of a read that is started at now_ns. */
uint64_t hth_disk_timing_end(hth_disk_timing *t, uint64_t now_ns, uint64_t at, uint64_t size);

/* virtual_clock: the clock of the disk is at the end of the first read when wait begins, and stands still between; else
 * it is the real one, and wait takes as long as the disk would. MEMORY. */
hearth_status hth_disk_open_simulated(const hth_disk_model *model, uint64_t seed, bool virtual_clock, hth_disk **out,
                                      hearth_error *err);

/* A disk that only tells times, for plans: its reads bring no bytes, and end when their caller waits, who is told when
 * the disk would have ended each. Its clock is virtual. MEMORY. */
typedef void hth_disk_end_fn(void *user, const hth_disk_read *read, uint64_t end_ns);
hearth_status hth_disk_open_timer(const hth_disk_model *model, uint64_t seed, hth_disk_end_fn *ended, void *user,
                                  hth_disk **out, hearth_error *err);
/* Sets the clock of a disk that hth_disk_open_timer opened, and on which no read runs; also back: what the disk was
 * told before is done first. */
void hth_disk_timer_set(hth_disk *disk, uint64_t now_ns);
/* When what it was told so far is done. */
uint64_t hth_disk_timer_free(const hth_disk *disk);

#endif
