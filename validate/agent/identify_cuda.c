/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU is it: the PCI ids that the model table is keyed by, from the driver or the PCI bus
 * (measure_cuda.c), else from NVML. What neither says stays unknown. One thread. */
#include "base/gp_base.h"

#include "cuda.h"
#include "nvml_cuda.h"

#include <ctype.h>

static void from_nvml(int index, struct gpu_identity *ret)
{
    nvml_device d = NULL;
    struct nvml_facts f;
    if (nvml_start(NULL) || nvml_device_of(index, &d, NULL))
        return;
    nvml_facts_read(d, &f);
    ret->device = f.pci_device > 0 ? (unsigned)f.pci_device : 0;
    ret->subsystem = f.pci_subsystem > 0 ? (unsigned)f.pci_subsystem : 0;
}

void cuda_identify(struct device *d, int index, struct gpu_identity *ret)
{
    cu_device dev = 0;
    const struct cuda_api *cu = cuda_of(d);
    if (cu->device_get(&dev, index) || cu->device_pci(ret->pci, sizeof ret->pci, dev))
        ret->pci[0] = 0;
    for (char *p = ret->pci; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (!cuda_pci_ids(d, &ret->device, &ret->subsystem))
        from_nvml(index, ret);
}
