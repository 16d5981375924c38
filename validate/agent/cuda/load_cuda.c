/* SPDX-License-Identifier: Apache-2.0 */
/* Finds libcuda at run time and describes its errors. Never links against it; keeps it loaded until the process
 * ends. Called in a worker process, never before a fork. */
#include "base/gp_base.h"

#include "cuda.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdarg.h>

static const char *const usual_folders[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",      "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",          "/run/opengl-driver/lib",     "/usr/lib/nvidia",
};

static void *try_open(const char *folder, const char *name, struct str *ret_path, struct str *why) {
    GP_AUTO_STR struct str path = {0};
    str_addf(&path, "%s%s%s", folder, *folder ? "/" : "", name);
    void *lib = dlopen(path.s, RTLD_NOW | RTLD_LOCAL);
    if (lib) {
        str_reset(ret_path);
        str_add(ret_path, path.s);
    } else {
        const char *said = dlerror();
        /* "cannot open" of a guessed folder is less useful than an earlier message. */
        if (!why->len || (said && !strstr(said, "cannot open shared object"))) {
            str_reset(why);
            str_add(why, said ? said : "no reason given");
        }
    }
    return lib;
}

/* Pythons: $NAME is a variable of the environment, and a * does not match a hidden folder, so .venv is named. Their
 * libraries are in lib (conda's) and in packages (nvidia-cublas-cu12, nvidia-nccl-cu13, nvidia/cu13). */
static const char *const pythons[] = {
    "$VIRTUAL_ENV",
    "$CONDA_PREFIX",
    "$HOME/.local",
    "$HOME/.venv",
    "$HOME/venv",
    "$HOME/*/.venv",
    "/.venv",
    "/venv",
    "/opt/venv",
    "/opt/.venv",
    "/opt/*/.venv",
    "/opt/*/venv",
    "/opt/*",
    "/opt/*/envs/*",
    "$HOME/*conda*",
    "$HOME/*forge*",
    "$HOME/*conda*/envs/*",
    "$HOME/*forge*/envs/*",
    "/root/.venv",
    "/workspace/.venv",
    "/app/.venv",
    "/usr/local",
    "/usr",
};
static const char *const in_python[] = {"lib*/python3*/site-packages/nvidia/*/lib",
                                        "lib*/python3*/dist-packages/nvidia/*/lib", "lib"};
static const char *const toolkits[] = {"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"};

