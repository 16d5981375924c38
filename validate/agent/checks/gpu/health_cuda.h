/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU's counters say: the state it is in (gpu.health), and what moved while a check loaded it
 * (agent_kind.before and after). Old scars and new faults are told apart. One GPU per process. */
#ifndef GP_AGENT_HEALTH_H
#define GP_AGENT_HEALTH_H

#include "validate/agent/agent.h"
#include "validate/agent/cuda/nvml_cuda.h"

/* agent_kind.before and after. before reads the counters and starts a thread that samples clocks,
 * temperature and link ten times a second; after ends it, reads the counters again and makes the
 * verdict worse by what moved. Adds "load" (and "moved") to data. Where NVML does not answer nothing is
 * judged, and data says so: gpu.health is the check that then does not pass. */
void health_before(struct check_ctx *c);
void health_after(struct check_ctx *c, struct agent_result *r);

/* For a check while copies between host and GPU run: the link is looked at now, at its busiest. From any
 * thread; does nothing when nothing is being watched. */
void health_copy_runs(void);

/* gpu.health: the state that the GPU is in. */
void gpu_health_cuda(struct check_ctx *c, struct agent_result *r);

/* What follows is shared by the two. */

/* agent_set and agent_suggest, when that is worse than what was said before. */
void health_blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *fmt, ...)
    GP_PRINTF(5, 6);

/* The row of the model table for this GPU; NULL: none. */
const struct gpu_model *health_model(const struct check_ctx *c, const struct nvml_facts *f);
/* Errors that the link may have had in that time: ceil(lanes * Gb/s * 0.06) a minute, which is a bit error
 * rate of 1e-12; at least a minute's. -1: generation or width is not known. */
int64_t health_replay_budget(int64_t gen, int64_t width, int64_t ms);
/* Lines of the kernel log about this GPU ("0000:3b:00") or an NVSwitch, judged: worse than a note makes
 * the verdict worse. ours: they came while our own load ran, so that no Xid is somebody else's fault.
 * Returns how many there were. */
struct kern_log;
int64_t health_read_log(struct kern_log *k, const char *pci, bool ours, const char *check, struct agent_result *r);
/* "0000:3b:00" of "00000000:3B:00.0": as the kernel log writes it. */
void health_log_address(const char *pci, char *dst, size_t n);

#endif
