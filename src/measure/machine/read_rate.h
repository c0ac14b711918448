/* How fast a file is read as models read it: extents by the model's reader (store/reader.h), past the page cache, as
 * many at once as it keeps. */
#ifndef HTH_MEASURE_READ_RATE_H
#define HTH_MEASURE_READ_RATE_H

#include "base/sample_stats.h"
#include "store/reader.h"

typedef struct hth_read_rate_options {
    hth_reader *reader;        /* nothing else uses it */
    const uint64_t *file_size; /* [n_file] of the reader's files */
    uint32_t n_file;
    uint64_t size;   /* bytes of an extent */
    bool sequential; /* each behind the one before; else at random places */
    bool alone;      /* one at a time */
    uint64_t seed;   /* seed of the places; 0: different places each time */
    uint64_t memory; /* bytes for queued reads, of which there are at least four */
    double seconds;  /* time of each of HTH_READ_ROUNDS rounds */
} hth_read_rate_options;

enum { HTH_READ_ROUNDS = 3 };

typedef struct hth_read_rate {
    hth_sample_stats rate;  /* bytes per second, of the rounds; of places that were read before, if the disk may have a cache
                               as large as a model's */
    hth_sample_stats first; /* the rate of places that were not read before */
    double cores;          /* cores that the process used for it */
    uint32_t depth;        /* reads that ran at once, at the end */
    /* Only of reads that are alone: seconds of one. Of the quickest quarter at most; median; mean, in which a stall of
     * the disk counts in full. */
    double seconds_least, seconds_median, seconds_mean;
} hth_read_rate;

/* Takes about twice HTH_READ_ROUNDS times `seconds`. ARGUMENT: no file has so many bytes. MEMORY, IO. */
hearth_status hth_read_rate_measure(const hth_read_rate_options *options, hth_read_rate *out,
                                    hearth_error *err);

#endif
