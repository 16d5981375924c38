/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov-agent: the static program, without GPU code. Its GPU checks report that. */
#include "base/gp_base.h"

#include "validate/agent/checks/gpu/gpu.h"

const struct agent_kind agent_kind = {
    .name = "host",
    .device = &device_host,
    .comm = &comm_tcp,
    .gpu_checks = gpu_checks_host,
    .gpu_other = &gpu_without_cuda,
};
