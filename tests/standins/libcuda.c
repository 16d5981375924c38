/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1: the part of the driver API that the agent calls, in host memory, with
 * the agent's own kernels (compiled by gcc) stepped through every block and thread, and a virtual clock
 * (libcuda_clock.c): what a copy, kernel or product takes is modelled, so events give the same figures
 * on every machine. Here: devices, contexts, modules, streams, events. GPUPROV_STANDIN chooses what it
 * is and how it misbehaves:
 *   profile=h100  (a100, t4, unknown) the model: name, PCI id, multiprocessors, rates
 *   seed=1        of the noise of +-2 % on what each piece of work takes; noise=0: none
 *   gpus=8 memory_mib=64 held_mib=0 driver=13000 differs=1 (the last GPU is another model)
 *   exclusive=1 (compute mode: one process at a time, by locks in the folder GPUPROV_STANDIN_EXCLUSIVE)
 *   init=802 count=100 context=46 module=209 alloc=999 pinned=2 (the error that this step gives)
 *   peer=0 (no direct access between GPUs)  peer_enable=217 (the error of enabling it)
 * Misbehaviour; gpu=3: only of this GPU:
 *   slow=50       everything runs at 50 % of its rate; one kind: slow_copy (the GPU's own memory),
 *                 slow_h2d slow_d2h slow_peer (to or from it; slow_way=12: only from GPU 1 to GPU 2)
 *                 slow_gemm
 *   cap=60 cap_after_ns=2000  products of a type run at 60 % once they took that much GPU time: a power cap that
 *                 settles late; onset=85 onset_ms=900: so do they from so long (real time) after the first one
 *   decay=60 decay_after=5  after 5 ms of the GPU's (virtual) time rates fall to 60 %; fade=40: every piece
 *                 of work runs at 40 per mille less than the one before it
 *   uplink=2      GPUs 0 and 1 share one way to the host: each is slower by the number of them that copy
 *   crowd=40      copies to other GPUs run at 40 % while another GPU sends too
 *   flip=12345 bit=7  that word of the memory that was filled first loses its bit whenever a kernel
 *                 writes it (stuck=0: reads right when the host reads it; flip_after=200: only after so many
 *                 pieces of work)
 *   gemm_bit=20   bit 20 of one element of every matrix product flips; gemm_nan=1: it becomes NaN;
 *                 gemm_at=5 (element; default the middle one), gemm_every=3 (each third product only)
 *   sm=17 sm_bit=30  a bit of one word is wrong in what each block writes that runs on multiprocessor 17
 *   peer_bit=3    that bit of the first byte of each copy to or from it is wrong; peer_times=6: of the
 *                 first six only; h2d_bit, d2h_bit: of each copy of 8 MiB or more from and to the host
 *   query=214     what a finished launch gives
 *   lost_after=9 lost=999  falls off the bus: after 9 pieces of work since it was opened (kernels,
 *                 copies, products) every call gives 999
 *   hang=1        nothing ever finishes; hang_after=9: from the tenth piece of work on
 *   hang_init=1   lazy=1 (kernels do nothing)  die=1 (the process is killed at a launch)
 * One process, one thread; several GPUs may be opened in it. */
#include "standin_gpu.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

static int started;
static struct sgpu gpus[GPUS_MAX];
static struct sstream default_streams[GPUS_MAX];
_Thread_local struct sgpu *standin_now;

int standin_mine(const struct sgpu *g) {
    long long only = GET("gpu", -1);
    return only < 0 || (g && only == g->index);
}

long long standin_fault(const char *key) { return standin_mine(standin_now) ? GET(key, 0) : 0; }

int standin_status(const struct sgpu *g) {
    if (!g) return 201;
    long long after = standin_mine(g) ? GET("lost_after", -1) : -1;
    return after >= 0 && g->launches > after ? (int)GET("lost", 999) : 0;
}

int standin_hangs(const struct sgpu *g) {
    long long after = standin_mine(g) ? GET("hang_after", -1) : -1;
    return g->stuck || (standin_mine(g) && GET("hang", 0)) || (after >= 0 && g->launches > after);
}

EXPORT void standin_gpu_hang(void) { standin_now->stuck = 1; }

EXPORT int standin_gpu_current(void) { return standin_now ? standin_now->index : -1; }

EXPORT int standin_gpu_begin(void) {
    if (!standin_now) return 201;
    standin_now->launches++;
    int r = standin_status(standin_now);
    if (r) return r;
    return standin_hangs(standin_now) ? -1 : 0;
}

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    while (GET("hang_init", 0)) pause();
    int r = (int)GET("init", 0);
    started = r == 0;
    return r;
}

EXPORT int cuDriverGetVersion(int *ret) {
    *ret = (int)GET("driver", 13000);
    return 0;
}

EXPORT int cuGetErrorName(int code, const char **ret) {
    (void)code;
    *ret = "CUDA_ERROR_OF_STANDIN";
    return 0;
}

