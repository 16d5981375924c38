/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's kernels: found by name, stepped through every block and thread, timed by what
 * their rows say, and spoiled as the knobs of libcuda.c say. */
#include "kernels.h"

#include <math.h>
#include <signal.h>

struct kstep kstep;

static const struct standin_kernel *const families[] = {kernels_collective, kernels_memory, kernels_gemm,
                                                        kernels_sdc,        kernels_train,  kernels_test};

EXPORT int cuModuleGetFunction(void **ret, void *m, const char *name) {
    if (!m || m != standin_now) return 1;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (const struct standin_kernel *k = families[f]; k->name; k++) {
            if (strcmp(k->name, name) != 0) continue;
            memcpy(ret, &k, sizeof k);
            return 0;
        }
    }
    return 500;
}

static void step_block(const struct standin_kernel *k, unsigned b, unsigned grid, unsigned block, void **p) {
    kstep = (struct kstep){b, 0, block, grid, b % (unsigned)standin_profile()->sms};
    if (k->blocks) {
        k->step(p);
        return;
    }
    for (unsigned t = 0; t < block; t++) {
        kstep.thread = t;
        k->step(p);
    }
}

/* What a block on a faulty multiprocessor writes is found by running it once over inverted memory, then
 * once more for the result; one of its words gets a wrong bit. */
static void step_faulty(const struct standin_kernel *k, unsigned b, unsigned grid, unsigned block, void **p,
                        const struct kernel_cost *c) {
    size_t bytes = c->out_elements * c->out_size, words = bytes / 4, last = words;
    uint32_t *out = c->out, *was = malloc(bytes), *inverted = malloc(bytes);
    if (!was || !inverted) abort();
    memcpy(was, out, bytes);
    for (size_t i = 0; i < words; i++) out[i] = inverted[i] = ~was[i];
    step_block(k, b, grid, block, p);
    for (size_t i = 0; i < words && last == words; i++)
        if (out[i] != inverted[i]) last = i;
    memcpy(out, was, bytes);
    step_block(k, b, grid, block, p);
    if (last < words) out[last] ^= 1u << (standin_fault("sm_bit") & 31);
    free(was);
    free(inverted);
}

EXPORT void standin_gpu_spoil(void *at, size_t elements, size_t size) {
    static long long products[GPUS_MAX];
    if (!standin_now || !standin_mine(standin_now) || !elements) return;
    long long bit = GET("gemm_bit", -1), nan_ = GET("gemm_nan", 0);
    long long each = GET("gemm_every", 1), n = products[standin_now->index]++;
    if ((bit < 0 && !nan_) || (each > 1 && n % each != each - 1)) return;
    size_t which = (size_t)GET("gemm_at", (long long)(elements / 2)) % elements;
    unsigned char *p = (unsigned char *)at + which * size;
    if (nan_) /* all ones is a NaN in every format */
        memset(p, 0xff, size);
    else p[(size_t)bit / 8 % size] ^= (unsigned char)(1u << (bit % 8));
}

/* The word of the memory that was filled first which loses a bit whenever it is written; NULL: none, or
 * this kernel does not write it. */
static ku64 *flip_word(const struct standin_kernel *k, void **p) {
    struct sgpu *g = standin_now;
    if (strcmp(k->name, "gp_mem_fill") != 0 && strcmp(k->name, "gp_mem_invert") != 0) return NULL;
    ku64 *base = ARG(ku64 *, 1);
    if (!g->filled) g->filled = base;
    long long word = standin_mine(g) ? GET("flip", -1) : -1;
    return word >= 0 && word < ARG(ki64, 2) && base == g->filled ? &base[word] : NULL;
}

static void spend(void *stream, const struct kernel_cost *c) {
    struct sstream *s = standin_stream(stream);
    double ns = 0;
    for (int w = 0; w < WORKS; w++)
        if (c->amount[w] > 0) ns = fmax(ns, standin_cost_ns(s->gpu, (enum standin_work)w, c->amount[w]));
    s->ns += ns;
    s->gpu->total_ns += ns;
}

int standin_run(const void *kernel, unsigned grid, unsigned block, void **p, void *stream) {
    const struct standin_kernel *k = kernel;
    if (standin_now && standin_fault("die")) raise(SIGKILL);
    int r = standin_gpu_begin();
    if (r) return r > 0 ? r : 0;
    struct kernel_cost c = {.out = NULL};
    if (k->cost) k->cost(p, &c);
    else c.amount[WORK_MEMORY] = 8.0 * (double)ARG(ki64, 0);
    spend(stream, &c);
    standin_now->fault = (int)standin_fault("query");
    if (standin_fault("lazy") || standin_now->fault) return 0;
    long long bad = standin_mine(standin_now) ? GET("sm", -1) : -1;
    long long sms = standin_profile()->sms;
    ku64 *flips = flip_word(k, p), was = flips ? *flips : 0;
    for (unsigned b = 0; b < grid; b++) {
        if (bad >= 0 && c.out && (long long)b % sms == bad) step_faulty(k, b, grid, block, p, &c);
        else step_block(k, b, grid, block, p);
    }
    if (c.product && c.out) standin_gpu_spoil(c.out, c.out_elements, c.out_size);
    if (flips && *flips != was) {
        *flips ^= 1ull << GET("bit", 0);
        standin_now->flipped = (uint64_t *)flips;
    }
    return 0;
}
