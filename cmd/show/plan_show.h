/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a plan, for the verbs plan and up. */
#ifndef GP_CMD_PLAN_SHOW_H
#define GP_CMD_PLAN_SHOW_H

#include "cmd/app.h"

json_t *plan_json(const struct spec *spec, const struct plan *p); /* new reference */
void plan_show(const struct spec *spec, const struct plan *p, FILE *to);

#endif
