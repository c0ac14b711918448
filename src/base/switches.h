/* Switches and defaults that the environment sets, or models that are open. No result depends on one. */
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

/* Settings that models may give instead of the environment. They apply to the whole process. */
typedef struct hth_settings {
    bool no_huge_pages; /* HTH_SWITCH_HUGE_PAGES is off */
    const char *cache;  /* the folder of the disk cache; "": none; NULL: the environment's */
} hth_settings;
/* The settings hold until hth_settings_release. ARGUMENT: others hold already, or the path is too long. */
hearth_status hth_settings_hold(const hth_settings *settings, hearth_error *err);
void hth_settings_release(void);
/* HEARTH_CACHE, or what is held in its place: the folder of the disk cache, "" for none, to out; false: neither says. */
enum { HTH_SETTINGS_PATH = 4096 };
bool hth_settings_cache(char out[HTH_SETTINGS_PATH]);

/* HEARTH_IO: how weights are read if the caller does not say it (hearth_model_options.io). NULL: not set, or "". */
const char *hth_default_io(void);

#endif
