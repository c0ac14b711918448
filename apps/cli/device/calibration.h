/* Calibrations as shown by doctor and plan. */
#ifndef HEARTH_APPS_CLI_DEVICE_CALIBRATION_H
#define HEARTH_APPS_CLI_DEVICE_CALIBRATION_H

#include "common/json.h"
#include "placement/calibrate.h"

/* Prints a line: "WHAT measured 2026-03-01 14:05", and how to measure again. */
void print_calibration_date(const char *what, int64_t measured_at);
/* Writes an object under key; NULL: an element of a list. */
void json_calibration(json *j, const char *key, const hth_calibration *c);

#endif
