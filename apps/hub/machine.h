/* What look.c, speed.c and card.c know of this machine. */
#ifndef HEARTH_APPS_HUB_MACHINE_H
#define HEARTH_APPS_HUB_MACHINE_H

#include "hub/hub.h"

#include "device/device.h"
#include "measure/machine.h"
#include "model/model.h"
#include "placement/calibrate.h"

typedef struct hub_record hub_record;

struct hub_machine {
    hth_machine facts;
    hth_kernels kernels;
    uint32_t n_thread;
    uint64_t mark;                         /* of all that kept rates depend on */
    hth_calibration rates[HTH_TYPE_LIMIT]; /* of the CPU alone */
    size_t n_rate;
    hub_record *records; /* what was found out about files before (look.c) */
    size_t n_record;
    bool has_new;       /* records that are not kept yet */
    hth_device *device; /* the GPU; NULL: none is used */
    uint64_t vram;      /* that may be used of it; 0: what is free */
    hth_pool *pool;     /* opened when something is measured */
};

/* Takes the rates that an earlier run measured. */
void hub_speed_recall(hub_machine *machine);
/* Fills in speed, on_card, and what of the memory lies there. */
void hub_speed_of(hub_machine *machine, const hth_model *model, hub_facts *facts);
/* The device of that name; auto: a card, where there is one; none. */
hearth_status hub_card_open(hub_machine *machine, const char *name, hearth_error *err);
/* Of what its figures depend on; 0: there is none. */
uint64_t hub_card_mark(const hub_machine *machine);
/* Tokens a second with it, and bytes that lie there; 0: nothing of the model does. */
double hub_card_speed(hub_machine *machine, const hth_model *model, hearth_selector selector,
                      uint64_t *bytes);

#endif
