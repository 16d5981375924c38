/* SPDX-License-Identifier: Apache-2.0 */
/* Finds libnvidia-ml at run time, starts it, finds a device by its PCI address and receives Xid events. Reads no
 * counter (nvml_read_cuda.c does). Called in a worker process, never before a fork. */
#include "base/gp_base.h"

#include "nvml_api_cuda.h"

#include "cuda.h"

#include <dlfcn.h>

#define SYMBOL(member, name) \
    { name, offsetof(struct nvml_api, member) }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL(init, "nvmlInit_v2"),
    SYMBOL(error, "nvmlErrorString"),
    SYMBOL(count, "nvmlDeviceGetCount_v2"),
    SYMBOL(by_pci, "nvmlDeviceGetHandleByPciBusId_v2"),
    SYMBOL(driver_version, "nvmlSystemGetDriverVersion"),
    SYMBOL(name, "nvmlDeviceGetName"),
    SYMBOL(nvml_version, "nvmlSystemGetNVMLVersion"),
    SYMBOL(cuda_version, "nvmlSystemGetCudaDriverVersion_v2"),
    SYMBOL(process_name, "nvmlSystemGetProcessName"),
    SYMBOL(serial, "nvmlDeviceGetSerial"),
    SYMBOL(uuid, "nvmlDeviceGetUUID"),
    SYMBOL(vbios, "nvmlDeviceGetVbiosVersion"),
    SYMBOL(pci, "nvmlDeviceGetPciInfo_v3"),
    SYMBOL(memory, "nvmlDeviceGetMemoryInfo"),
    SYMBOL(ecc_mode, "nvmlDeviceGetEccMode"),
    SYMBOL(ecc_default, "nvmlDeviceGetDefaultEccMode"),
    SYMBOL(mig_mode, "nvmlDeviceGetMigMode"),
    SYMBOL(persistence, "nvmlDeviceGetPersistenceMode"),
    SYMBOL(compute_mode, "nvmlDeviceGetComputeMode"),
    SYMBOL(fabric, "nvmlDeviceGetGpuFabricInfoV"),
    SYMBOL(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3"),
    SYMBOL(graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3"),
    SYMBOL(temperature, "nvmlDeviceGetTemperature"),
    SYMBOL(temperature_limit, "nvmlDeviceGetTemperatureThreshold"),
    SYMBOL(power, "nvmlDeviceGetPowerUsage"),
    SYMBOL(power_limit, "nvmlDeviceGetEnforcedPowerLimit"),
    SYMBOL(clock, "nvmlDeviceGetClockInfo"),
    SYMBOL(utilization, "nvmlDeviceGetUtilizationRates"),
    SYMBOL(reasons, "nvmlDeviceGetCurrentClocksEventReasons"),
    SYMBOL(reasons_old, "nvmlDeviceGetCurrentClocksThrottleReasons"),
    SYMBOL(pcie_gen, "nvmlDeviceGetCurrPcieLinkGeneration"),
    SYMBOL(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth"),
    SYMBOL(pcie_gen_max, "nvmlDeviceGetMaxPcieLinkGeneration"),
    SYMBOL(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth"),
    SYMBOL(pcie_replays, "nvmlDeviceGetPcieReplayCounter"),
    SYMBOL(ecc_total, "nvmlDeviceGetTotalEccErrors"),
    SYMBOL(ecc_place, "nvmlDeviceGetMemoryErrorCounter"),
    SYMBOL(sram, "nvmlDeviceGetSramEccErrorStatus"),
    SYMBOL(remapped, "nvmlDeviceGetRemappedRows"),
    SYMBOL(retired, "nvmlDeviceGetRetiredPages"),
    SYMBOL(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus"),
    SYMBOL(link_state, "nvmlDeviceGetNvLinkState"),
    SYMBOL(link_errors, "nvmlDeviceGetNvLinkErrorCounter"),
    SYMBOL(fields, "nvmlDeviceGetFieldValues"),
    SYMBOL(event_set_new, "nvmlEventSetCreate"),
    SYMBOL(event_set_free, "nvmlEventSetFree"),
    SYMBOL(event_register, "nvmlDeviceRegisterEvents"),
    SYMBOL(event_wait, "nvmlEventSetWait_v2"),
};

struct nvml_api nvml_api;
static struct str path;
static bool started;

static int fail(struct gp_error *err, const char *detail, const char *text, const char *what) {
    int rc = gp_fail(err, GP_EENV, "%s: %s", text, what);
    if (err) {
        err->domain = GP_D_NODE;
        str_put(err->detail, sizeof err->detail, detail);
    }
    return rc;
}

static int fail_rc(struct gp_error *err, int rc, const char *text) {
    char number[16];
    GP_AUTO_FREE char *what = xasprintf("%s (%d)", nvml_api.error(rc), rc);
    snprintf(number, sizeof number, "%d", rc);
    return fail(err, number, text, what);
}

static int load(struct gp_error *err) {
    GP_AUTO_STR struct str why = {0};
    void *lib = library_open("libnvidia-ml.so.1", &path, &why);
    if (!lib) return fail(err, "NO_NVML", "cannot load NVML's library", why.s);
    struct nvml_api found = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(symbols); i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f && i < NVML_REQUIRED) return fail(err, "OLD_NVML", "NVML's library lacks a function", symbols[i].name);
        memcpy((char *)&found + symbols[i].offset, &f, sizeof f);
    }
    nvml_api = found;
    return 0;
}

int nvml_start(struct gp_error *err) {
    if (started) return 0;
    int rc = nvml_api.init ? 0 : load(err);
    if (rc < 0) return rc;
    int r = nvml_api.init();
    if (r) return fail_rc(err, r, "NVML does not start");
    started = true;
    return 0;
}

const char *nvml_path(void) { return path.s ? path.s : ""; }

const char *nvml_advice(const struct gp_error *err) {
    static const struct {
        const char *detail, *advice;
    } words[] = {
        {"NO_NVML", "install the driver's libnvidia-ml (part of nvidia-utils or nvidia-driver-NVML); "
                    "in a container add the driver's 'utility' capability"},
        {"OLD_NVML", "install a newer driver branch"},
        {"9", "load the driver's kernel module (modprobe nvidia), and check 'dkms status'"},
        {"15", "look for 'NVRM: Xid' in the kernel log (79: fallen off the bus); replace the node"},
        {"16", "reset the GPU (nvidia-smi -r) or reboot"},
        {"17", "allow this cgroup to use /dev/nvidia*: generate CDI files, or restart the container"},
        {"18", "reboot, because an upgrade replaced the library under a loaded module, and hold the driver's "
               "packages"},
        {"999", "in a container use CDI, because a daemon-reload removes its devices; else look for 'NVRM' in the "
                "kernel log"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++)
        if (str_eq(words[i].detail, err->detail)) return words[i].advice;
    return "";
}

void nvml_system_read(struct nvml_system *ret) {
    unsigned n = 0;
    int cuda = 0;
    *ret = (struct nvml_system){.gpus = NVML_NOT_TOLD, .cuda = NVML_NOT_TOLD};
    if (nvml_api.count(&n) == 0) ret->gpus = (int64_t)n;
    if (nvml_api.cuda_version && nvml_api.cuda_version(&cuda) == 0) ret->cuda = cuda;
    if (nvml_api.driver_version(ret->driver, sizeof ret->driver)) ret->driver[0] = 0;
    if (!nvml_api.nvml_version || nvml_api.nvml_version(ret->nvml, sizeof ret->nvml)) ret->nvml[0] = 0;
}

int nvml_device_at(const char *pci, nvml_device *ret, struct gp_error *err) {
    int rc = nvml_start(err);
    if (rc < 0) return rc;
    int r = nvml_api.by_pci(pci, ret);
    if (!r) return 0;
    GP_AUTO_FREE char *text = xasprintf("NVML does not know the GPU at %s", pci);
    return fail_rc(err, r, text);
}

int nvml_device_of(int gpu, nvml_device *ret, struct gp_error *err) {
    static int known = -1;
    static nvml_device device;
    const struct cuda_api *cu = NULL;
    char pci[32];
    cu_device d = 0;
    if (known == gpu) {
        *ret = device;
        return 0;
    }
    int rc = cuda_start(&cu, err);
    if (rc < 0) return rc;
    cu_result r = cu->device_get(&d, gpu);
    if (!r) r = cu->device_pci(pci, sizeof pci, d);
    if (r) return cuda_fail(err, r, "gpu %d: read its PCI address", gpu);
    rc = nvml_device_at(pci, &device, err);
    if (rc < 0) return rc;
    known = gpu;
    *ret = device;
    return 0;
}

/* --- Xid events --- */

static nvml_event_set xids;

void nvml_xids_watch(nvml_device d) {
    if (xids) nvml_api.event_set_free(xids);
    xids = NULL;
    if (!nvml_api.event_set_new || !nvml_api.event_set_free || !nvml_api.event_register || !nvml_api.event_wait ||
        nvml_api.event_set_new(&xids)) {
        xids = NULL;
        return;
    }
    if (nvml_api.event_register(d, NVML_EVENT_XID, xids)) {
        nvml_api.event_set_free(xids);
        xids = NULL;
    }
}

int nvml_xids_take(int64_t *ret, int max) {
    int n = 0;
    struct nvml_event e;
    if (!xids) return -1;
    for (int tries = 0; tries < 1000 && nvml_api.event_wait(xids, &e, 0) == 0; tries++)
        if (e.type == NVML_EVENT_XID && n < max) ret[n++] = (int64_t)e.data;
    return n;
}
