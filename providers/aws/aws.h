/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the aws provider beside provider_aws (providers/provider.h). */
#ifndef GP_AWS_H
#define GP_AWS_H

#include "base/error.h"
#include "base/str.h"

/* The least IAM policy that `plan`, `up`, `status`, `down` and `gc` of this owner need, as JSON
 * with a newline at its end. *ret: caller frees. -GP_EUSAGE: the owner is malformed (form_owner).
 * No I/O. */
int aws_policy_json(const char *owner, char **ret, struct gp_error *err);

/* The `doctor` of the provider. */
int aws_doctor(struct str *text, bool *ret_usable, struct gp_error *err);

#endif
