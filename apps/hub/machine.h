/* State of this machine shared by look.c, speed.c and gpu.c. */
#ifndef HEARTH_APPS_HUB_MACHINE_H
#define HEARTH_APPS_HUB_MACHINE_H

#include "hub/hub.h"

#include "device/device.h"
#include "measure/machine/machine.h"
#include "model/model.h"
#include "placement/calibrate.h"

typedef struct hub_record hub_record;

struct hub_machine {
    hth_machine facts;
    hth_kernels kernels;
    uint32_t n_thread;
    uint64_t key;                          /* key of everything that cached rates depend on */
    hth_calibration rates[HTH_TYPE_LIMIT]; /* [n_rate] rates of the CPU only */
    size_t n_rate;
    hub_record *records; /* facts of files from earlier runs (look.c) */
    size_t n_record;
    bool has_new;       /* some records are not saved yet */
    hth_device *device; /* the GPU; NULL: none */
    uint64_t vram;      /* usable bytes of it; 0: the free memory */
    hth_pool *pool;     /* opened for the first measurement */
};

/* Loads the rates that an earlier run measured. */
void hub_speed_recall(hub_machine *machine);
/* Sets speed, on_gpu, and the memory on the GPU. */
void hub_speed_of(hub_machine *machine, const hth_model *model, hub_facts *facts);
/* Opens the device of that name. auto: a discrete GPU, if there is one; none. */
hearth_status hub_gpu_open(hub_machine *machine, const char *name, hearth_error *err);
/* Key of everything that its figures depend on; 0: no GPU. */
uint64_t hub_gpu_key(const hub_machine *machine);
/* Tokens per second with the GPU, and bytes on it; 0: nothing of the model is on it. */
double hub_gpu_speed(hub_machine *machine, const hth_model *model, hearth_selector selector,
                      uint64_t *bytes);

#endif
