/* SPDX-License-Identifier: Apache-2.0 */
/* Host checks that have a file of their own, and facts of the host that other checks use. */
#ifndef GP_AGENT_HOST_H
#define GP_AGENT_HOST_H

#include "validate/agent/agent.h"

void disk_run(struct check_ctx *c, struct agent_result *r);
void kernlog_run(struct check_ctx *c, struct agent_result *r);
void stream_run(struct check_ctx *c, struct agent_result *r);
void limits_run(struct check_ctx *c, struct agent_result *r);
void rdma_run(struct check_ctx *c, struct agent_result *r);
void container_run(struct check_ctx *c, struct agent_result *r);

int64_t agent_memory_available(void); /* bytes that can be had without swapping */
int host_rdma_devices(void);          /* InfiniBand, RoCE, EFA and eRDMA devices with a driver */

#endif
