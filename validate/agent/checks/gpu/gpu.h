/* SPDX-License-Identifier: Apache-2.0 */
/* GPU checks of both programs, without a driver (check_gpu.c), and of the CUDA agent (check_*_cuda.c). One thread. */
#ifndef GP_AGENT_GPU_H
#define GP_AGENT_GPU_H

#include "validate/agent/agent.h"

/* gpu_checks of the static agent: presence by device files and the PCI bus. */
extern const struct check_ops gpu_checks_host[];
extern const struct check_ops gpu_without_cuda; /* for every other CHECK_GPU row: skipped, and why */

/* False when the verdict is set already (none bought and none found; bought, but no device files); else *ret_nodes
 * is the number of /dev/nvidiaN. */
bool gpu_presence_nodes(const struct check_ctx *c, struct agent_result *r, int *ret_nodes);

/* GPUs and NVSwitches of NVIDIA on the PCI bus; -1 when the bus cannot be read. */
int gpu_pci_count(void);
int gpu_pci_switches(void);

#endif
