/* A disk for tests that adds faults to the results of another one. */
#ifndef HTH_STORE_DISK_FAULTS_H
#define HTH_STORE_DISK_FAULTS_H

#include "store/disk.h"

typedef enum hth_disk_fault {
    HTH_FAULT_NONE,
    HTH_FAULT_ERROR,   /* `error` instead of bytes */
    HTH_FAULT_END,     /* 0 bytes, as at the end of a file */
    HTH_FAULT_ONE,     /* one byte */
    HTH_FAULT_HALF,
    HTH_FAULT_BUT_ONE, /* all bytes but the last one */
    HTH_FAULT_FLIP,    /* a bit of the first byte is wrong */
    HTH_FAULT_FULL,    /* the read cannot start yet */
} hth_disk_fault;

typedef enum hth_disk_order {
    HTH_ORDER_ANY,
    HTH_ORDER_REVERSED, /* the last of the reads that run comes first */
    HTH_ORDER_SINGLE,   /* one result at a time */
} hth_disk_order;

typedef struct hth_disk_faults {
    uint64_t first, n;   /* the reads that have the fault, counted from 1 */
    uint64_t begin, end; /* only reads of some of these bytes have it, and count; end 0: all */
    hth_disk_fault fault;
    int error;
    hth_disk_order order;
    uint64_t delay_ns; /* delay of each result */
} hth_disk_faults;

/* Takes over the disk, also on failure. MEMORY. */
hearth_status hth_disk_open_faults(hth_disk *inner, const hth_disk_faults *faults, hth_disk **out, hearth_error *err);
/* Other faults from now on, counted from now on. From any thread, as long as the disk is open. */
void hth_disk_set_faults(hth_disk *disk, const hth_disk_faults *faults);
/* How many reads had the fault since then. */
uint64_t hth_disk_n_fault(hth_disk *disk);

#endif
