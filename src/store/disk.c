/* Chooses a disk by name. */
#include "store/disk.h"

#include "base/log.h"
#include "store/disk_simulated.h"

#include <string.h>

/* Threads of pread: more do not read faster. */
enum { N_PREAD = 8, SEED = 1 };

static bool is_auto(const char *name) { return !name || !*name || strcmp(name, "auto") == 0; }
bool hth_disk_is_simulated(const char *name) { return name && strncmp(name, "sim:", 4) == 0; }

hearth_status hth_disk_check_name(const char *name, hearth_error *err)
{
    if (is_auto(name) || strcmp(name, "uring") == 0 || strcmp(name, "pread") == 0) return HEARTH_OK;
    if (!hth_disk_is_simulated(name)) /* who maps the file opens no disk (engine/model.c) */
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "no way to read is called '%s': there are auto, uring, pread, mmap and sim:DISK", name);
    if (hth_disk_model_find(name + 4)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no simulated disk is called '%s': there are %s", name + 4,
                    hth_disk_model_names());
}

static hearth_status open_auto(hth_disk **out, hearth_error *err)
{
    hearth_error why;
    hearth_status st = hth_disk_open_uring(out, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) {
        hth_log(HEARTH_LOG_INFO, "%s; reads are made by threads", why.message);
        return hth_disk_open_pread(N_PREAD, out, err);
    }
    if (st != HEARTH_OK && err) *err = why;
    return st;
}

hearth_status hth_disk_open(const char *name, hth_disk **out, hearth_error *err)
{
    *out = NULL;
    hearth_status st = hth_disk_check_name(name, err);
    if (st != HEARTH_OK) return st;
    if (is_auto(name)) return open_auto(out, err);
    if (hth_disk_is_simulated(name))
        return hth_disk_open_simulated(hth_disk_model_find(name + 4), SEED, false, out, err);
    return strcmp(name, "uring") == 0 ? hth_disk_open_uring(out, err) : hth_disk_open_pread(N_PREAD, out, err);
}
