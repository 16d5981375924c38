/* SPDX-License-Identifier: Apache-2.0 */
/* The report that the journal keeps of a stack's last validation. */
#ifndef GP_ENGINE_KEPT_REPORT_H
#define GP_ENGINE_KEPT_REPORT_H

#include "engine/run/run.h"

/* Reads the report of the stack `uid` from the journal. -GP_ENOTFOUND: there is none. */
int kept_report_read(struct engine *e, const char *uid, struct report *ret, struct gp_error *err);
/* Whether the report is ready for exactly the nodes that the run wants and has. */
bool kept_report_proves(const struct run *run, const struct report *report);
/* Nodes that differ from the journal's records are set to not ready, and report->outdated gets the reason. */
int kept_report_compare(struct engine *e, const char *uid, struct report *report, struct gp_error *err);

#endif
