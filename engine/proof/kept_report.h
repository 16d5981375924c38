/* SPDX-License-Identifier: Apache-2.0 */
/* The report that the journal keeps of a stack's last validation. */
#ifndef GP_ENGINE_KEPT_REPORT_H
#define GP_ENGINE_KEPT_REPORT_H

#include "engine/run/run.h"

int kept_report_read(struct engine *e, const char *uid, struct report *ret, struct gp_error *err);
/* Whether the report proves exactly the nodes that the run wants and has. */
bool kept_report_proves(const struct run *run, const struct report *report);
/* What the journal's records no longer bear out is not ready any more, and report->outdated has the reason. */
int kept_report_compare(struct engine *e, const char *uid, struct report *report, struct gp_error *err);

#endif
