/* SPDX-License-Identifier: Apache-2.0 */
/* Health of a GPU by its counters: its state (gpu.health), and changes while a check loaded it (agent_kind.before
 * and after). Old and new faults are separated. One GPU per process. */
#ifndef GP_AGENT_HEALTH_H
#define GP_AGENT_HEALTH_H

#include "validate/agent/agent.h"
#include "validate/agent/cuda/nvml_cuda.h"

/* agent_kind.before and after. before reads the counters and starts a thread that samples clocks,
 * temperature and link ten times a second; after ends it, reads the counters again and worsens the verdict if a
 * counter moved. Adds "load" (and "moved") to data. Without NVML nothing is judged and data reports that; gpu.health
 * then does not pass. */
void health_before(struct check_ctx *c);
void health_after(struct check_ctx *c, struct agent_result *r);

/* Samples the PCIe link now; a check calls it while copies between host and GPU run. From any thread; does nothing
 * outside of health_before and after. */
void health_copy_runs(void);

/* gpu.health: the state that the GPU is in. */
void gpu_health_cuda(struct check_ctx *c, struct agent_result *r);

/* --- shared by check_health_cuda.c and health_cuda.c --- */

/* agent_set and agent_suggest, if the verdict is worse than the earlier one. */
void health_blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *fmt, ...)
    GP_PRINTF(5, 6);

/* The row of the model table for this GPU; NULL: none. */
const struct gpu_model *health_model(const struct check_ctx *c, const struct nvml_facts *f);
/* Replays allowed to the link in that time: ceil(lanes * Gb/s * 0.06) a minute, which is a bit error
 * rate of 1e-12; at least a minute's. -1: generation or width is not known. */
int64_t health_replay_budget(int64_t gen, int64_t width, int64_t ms);
/* Blames the NVLink with the highest bit error rate, if it is too high. when: " since gpu.p2p began" or "". */
void health_judge_ber(const struct nvml_counters *n, const char *when, struct agent_result *r);
/* Lines of the kernel log about this GPU ("0000:3b:00") or an NVSwitch, judged: a line worse than a note worsens the
 * verdict. Returns the number of lines. */
struct kern_log;
enum health_log {
    LOG_BEFORE,      /* written before we came */
    LOG_BEFORE_CURE, /* the same, and the counters show that a reset has cured the memory since */
    LOG_OURS         /* while our own load ran: no Xid is another program's fault */
};
int64_t health_read_log(struct kern_log *k, const char *pci, enum health_log when, const char *check,
                        struct agent_result *r);
/* "0000:3b:00" of "00000000:3B:00.0": the form in the kernel log. */
void health_log_address(const char *pci, char *dst, size_t n);

#endif
