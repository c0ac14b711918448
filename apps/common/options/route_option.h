/* --route of hearth bench and hearth plan: experts that are drawn, instead of those that the routers choose. */
#ifndef HEARTH_APPS_COMMON_ROUTE_OPTION_H
#define HEARTH_APPS_COMMON_ROUTE_OPTION_H

#include "measure/route_trace.h"

typedef struct route_option {
    bool given;
    hth_route_trace_spec spec;
    char path[4096];   /* file of the frequencies; "": all experts are equally frequent */
    double *frequency; /* frequencies of spec, freed by close_route */
} route_option;

/* verb: the command. Returns 0, or the exit status after an error was reported. */
int parse_route(const char *verb, const char *text, route_option *route);
/* Reads the frequencies, if there are any. False: an error was reported. */
bool read_route(route_option *route);
void close_route(route_option *route);

#endif
