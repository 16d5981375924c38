/* SPDX-License-Identifier: Apache-2.0 */
/* framework.deepspeed: DeepSpeed of the node's Python. deepspeed.py has the rank's part. One thread. */
#include "base/gp_base.h"

#include "framework.h"
#include "validate/agent/gang/gang.h"

FRAMEWORK_FILE(deepspeed_program, "deepspeed.py");

static const struct framework deepspeed = {
    .module = "deepspeed",
    .program = deepspeed_program,
    .trains = "one step of ZeRO",
    .absent = "add deepspeed to bootstrap.python.packages, and set bootstrap.python.torch",
    .import = "install a deepspeed that fits the torch of this environment, with what it needs",
    .pin = "pin deepspeed and torch in bootstrap.python, so that all nodes have the same ones"};

void framework_deepspeed_run(struct check_ctx *c, struct agent_result *r) { framework_run(&deepspeed, NULL, c, r); }
