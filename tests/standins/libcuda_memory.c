/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in libcuda's memory: device memory (host memory of a fixed budget for each GPU, never
 * zeroed), page-locked memory, copies within and between GPUs. Knobs: see libcuda.c. */
#include "standin_gpu.h"

enum { PINNED_MAX = 256 };
static struct {
    char *p;
    size_t bytes;
} pinned[PINNED_MAX];

static size_t held(void) { return (size_t)GET("held_mib", 0) << 20; }

EXPORT int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total) {
    int r = standin_status(standin_now);
    if (r) return r;
    *ret_total = standin_memory(standin_now->index);
    *ret_free = *ret_total - held() - standin_now->used;
    return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *ret, size_t bytes) {
    struct sgpu *g = standin_now;
    int r = standin_status(g);
    if (r == 0) r = (int)standin_fault("alloc");
    if (r) return r;
    if (!bytes) return 1;
    if (g->n_allocs == ALLOCS_MAX || bytes > standin_memory(g->index) ||
        g->used + held() + bytes > standin_memory(g->index))
        return 2;
    char *p = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!p) return 2;
    memset(p, 0xa5, bytes); /* device memory is not zeroed */
    g->allocs[g->n_allocs].p = p;
    g->allocs[g->n_allocs++].bytes = bytes;
    g->used += bytes;
    *ret = (uint64_t)(uintptr_t)p;
    return 0;
}

EXPORT int cuMemFree_v2(uint64_t at) {
    struct sgpu *g = standin_now;
    int r = standin_status(g);
    if (r) return r;
    for (size_t i = 0; i < g->n_allocs; i++) {
        if ((uint64_t)(uintptr_t)g->allocs[i].p != at) continue;
        g->used -= g->allocs[i].bytes;
        free(g->allocs[i].p);
        g->allocs[i] = g->allocs[--g->n_allocs];
        return 0;
    }
    return 1;
}

int standin_inside(const struct sgpu *g, uint64_t at, size_t bytes) {
    for (size_t i = 0; i < g->n_allocs; i++) {
        uint64_t p = (uint64_t)(uintptr_t)g->allocs[i].p;
        if (at >= p && at - p <= g->allocs[i].bytes && bytes <= g->allocs[i].bytes - (at - p)) return 1;
    }
    return 0;
}

EXPORT int standin_gpu_holds(uint64_t at, size_t bytes) {
    return standin_now && standin_inside(standin_now, at, bytes);
}

EXPORT int cuMemHostAlloc(void **ret, size_t bytes, unsigned flags) {
    (void)flags;
    int r = standin_status(standin_now);
    if (r == 0) r = (int)standin_fault("pinned");
    if (r) return r;
    for (size_t i = 0; i < PINNED_MAX; i++) {
        if (pinned[i].p) continue;
        pinned[i].p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (!pinned[i].p) return 2;
        memset(pinned[i].p, 0x5a, bytes);
        pinned[i].bytes = bytes;
        *ret = pinned[i].p;
        return 0;
    }
    return 2;
}

EXPORT int cuMemFreeHost(void *p) {
    for (size_t i = 0; i < PINNED_MAX; i++) {
        if (!pinned[i].p || pinned[i].p != p) continue;
        free(p);
        pinned[i].p = NULL;
        return 0;
    }
    return 1;
}

/* An asynchronous copy wants page-locked memory: a real driver would block without it. */
static int is_pinned(const void *p, size_t bytes) {
    for (size_t i = 0; i < PINNED_MAX; i++)
        if (pinned[i].p && (const char *)p >= pinned[i].p && (const char *)p + bytes <= pinned[i].p + pinned[i].bytes)
            return 1;
    return 0;
}

/* What crosses the link to the host in large pieces arrives with a wrong bit. */
static void spoil_link(const char *key, void *dst, size_t bytes) {
    long long bit = standin_mine(standin_now) ? GET(key, -1) : -1;
    if (bit >= 0 && bytes >= (size_t)8 << 20) *(unsigned char *)dst ^= (unsigned char)(1u << (bit & 7));
}

