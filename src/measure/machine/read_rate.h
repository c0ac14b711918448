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
    uint64_t size;   /* of an extent */
    bool sequential; /* each behind the one before; else at random places */
    bool alone;      /* one at a time */
    uint64_t seed;   /* of the places; 0: others each time */
    uint64_t memory; /* for what is queued; at least four extents are */
    double seconds;  /* for each of HTH_READ_ROUNDS */
} hth_read_rate_options;

enum { HTH_READ_ROUNDS = 3 };

typedef struct hth_read_rate {
    hth_sample_stats rate;  /* bytes per second, of the rounds; of places that were read before, if the disk may have a cache
                               as large as a model's */
    hth_sample_stats first; /* of places that were not */
    double cores;          /* of which the process used so many */
    uint32_t depth;        /* reads that ran at once, at the end */
    /* Only of reads that are alone: seconds of one. Of the quickest quarter at most; median; mean, in which a stall of
     * the disk counts in full. */
    double seconds_least, seconds_median, seconds_mean;
} hth_read_rate;

/* Takes about twice HTH_READ_ROUNDS times `seconds`. ARGUMENT: no file has so many bytes. MEMORY, IO. */
hearth_status hth_read_rate_measure(const hth_read_rate_options *options, hth_read_rate *out,
                                    hearth_error *err);

#endif
