/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in NCCL's collectives, done in pieces through the mailboxes, and what each takes on the virtual
 * clock: factor * (bytes + half) / peak, the bus bandwidth of a sound node of the stand-in's model. */
#include "libnccl.h"

#include <stdbool.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

size_t type_bytes(int type) {
    switch (type) {
    case T_I8:
    case T_U8: return 1;
    case T_F16:
    case T_BF16: return 2;
    case T_I64:
    case T_U64:
    case T_F64: return 8;
    default: return 4;
    }
}

int nccl_has(const struct ncclComm *c, long long world) {
    for (int r = 0; r < c->size; r++)
        if (c->worlds[r] == world) return 1;
    return 0;
}

int nccl_mine(const struct ncclComm *c, const char *key) { return NGET(key, -1) == c->world; }

/* --- arithmetic of the types that the checks use --- */

static float half_to_float(uint16_t h) {
    _Float16 f;
    memcpy(&f, &h, sizeof f);
    return (float)f;
}

static uint16_t float_to_half(float x) {
    _Float16 f = (_Float16)x;
    uint16_t h;
    memcpy(&h, &f, sizeof h);
    return h;
}

static float brain_to_float(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t float_to_brain(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void add_floats(float *sum, const void *from, size_t n, int type) {
    for (size_t i = 0; type == T_F32 && i < n; i++) sum[i] += ((const float *)from)[i];
    for (size_t i = 0; type == T_F16 && i < n; i++) sum[i] += half_to_float(((const uint16_t *)from)[i]);
    for (size_t i = 0; type == T_BF16 && i < n; i++) sum[i] += brain_to_float(((const uint16_t *)from)[i]);
}

/* The sum of the same n elements of every rank's mailbox, from `at` on, to `to`. */
static void sum_boxes(const struct ncclComm *c, char *to, size_t at, size_t n, int type) {
    static float sum[PIECE / 2]; /* one thread works */
    if (type == T_I32) {
        uint32_t *out = (uint32_t *)(void *)to;
        memset(out, 0, n * sizeof *out);
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < n; i++) out[i] += ((const uint32_t *)(const void *)(shared_box(c, r) + at))[i];
        return;
    }
    memset(sum, 0, n * sizeof *sum);
    unsigned half = (unsigned)atomic_load(&c->ops) * 2654435761u >> 31; /* the same on all ranks */
    bool back = NGET("unsteady", 0) && half && !getenv("NCCL_ALGO");
    for (int r = 0; r < c->size; r++) add_floats(sum, shared_box(c, back ? c->size - 1 - r : r) + at, n, type);
    for (size_t i = 0; i < n; i++) {
        if (type == T_F32) ((float *)(void *)to)[i] = sum[i];
        else ((uint16_t *)(void *)to)[i] = type == T_F16 ? float_to_half(sum[i]) : float_to_brain(sum[i]);
    }
}

/* --- a rank that sends something else --- */

static void spoil(const struct ncclComm *c, enum nop op, char *at, size_t elements, int type) {
    size_t size = type_bytes(type);
    if (NGET("sums", 0) && op != NOP_ALL_REDUCE && op != NOP_REDUCE_SCATTER) return;
    if (!elements || !nccl_mine(c, "rank") || atomic_load(&c->ops) < NGET("from", 0)) return;
    char *p = at + elements / 2 * size;
    long long bit = NGET("bit", -1);
    if (NGET("sign", 0)) bit = (long long)size * 8 - 1;
    if (bit >= 0) p[(size_t)bit / 8 % size] ^= (char)(1 << (bit % 8));
    if (NGET("nan", 0)) memset(p, 0xff, size);
}

static void post(const struct work *w, const char *from, size_t at, size_t bytes, int type, int first) {
    const struct ncclComm *c = w->comm;
    char *box = shared_box(c, c->rank) + at;
    memcpy(box, from, bytes);
    if (first) spoil(c, w->op, box, bytes / type_bytes(type), type);
}

/* --- collectives --- */

static int all_reduce(struct work *w) {
    struct ncclComm *c = w->comm;
    size_t size = type_bytes(w->type), piece = PIECE / size, n = (size_t)c->size;
    for (size_t o = 0; o < w->count; o += piece) {
        size_t k = w->count - o < piece ? w->count - o : piece;
        size_t from = k * (size_t)c->rank / n, to = k * ((size_t)c->rank + 1) / n;
        post(w, w->send + o * size, 0, k * size, w->type, o == 0);
        if (shared_barrier(c)) return N_REMOTE;
        sum_boxes(c, shared_box(c, c->size) + from * size, from * size, to - from, w->type);
        if (shared_barrier(c)) return N_REMOTE;
        memcpy(w->recv + o * size, shared_box(c, c->size), k * size);
        if (shared_barrier(c)) return N_REMOTE;
    }
    return 0;
}

static int all_gather(struct work *w) {
    struct ncclComm *c = w->comm;
    size_t bytes = w->count * type_bytes(w->type);
    for (size_t o = 0; o < bytes; o += PIECE) {
        size_t k = bytes - o < PIECE ? bytes - o : PIECE;
        post(w, w->send + o, 0, k, w->type, o == 0);
        if (shared_barrier(c)) return N_REMOTE;
        for (int r = 0; r < c->size; r++) memcpy(w->recv + (size_t)r * bytes + o, shared_box(c, r), k);
        if (shared_barrier(c)) return N_REMOTE;
    }
    return 0;
}

static int reduce_scatter(struct work *w) {
    struct ncclComm *c = w->comm;
    size_t size = type_bytes(w->type), n = (size_t)c->size, piece = PIECE / size / n;
    for (size_t o = 0; o < w->count; o += piece) {
        size_t k = w->count - o < piece ? w->count - o : piece;
        for (size_t t = 0; t < n; t++)
            post(w, w->send + (t * w->count + o) * size, t * piece * size, k * size, w->type, o == 0);
        if (shared_barrier(c)) return N_REMOTE;
        sum_boxes(c, w->recv + o * size, (size_t)c->rank * piece * size, k, w->type);
        if (shared_barrier(c)) return N_REMOTE;
    }
    return 0;
}

static int broadcast(struct work *w) {
    struct ncclComm *c = w->comm;
    size_t bytes = w->count * type_bytes(w->type);
    for (size_t o = 0; o < bytes; o += PIECE) {
        size_t k = bytes - o < PIECE ? bytes - o : PIECE;
        if (c->rank == w->root) post(w, w->send + o, 0, k, w->type, o == 0);
        if (shared_barrier(c)) return N_REMOTE;
        memcpy(w->recv + o, shared_box(c, w->root), k);
        if (shared_barrier(c)) return N_REMOTE;
    }
    return 0;
}

static struct peer_op *peer_of(struct work *w, int sending, int peer) {
    for (int i = 0; i < w->n_peers; i++)
        if (w->peers[i].sending == sending && w->peers[i].peer == peer) return &w->peers[i];
    return NULL;
}

/* Round k: everybody sends to the k-th next one. */
static int exchange(struct work *w) {
    struct ncclComm *c = w->comm;
    size_t most = 0;
    for (int i = 0; i < w->n_peers; i++) most = w->peers[i].bytes > most ? w->peers[i].bytes : most;
    memcpy(shared_box(c, c->rank), &most, sizeof most);
    if (shared_barrier(c)) return N_REMOTE;
    for (int r = 0; r < c->size; r++) {
        size_t theirs = 0;
        memcpy(&theirs, shared_box(c, r), sizeof theirs);
        most = theirs > most ? theirs : most;
    }
    if (shared_barrier(c)) return N_REMOTE;
    for (int k = 0; k < c->size; k++) {
        struct peer_op *out = peer_of(w, 1, (c->rank + k) % c->size);
        int source = (c->rank - k + c->size) % c->size;
        struct peer_op *in = peer_of(w, 0, source);
        for (size_t o = 0; o < most; o += PIECE) {
            if (out && o < out->bytes)
                post(w, out->buf + o, 0, out->bytes - o < PIECE ? out->bytes - o : PIECE, out->type, o == 0);
            if (shared_barrier(c)) return N_REMOTE;
            if (in && o < in->bytes)
                memcpy(in->buf + o, shared_box(c, source), in->bytes - o < PIECE ? in->bytes - o : PIECE);
            if (shared_barrier(c)) return N_REMOTE;
        }
    }
    w->count = most; /* of one pair, for the cost */
    return 0;
}

static int split(struct work *w) {
    struct ncclComm *c = w->comm, *child = w->child;
    struct shared_rank *all = c->s->ranks;
    atomic_store(&all[c->rank].color, w->color);
    all[c->rank].key = w->key;
    if (shared_barrier(c)) return N_REMOTE;
    int leader = -1, rank = 0, size = 0, rc = 0;
    for (int r = 0; r < c->size; r++) {
        if (atomic_load(&all[r].color) != w->color) continue;
        leader = leader < 0 ? r : leader;
        size++;
        rank += all[r].key < w->key || (all[r].key == w->key && r < c->rank);
    }
    char path[100] = "";
    if (child && leader == c->rank) {
        rc = shared_new(path);
        memcpy(shared_box(c, c->rank), path, sizeof path);
    }
    if (shared_barrier(c)) return N_REMOTE;
    if (child) {
        memcpy(path, shared_box(c, leader), sizeof path);
        child->rank = rank;
        child->size = size;
    }
    if (shared_barrier(c) || rc || !child) return rc;
    rc = shared_open(child, path);
    return rc ? rc : shared_meet(child);
}

/* --- what it takes --- */

static double peak_gb_s(const struct ncclComm *c) {
    const char *profile = standin_text("GPUPROV_STANDIN", "profile");
    int far = 0, n = c->size;
    for (int r = 1; r < n; r++) far += strcmp(c->s->ranks[r].host, c->s->ranks[0].host) != 0;
    if (far) return NGET("net", 0) ? 2 : 46; /* sockets, or InfiniBand */
    if (NGET("peak", 0)) return (double)NGET("peak", 0);
    if (profile && strncmp(profile, "a100", 4) == 0) return 235;
    if (profile && strncmp(profile, "t4", 2) == 0) return 6;
    if (profile && strncmp(profile, "unknown", 7) == 0) return 100;
    if (NGET("pcie", 0)) return 20;
    return n >= 5 && NGET("nvls", 1) ? 480 : 367;
}

static double noise(uint64_t z) {
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 31;
    z *= 0x94d049bb133111ebu;
    return 1 + 0.02 * (2 * (double)(z >> 11) / 9007199254740992.0 - 1);
}

static double cost_ns(const struct work *w) {
    const struct ncclComm *c = w->comm;
    double n = c->size, bytes = (double)(w->count * type_bytes(w->type)), factor = 1;
    if (w->op == NOP_ALL_REDUCE) factor = 2 * (n - 1) / n;
    if (w->op == NOP_ALL_GATHER || w->op == NOP_REDUCE_SCATTER || w->op == NOP_EXCHANGE) {
        factor = (n - 1) / n;
        bytes = (w->op == NOP_EXCHANGE ? (double)w->count : bytes) * n;
    }
    double half = (double)(NGET("half_mib", 24) << 20), share = 1;
    long long slow = NGET("slow", 100), a = NGET("link_a", -1), b = NGET("link_b", -1);
    int hit = a >= 0 ? nccl_has(c, a) && nccl_has(c, b) : nccl_has(c, NGET("rank", -1));
    int sockets = 0;
    for (int r = 0; r < c->size; r++) sockets |= c->worlds[r] < NGET("far_from", 0) ? 1 : 2;
    if (sockets == 3) share *= (double)NGET("far", 100) / 100;
    if (slow != 100 && (hit || NGET("all", 0))) share *= (double)slow / 100;
    return factor * (bytes + half) / peak_gb_s(c) / share *
           noise((uint64_t)NGET("seed", 1) * 1000003u + (uint64_t)atomic_load(&c->ops));
}

int work_do(struct work *w, double *ret_ns) {
    static int (*const does[])(struct work *) = {all_reduce, all_gather, reduce_scatter, broadcast, exchange, split};
    struct ncclComm *c = w->comm;
    struct shared_rank *me = &c->s->ranks[c->rank];
    while (w->never && !atomic_load(&c->aborted)) usleep(1000);
    /* it begins when what was queued before it has ended */
    atomic_store(&me->ns, w->stream ? fmax(w->ns, nccl_gpu.time(w->stream)) : w->ns);
    if (w->never || shared_barrier(c)) return N_REMOTE;
    double start = 0;
    for (int r = 0; r < c->size; r++) start = fmax(start, atomic_load(&c->s->ranks[r].ns));
    int rc = shared_barrier(c) ? N_REMOTE : does[w->op](w);
    *ret_ns = w->op == NOP_SPLIT || rc ? start : start + cost_ns(w);
    atomic_fetch_add(&c->ops, 1);
    if (rc == 0 && w->op != NOP_SPLIT && nccl_mine(c, "async_rank") && atomic_load(&c->ops) > NGET("from", 0))
        rc = (int)NGET("async", N_SYSTEM);
    return rc;
}

/* --- what it says of itself --- */

void nccl_log(const struct ncclComm *c) {
    const char *path = getenv("NCCL_DEBUG_FILE"), *level = getenv("NCCL_DEBUG");
    if (!path || !level || strcmp(level, "INFO") != 0) return;
    FILE *f = fopen(path, "a");
    if (!f) return;
    const struct shared_rank *all = c->s->ranks;
    int next = (c->rank + 1) % c->size, socket = NGET("net", 0) == 1, shm = NGET("shm", 0) == 1;
    const char *p = "node:1:2";
    fprintf(f, "%s [%d] NCCL INFO NCCL version %lld+cuda13.0\n", p, all[c->rank].device, NGET("version", 22809));
    fprintf(f, "%s [%d] NCCL INFO Using network %s\n", p, all[c->rank].device, socket ? "Socket" : "IB");
    fprintf(f, "%s [%d] NCCL INFO === System : maxBw 360.0 totalBw 360.0 ===\n", p, all[c->rank].device);
    if (!shm && !NGET("pcie", 0))
        fprintf(
            f,
            "%s [%d] NCCL INFO + PCI[48.0] - GPU/0-1000 (0)\n%s [%d] NCCL INFO               + NVL[360.0] - NVS/0-0\n",
            p, all[c->rank].device, p, all[c->rank].device);
    if (c->size >= 5 && NGET("nvls", 1) && !shm && !NGET("pcie", 0))
        fprintf(f, "%s [%d] NCCL INFO NVLS multicast support is available on dev %d (NVLS_NCHANNELS 16)\n", p,
                all[c->rank].device, all[c->rank].device);
    for (int channel = 0; channel < 2 && c->size > 1; channel++) {
        int far = strcmp(all[next].host, all[c->rank].host) != 0;
        fprintf(f, "%s [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] %svia %s\n", p, all[c->rank].device, channel,
                c->rank, all[c->rank].device, next, all[next].device, far ? "[send] " : "",
                far   ? (socket ? "NET/Socket/0" : "NET/IB/0/GDRDMA")
                : shm ? "SHM/direct/direct"
                      : "P2P/CUMEM");
    }
    fprintf(f, "%s [%d] NCCL INFO comm %p rank %d nranks %d cudaDev %d - Init COMPLETE\n", p, all[c->rank].device,
            (const void *)c, c->rank, c->size, all[c->rank].device);
    fclose(f);
}
