/* SPDX-License-Identifier: Apache-2.0 */
/* What the aws provider offers beside provider_aws (providers/provider.h). */
#ifndef GP_AWS_H
#define GP_AWS_H

/* The least IAM policy that `plan`, `up`, `status`, `down` and `gc` need, as JSON with a newline at
 * its end. Caller frees. No I/O. */
char *aws_policy_json(void);

#endif
