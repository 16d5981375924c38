/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's environment, for gpu.presence: versions of its parts, the fabric manager of machines with NVSwitch,
 * nouveau, variables that change CUDA. Reads files, runs nv-fabricmanager --version. One thread. */
#include "base/gp_base.h"

#include "presence_cuda.h"

#include "base/clock.h"
#include "base/fs.h"
#include "gpu.h"
#include "health_cuda.h"
#include "validate/agent/base/command.h"

#define FM "nvidia-fabricmanager"

/* Variables that make CUDA slower, write files or change its order; a login shell must not set them. */
static const char *const bad_variables[] = {
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_INJECTION64_PATH",
    "CUDA_PROFILE",
    "COMPUTE_PROFILE",
    "CUDA_COREDUMP_FILE",
    "CUDA_AUTO_BOOST",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "NSIGHT_CUDA_DEBUGGER",
};

static void judge_environment(struct agent_result *r) {
    GP_AUTO_STR struct str set = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad_variables); i++)
        if (getenv(bad_variables[i]) != NULL) str_addf(&set, "%s%s", set.len > 0 ? ", " : "", bad_variables[i]);
    if (set.len > 0)
        health_blame(r, VERDICT_DEGRADED, "environment", "unset it for this login, and find the file that sets it",
                     "the environment changes CUDA's behaviour: %s", set.s);
}

/* --- fabric manager --- */

/* "Fabric Manager version is : 580.65.06" */
static bool fabric_manager_version(int64_t deadline_ms, char *dst, size_t n) {
    static const char *const argv[] = {"nv-fabricmanager", "--version", NULL};
    GP_AUTO_STR struct str out = {0};
    int status = 0;
    dst[0] = '\0';
    int64_t end = GP_MIN(clock_deadline(3000), deadline_ms);
    if (command_run(argv, end, &out, &status, NULL) < 0) return false;
    const char *p = out.s != NULL ? strstr(out.s, "ersion") : NULL;
    p = p != NULL ? strpbrk(p, "0123456789") : NULL;
    if (p == NULL) return false;
    size_t len = GP_MIN(strspn(p, "0123456789."), n - 1);
    memcpy(dst, p, len);
    dst[len] = '\0';
    return true;
}

static void judge_fabric_manager(bool started, const char *driver, int64_t deadline_ms, struct agent_result *r) {
    char version[48];
    int switches = gpu_pci_switches();
    bool there = fabric_manager_version(deadline_ms, version, sizeof version);
    if (switches > 0) agent_data_int(r, "nvswitches", switches);
    if (there) agent_data_str(r, "fabric_manager", version);
    if (!there || driver[0] == '\0' || str_eq(version, driver)) {
        if (!there && switches > 0 && str_eq(r->code, "cuda_802"))
            agent_suggest(r, "install " FM " of exactly version %s and start it",
                          driver[0] != '\0' ? driver : "of the driver");
        return;
    }
    if (str_eq(r->code, "cuda_802"))
        agent_suggest(r,
                      FM " is version %s, the driver is %s: install exactly the driver's version and start "
                         "it",
                      version, driver);
    else if (switches > 0 && started)
        health_blame(r, VERDICT_FAIL, "fabric_version",
                     "install " FM " of exactly the driver's version and hold both packages",
                     FM " is version %s, the driver is %s: after the next start the NVSwitch fabric stays down",
                     version, driver);
}

/* --- the driver's own parts --- */

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..." */
static void kernel_module_version(char *dst, size_t n) {
    GP_AUTO_STR struct str s = {0};
    dst[0] = '\0';
    if (fs_read("/proc/driver/nvidia/version", 4096, &s, NULL) < 0 || s.s == NULL) return;
    const char *p = strstr(s.s, "Kernel Module");
    p = p != NULL ? strpbrk(p, "0123456789\n") : NULL;
    /* "Kernel Module for x86_64  580.65.06": the version is the one with a dot */
    while (p != NULL && *p != '\n' && p[strspn(p, "0123456789")] != '.')
        p = strpbrk(p + strspn(p, "0123456789"), "0123456789\n");
    if (p == NULL || *p == '\n') return;
    size_t len = GP_MIN(strspn(p, "0123456789."), n - 1);
    memcpy(dst, p, len);
    dst[len] = '\0';
}

static void judge_module(const char *driver, struct agent_result *r) {
    char module[48];
    kernel_module_version(module, sizeof module);
    if (module[0] == '\0') return;
    agent_data_str(r, "kernel_module", module);
    if (driver[0] != '\0' && !str_eq(module, driver))
        health_blame(r, VERDICT_FAIL, "nvml_mismatch",
                     "reboot, because an upgrade replaced the library under a loaded module, and hold the driver's "
                     "packages",
                     "the kernel module is %s, the driver's libraries are %s", module, driver);
}

void presence_surroundings(bool started, const char *driver, int64_t deadline_ms, struct agent_result *r) {
    int bus = gpu_pci_count();
    bool nouveau = fs_exists("/sys/module/nouveau");
    if (bus > 0) agent_data_int(r, "pci_gpus", bus);
    agent_data_bool(r, "dev_nvidiactl", fs_exists("/dev/nvidiactl"));
    agent_data_bool(r, "dev_nvidia_uvm", fs_exists("/dev/nvidia-uvm"));
    judge_fabric_manager(started, driver, deadline_ms, r);
    judge_module(driver, r);
    if (!started) {
        if (nouveau)
            agent_suggest(r, "blacklist the module 'nouveau', which holds the GPU, rebuild the initramfs and "
                             "reboot");
        else if (str_eq(r->code, "cuda_999") && !fs_exists("/dev/nvidia-uvm"))
            agent_suggest(r, "load the module nvidia-uvm (nvidia-modprobe -u -c=0) or pass /dev/nvidia-uvm, which is "
                             "missing, into this container");
        return;
    }
    if (nouveau)
        health_blame(r, VERDICT_DEGRADED, "nouveau",
                     "blacklist it, rebuild the initramfs and reboot: it takes the GPU at the next start",
                     "the module 'nouveau' is loaded beside NVIDIA's driver");
    judge_environment(r);
}
