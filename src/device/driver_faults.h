/* Known faults of Vulkan drivers, by driver and version: for hearth doctor, and to leave out what a driver cannot be
 * asked for (vulkan/enumerate.c). Numbers of drivers are those of VkDriverId; no Vulkan is needed here. */
#ifndef HTH_DEVICE_DRIVER_FAULTS_H
#define HTH_DEVICE_DRIVER_FAULTS_H

#include "device/device.h"

/* As its maker writes it: 26.0.5, 580.159.4 or, of Intel on Windows, 101.8860 (the end of 32.0.101.8860). */
typedef struct hth_driver_version {
    uint32_t part[4];
} hth_driver_version;

typedef struct hth_driver_fault {
    uint32_t driver;                 /* VkDriverId */
    hth_driver_version first, fixed; /* from first on, before fixed; {0}: no such limit is known */
    const char *device;              /* part of the device's name; NULL: any */
    bool only_integrated;
    uint32_t avoided;    /* HTH_FEATURE_*: not asked for, nor used */
    const char *fault;
    const char *hearth;  /* what Hearth does about it */
    const char *remedy;  /* what the user can do; NULL: nothing */
    const char *sources; /* issues, pull requests, documents */
} hth_driver_fault;

/* Of info->driver_version, or of Mesa's name: its older lavapipe has no other. NVIDIA has fields of 10, 8, 8 and 6
 * bits, Intel on Windows of 18 and 14, MoltenVK two decimal digits each, the others Vulkan's 10, 10 and 12 bits. */
hth_driver_version hth_driver_version_of(const hth_device_info *info);
/* "26.0.5": trailing zeros beyond the second part are left out. */
void hth_driver_version_format(hth_driver_version version, char text[48]);

/* Iterates over the faults of a device in the table's order: the one after `last` (NULL: the first); NULL: no more. */
const hth_driver_fault *hth_driver_fault_next(const hth_device_info *info, const hth_driver_fault *last);
/* HTH_FEATURE_* that must not be asked for. */
uint32_t hth_driver_avoided(const hth_device_info *info);

/* The table, for tests. */
const hth_driver_fault *hth_driver_faults(size_t *n);

#endif
