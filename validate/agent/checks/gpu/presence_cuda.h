/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of gpu.presence (check_presence_cuda.c): one GPU compared with the GPU bought, and the driver's
 * environment. One thread, in a worker. */
#ifndef GP_AGENT_PRESENCE_H
#define GP_AGENT_PRESENCE_H

#include "validate/agent/agent.h"
#include "validate/agent/cuda/nvml_cuda.h"

struct presence_seen {
    char name[96];  /* by CUDA */
    char model[96]; /* from the model table, else from CUDA */
    size_t bytes;
};
/* GPU `index` of CUDA: adds {"gpu":i, ...} to json, judges model, memory, modes, processes into r.
 * nvml: whether NVML runs. -GP_EENV when CUDA does not identify it (r has the verdict). */
int presence_gpu(const struct check_ctx *c, int index, bool nvml, struct str *json, struct agent_result *r,
                 struct presence_seen *ret);

/* Versions that must agree, fabric manager, nouveau, environment variables. started: whether CUDA works (if not,
 * only possible causes are reported). driver: "" not known. */
void presence_surroundings(bool started, const char *driver, int64_t deadline_ms, struct agent_result *r);

#endif
