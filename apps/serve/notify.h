/* Tells the service manager how far the program is, as sd_notify of systemd does. */
#ifndef HEARTH_APPS_SERVE_NOTIFY_H
#define HEARTH_APPS_SERVE_NOTIFY_H

/* Sends a state ("READY=1") to the socket that NOTIFY_SOCKET names. Without it, or on failure, nothing happens. */
void notify_manager(const char *state);

#endif
