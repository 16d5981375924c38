/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnccl.so.2: ranks are processes of one machine that meet in shared memory, by the unique
 * id; collectives are really done, on the stand-in GPUs' memory, by a thread of each process, so that calls
 * return at once and streams are not ready until all ranks came. Two ranks on one device with the same
 * NCCL_HOSTID are refused, as NCCL does; different ones are different nodes. Time is the virtual clock of the
 * stand-in libcuda. GPUPROV_STANDIN_NCCL chooses how it misbehaves; ranks are those of a process's first
 * communicator, wherever they are in later ones:
 *   version=22809      2.28.9; peer_version=22703 peer=1 (that rank's library is another one)
 *   peak=235 half_mib=24   the model of bus bandwidth, GB/s (default: by the profile of GPUPROV_STANDIN)
 *   nvls=0             no NVLS   shm=1: no P2P   net=1: sockets between nodes instead of InfiniBand
 *   rank=2             this rank ...  from=5: ... from its fifth collective on
 *     bit=20 sign=1 nan=1  sends one wrong element (sums=1: in sums only)    slow=25  runs at 25 % of its rate, and all with it
 *   link_a=1 link_b=3 slow=25  groups in which both are   all=1 slow=25  everything
 *   hang=2 hang_from=5  its collectives never begin (its GPU does not get there)
 *   block=2 block_from=5  its calls never return   die=2 die_from=5  its process is killed
 *   newer=35           built for a newer CUDA than the driver's: this error of the CUDA runtime (35, 36, 222)
 *   pcie=1             no NVLink   far=40 far_from=4  groups with ranks below and from 4 on (two sockets) at 40 %
 *   unsteady=1         all_reduce of a large gang adds in another order half of the time, unless NCCL_ALGO=Ring
 *   init_hang=2  init_error=3 (ncclInternalError) init_rank=2   split_error=3
 *   async_rank=2 async=2  ends a collective with ncclSystemError
 *   late=6000          a split writes its handle so many milliseconds later
 * With blocking=0 each call and group costs a thread, as in NCCL:
 *   thread_us=3000     which takes so long to start */
#include "libnccl.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define NAPI EXPORT

typedef struct {
    char text[128];
} unique_id;
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct nccl_gpu nccl_gpu;

/* --- the thread that does the work, in the order it was given --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct work *first, *last;
    int running;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void *work_thread(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&queue.lock);
        while (!queue.first) pthread_cond_wait(&queue.more, &queue.lock);
        struct work *w = queue.first;
        queue.first = w->next;
        if (!queue.first) queue.last = NULL;
        pthread_mutex_unlock(&queue.lock);
        struct ncclComm *c = w->comm;
        double ns = w->ns;
        int rc = atomic_load(&c->aborted) ? N_REMOTE : work_do(w, &ns);
        if (rc && rc != N_REMOTE) snprintf(c->why, sizeof c->why, "the stand-in was told to give error %d", rc);
        if (rc) atomic_store(&c->state, rc);
        if (w->op == NOP_SPLIT && w->child) atomic_store(&w->child->state, rc);
        if (w->split_done) atomic_store(w->split_done, 1);
        if (w->op == NOP_SPLIT && w->child && rc == 0) nccl_log(w->child);
        if (w->stream) nccl_gpu.ended(w->stream, ns);
        free(w->peers);
        free(w);
    }
    return NULL;
}

static void give(struct work *w) {
    pthread_t t = 0;
    pthread_mutex_lock(&queue.lock);
    if (queue.last) queue.last->next = w;
    else queue.first = w;
    queue.last = w;
    if (!queue.running && pthread_create(&t, NULL, work_thread, NULL) == 0) queue.running = 1;
    pthread_cond_signal(&queue.more);
    pthread_mutex_unlock(&queue.lock);
}

static int find_gpu(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    if (!lib) return N_CUDA;
    *(void **)&nccl_gpu.current = dlsym(lib, "standin_gpu_current");
    *(void **)&nccl_gpu.begin = dlsym(lib, "standin_gpu_begin");
    *(void **)&nccl_gpu.time = dlsym(lib, "standin_gpu_time");
    *(void **)&nccl_gpu.later = dlsym(lib, "standin_gpu_later");
    *(void **)&nccl_gpu.ended = dlsym(lib, "standin_gpu_ended");
    *(void **)&nccl_gpu.holds = dlsym(lib, "standin_gpu_holds");
    return nccl_gpu.ended && nccl_gpu.holds && nccl_gpu.current() >= 0 ? 0 : N_CUDA;
}

/* --- the API --- */

static int world_rank = -1; /* of this process's first communicator */

NAPI int ncclGetVersion(int *ret) {
    const char *host = getenv("GPUPROV_STANDIN_RANK"); /* tests that start ranks themselves */
    *ret = (int)NGET("version", 22809);
    if (NGET("peer", -1) >= 0 && host && atoll(host) == NGET("peer", -1)) *ret = (int)NGET("peer_version", 22809);
    return 0;
}

NAPI const char *ncclGetErrorString(int code) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code >= 0 && code <= N_IN_PROGRESS ? texts[code] : "unknown result code";
}