static void *search(const char *base, const char *below, const char *name, struct str *ret_path, struct str *why) {
    GP_AUTO_STR struct str files = {0};
    const char *rest = base;
    if (base[0] == '$') {
        rest = base + strcspn(base, "/");
        GP_AUTO_FREE char *variable = xstrndup(base + 1, (size_t)(rest - base) - 1);
        const char *value = getenv(variable);
        if (!value || !value[0]) return NULL;
        str_add(&files, value);
    }
    str_addf(&files, "%s/%s%s%s", rest, below, *below ? "/" : "", name);
    glob_t found = {0};
    void *lib = NULL;
    /* of several matches the last one is first: it is the newest */
    if (glob(files.s, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; !lib && i > 0; i--) lib = try_open("", found.gl_pathv[i - 1], ret_path, why);
    globfree(&found);
    return lib;
}

void *library_open(const char *name, struct str *ret_path, struct str *why) {
    GP_AUTO_STRV struct strv own = {0};
    const char *path = getenv("GPUPROV_LIBRARY_PATH");
    strv_split(&own, path ? path : "", ":");
    void *lib = NULL;
    for (size_t i = 0; !lib && i < own.n; i++) lib = try_open(own.v[i], name, ret_path, why);
    if (!lib) lib = try_open("", name, ret_path, why);
    for (size_t i = 0; !lib && i < GP_ARRAY_LEN(usual_folders); i++)
        lib = try_open(usual_folders[i], name, ret_path, why);
    for (size_t i = 0; !lib && i < GP_ARRAY_LEN(toolkits); i++) lib = search(toolkits[i], "", name, ret_path, why);
    for (size_t i = 0; !lib && i < GP_ARRAY_LEN(pythons); i++)
        for (size_t k = 0; !lib && k < GP_ARRAY_LEN(in_python); k++)
            lib = search(pythons[i], in_python[k], name, ret_path, why);
    return lib;
}

/* --- libcuda --- */

static const struct {
    const char *name;
    size_t offset;
} cuda_symbols[] = {
    {"cuInit", offsetof(struct cuda_api, init)},
    {"cuDriverGetVersion", offsetof(struct cuda_api, driver_version)},
    {"cuGetErrorName", offsetof(struct cuda_api, error_name)},
    {"cuDeviceGetCount", offsetof(struct cuda_api, device_count)},
    {"cuDeviceGet", offsetof(struct cuda_api, device_get)},
    {"cuDeviceGetName", offsetof(struct cuda_api, device_name)},
    {"cuDeviceTotalMem_v2", offsetof(struct cuda_api, device_memory)},
    {"cuDeviceGetAttribute", offsetof(struct cuda_api, device_attribute)},
    {"cuDeviceGetPCIBusId", offsetof(struct cuda_api, device_pci)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct cuda_api, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct cuda_api, context_release)},
    {"cuCtxSetCurrent", offsetof(struct cuda_api, context_use)},
    {"cuMemGetInfo_v2", offsetof(struct cuda_api, memory_info)},
    {"cuMemAlloc_v2", offsetof(struct cuda_api, memory_alloc)},
    {"cuMemFree_v2", offsetof(struct cuda_api, memory_free)},
    {"cuMemHostAlloc", offsetof(struct cuda_api, host_alloc)},
    {"cuMemFreeHost", offsetof(struct cuda_api, host_free)},
    {"cuMemcpyHtoDAsync_v2", offsetof(struct cuda_api, copy_to)},
    {"cuMemcpyDtoHAsync_v2", offsetof(struct cuda_api, copy_from)},
    {"cuMemcpyDtoDAsync_v2", offsetof(struct cuda_api, copy_within)},
    {"cuMemcpyPeerAsync", offsetof(struct cuda_api, copy_peer)},
    {"cuDeviceCanAccessPeer", offsetof(struct cuda_api, peer_can)},
    {"cuCtxEnablePeerAccess", offsetof(struct cuda_api, peer_enable)},
    {"cuCtxDisablePeerAccess", offsetof(struct cuda_api, peer_disable)},
    {"cuStreamCreate", offsetof(struct cuda_api, stream_new)},
    {"cuStreamDestroy_v2", offsetof(struct cuda_api, stream_free)},
    {"cuStreamQuery", offsetof(struct cuda_api, stream_query)},
    {"cuStreamWaitEvent", offsetof(struct cuda_api, stream_wait)},
    {"cuEventCreate", offsetof(struct cuda_api, event_new)},
    {"cuEventDestroy_v2", offsetof(struct cuda_api, event_free)},
    {"cuEventRecord", offsetof(struct cuda_api, event_record)},
    {"cuEventQuery", offsetof(struct cuda_api, event_query)},
    {"cuEventElapsedTime", offsetof(struct cuda_api, event_elapsed)},
    {"cuModuleLoadData", offsetof(struct cuda_api, module_load)},
    {"cuModuleUnload", offsetof(struct cuda_api, module_unload)},
    {"cuModuleGetFunction", offsetof(struct cuda_api, module_function)},
    {"cuLaunchKernel", offsetof(struct cuda_api, launch)},
};

static struct cuda_api api;
static struct str api_path;
static enum { NOT_LOADED, LOADED, STARTED } api_state;

static int load_fail(struct gp_error *err, const char *detail, const char *text, const char *what) {
    int rc = gp_fail(err, GP_EENV, "%s: %s", text, what);
    if (err) {
        err->domain = GP_D_NODE;
        str_put(err->detail, sizeof err->detail, detail);
    }
    return rc;
}

int cuda_load(const struct cuda_api **ret, struct gp_error *err) {
    if (api_state == NOT_LOADED) {
        GP_AUTO_STR struct str why = {0};
        void *lib = library_open("libcuda.so.1", &api_path, &why);
        if (!lib) return load_fail(err, "NO_DRIVER", "cannot load the driver's library", why.s);
        for (size_t i = 0; i < GP_ARRAY_LEN(cuda_symbols); i++) {
            void *f = dlsym(lib, cuda_symbols[i].name);
            if (!f) return load_fail(err, "OLD_DRIVER", "the driver's library lacks a function", cuda_symbols[i].name);
            memcpy((char *)&api + cuda_symbols[i].offset, &f, sizeof f);
        }
        api_state = LOADED;
    }
    *ret = &api;
    return 0;
}

const char *cuda_path(void) { return api_path.s ? api_path.s : ""; }

int cuda_start(const struct cuda_api **ret, struct gp_error *err) {
    const struct cuda_api *cu = NULL;
    int rc = cuda_load(&cu, err);
    if (rc < 0) return rc;
    if (api_state == LOADED) {
        cu_result r = cu->init(0);
        if (r) return cuda_fail(err, r, "the CUDA driver does not start");
        api_state = STARTED;
    }
    *ret = cu;
    return 0;
}

/* --- errors --- */

