/* hearth plan for a model without a GPU: what a limit of memory keeps, and the speed to expect. */
#ifndef HEARTH_APPS_CLI_DEVICE_PLAN_STORAGE_H
#define HEARTH_APPS_CLI_DEVICE_PLAN_STORAGE_H

#include "common/options/options.h"

/* Prints the plan. no_gpu: why there is none. Returns the exit status. */
int plan_storage(const args *a, const char *no_gpu);

#endif
