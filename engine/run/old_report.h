/* SPDX-License-Identifier: Apache-2.0 */
/* The last validation reports of destroyed stacks: reports/NAME@OWNER.json below the state folder. */
#ifndef GP_ENGINE_OLD_REPORT_H
#define GP_ENGINE_OLD_REPORT_H

#include "engine/run/run.h"

/* Keeps the journal's report of a stack that is about to be forgotten. Never fails: a report that cannot be written
 * must not stop `down`. */
void old_report_keep(const struct engine *e, const struct stack *s);
/* The newest one of that name (owner NULL: of any owner). *ret_when_s: when the stack was destroyed. -GP_ENOTFOUND:
 * there is none. */
int old_report_read(const struct engine *e, const char *name, const char *owner, struct report *ret,
                    int64_t *ret_when_s, struct gp_error *err);
/* Removes reports that are older than 180 days. Never fails. */
void old_report_tidy(const char *state_dir, int64_t now_s);

#endif
