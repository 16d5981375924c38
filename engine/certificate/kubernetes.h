/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the condition GPUValidated of the Kubernetes node that a pod runs on. */
#ifndef GP_ENGINE_KUBERNETES_H
#define GP_ENGINE_KUBERNETES_H

#include "base/clock.h"
#include "model/report.h"

/* Sets it from the verdict: True (Validated, Degraded), False (ValidationFailed), Unknown (CouldNotTell).
 * lastTransitionTime moves only with the status. Retries server errors and conflicts; blocks on the network
 * for a minute at most. -GP_EENV: not in a pod; -GP_EAUTH; -GP_ENOTFOUND: no such node. */
int kubernetes_condition(const char *node, const struct report *r, enum node_check verdict,
                         const struct gp_cancel *cancel, struct gp_error *err);

#endif
