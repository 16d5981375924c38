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

struct launch { /* of one block */
    const struct standin_kernel *k;
    unsigned b, grid, block;
    const void *out;
    size_t words;
    double moved;
};

/* The word that a block writes first, found by running it over inverted memory; the number of words: none. */
static size_t find_written(const struct launch *l, uint32_t *out, void **p) {
    size_t bytes = l->words * sizeof *out, found = 0;
    uint32_t *was = malloc(bytes), *inverted = malloc(bytes);
    if (!was || !inverted) abort();
    memcpy(was, out, bytes);
    for (size_t i = 0; i < l->words; i++) out[i] = inverted[i] = ~was[i];
    step_block(l->k, l->b, l->grid, l->block, p);
    while (found < l->words && out[found] == inverted[found]) found++;
    memcpy(out, was, bytes);
    free(was);
    free(inverted);
    return found;
}

/* The same launch writes the same word: a rate is measured by many of them. */
static size_t written(const struct launch *l, uint32_t *out, void **p) {
    static struct {
        struct launch of;
        size_t word;
    } known[64];
    static unsigned n;
    for (unsigned i = 0; i < n && i < 64; i++) {
        const struct launch *o = &known[i].of;
        if (o->k == l->k && o->b == l->b && o->grid == l->grid && o->block == l->block && o->out == l->out &&
            o->words == l->words && o->moved == l->moved)
            return known[i].word;
    }
    known[n % 64].of = *l;
    known[n % 64].word = find_written(l, out, p);
    return known[n++ % 64].word;
}

/* One of the words that a block on a faulty multiprocessor writes gets a wrong bit. */
static void step_faulty(const struct standin_kernel *k, unsigned b, unsigned grid, unsigned block, void **p,
                        const struct kernel_cost *c) {
    struct launch l = {.k = k,
                       .b = b,
                       .grid = grid,
                       .block = block,
                       .out = c->out,
                       .words = c->out_elements * c->out_size / sizeof(uint32_t),
                       .moved = c->amount[WORK_MEMORY]};
    uint32_t *out = c->out;
    size_t word = written(&l, out, p);
    step_block(k, b, grid, block, p);
    if (word < l.words) out[word] ^= 1u << (standin_fault("sm_bit") & 31);
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
    long long word = standin_mine(g) && g->launches > GET("flip_after", 0) ? GET("flip", -1) : -1;
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