static int gpu_count(void) {
    long long n = GET("gpus", 8);
    return n > GPUS_MAX ? GPUS_MAX : (int)n;
}

EXPORT int cuDeviceGetCount(int *ret) {
    int r = started ? (int)GET("count", 0) : 3;
    if (r == 0) *ret = gpu_count();
    return r;
}

EXPORT int cuDeviceGet(int *ret, int index) {
    if (!started) return 3;
    if (index < 0 || index >= gpu_count()) return 101;
    gpus[index].index = index;
    default_streams[index].gpu = &gpus[index];
    *ret = index;
    return 0;
}

int standin_differs(int d) { return GET("differs", 0) && d == gpu_count() - 1; }

EXPORT int cuDeviceGetName(char *dst, int n, int d) {
    snprintf(dst, (size_t)n, "%s%s", standin_profile()->name, standin_differs(d) ? " (half)" : "");
    return standin_status(&gpus[d]);
}

size_t standin_memory(int d) { return ((size_t)GET("memory_mib", 64) << 20) / (standin_differs(d) ? 2 : 1); }

EXPORT int cuDeviceTotalMem_v2(size_t *ret, int d) {
    *ret = standin_memory(d);
    return standin_status(&gpus[d]);
}

EXPORT int cuDeviceGetAttribute(int *ret, int attribute, int d) {
    const struct profile *p = standin_profile();
    switch (attribute) {
    case 1: *ret = 1024; break;     /* threads of a block */
    case 8: *ret = 48 << 10; break; /* shared memory of a block */
    case 10: *ret = 32; break;      /* threads of a warp */
    case 13: *ret = p->clock_khz; break;
    case 16: *ret = p->sms; break;
    case 20: *ret = GET("exclusive", 0) ? 3 : 0; break; /* compute mode */
    case 32: *ret = 1; break;                           /* ECC is on */
    case 36: *ret = p->memory_clock_khz; break;
    case 37: *ret = p->bus_bits; break;
    case 38: *ret = (int)p->l2_bytes; break;
    case 40: *ret = 2; break; /* copy engines */
    case 41: *ret = 1; break; /* unified addressing */
    case 75: *ret = p->major; break;
    case 76: *ret = p->minor; break;
    case 97: *ret = p->major >= 9 ? 227 << 10 : p->major == 8 ? 163 << 10 : 64 << 10; break;
    case 139: *ret = (standin_differs(d) ? 0x7fff : p->pci_id) << 16 | 0x10de; break;
    case 140: *ret = 0x16c1 << 16 | 0x10de; break;
    default: *ret = 0; break;
    }
    return standin_status(&gpus[d]);
}

EXPORT int cuDeviceGetPCIBusId(char *dst, int n, int d) {
    snprintf(dst, (size_t)n, "0000:%02x:00.0", d + 1);
    return standin_status(&gpus[d]);
}

/* --- contexts, modules --- */

/* Exclusive-process mode: a lock for each GPU in the folder GPUPROV_STANDIN_EXCLUSIVE. */
static int exclusive[GPUS_MAX];

static int take_alone(int d) {
    char path[300];
    const char *folder = getenv("GPUPROV_STANDIN_EXCLUSIVE");
    if (!folder || exclusive[d] > 0) return 0;
    snprintf(path, sizeof path, "%s/gpu%d", folder, d);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return 999;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        close(fd);
        return 46;
    }
    exclusive[d] = fd;
    return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **ret, int d) {
    int taken = take_alone(d);
    if (taken) return taken;
    standin_now = &gpus[d];
    standin_now->launches = 0;
    standin_now->filled = NULL;
    standin_now->stuck = 0;
    standin_now->total_ns = standin_now->first_s = 0;
    memset(standin_now->product_ns, 0, sizeof standin_now->product_ns);
    int r = (int)standin_fault("context");
    *ret = r ? NULL : &gpus[d];
    return r;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int d) {
    if (exclusive[d] > 0) close(exclusive[d]);
    exclusive[d] = 0;
    if (standin_now == &gpus[d]) standin_now = NULL;
    return 0;
}

EXPORT int cuCtxSetCurrent(void *ctx) {
    if (ctx && (ctx < (void *)gpus || ctx >= (void *)(gpus + GPUS_MAX))) return 201;
    standin_now = ctx;
    return 0;
}

EXPORT int cuModuleLoadData(void **ret, const void *image) {
    /* A fatbin, PTX, or a cubin, which is an ELF file for one architecture. */
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba};
    const unsigned char *at = image;
    if ((uintptr_t)image % 16) return 716;
    if (memcmp(at, "\177ELF", 4) == 0) {
        unsigned flags = 0, sm = 0;
        memcpy(&flags, at + 48, sizeof flags);
        sm = (flags & 0xff) >= 50 ? flags & 0xff : flags >> 8 & 0xff; /* older and newer toolkits */
        const struct profile *p = standin_profile();
        if ((int)sm / 10 != p->major || (int)sm % 10 > p->minor) return 209;
    } else if (memcmp(at, fatbin, sizeof fatbin) != 0 && memcmp(at, "//", 2) != 0) {
        return 200;
    }
    int r = standin_status(standin_now);
    if (r == 0) r = (int)standin_fault("module");
    *ret = r ? NULL : standin_now;
    return r;
}

