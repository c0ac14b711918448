/* Predicts the speed of a model that is larger than a limit of memory. Tokens are replayed through the store of a run
 * (store/store.h), over a simulated disk that only has times, so that the same code decides what is read and what
 * stays. The times of reads and of products are measured. hearth plan, run and bench call it. */
#ifndef HTH_MEASURE_STORAGE_PLAN_H
#define HTH_MEASURE_STORAGE_PLAN_H

#include "engine/engine.h"
#include "measure/machine/read_rate.h"
#include "measure/route_trace.h"
#include "placement/calibrate.h"
#include "sparse/profile.h"

/* Figures of this machine, for a model. */
typedef struct hth_storage_machine {
    hth_sample_stats read_rate; /* bytes per second of extents as large as the model's, at random places */
    double sequential_rate;     /* the same of extents that follow one another */
    double latency;             /* median seconds of a read, without those of its bytes */
    double latency_least, latency_most; /* latency of the quickest quarter, and the mean, with all stalls */
    double reading_cores;       /* cores that reading at read_rate takes */
    char reader[40];
    hth_calibration rates[HTH_TYPE_LIMIT]; /* [n_rate] rates for the types of its matrices */
    size_t n_rate;
    double job; /* seconds of a job of the thread pool without work */
    uint32_t n_thread, n_core;
} hth_storage_machine;

/* Measures the disk for a second, unless all weights are in memory (then its figures are 0); takes rates of the
 * CPU from calibrations of earlier runs, or measures them, which takes half a second for each type. Takes
 * HTH_CALIBRATION_SIZE of memory, or `memory` bytes if these are less. io: as hth_engine_open_reader. ARGUMENT, IO,
 * MEMORY. */
hearth_status hth_storage_machine_measure(const hearth_model *model, const hth_memory_division *division,
                                          const char *io, uint32_t n_thread, uint64_t memory,
                                          hth_storage_machine *out, hearth_error *err);

/* The same machine with the slowest or the fastest figures that were measured. */
hth_storage_machine hth_storage_machine_at(const hth_storage_machine *machine, hth_estimate estimate);
/* With a disk that reads so many bytes per second, with the latency of a usual NVMe disk. */
hth_storage_machine hth_storage_machine_with_disk(const hth_storage_machine *machine, double rate);

/* A device that has slots for experts, and the seconds that a plan expects where all weights are in memory. */
typedef struct hth_storage_slots {
    const uint32_t *n_slot;        /* [n_layer] */
    const double *always, *expert; /* [n_layer] seconds of all but the host's experts, and of one of these */
    double head;
} hth_storage_slots;

/* The tokens that are replayed. */
typedef struct hth_storage_tokens {
    const hth_route_trace_spec *route; /* experts; NULL: those of hth_storage_usual_route */
    uint32_t n;                        /* from an empty store, and as many again */
    uint32_t n_together;               /* computed in a step, as of a prompt; 0 or 1: one by one */
    uint64_t seed;                     /* seed of the active neurons */
    const hth_profile *profile;        /* how often neurons are active; NULL: as the file says */
    const hth_storage_slots *slots;    /* of a mixture whose tokens are computed one by one; NULL: there are none */
} hth_storage_tokens;

/* Per token. */
typedef struct hth_storage_speed {
    double first_seconds, first_read_bytes; /* mean of the first n tokens */
    double seconds;                         /* mean of the next n tokens, as the members below */
    double compute_seconds;
    double disk_seconds; /* time of the disk for read_bytes */
    double read_bytes;
    double hits; /* share of the items that were in memory when they were asked for */
    double on_device; /* share of the chosen experts that were in slots, and not asked for */
} hth_storage_speed;

/* Experts of a trained mixture of which nothing is known: mildly skewed, and in part those of the token before, as
 * published expert frequencies are (SmallThinker's report, 2025, figures 4 and 5). The caller frees *frequency by
 * hth_free; it is NULL with uniform. MEMORY. */
hearth_status hth_storage_usual_route(const hearth_model *model, double **frequency,
                                      hth_route_trace_spec *out, hearth_error *err);

/* model and division as of hth_engine_open_divided; the division may be of another limit. UNSUPPORTED: drawn experts
 * for a model without. ARGUMENT: they do not suit it. MEMORY. */
hearth_status hth_storage_predict(const hearth_model *model, const hth_memory_division *division,
                                  const hth_storage_machine *machine, const hth_storage_tokens *tokens,
                                  hth_storage_speed *out, hearth_error *err);

#endif
