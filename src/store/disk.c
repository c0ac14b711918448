/* Chooses a disk by name. */
#include "store/disk.h"

#include "base/log.h"
#include "store/disk_simulated.h"

#include <string.h>

/* Threads of pread: more do not read faster (docs/performance.md). */
enum { N_PREAD = 8, SEED = 1 };

static hearth_status open_simulated(const char *name, hth_disk **out, hearth_error *err)
{
    const hth_disk_model *model = hth_disk_model_find(name);
    if (model) return hth_disk_open_simulated(model, SEED, false, out, err);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no simulated disk is called '%s': there are %s", name,
                    hth_disk_model_names());
}

hearth_status hth_disk_open(const char *name, hth_disk **out, hearth_error *err)
{
    hearth_error why;
    *out = NULL;
    if (!name || !*name || strcmp(name, "auto") == 0) {
        hearth_status st = hth_disk_open_uring(out, &why);
        if (st == HEARTH_ERROR_UNSUPPORTED) {
            hth_log(HEARTH_LOG_INFO, "%s; reads are made by threads", why.message);
            return hth_disk_open_pread(N_PREAD, out, err);
        }
        if (st != HEARTH_OK && err) *err = why;
        return st;
    }
    if (strcmp(name, "uring") == 0) return hth_disk_open_uring(out, err);
    if (strcmp(name, "pread") == 0) return hth_disk_open_pread(N_PREAD, out, err);
    if (strncmp(name, "sim:", 4) == 0) return open_simulated(name + 4, out, err);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "no way to read is called '%s': there are auto, uring, pread and sim:DISK", name);
}
