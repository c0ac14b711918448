/* Calibrations as doctor and plan show them. */
#ifndef HEARTH_APPS_CLI_CALIBRATION_H
#define HEARTH_APPS_CLI_CALIBRATION_H

#include "common/json.h"
#include "placement/calibrate.h"

/* An object under key; NULL: an element of a list. */
void json_calibration(json *j, const char *key, const hth_calibration *c);

#endif
