/* SPDX-License-Identifier: Apache-2.0 */
/* framework.torch: PyTorch of the node's Python. torch.py has the rank's part. One thread. */
#include "base/gp_base.h"

#include "framework.h"
#include "validate/agent/gang/gang.h"

FRAMEWORK_FILE(torch_program, "torch.py");

const struct framework framework_torch = {
    .module = "torch",
    .program = torch_program,
    .trains = "one step of training",
    .absent = "set bootstrap.python.torch, or install torch into that environment",
    .import = "install torch again with what it needs: bootstrap.python.torch installs the build that fits the node",
    .pin = "pin bootstrap.python.torch, so that all nodes have the same one"};

void framework_torch_run(struct check_ctx *c, struct agent_result *r) { framework_run(&framework_torch, NULL, c, r); }
