/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's driver API by dlopen at run time: loading (load_cuda.c), the device (device_cuda.c) and queries of the
 * GPU checks. Only the functions that we call are declared, by hand, so that the agent builds without the toolkit's
 * headers. One process loads once; not thread-safe. */
#ifndef GP_AGENT_CUDA_H
#define GP_AGENT_CUDA_H

#include "validate/agent/agent.h"

typedef int cu_result; /* CUresult */
typedef int cu_device; /* CUdevice */
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;

enum { /* CUresult values that are distinguished */
       CU_OUT_OF_MEMORY = 2,
       CU_STUB_LIBRARY = 34,
       CU_INSUFFICIENT_DRIVER = 35,
       CU_DEVICE_UNAVAILABLE = 46,
       CU_NO_DEVICE = 100,
       CU_INVALID_DEVICE = 101,
       CU_NO_BINARY = 209,
       CU_ECC_UNCORRECTABLE = 214,
       CU_INVALID_IMAGE = 200,
       CU_UNSUPPORTED_PTX = 222,
       CU_NOT_READY = 600,
       CU_PEER_UNSUPPORTED = 217,
       CU_INVALID_PTX = 218,
       CU_PEER_ENABLED = 704,
       CU_PEER_NOT_ENABLED = 705,
       CU_ILLEGAL_ADDRESS = 700,
       CU_LAUNCH_FAILED = 719,
       CU_SYSTEM_NOT_READY = 802,
       CU_DRIVER_MISMATCH = 803,
       CU_COMPAT_NOT_SUPPORTED = 804,
       CU_UNKNOWN = 999
};

enum { /* CUdevice_attribute */
       CU_ATTR_SHARED_PER_BLOCK = 8,
       CU_ATTR_CLOCK_KHZ = 13,
       CU_ATTR_SMS = 16,
       CU_ATTR_COMPUTE_MODE = 20,
       CU_ATTR_ECC = 32,
       CU_ATTR_MEMORY_CLOCK_KHZ = 36,
       CU_ATTR_MEMORY_BUS_BITS = 37,
       CU_ATTR_L2_BYTES = 38,
       CU_ATTR_COPY_ENGINES = 40,
       CU_ATTR_MAJOR = 75,
       CU_ATTR_MINOR = 76,
       CU_ATTR_SHARED_OPTIN = 97,
       CU_ATTR_PCI_IDS = 139, /* device << 16 | vendor; drivers of CUDA 12.8 and later */
       CU_ATTR_PCI_SUBSYSTEM = 140
};

struct cuda_api {
    cu_result (*init)(unsigned flags);
    cu_result (*driver_version)(int *ret);
    cu_result (*error_name)(cu_result r, const char **ret);
    cu_result (*device_count)(int *ret);
    cu_result (*device_get)(cu_device *ret, int index);
    cu_result (*device_name)(char *dst, int n, cu_device d);
    cu_result (*device_memory)(size_t *ret_bytes, cu_device d);
    cu_result (*device_attribute)(int *ret, int attribute, cu_device d);
    cu_result (*device_pci)(char *dst, int n, cu_device d);
    cu_result (*context_retain)(cu_context *ret, cu_device d);
    cu_result (*context_release)(cu_device d);
    cu_result (*context_use)(cu_context c);
    cu_result (*memory_info)(size_t *ret_free, size_t *ret_total);
    cu_result (*memory_alloc)(dev_addr *ret, size_t bytes);
    cu_result (*memory_free)(dev_addr p);
    cu_result (*host_alloc)(void **ret, size_t bytes, unsigned flags);
    cu_result (*host_free)(void *p);
    cu_result (*copy_to)(dev_addr dst, const void *src, size_t bytes, cu_stream s);
    cu_result (*copy_from)(void *dst, dev_addr src, size_t bytes, cu_stream s);
    cu_result (*copy_within)(dev_addr dst, dev_addr src, size_t bytes, cu_stream s);
    cu_result (*copy_peer)(dev_addr dst, cu_context dst_context, dev_addr src, cu_context src_context, size_t bytes,
                           cu_stream s);
    cu_result (*peer_can)(int *ret, cu_device d, cu_device other);
    cu_result (*peer_enable)(cu_context other, unsigned flags);
    cu_result (*peer_disable)(cu_context other);
    cu_result (*stream_new)(cu_stream *ret, unsigned flags);
    cu_result (*stream_free)(cu_stream s);
    cu_result (*stream_query)(cu_stream s);
    cu_result (*stream_wait)(cu_stream s, cu_event e, unsigned flags);
    cu_result (*event_new)(cu_event *ret, unsigned flags);
    cu_result (*event_free)(cu_event e);
    cu_result (*event_record)(cu_event e, cu_stream s);
    cu_result (*event_query)(cu_event e);
    cu_result (*event_elapsed)(float *ret_ms, cu_event from, cu_event to);
    cu_result (*module_load)(cu_module *ret, const void *image);
    cu_result (*module_unload)(cu_module m);
    cu_result (*module_function)(cu_function *ret, cu_module m, const char *name);
    cu_result (*launch)(cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, cu_stream s, void **params, void **extra);
};

/* Loads libcuda.so.1 once and resolves every function above. -GP_EENV with detail "NO_DRIVER" when no such library
 * loads (the message has the loader's reason), "OLD_DRIVER" when one lacks a function. Does not call cuInit. */
int cuda_load(const struct cuda_api **ret, struct gp_error *err);
const char *cuda_path(void); /* what was loaded; "" */

/* cuda_load + cuInit, once per process. The detail of an error is the driver's own code ("802"). */
int cuda_start(const struct cuda_api **ret, struct gp_error *err);

