/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a plan, for the verbs plan and up. */
#ifndef GP_CMD_PLAN_SHOW_H
#define GP_CMD_PLAN_SHOW_H

#include "cmd/app.h"

json_t *plan_json(const struct spec *spec, const struct plan *p); /* new reference */
json_t *plan_changes_json(const struct plan_changes *p);          /* likewise */
/* A line for each thing that was changed by hand. */
void drift_show(const struct plan_changes *c, FILE *to);
const char *change_action_name(enum change_action a);
void plan_show(const struct spec *spec, const struct plan *p, FILE *to);

/* --- plan_markdown.c --- */
/* Foreign text as one code span: one line of at most 240 bytes, in which neither a table's cell nor the span ends.
 * Empty text: nothing. */
void markdown_code(struct str *out, const char *text);
/* Appends a plan as Markdown. path: of its spec; NULL: not shown. */
void plan_markdown(const struct spec *spec, const struct plan *p, const char *path, struct str *out);
/* A plan that failed. what: the spec's name or path. */
void plan_markdown_error(const char *what, const struct gp_error *err, const struct strv *problems, struct str *out);

#endif
