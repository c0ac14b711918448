/* Warnings and notes for the caller's log function, if one is set. */
#ifndef HTH_BASE_LOG_H
#define HTH_BASE_LOG_H

#include <hearth/hearth.h>

/* Logs one line. Control bytes appear as \xNN. */
void hth_log(hearth_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
