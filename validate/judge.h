/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on the controller's side of validation. Pure; any thread. */
#ifndef GP_VALIDATE_JUDGE_H
#define GP_VALIDATE_JUDGE_H

#include "model/report.h"
#include "spec/spec.h"

/* True if the spec names the check: in validate.require, by a floor, or by what bootstrap.python installs. */
bool validate_demanded(const struct spec *spec, const char *check);
/* Demanded, or required by the table. */
bool validate_required(const struct spec *spec, const char *check);
/* Replaces verdict, code, message and suggestion when v is worse than r's verdict. suggestion may be NULL. */
void check_result_worsen(struct check_result *r, enum verdict v, const char *code, const char *message,
                         const char *suggestion);

#endif
