/* SPDX-License-Identifier: Apache-2.0 */
/* Reads facts of the machine that this program runs on. Blocks on local files only. */
#ifndef GP_ENGINE_MACHINE_H
#define GP_ENGINE_MACHINE_H

#include "model/certificate.h"

/* Reads the boot id, NVIDIA's driver and its GPUs from /proc. machine_clear frees ret. -GP_EENV: the boot id cannot be
 * read. */
int machine_read(struct machine *ret, struct gp_error *err);
#define GP_AUTO_MACHINE GP_CLEANUP(machine_clear)
/* Counts /dev/nvidiaN; if there is none, the NVIDIA GPUs on the PCI bus. Uses no driver. */
int machine_gpu_count(void);

#endif
