/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a GPU: its PCI ids, the key of the model table, from the driver (12.9 and newer), from the PCI bus in
 * sysfs, or from NVML; else unknown. Also the other processes on it. One thread. */
#include "base/gp_base.h"

#include "cuda.h"
#include "nvml_cuda.h"

#include "base/fs.h"

#include <ctype.h>
#include <inttypes.h>
#include <unistd.h>

enum { NVIDIA = 0x10de };

static unsigned sysfs_number(const char *pci, const char *file) {
    GP_AUTO_FREE char *path = xasprintf("/sys/bus/pci/devices/%s/%s", pci, file);
    GP_AUTO_STR struct str s = {0};
    if (fs_read(path, 64, &s, NULL)) return 0;
    return (unsigned)strtoul(s.s, NULL, 16) & 0xffff;
}

/* The driver packs vendor (low half) and id (high half) into one number. */
static bool from_driver(const struct cuda_api *cu, cu_device d, struct gpu_identity *ret) {
    int device = 0, subsystem = 0;
    if (cu->device_attribute(&device, CU_ATTR_PCI_IDS, d) || ((unsigned)device & 0xffff) != NVIDIA) return false;
    ret->device = (unsigned)device >> 16;
    if (!cu->device_attribute(&subsystem, CU_ATTR_PCI_SUBSYSTEM, d)) ret->subsystem = (unsigned)subsystem >> 16;
    return true;
}

static bool from_sysfs(struct gpu_identity *ret) {
    if (!ret->pci[0] || sysfs_number(ret->pci, "vendor") != NVIDIA) return false;
    ret->device = sysfs_number(ret->pci, "device");
    ret->subsystem = sysfs_number(ret->pci, "subsystem_device");
    return ret->device != 0;
}

static void from_nvml(int index, struct gpu_identity *ret) {
    nvml_device d = NULL;
    struct nvml_facts f;
    if (nvml_start(NULL) || nvml_device_of(index, &d, NULL)) return;
    nvml_facts_read(d, &f);
    ret->device = f.pci_device > 0 ? (unsigned)f.pci_device : 0;
    ret->subsystem = f.pci_subsystem > 0 ? (unsigned)f.pci_subsystem : 0;
}

void cuda_identify(int index, struct gpu_identity *ret) {
    const struct cuda_api *cu = NULL;
    cu_device d = 0;
    if (cuda_load(&cu, NULL) || cu->device_get(&d, index)) return;
    if (cu->device_pci(ret->pci, sizeof ret->pci, d)) ret->pci[0] = 0;
    for (char *p = ret->pci; *p; p++) *p = (char)tolower((unsigned char)*p);
    enum { EXCLUSIVE_PROCESS = 3 };
    int mode = 0;
    ret->exclusive = cu->device_attribute(&mode, CU_ATTR_COMPUTE_MODE, d) == 0 && mode == EXCLUSIVE_PROCESS;
    if (!from_driver(cu, d, ret) && !from_sysfs(ret)) from_nvml(index, ret);
}

void cuda_holders(int index, struct str *ret) {
    nvml_device d = NULL;
    struct nvml_facts f;
    if (nvml_start(NULL) || nvml_device_of(index, &d, NULL)) return;
    nvml_facts_read(d, &f);
    int64_t own = getpid();
    for (size_t i = 0; i < f.n_processes && i < 8; i++) {
        const struct nvml_process *p = &f.processes[i];
        if (p->pid == own) continue;
        str_addf(ret, "%s%" PRId64 "%s%s%s", ret->len ? ", " : "", p->pid, p->name[0] ? " (" : "", p->name,
                 p->name[0] ? ")" : "");
    }
}
