/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that this program runs on. Blocks on local files alone. */
#ifndef GP_ENGINE_MACHINE_H
#define GP_ENGINE_MACHINE_H

#include "model/certificate.h"

/* From /proc: the boot, NVIDIA's driver and its GPUs. -GP_EENV: the boot cannot be read. */
int machine_read(struct machine *ret, struct gp_error *err);
#define GP_AUTO_MACHINE GP_CLEANUP(machine_clear)
/* /dev/nvidiaN there are; with none, NVIDIA GPUs on the PCI bus. Asks no driver. */
int machine_gpu_count(void);

#endif
