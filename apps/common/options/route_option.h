/* --route of hearth bench and hearth plan: experts that are drawn or recorded, instead of those that the routers
 * choose. */
#ifndef HEARTH_APPS_COMMON_ROUTE_OPTION_H
#define HEARTH_APPS_COMMON_ROUTE_OPTION_H

#include "common/json.h"
#include "measure/route_trace.h"

typedef struct route_option {
    bool given;
    hth_route_trace_spec spec;
    bool is_trace;     /* path is a trace of hearth profile */
    char path[4096];   /* file of the frequencies or the trace; "": all experts are equally frequent */
    double *frequency; /* frequencies of spec, freed by close_route */
    hth_expert_trace *trace; /* that of spec, closed by close_route */
} route_option;

/* verb: the command. Returns 0, or the exit status after an error was reported. */
int parse_route(const char *verb, const char *text, route_option *route);
/* Reads the frequencies or the trace, if there are any. False: an error was reported. */
bool read_route(route_option *route);
/* "frequencies of FILE, sticky 0.3, foreseen 0": what the experts are, for a report about this model. */
typedef struct route_text {
    char text[8192];
} route_text;
route_text describe_route(const route_option *route, const hth_model *model);
/* "drawn_experts" of docs/bench.md, if the option was given. */
void json_route(json *j, const route_option *route, const hth_model *model);
void close_route(route_option *route);

#endif
