/* Switches and defaults that the environment sets. No result depends on one. */
#ifndef HTH_BASE_SWITCHES_H
#define HTH_BASE_SWITCHES_H

#include "base/status.h"

#include <stdbool.h>

typedef enum hth_switch {
    HTH_SWITCH_PIN,        /* HEARTH_PIN: each thread of a pool stays on a core */
    HTH_SWITCH_HUGE_PAGES, /* HEARTH_HUGE_PAGES: large regions of memory are put on huge pages */
    HTH_N_SWITCH,
} hth_switch;

/* Off only if the variable is "0". */
bool hth_switch_is_on(hth_switch which);

/* ARGUMENT if one of the variables is set to anything but 0, 1 or "". */
hearth_status hth_switches_check(hearth_error *err);

/* HEARTH_IO: how weights are read if the caller does not say it (hearth_model_options.io). NULL: not set, or "". */
const char *hth_default_io(void);

#endif