/* Does the work of a queued copy: 0 go on, else *ret is what the call gives. */
static int refused(int *ret) {
    int r = standin_gpu_begin();
    *ret = r > 0 ? r : 0;
    return r != 0;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream) {
    int r = 0;
    if (refused(&r)) return r;
    if (!standin_inside(standin_now, dst, bytes) || !is_pinned(src, bytes)) return 1;
    memcpy((void *)(uintptr_t)dst, src, bytes);
    spoil_link("h2d_bit", (void *)(uintptr_t)dst, bytes);
    standin_gpu_spend(stream, WORK_H2D, (double)bytes * standin_crowd(standin_now, 1));
    return 0;
}

EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream) {
    struct sgpu *g = standin_now;
    int r = 0;
    if (refused(&r)) return r;
    if (!standin_inside(g, src, bytes) || !is_pinned(dst, bytes)) return 1;
    if (g->flipped && bytes == 8 && src == (uint64_t)(uintptr_t)g->flipped && !GET("stuck", 1)) {
        *g->flipped ^= 1ull << GET("bit", 0);
        g->flipped = NULL;
    }
    memcpy(dst, (void *)(uintptr_t)src, bytes);
    spoil_link("d2h_bit", dst, bytes);
    standin_gpu_spend(stream, WORK_D2H, (double)bytes * standin_crowd(g, 1));
    return 0;
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, void *stream) {
    int r = 0;
    if (refused(&r)) return r;
    if (!standin_inside(standin_now, dst, bytes) || !standin_inside(standin_now, src, bytes)) return 1;
    memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
    standin_gpu_spend(stream, WORK_MEMORY, 2 * (double)bytes);
    return 0;
}

/* --- between GPUs --- */

EXPORT int cuDeviceCanAccessPeer(int *ret, int d, int other) {
    *ret = GET("peer", 1) && d != other;
    return standin_status(standin_now);
}

EXPORT int cuCtxEnablePeerAccess(void *other, unsigned flags) {
    struct sgpu *g = standin_now, *to = other;
    int r = standin_status(g);
    if (r == 0) r = (int)standin_fault("peer_enable");
    if (r) return r;
    if (flags || to == g) return 1;
    if (!GET("peer", 1)) return 217;
    if (g->peers >> to->index & 1) return 704;
    if (__builtin_popcountll(g->peers) >= 8) /* as without NVSwitch */
        return 711;
    g->peers |= 1ull << to->index;
    return 0;
}

EXPORT int cuCtxDisablePeerAccess(void *other) {
    struct sgpu *g = standin_now, *to = other;
    int r = standin_status(g);
    if (r == 0 && !(g->peers >> to->index & 1)) r = 705;
    if (r == 0) g->peers &= ~(1ull << to->index);
    return r;
}

EXPORT int cuMemcpyPeerAsync(uint64_t dst, void *dst_ctx, uint64_t src, void *src_ctx, size_t bytes, void *stream) {
    struct sgpu *from = src_ctx, *to = dst_ctx, *g = standin_now;
    int r = standin_status(to);
    if (r == 0) r = standin_status(from);
    if (r || refused(&r)) return r;
    if (!standin_inside(from, src, bytes) || !standin_inside(to, dst, bytes)) return 1;
    memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
    long long only = GET("gpu", -1), bit = GET("peer_bit", -1);
    long long times = GET("peer_times", -1);
    static long long spoilt;
    if (bit >= 0 && bytes && (times < 0 || spoilt < times) && (only < 0 || only == from->index || only == to->index))
        *(unsigned char *)(uintptr_t)dst ^= (unsigned char)(1u << (bit & 7)), spoilt++;
    int direct = (int)((from->peers >> to->index | to->peers >> from->index) & 1);
    struct sgpu *slow = only == to->index ? to : from; /* a link is as slow as its worse end */
    long long way = GET("slow_way", -1);
    double full = way < 0 || way == from->index * 10 + to->index ? 1 : (double)GET("slow_peer", 100) / 100;
    full *= standin_crowd(from, 0);
    double ns = direct ? standin_cost_ns(slow, WORK_PEER, full * (double)bytes)
                       : standin_cost_ns(from, WORK_D2H, full * (double)bytes) +
                             standin_cost_ns(to, WORK_H2D, full * (double)bytes);
    (void)g;
    standin_stream(stream)->ns += ns;
    return 0;
}
