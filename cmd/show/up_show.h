/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the result of `up`, of one spec or of each of a folder. */
#ifndef GP_CMD_UP_SHOW_H
#define GP_CMD_UP_SHOW_H

#include "cmd/app.h"

/* {"stack", "report", "nothing_to_do", "looked", "plan"}; plan (borrowed, may be NULL): of plan_json. New reference. */
json_t *up_json(const struct up_result *res, json_t *plan);
/* The short report and the table of nodes, on stdout. Shortens verdicts that the report has in full. */
void up_show(struct up_result *res, const struct gp_error *err);

#endif
