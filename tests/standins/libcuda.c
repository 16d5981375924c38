/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1: the part of the driver API that the agent calls, in host memory, with
 * the agent's own kernels (compiled by gcc) stepped through every block and thread. GPUPROV_STANDIN
 * chooses what it is and how it misbehaves:
 *   gpus=8 memory_mib=64 held_mib=0 driver=13000 differs=1 (the last GPU is another model)
 *   init=802 count=100 context=46 module=209 alloc=999 (the error that this step gives)
 *   gpu=3     the misbehaviour below is this GPU's only
 *   flip=12345 bit=7  that word of the first chunk loses its bit after each fill (stuck=0: reads right
 *                     when read again)
 *   query=214 (what a finished launch gives)  hang=1 (never finishes)  hang_init=1  lazy=1 (kernels do
 *   nothing)  die=1 (the process is killed at a launch)
 * One process, one thread. */
#include "kernels_train.h"
#include "standin.h"
#include "validate/agent/kernels/kportable.h"
#include "validate/agent/kernels/memory.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define GET(key, def) standin_get("GPUPROV_STANDIN", key, def)
#define EXPORT __attribute__((visibility("default")))

_Thread_local struct kstep kstep;

void gp_mem_fill(ki64 n, ku64 *base, ki64 words, int pattern, ku64 seed);
void gp_mem_verify(ki64 n, const ku64 *base, ki64 words, int pattern, ku64 seed,
                   struct mem_found *found);
void gp_gemm_f32(ki64 n, const float *a, const float *b, float *c, int m, int cols, int k, int flags,
                 ki64 stride_a, ki64 stride_b, ki64 stride_c);

enum { ALLOCS_MAX = 4096 };
static struct {
    int started, device; /* device: whose context is current; -1 none */
    int fault;           /* error that the next query gives */
    struct {
        char *p;
        size_t bytes;
    } allocs[ALLOCS_MAX];
    size_t n_allocs, used;
    uint64_t *flipped; /* the word that lost its bit, to be given back when stuck=0 */
} gpu = {.device = -1};

static int mine(void)
{
    long long only = GET("gpu", -1);
    return only < 0 || only == gpu.device;
}

static long long fault(const char *key)
{
    return mine() ? GET(key, 0) : 0;
}

EXPORT int cuInit(unsigned flags)
{
    (void)flags;
    while (GET("hang_init", 0))
        pause();
    int r = (int)GET("init", 0);
    gpu.started = r == 0;
    return r;
}

EXPORT int cuDriverGetVersion(int *ret)
{
    *ret = (int)GET("driver", 13000);
    return 0;
}

EXPORT int cuGetErrorName(int code, const char **ret)
{
    (void)code;
    *ret = "CUDA_ERROR_OF_STANDIN";
    return 0;
}

EXPORT int cuDeviceGetCount(int *ret)
{
    int r = gpu.started ? (int)GET("count", 0) : 3;
    if (r == 0)
        *ret = (int)GET("gpus", 8);
    return r;
}

EXPORT int cuDeviceGet(int *ret, int index)
{
    if (!gpu.started)
        return 3;
    if (index < 0 || index >= GET("gpus", 8))
        return 101;
    *ret = index;
    return 0;
}

static int differs(int d)
{
    return GET("differs", 0) && d == GET("gpus", 8) - 1;
}

EXPORT int cuDeviceGetName(char *dst, int n, int d)
{
    snprintf(dst, (size_t)n, "%s", differs(d) ? "Stand-in GPU (half)" : "Stand-in GPU");
    return 0;
}

static size_t memory_bytes(int d)
{
    return ((size_t)GET("memory_mib", 64) << 20) / (differs(d) ? 2 : 1);
}

EXPORT int cuDeviceTotalMem_v2(size_t *ret, int d)
{
    *ret = memory_bytes(d);
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *ret, int attribute, int d)
{
    (void)d;
    *ret = attribute == 75 ? 9 : attribute == 16 ? 132 : 0;
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *dst, int n, int d)
{
    snprintf(dst, (size_t)n, "0000:%02x:00.0", d + 1);
    return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **ret, int d)
{
    gpu.device = d;
    int r = (int)fault("context");
    *ret = r ? NULL : &gpu;
    return r;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int d)
{
    (void)d;
    gpu.device = -1;
    return 0;
}

EXPORT int cuCtxSetCurrent(void *ctx)
{
    return ctx == &gpu ? 0 : 201;
}

static size_t held(void)
{
    return (size_t)GET("held_mib", 0) << 20;
}

EXPORT int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
    if (gpu.device < 0)
        return 201;
    *ret_total = memory_bytes(gpu.device);
    *ret_free = *ret_total - held() - gpu.used;
    return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *ret, size_t bytes)
{
    if (gpu.device < 0)
        return 201;
    if (fault("alloc"))
        return (int)fault("alloc");
    if (gpu.n_allocs == ALLOCS_MAX || gpu.used + held() + bytes > memory_bytes(gpu.device))
        return 2;
    char *p = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!p)
        return 2;
    memset(p, 0xa5, bytes); /* device memory is not zeroed */
    gpu.allocs[gpu.n_allocs].p = p;
    gpu.allocs[gpu.n_allocs++].bytes = bytes;
    gpu.used += bytes;
    *ret = (uint64_t)(uintptr_t)p;
    return 0;
}

