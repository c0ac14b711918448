/* Downloads with progress on a terminal: hearth pull, and --hf-repo of other commands. */
#ifndef HEARTH_APPS_COMMON_DOWNLOAD_H
#define HEARTH_APPS_COMMON_DOWNLOAD_H

#include "hub/hub.h"

enum { DOWNLOAD_TIMEOUT_S = 30, DOWNLOAD_RETRIES = 5 };

/* Downloads as hub_pull does; the watch of the options is set here. Ctrl-C ends it with CANCELLED. */
hearth_status download_model(const char *what, hub_pull_options options, hub_pulled *out, hearth_error *err);

#endif