static char last_error[200];

NAPI const char *ncclGetLastError(struct ncclComm *c) { return c && c->why[0] ? c->why : last_error; }

NAPI int ncclGetUniqueId(unique_id *ret) {
    memset(ret, 0, sizeof *ret);
    return shared_new(ret->text);
}

struct init_args {
    struct ncclComm *c;
    char path[128];
};

static void *init_thread(void *arg) {
    struct init_args *a = arg;
    struct ncclComm *c = a->c;
    int rc = 0;
    while (nccl_mine(c, "init_hang") && !atomic_load(&c->aborted)) usleep(1000);
    if (nccl_mine(c, "init_rank")) rc = (int)NGET("init_error", 0);
    if (rc) snprintf(c->why, sizeof c->why, "the stand-in was told to fail");
    if (NGET("newer", 0)) {
        rc = 1; /* ncclUnhandledCudaError */
        const char *text = NGET("newer", 0) == 36    ? "API call is not supported in the installed CUDA driver"
                           : NGET("newer", 0) == 222 ? "the provided PTX was compiled with an unsupported toolchain."
                                                     : "CUDA driver version is insufficient for CUDA runtime version";
        snprintf(c->why, sizeof c->why, "Cuda failure %d '%s'", (int)NGET("newer", 0), text);
    }
    if (rc == 0) rc = shared_open(c, a->path);
    if (rc == 0) rc = shared_meet(c);
    if (rc == 0) nccl_log(c);
    atomic_store(&c->state, rc);
    free(a);
    return NULL;
}

NAPI int ncclCommInitRankConfig(struct ncclComm **ret, int size, unique_id id, int rank, const struct config *config) {
    if (!config || config->magic != 0xcafebeef || config->size < 24 ||
        config->version > (unsigned)NGET("version", 22809))
        return N_ARGUMENT;
    if (size < 1 || size > NCCL_RANKS || rank < 0 || rank >= size || !id.text[0]) return N_ARGUMENT;
    int rc = find_gpu();
    if (rc) {
        snprintf(last_error, sizeof last_error, "no CUDA context is current");
        return rc;
    }
    struct ncclComm *c = calloc(1, sizeof *c);
    struct init_args *a = calloc(1, sizeof *a);
    if (!c || !a) abort();
    if (world_rank < 0) world_rank = rank;
    c->rank = rank;
    c->size = size;
    c->world = world_rank;
    c->device = nccl_gpu.current();
    c->blocking = config->blocking;
    atomic_store(&c->state, N_IN_PROGRESS);
    a->c = c;
    memcpy(a->path, id.text, sizeof a->path);
    *ret = c;
    if (c->blocking) {
        init_thread(a);
        return atomic_load(&c->state);
    }
    pthread_t t = 0;
    if (pthread_create(&t, NULL, init_thread, a) != 0) return N_SYSTEM;
    pthread_detach(t);
    return N_IN_PROGRESS;
}

NAPI int ncclCommGetAsyncError(struct ncclComm *c, int *ret) {
    *ret = atomic_load(&c->state);
    return 0;
}

/* Communicators are not freed: a thread may still look at one that was aborted. */
NAPI int ncclCommAbort(struct ncclComm *c) {
    atomic_store(&c->aborted, 1);
    return 0;
}

NAPI int ncclCommFinalize(struct ncclComm *c) {
    (void)c;
    return 0;
}

NAPI int ncclCommDestroy(struct ncclComm *c) {
    atomic_store(&c->aborted, 1);
    return 0;
}

static int bytes_inside(const struct ncclComm *c, const void *p, size_t bytes) {
    (void)c;
    return !bytes || nccl_gpu.holds((uint64_t)(uintptr_t)p, bytes);
}

static int enqueue(struct work *w) {
    struct ncclComm *c = w->comm;
    int begin = w->begin, nth = c->queued++;
    while (nccl_mine(c, "block") && nth >= NGET("block_from", 0)) pause();
    if (nccl_mine(c, "die") && nth >= NGET("die_from", 0)) raise(SIGKILL);
    if (begin > 0) {
        free(w);
        snprintf(c->why, sizeof c->why, "CUDA error %d", begin);
        return N_CUDA;
    }
    w->never = begin < 0 || (nccl_mine(c, "hang") && nth >= NGET("hang_from", 0));
    if (w->stream) {
        w->ns = nccl_gpu.time(w->stream);
        nccl_gpu.later(w->stream);
    }
    give(w);
    return 0;
}

static void *group_thread(void *arg) {
    struct work *w = arg;
    struct ncclComm *c = w->comm;
    usleep((useconds_t)NGET("thread_us", 0));
    atomic_store(&c->state, enqueue(w));
    return NULL;
}

/* A group that ended: here, or in a thread of its own. */
static int group_launch(struct work *w) {
    pthread_t t = 0;
    w->begin = nccl_gpu.begin();
    if (w->comm->blocking) return enqueue(w);
    atomic_store(&w->comm->state, N_IN_PROGRESS);
    if (pthread_create(&t, NULL, group_thread, w) != 0) return N_SYSTEM;
    pthread_detach(t);
    return N_IN_PROGRESS;
}

