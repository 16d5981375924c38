/* SPDX-License-Identifier: Apache-2.0 */
/* The part of gpu.presence without a driver's library: device files, the kernel module, the PCI bus. In both
 * programs; calls no driver. One thread. */
#include "base/gp_base.h"

#include "gpu.h"

#include "base/fs.h"

#include <dirent.h>

/* NVIDIA's devices on the PCI bus whose class starts with class_starts; -1 when the bus cannot be read. */
static int pci_count(const char *class_starts) {
    static const char folder[] = "/sys/bus/pci/devices";
    DIR *d = opendir(folder);
    if (!d) return -1;
    int n = 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        GP_AUTO_FREE char *vendor = xasprintf("%s/%s/vendor", folder, e->d_name);
        GP_AUTO_FREE char *class = xasprintf("%s/%s/class", folder, e->d_name);
        GP_AUTO_STR struct str v = {0};
        GP_AUTO_STR struct str c = {0};
        if (fs_read(vendor, 64, &v, NULL) || fs_read(class, 64, &c, NULL) || !v.s || !c.s) continue;
        n += str_starts(v.s, "0x10de") && str_starts(c.s, class_starts);
    }
    closedir(d);
    return n;
}

int gpu_pci_count(void) { return pci_count("0x03"); /* display and 3D controllers */ }

int gpu_pci_switches(void) { return pci_count("0x0680"); /* other bridges */ }

static void no_nodes(const struct check_ctx *c, struct agent_result *r) {
    int bus = gpu_pci_count();
    bool module = fs_exists("/proc/driver/nvidia/version");
    agent_set(r, VERDICT_FAIL, "no_device_nodes", "no GPU device files: %d GPU%s bought, no /dev/nvidia* found; %s",
              c->gpus_expected, c->gpus_expected == 1 ? "" : "s",
              module    ? "the driver's module is loaded"
              : bus > 0 ? "the GPUs are on the PCI bus, but no driver is loaded"
                        : "no NVIDIA GPU is on the PCI bus either");
    agent_suggest(r, "%s",
                  module    ? "run 'nvidia-modprobe -u -c=0', or pass the devices into this container"
                  : bus > 0 ? "install a driver for this kernel, and look at 'dkms status'"
                            : "the machine has no GPU: buy another instance type, or replace the node");
    if (bus >= 0) agent_data_int(r, "pci", bus);
    agent_data_bool(r, "module", module);
}

bool gpu_presence_nodes(const struct check_ctx *c, struct agent_result *r, int *ret_nodes) {
    int nodes = agent_dev_nvidia_count();
    agent_data_int(r, "dev_nodes", nodes);
    if (c->gpus_expected >= 0) agent_data_int(r, "expected", c->gpus_expected);
    *ret_nodes = nodes;
    if (nodes > 0) return true;
    if (c->gpus_expected > 0) no_nodes(c, r);
    else agent_set(r, VERDICT_SKIPPED, "no_gpu", "no GPU was bought, and none was found");
    return false;
}

static void presence_host(struct check_ctx *c, struct agent_result *r) {
    int nodes = 0;
    if (!gpu_presence_nodes(c, r, &nodes)) return;
    agent_set(r, VERDICT_ERROR, "no_cuda_agent",
              "found %d GPU device file%s, but this agent has no CUDA and cannot use the driver", nodes,
              nodes == 1 ? "" : "s");
    agent_suggest(r, "use a gpuprov that was built with a CUDA toolkit (see 'gpuprov doctor')");
}

static bool no_cuda(struct check_ctx *c, struct agent_result *r) {
    (void)c;
    agent_set(r, VERDICT_SKIPPED, "no_cuda_agent", "this agent has no CUDA");
    return false;
}

const struct check_ops gpu_checks_host[] = {
    {.id = "gpu.presence", .run = presence_host},
    {.id = NULL},
};

const struct check_ops gpu_without_cuda = {.needs = no_cuda, .run = presence_host};