EXPORT int cuMemFree_v2(uint64_t at)
{
    for (size_t i = 0; i < gpu.n_allocs; i++) {
        if ((uint64_t)(uintptr_t)gpu.allocs[i].p != at)
            continue;
        gpu.used -= gpu.allocs[i].bytes;
        free(gpu.allocs[i].p);
        gpu.allocs[i] = gpu.allocs[--gpu.n_allocs];
        return 0;
    }
    return 1;
}

/* Is [at, at + bytes) inside one allocation? */
static int inside(uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < gpu.n_allocs; i++) {
        uint64_t p = (uint64_t)(uintptr_t)gpu.allocs[i].p;
        if (at >= p && at - p <= gpu.allocs[i].bytes && bytes <= gpu.allocs[i].bytes - (at - p))
            return 1;
    }
    return 0;
}

EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes)
{
    if (!inside(dst, bytes))
        return 1;
    memcpy((void *)(uintptr_t)dst, src, bytes);
    return 0;
}

EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes)
{
    if (!inside(src, bytes))
        return 1;
    if (gpu.flipped && bytes == 8 && src == (uint64_t)(uintptr_t)gpu.flipped && !GET("stuck", 1)) {
        *gpu.flipped ^= 1ull << GET("bit", 0);
        gpu.flipped = NULL;
    }
    memcpy(dst, (void *)(uintptr_t)src, bytes);
    return 0;
}

EXPORT int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, size_t bytes)
{
    if (!inside(dst, bytes) || !inside(src, bytes))
        return 1;
    memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
    return 0;
}

EXPORT int cuStreamQuery(void *stream)
{
    (void)stream;
    return fault("hang") ? 600 : gpu.fault;
}

EXPORT int cuModuleLoadData(void **ret, const void *image)
{
    /* A fatbin's magic: what is embedded must be one. */
    static const unsigned char magic[4] = {0x50, 0xed, 0x55, 0xba};
    if (memcmp(image, magic, sizeof magic) != 0)
        return 200;
    if ((uintptr_t)image % 16)
        return 716;
    int r = (int)fault("module");
    *ret = r ? NULL : &gpu;
    return r;
}

EXPORT int cuModuleUnload(void *m)
{
    return m == &gpu ? 0 : 1;
}

/* --- kernels: one step is one thread of one block --- */

#define ARG(type, i) (*(type *)p[i])

static void step_fill(void **p)
{
    gp_mem_fill(ARG(ki64, 0), ARG(ku64 *, 1), ARG(ki64, 2), ARG(int, 3), ARG(ku64, 4));
}

static void step_verify(void **p)
{
    gp_mem_verify(ARG(ki64, 0), ARG(const ku64 *, 1), ARG(ki64, 2), ARG(int, 3), ARG(ku64, 4),
                  ARG(struct mem_found *, 5));
}

static void step_gemm(void **p)
{
    gp_gemm_f32(ARG(ki64, 0), ARG(const float *, 1), ARG(const float *, 2), ARG(float *, 3),
                ARG(int, 4), ARG(int, 5), ARG(int, 6), ARG(int, 7), ARG(ki64, 8), ARG(ki64, 9),
                ARG(ki64, 10));
}

static const struct standin_kernel kernels[] = {
    {"gp_mem_fill", step_fill}, {"gp_mem_verify", step_verify}, {"gp_gemm_f32", step_gemm},
    {0, 0}};

static const struct standin_kernel *find(const struct standin_kernel *in, const char *name)
{
    while (in->name && strcmp(in->name, name) != 0)
        in++;
    return in->name ? in : NULL;
}

EXPORT int cuModuleGetFunction(void **ret, void *m, const char *name)
{
    const struct standin_kernel *k = find(kernels, name);
    if (!k)
        k = find(train_kernels, name);
    if (m != &gpu || !k)
        return 500;
    memcpy(ret, &k, sizeof k); /* what the driver calls a handle */
    return 0;
}

static void flip(void **p)
{
    ku64 *base = ARG(ku64 *, 1);
    long long word = mine() ? GET("flip", -1) : -1;
    if (word < 0 || word >= ARG(ki64, 2) || (char *)base != gpu.allocs[1].p)
        return; /* allocation 0 is what the verify kernel writes to */
    base[word] ^= 1ull << GET("bit", 0);
    gpu.flipped = (uint64_t *)&base[word];
}

EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    const struct standin_kernel *k = f;
    (void)shared, (void)stream, (void)extra;
    if (gpu.device < 0 || gy != 1 || gz != 1 || by != 1 || bz != 1 || !gx || !bx || bx > 1024)
        return 1;
    if (fault("die"))
        raise(SIGKILL);
    gpu.fault = (int)fault("query");
    if (fault("lazy") || gpu.fault)
        return 0;
    for (unsigned b = 0; b < gx; b++) {
        for (unsigned t = 0; t < bx; t++) {
            kstep = (struct kstep){b, t, bx, gx};
            k->step(params);
        }
    }
    if (k->step == step_fill)
        flip(params);
    return 0;
}
