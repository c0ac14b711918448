/* Tells the service manager how far the program is, as sd_notify of systemd does. */
#ifndef HEARTH_APPS_SERVE_NOTIFY_H
#define HEARTH_APPS_SERVE_NOTIFY_H

/* Connects to the socket that NOTIFY_SOCKET names. Without it, or on failure, nothing is sent. Before the sandbox, which
 * allows no further socket. */
void notify_open(void);
/* Sends a state: "READY=1". */
void notify_manager(const char *state);

#endif
