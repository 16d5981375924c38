/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller's side of validation shares about verdicts. Pure. */
#ifndef GP_VALIDATE_JUDGE_H
#define GP_VALIDATE_JUDGE_H

#include "model/report.h"
#include "model/spec.h"

/* Asked for by name: by validate.require, or by a floor of the spec. */
bool validate_demanded(const struct spec *spec, const char *check);
/* Demanded, or required by the table. */
bool validate_required(const struct spec *spec, const char *check);
/* Replaces verdict, code, message and suggestion when v is worse than what is there. suggestion may
 * be NULL. */
void check_result_worsen(struct check_result *r, enum verdict v, const char *code, const char *message,
                         const char *suggestion);

#endif