static struct work *new_work(struct ncclComm *c, enum nop op, void *stream) {
    struct work *w = calloc(1, sizeof *w);
    if (!w) abort();
    w->comm = c;
    w->op = op;
    w->stream = stream;
    return w;
}

static int collective(struct ncclComm *c, enum nop op, const void *send, void *recv, size_t count, int type, int root,
                      void *stream) {
    size_t bytes = count * type_bytes(type), all = bytes * (size_t)c->size;
    if (atomic_load(&c->state)) return atomic_load(&c->state);
    if (!stream || (type != T_F32 && type != T_F16 && type != T_BF16 && type != T_I32) ||
        !bytes_inside(c, send, op == NOP_REDUCE_SCATTER ? all : bytes) ||
        !bytes_inside(c, recv, op == NOP_ALL_GATHER ? all : bytes)) {
        snprintf(c->why, sizeof c->why, "a buffer is not in the GPU's memory, or another argument is wrong");
        return N_ARGUMENT;
    }
    struct work *w = new_work(c, op, stream);
    w->send = send;
    w->recv = recv;
    w->count = count;
    w->type = type;
    w->root = root;
    return group_launch(w);
}

NAPI int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, struct ncclComm *c, void *stream) {
    return op ? N_ARGUMENT : collective(c, NOP_ALL_REDUCE, send, recv, count, type, 0, stream);
}

NAPI int ncclAllGather(const void *send, void *recv, size_t count, int type, struct ncclComm *c, void *stream) {
    return collective(c, NOP_ALL_GATHER, send, recv, count, type, 0, stream);
}

NAPI int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, struct ncclComm *c,
                           void *stream) {
    return op ? N_ARGUMENT : collective(c, NOP_REDUCE_SCATTER, send, recv, count, type, 0, stream);
}

NAPI int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, struct ncclComm *c,
                       void *stream) {
    return collective(c, NOP_BROADCAST, send, recv, count, type, root, stream);
}

/* --- groups: of sends and receives --- */

static struct {
    int depth;
    struct work *w;
} group;

NAPI int ncclGroupStart(void) {
    group.depth++;
    return 0;
}

NAPI int ncclGroupEnd(void) {
    if (--group.depth > 0 || !group.w) return 0;
    struct work *w = group.w;
    group.w = NULL;
    return group_launch(w);
}

static int peer(struct ncclComm *c, int sending, char *buf, size_t count, int type, int peer_rank, void *stream) {
    size_t bytes = count * type_bytes(type);
    if (!group.depth || !stream || peer_rank < 0 || peer_rank >= c->size || !bytes_inside(c, buf, bytes))
        return N_ARGUMENT;
    if (!group.w) {
        group.w = new_work(c, NOP_EXCHANGE, stream);
        group.w->peers = calloc(OPS_OF_GROUP, sizeof *group.w->peers);
        if (!group.w->peers) abort();
        group.w->type = T_I8;
    }
    if (group.w->n_peers == OPS_OF_GROUP || group.w->comm != c) return N_USAGE;
    group.w->peers[group.w->n_peers++] =
        (struct peer_op){.sending = sending, .peer = peer_rank, .type = type, .bytes = bytes, .buf = buf};
    return 0;
}

NAPI int ncclSend(const void *buf, size_t count, int type, int to, struct ncclComm *c, void *stream) {
    return peer(c, 1, (char *)(uintptr_t)buf, count, type, to, stream);
}

NAPI int ncclRecv(void *buf, size_t count, int type, int from, struct ncclComm *c, void *stream) {
    return peer(c, 0, buf, count, type, from, stream);
}

/* The handle's memory must still be its own when it is written. */
static void *late_thread(void *arg) {
    struct work *w = arg;
    usleep((useconds_t)(NGET("late", 0) * 1000));
    if (*w->where) abort();
    *w->where = w->child;
    give(w);
    return NULL;
}

NAPI int ncclCommSplit(struct ncclComm *c, int color, int key, struct ncclComm **ret, const struct config *config) {
    if (!config) return N_ARGUMENT;
    if (NGET("split_error", 0)) return (int)NGET("split_error", 0);
    struct work *w = new_work(c, NOP_SPLIT, NULL);
    _Atomic int done = 0;
    w->color = color;
    w->key = key;
    w->where = ret;
    *ret = NULL;
    if (color >= 0) {
        w->child = calloc(1, sizeof *w->child);
        if (!w->child) abort();
        w->child->world = c->world;
        w->child->device = c->device;
        w->child->blocking = config->blocking;
        atomic_store(&w->child->state, N_IN_PROGRESS);
    }
    if (!config->blocking) {
        pthread_t t = 0;
        if (!NGET("late", 0)) late_thread(w);
        else if (pthread_create(&t, NULL, late_thread, w) != 0) return N_SYSTEM;
        else pthread_detach(t);
        return N_IN_PROGRESS;
    }
    w->split_done = &done;
    late_thread(w);
    while (!atomic_load(&done)) usleep(100);
    return atomic_load(&c->state);
}
