/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in GPUs' virtual clock: a stream's time advances by what its work would take on the model
 * (amount / rate, seeded noise of +-2 %), slower where a knob of libcuda.c says so. Only the knob
 * onset_ms looks at a real clock. Rates are what sound GPUs of the model were measured to reach (public reports of
 * DCGM, gpu-fryer, mamf-finder, nvbandwidth), so a clean stand-in is a sound GPU. */
#include "standin_gpu.h"

#include <math.h>
#include <time.h>

static const struct profile profiles[] = {
    {.key = "h100",
     .name = "NVIDIA H100 80GB HBM3",
     .pci_id = 0x2330,
     .major = 9,
     .minor = 0,
     .sms = 132,
     .clock_khz = 1980000,
     .memory_clock_khz = 2619000,
     .bus_bits = 5120,
     .l2_bytes = 50ll << 20,
     .rate = {[WORK_MEMORY] = 2950,
              [WORK_H2D] = 55,
              [WORK_D2H] = 54,
              [WORK_PEER] = 390,
              [WORK_FP32] = 52e3,
              [WORK_TF32] = 400e3,
              [WORK_FP16] = 760e3,
              [WORK_BF16] = 770e3,
              [WORK_FP8] = 1480e3,
              [WORK_INT8] = 1450e3}},
    {.key = "a100",
     .name = "NVIDIA A100-SXM4-80GB",
     .pci_id = 0x20b2,
     .major = 8,
     .minor = 0,
     .sms = 108,
     .clock_khz = 1410000,
     .memory_clock_khz = 1593000,
     .bus_bits = 5120,
     .l2_bytes = 40ll << 20,
     .rate = {[WORK_MEMORY] = 1850,
              [WORK_H2D] = 25,
              [WORK_D2H] = 25,
              [WORK_PEER] = 272,
              [WORK_FP32] = 18.5e3,
              [WORK_TF32] = 132e3,
              [WORK_FP16] = 270e3,
              [WORK_BF16] = 271e3,
              [WORK_INT8] = 500e3}},
    {.key = "t4",
     .name = "Tesla T4",
     .pci_id = 0x1eb8,
     .major = 7,
     .minor = 5,
     .sms = 40,
     .clock_khz = 1590000,
     .memory_clock_khz = 5001000,
     .bus_bits = 256,
     .l2_bytes = 4ll << 20,
     .rate = {[WORK_MEMORY] = 250,
              [WORK_H2D] = 12,
              [WORK_D2H] = 12.5,
              [WORK_PEER] = 10,
              [WORK_FP32] = 5.5e3,
              [WORK_FP16] = 40e3,
              [WORK_INT8] = 75e3}},
    {.key = "unknown",
     .name = "NVIDIA Stand-in",
     .pci_id = 0x7ffe,
     .major = 9,
     .minor = 0,
     .sms = 100,
     .clock_khz = 1500000,
     .memory_clock_khz = 2000000,
     .bus_bits = 4096,
     .l2_bytes = 32ll << 20,
     .rate = {[WORK_MEMORY] = 1500,
              [WORK_H2D] = 24,
              [WORK_D2H] = 24,
              [WORK_PEER] = 100,
              [WORK_FP32] = 20e3,
              [WORK_TF32] = 150e3,
              [WORK_FP16] = 300e3,
              [WORK_BF16] = 300e3,
              [WORK_FP8] = 600e3,
              [WORK_INT8] = 600e3}},
};

const struct profile *standin_profile(void) {
    const char *want = standin_text("GPUPROV_STANDIN", "profile");
    if (!want) return &profiles[0];
    size_t n = strcspn(want, ",");
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++)
        if (strlen(profiles[i].key) == n && strncmp(profiles[i].key, want, n) == 0) return &profiles[i];
    abort(); /* a test asks for a model that is not there */
}

static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double noise(struct sgpu *g) {
    if (!GET("noise", 1)) return 1;
    uint64_t x = mix(mix((uint64_t)GET("seed", 1)) + mix((uint64_t)g->index + 1) + g->draws++);
    return 1 + 0.02 * (2 * (double)(x >> 11) / 9007199254740992.0 - 1);
}

static double now_s(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What part of its rate this kind of work has left. */
static double share(const struct sgpu *g, enum standin_work w) {
    static const char *const knob[WORKS] = {
        [WORK_MEMORY] = "slow_copy", [WORK_H2D] = "slow_h2d",   [WORK_D2H] = "slow_d2h",   [WORK_PEER] = "slow_peer",
        [WORK_FP32] = "slow_gemm",   [WORK_TF32] = "slow_gemm", [WORK_FP16] = "slow_gemm", [WORK_BF16] = "slow_gemm",
        [WORK_FP8] = "slow_gemm",    [WORK_INT8] = "slow_gemm"};
    if (!standin_mine(g)) return 1;
    double s = (double)GET("slow", 100) / 100;
    if (knob[w]) s *= (double)GET(knob[w], 100) / 100;
    if (g->total_ns >= 1e6 * (double)GET("decay_after", 0)) s *= (double)GET("decay", 100) / 100;
    if (w >= WORK_FP32 && w <= WORK_INT8) {
        if (g->product_ns[w] >= (double)GET("cap_after_ns", 0)) s *= (double)GET("cap", 100) / 100;
        if (g->first_s > 0 && now_s() - g->first_s >= (double)GET("onset_ms", 0) / 1e3)
            s *= (double)GET("onset", 100) / 100;
    }
    s *= fmax(pow(1 - (double)GET("fade", 0) / 1000, (double)g->launches), 1e-24);
    return s > 0 ? s : 1e-3;
}

double standin_cost_ns(struct sgpu *g, enum standin_work w, double amount) {
    double rate = w == WORK_NS ? 1 : standin_profile()->rate[w];
    if (!(rate > 0)) rate = standin_profile()->rate[WORK_FP32] / 16; /* done in another way, slowly */
    double ns = amount / rate / share(g, w) * noise(g);
    if (w >= WORK_FP32 && w <= WORK_INT8) {
        g->product_ns[w] += ns;
        if (g->first_s <= 0) g->first_s = now_s();
    }
    return ns;
}

EXPORT void standin_gpu_spend(void *stream, enum standin_work w, double amount) {
    struct sstream *s = standin_stream(stream);
    double ns = standin_cost_ns(s->gpu, w, amount);
    s->ns += ns;
    s->gpu->total_ns += ns;
}

EXPORT int standin_gpu_can(enum standin_work w) { return w == WORK_NS || standin_profile()->rate[w] > 0; }

EXPORT double standin_gpu_time(void *stream) { return standin_stream(stream)->ns; }

EXPORT void standin_gpu_set_time(void *stream, double ns) { standin_stream(stream)->ns = ns; }
