/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of this machine, from /proc. Linux; any thread. */
#ifndef GP_AGENT_PROC_H
#define GP_AGENT_PROC_H

#include "base/gp_base.h"

#include <sys/types.h>

struct proc {
    char state; /* 'Z' and 'X': it has ended */
    pid_t parent, group;
    int session;
    int64_t start_ticks; /* with the pid and the boot: which process it is */
};
/* False: there is no such process, or it is hidden. */
bool proc_read(pid_t pid, struct proc *ret);
/* "" when it cannot be read. */
void proc_boot_id(char dst[40]);

#endif
