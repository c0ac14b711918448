/* Warnings and notes to the caller's log function, if there is one. */
#ifndef HTH_BASE_LOG_H
#define HTH_BASE_LOG_H

#include <hearth/hearth.h>

/* One line; control bytes are shown as \xNN. */
void hth_log(hearth_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
