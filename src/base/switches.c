/* The switches and defaults of the environment: names, and what their values mean. */
#include "base/switches.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *off, *on;
} switches[HTH_N_SWITCH] = {
    [HTH_SWITCH_PIN] = {"HEARTH_PIN", "threads may move", "each stays on a core"},
    [HTH_SWITCH_HUGE_PAGES] = {"HEARTH_HUGE_PAGES", "memory on ordinary pages", "on huge pages"},
};

bool hth_switch_is_on(hth_switch which)
{
    const char *value = getenv(switches[which].name);
    return !value || strcmp(value, "0") != 0;
}

hearth_status hth_switches_check(hearth_error *err)
{
    for (int i = 0; i < HTH_N_SWITCH; i++) {
        const char *value = getenv(switches[i].name);
        if (!value || !*value || strcmp(value, "0") == 0 || strcmp(value, "1") == 0) continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s=%s: no such value; known: 0 (%s), 1 (%s)", switches[i].name, value,
                        switches[i].off, switches[i].on);
    }
    return HEARTH_OK;
}

const char *hth_default_io(void)
{
    const char *value = getenv("HEARTH_IO");
    return value && *value ? value : NULL;
}
