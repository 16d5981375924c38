/* SPDX-License-Identifier: Apache-2.0 */
/* Host checks that have a file of their own, and the kernel log's policy, which is pure. */
#ifndef GP_AGENT_HOST_H
#define GP_AGENT_HOST_H

#include "agent.h"

void disk_run(struct check_ctx *c, struct agent_result *r);
void kernlog_run(struct check_ctx *c, struct agent_result *r);

enum kern_action { KERN_NONE, KERN_NOTE, KERN_DEGRADED, KERN_FAIL };
struct kern_finding {
    enum kern_action action;
    char code[40];    /* "xid_79", "machine_check" */
    char advice[120]; /* what to do: "reset the GPU", ... */
};
/* What one line of the kernel log means for a node that nobody uses yet. Pure. */
struct kern_finding kernlog_judge(const char *line);

#endif