static const struct cuda_word {
    cu_result code;
    const char *name, *means, *advice;
} cuda_words[] = {
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "the GPU has no memory left",
     "end the processes that hold the GPU (see nvidia-smi)"},
    {CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the toolkit's stub was loaded instead of the driver's library",
     "remove the toolkit's 'stubs' folder from LD_LIBRARY_PATH and ld.so.conf, and install the driver"},
    {CU_INSUFFICIENT_DRIVER, "CUDA_ERROR_INSUFFICIENT_DRIVER", "the driver is older than the library that calls it",
     "install a newer driver branch"},
    {CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "another process holds the GPU, or its compute mode forbids use",
     "end the other process, or set the compute mode to default (nvidia-smi -c 0)"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "the driver finds no GPU",
     "look for 'NVRM' in the kernel log; replace the node if the GPU is not on the PCI bus "
     "(lspci -d 10de:)"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no GPU has this number",
     "compare 'nvidia-smi -L' with the GPUs bought; replace the node if a GPU is missing"},
    {CU_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "this build has no code for this GPU",
     "build gpuprov with a CUDA toolkit that supports the GPU (CUDA_HOMES)"},
    {CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "the GPU's memory has an error that cannot be corrected",
     "reset the GPU or reboot; replace the node if the error returns"},
    {CU_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is older than the toolkit of this build",
     "install a newer driver branch"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory outside of its own",
     "run again; replace the node if the error returns"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed on the GPU",
     "look for 'NVRM: Xid' in the kernel log; replace the node if the error returns"},
    {CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "the NVSwitch fabric is not up",
     "start nvidia-fabricmanager of exactly the driver's version, then check its log"},
    {CU_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and the library are of different driver versions",
     "reboot, because an upgrade replaced the library under a loaded module, and hold the driver's packages"},
    {CU_COMPAT_NOT_SUPPORTED, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "a forward-compatibility library is in use on a GPU that does not allow it",
     "remove the cuda-compat package, or its folder from LD_LIBRARY_PATH"},
    {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "the driver gives no reason",
     "look for 'NVRM' in the kernel log; check that nvidia-uvm is loaded and /dev/nvidia-uvm exists; reboot, and "
     "replace the node if the error returns"},
};

static const struct cuda_word *cuda_word(cu_result r) {
    for (size_t i = 0; i < GP_ARRAY_LEN(cuda_words); i++)
        if (cuda_words[i].code == r) return &cuda_words[i];
    return NULL;
}

int cuda_fail(struct gp_error *err, cu_result r, const char *fmt, ...) {
    GP_AUTO_STR struct str what = {.max = 200};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&what, fmt, ap);
    va_end(ap);
    const struct cuda_word *w = cuda_word(r);
    const char *name = NULL;
    if (!w && (!api.error_name || api.error_name(r, &name))) name = NULL;
    int rc = gp_fail(err, GP_EENV, "%s: %s (%d)%s%s", what.s,
                     w      ? w->name
                     : name ? name
                            : "error",
                     r, w ? ": " : "", w ? w->means : "");
    if (err) {
        err->domain = GP_D_NODE;
        snprintf(err->detail, sizeof err->detail, "%d", r);
    }
    return rc;
}

const char *cuda_advice(cu_result r) {
    const struct cuda_word *w = cuda_word(r);
    return w ? w->advice : "";
}

void cuda_verdict(struct agent_result *r, const struct gp_error *err) {
    int64_t code = 0;
    if (err->code == GP_ETIMEOUT) {
        agent_set_error(r, VERDICT_FAIL, "gpu_hang", err);
        agent_suggest(r, "look for 'NVRM: Xid' in the kernel log; reset the GPU or replace the node");
    } else if (str_eq(err->detail, "AGENT_TOO_NEW")) {
        agent_set_error(r, VERDICT_SKIPPED, "old_driver", err);
        agent_suggest(r, "install a newer driver branch, or build gpuprov with an older CUDA toolkit too "
                         "(CUDA_HOMES)");
    } else if (str_eq(err->detail, "NO_DRIVER") || str_eq(err->detail, "OLD_DRIVER")) {
        agent_set_error(r, VERDICT_FAIL, err->detail[0] == 'N' ? "no_driver" : "old_driver", err);
        agent_suggest(r, "install the NVIDIA driver, which contains libcuda.so.1, or set "
                         "GPUPROV_LIBRARY_PATH to its folder");
    } else if (str_to_i64(err->detail, 1, 100000, &code)) {
        GP_AUTO_FREE char *name = xasprintf("cuda_%s", err->detail);
        /* Missing memory or code for this GPU is no fault of the GPU. */
        bool ours = code == CU_OUT_OF_MEMORY || code == CU_NO_BINARY || code == CU_UNSUPPORTED_PTX;
        agent_set_error(r, ours ? VERDICT_ERROR : VERDICT_FAIL, name, err);
        agent_suggest(r, "%s", cuda_advice((cu_result)code));
    } else {
        agent_set_error(r, VERDICT_ERROR, "cuda", err);
    }
}
