/* The report of hearth study in three formats: a JSON object, a page that draws it, and a table of one value
 * per line. docs/study.md lists the fields. */
#ifndef HEARTH_APPS_CLI_SPARSITY_STUDY_REPORT_H
#define HEARTH_APPS_CLI_SPARSITY_STUDY_REPORT_H

#include "study/study.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct study_report {
    const hth_study *study;
    const hearth_model_info *model;
    const char *activation, *text; /* text: the name of its file */
    uint32_t d_model;
    uint64_t hash; /* hash of the model */
} study_report;

void study_write_json(const study_report *r, FILE *out);
/* These return false if out of memory. */
bool study_write_csv(const study_report *r, FILE *out);
bool study_write_page(const study_report *r, FILE *out); /* with the JSON in it */

#endif