EXPORT int cuModuleUnload(void *m) { return m && m == standin_now ? 0 : 1; }

EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
    (void)extra;
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || !gx || !bx || bx > 1024 || shared) return 1;
    if (stream && ((const struct sstream *)stream)->gpu != standin_now)
        return 400; /* the stream is another context's */
    return standin_run(f, gx, bx, params, stream);
}

/* --- streams and events --- */

/* How many GPUs share the way of this one's copy, and are copying. */
double standin_crowd(struct sgpu *g, int to_host) {
    int n = 0;
    *(to_host ? &g->link_busy : &g->peer_busy) = 1;
    for (int i = 0; i < GPUS_MAX; i++)
        n += to_host ? i < GET("uplink", 0) && g->index < GET("uplink", 0) && gpus[i].link_busy : gpus[i].peer_busy;
    if (to_host) return n > 1 ? n : 1;
    return n > 1 && standin_mine(g) ? 100.0 / (double)GET("crowd", 100) : 1;
}

struct sstream *standin_stream(void *stream) {
    return stream ? stream : &default_streams[standin_now->index];
}

EXPORT int cuStreamCreate(void **ret, unsigned flags) {
    if (flags > 1) return 1;
    int r = standin_status(standin_now);
    if (r) return r;
    struct sstream *s = calloc(1, sizeof *s);
    if (!s) return 2;
    s->gpu = standin_now;
    *ret = s;
    return 0;
}

EXPORT unsigned long long standin_gpu_later(void *stream) { return ++standin_stream(stream)->issued; }

EXPORT void standin_gpu_ended(void *stream, double ns) {
    struct sstream *s = stream;
    unsigned long long ticket = s->ended + 1;
    s->ns = s->at[ticket % TICKETS] = ns;
    __atomic_store_n(&s->ended, ticket, __ATOMIC_RELEASE);
}

static int stream_idle(const struct sstream *s) { return __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) >= s->issued; }

EXPORT int cuStreamDestroy_v2(void *stream) {
    if (stream_idle(stream)) /* else somebody still works in it */
        free(stream);
    return 0;
}

static int finished(struct sgpu *g) {
    int r = standin_status(g);
    if (r) return r;
    g->link_busy = g->peer_busy = 0;
    return standin_hangs(g) ? 600 : g->fault;
}

EXPORT int cuStreamQuery(void *stream) {
    if (!standin_now) return 201;
    int r = finished(standin_stream(stream)->gpu);
    return r == 0 && !stream_idle(standin_stream(stream)) ? 600 : r;
}

static int event_reached(const struct sevent *e) {
    return !e->ticket || __atomic_load_n(&e->stream->ended, __ATOMIC_ACQUIRE) >= e->ticket;
}

static double event_ns(const struct sevent *e) { return e->ticket ? e->stream->at[e->ticket % TICKETS] : e->ns; }

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    const struct sevent *e = event;
    struct sstream *s = standin_stream(stream);
    if (flags) return 1;
    while (e->recorded && !event_reached(e))
        usleep(100); /* everything is done at once here, so what comes next must wait now */
    if (e->recorded) s->ns = fmax(s->ns, event_ns(e));
    return standin_status(s->gpu);
}

EXPORT int cuEventCreate(void **ret, unsigned flags) {
    (void)flags;
    int r = standin_status(standin_now);
    if (r) return r;
    struct sevent *e = calloc(1, sizeof *e);
    if (!e) return 2;
    e->gpu = standin_now;
    *ret = e;
    return 0;
}

EXPORT int cuEventDestroy_v2(void *event) {
    free(event);
    return 0;
}

EXPORT int cuEventRecord(void *event, void *stream) {
    struct sevent *e = event;
    struct sstream *s = standin_stream(stream);
    if (e->gpu != s->gpu) return 400;
    e->recorded = 1;
    e->stream = s;
    e->ticket = stream_idle(s) ? 0 : s->issued;
    e->ns = s->ns;
    return standin_status(s->gpu);
}

EXPORT int cuEventQuery(void *event) {
    struct sevent *e = event;
    int r = finished(e->gpu);
    return r == 0 && !event_reached(e) ? 600 : r;
}

EXPORT int cuEventElapsedTime(float *ret_ms, void *from, void *to) {
    const struct sevent *a = from, *b = to;
    if (!a->recorded || !b->recorded || a->gpu != b->gpu) return 400;
    int r = finished(a->gpu);
    if (r == 0 && (!event_reached(a) || !event_reached(b))) r = 600;
    if (r == 0) *ret_ms = (float)((event_ns(b) - event_ns(a)) / 1e6);
    return r;
}
