/* SPDX-License-Identifier: Apache-2.0 */
/* framework.horovod: Horovod of the node's Python, with PyTorch. horovod.py has the rank's part. One thread. */
#include "base/gp_base.h"

#include "framework.h"
#include "validate/agent/gang/gang.h"

FRAMEWORK_FILE(horovod_program, "horovod.py");

static const struct framework horovod = {
    .module = "horovod",
    .program = horovod_program,
    .trains = "one step of Horovod's optimizer",
    .absent = "add horovod to bootstrap.python.packages, and set bootstrap.python.torch",
    .import = "build horovod again, with HOROVOD_WITH_PYTORCH=1 and HOROVOD_WITH_GLOO=1, against the torch of this "
              "environment",
    .pin = "pin horovod and torch in bootstrap.python, so that all nodes have the same ones"};

void framework_horovod_run(struct check_ctx *c, struct agent_result *r) { framework_run(&horovod, NULL, c, r); }