/* Sets err: "WHAT: ERROR_NAME (802): meaning". detail: the number. domain GP_D_NODE. */
int cuda_fail(struct gp_error *err, cu_result r, const char *fmt, ...) GP_PRINTF(3, 4);
/* Advice for an error code; "" if there is none. */
const char *cuda_advice(cu_result r);

/* Turns an error of cuda_start, device_cuda.open or a launch into a verdict with advice. */
void cuda_verdict(struct agent_result *r, const struct gp_error *err);

/* Opens a library by the agent's search order (GPUPROV_LIBRARY_PATH, the loader's own, the usual
 * folders, CUDA toolkits, Python's packages). NULL: none; why: the loader's last message. */
void *library_open(const char *name, struct str *ret_path, struct str *why);

/* --- an opened CUDA device, beyond device_ops --- */

const struct cuda_api *cuda_of(const struct device *d);
cu_context cuda_context(const struct device *d);
/* Everything that device_ops queues goes here: a stream of its own that waits for no other. */
cu_stream cuda_stream(const struct device *d);
/* A driver attribute (CU_ATTR_...); negative if the driver does not report it. */
int cuda_attribute(const struct device *d, int attribute);
/* Its PCI ids without the vendor ("2330"; subsystem 0 when not known), from the driver, else from sysfs. False:
 * neither has them. */
bool cuda_pci_ids(const struct device *d, unsigned *ret_device, unsigned *ret_subsystem);

/* Sets the deadline, monotonic ms, of waits inside the device (copies without their own deadline, trials of
 * algorithms): the running check's. 0: each has its own limit. */
void cuda_deadline(struct device *d, int64_t deadline_ms);

/* GPU time by the driver's events: marks 0 to CUDA_MARKS - 1 are recorded in the device's stream; once
 * sync has returned, seconds between two of them. Rates are measured this way only, never by the
 * host's clock. */
#define CUDA_MARKS 64
int cuda_mark(struct device *d, int mark, struct gp_error *err);
int cuda_elapsed(struct device *d, int from, int to, double *ret_s, struct gp_error *err);

/* Page-locked host memory, near the GPU where the kernel allows the choice. Freed with the device;
 * at most until then. bytes > 0. */
int cuda_host_alloc(struct device *d, size_t bytes, void **ret, struct gp_error *err);
void cuda_host_free(struct device *d, void *p);
/* As device_ops.copy, but only queued; host memory must come from cuda_host_alloc (of any device). */
int cuda_copy_queue(struct device *d, const struct copy_args *a, struct gp_error *err);
/* Queues a copy to memory of another device that this process has opened too. enable: requests direct access from
 * the driver; *ret_direct: whether it exists (else the copy goes through the host). */
int cuda_peer_enable(struct device *d, struct device *other, bool *ret_direct, struct gp_error *err);
/* Ends the access: without NVSwitch a GPU can have eight such peers at a time. */
int cuda_peer_disable(struct device *d, struct device *other, struct gp_error *err);
int cuda_copy_peer(struct device *d, dev_addr src, struct device *other, dev_addr dst, size_t bytes,
                   struct gp_error *err);

/* Starts the library for matrix products (cuBLASLt may take a minute to load from a cold disk); else the first
 * product does. Does not fail without cuBLASLt: our own kernels multiply then. */
int cuda_gemm_start(struct device *d, struct gp_error *err);
/* The library of device_ops.gemm: "cuBLASLt 13.1.0"; "own kernels (WHY)" without one: their rate means little for
 * the GPU. Lives as long as the device. GPUPROV_CUBLASLT=off selects own kernels. */
const char *cuda_gemm_by(struct device *d);
/* The algorithm of device_ops.gemm for this shape, as a number; the fastest is chosen by its time, so two GPUs of a
 * model may differ. 0: our own kernels. Valid after the first such product. */
uint64_t cuda_gemm_algorithm(struct device *d, const struct gemm_args *a);
/* The same product by our own tensor-core kernels (not F32, whose own kernel is in_order; FP16 from sm_75
 * on, FP8 from sm_89, the others sm_80), also with cuBLASLt. sms: the multiprocessor of each tile of C, an int32
 * (%smid) for every CUDA_TILE x CUDA_TILE elements, row by row, batch by batch; 0: not wanted. May return before it
 * is done. */
#define CUDA_TILE 128
int cuda_gemm_own(struct device *d, const struct gemm_args *a, dev_addr sms, struct gp_error *err);
/* 0 if the GPU has this type for device_ops.gemm; else err names the missing part. */
int cuda_gemm_has(struct device *d, enum gemm_type type, struct gp_error *err);

/* Free and total memory of an opened CUDA device. */
int cuda_memory(struct device *d, size_t *ret_free, size_t *ret_total, struct gp_error *err);

/* agent_kind.device_kind: the GPU's name, its SMs, the driver's and cuBLASLt's versions. */
void cuda_device_kind(struct device *d, char *dst, size_t n);
/* agent_kind.identify: PCI ids from the driver, else from sysfs. */
void cuda_identify(int index, struct gpu_identity *ret);
/* agent_kind.holders: other processes on that GPU, by NVML: "1234 (python3), 1240". */
void cuda_holders(int index, struct str *ret);

/* For kind_cuda.c; checks of memory, links and arithmetic are in samples.h. */
void gpu_presence_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_stress_cuda(struct check_ctx *c, struct agent_result *r);

/* Fatbins of this build, newest toolkit first; cuda 0 ends. */
struct cuda_fatbin {
    int cuda; /* 12090: the driver must be at least of this major version */
    const void *image;
};
extern const struct cuda_fatbin cuda_fatbins[];

#endif
