/* Calibrations as shown by doctor and plan. */
#ifndef HEARTH_APPS_CLI_DEVICE_CALIBRATION_H
#define HEARTH_APPS_CLI_DEVICE_CALIBRATION_H

#include "common/json.h"
#include "placement/calibrate.h"

/* Writes an object under key; NULL: an element of a list. */
void json_calibration(json *j, const char *key, const hth_calibration *c);

#endif
