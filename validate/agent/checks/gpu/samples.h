/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the checks of GPU memory, links and arithmetic: samples of a rate, memory with a known pattern, and the
 * time limit of a check. CUDA agent only; one thread. */
#ifndef GP_AGENT_SAMPLES_H
#define GP_AGENT_SAMPLES_H

#include "validate/agent/agent.h"
#include "validate/agent/cuda/kernels/memory.h"

/* Called when a check begins: monotonic ms after which no long step may begin. Most of the check's budget, and
 * earlier than its deadline, so that findings can still be reported. */
int64_t gpu_time_end(const struct check_ctx *c);

enum { SAMPLES_MAX = 63 }; /* one less than CUDA_MARKS */
struct samples {
    double v[SAMPLES_MAX];
    size_t n;
};
void samples_add(struct samples *s, double v);  /* ignored when full */
double samples_median(const struct samples *s); /* 0 with none */
/* Adds "key": {"median":..,"least":..,"most":..,"spread":..,"samples":n} to data; spread: least to most, in
 * percent of the median. */
void samples_say(const struct samples *s, struct agent_result *r, const char *key);

/* Queues `n` repeats of `queue` with a mark between any two, waits, and adds each repeat's rate in GB/s or TFLOP/s
 * to ret: work / seconds / unit (1e9, 1e12). The first `warm` repeats do not count. most_s: the repeat count is
 * limited so that total GPU time stays below this, based on the first repeat; at least one repeat runs. 0: no such
 * limit. */
struct measured {
    int (*queue)(void *arg, struct gp_error *err);
    void *arg;
    struct device *dev; /* NULL: the check's own */
    int n, warm;        /* n <= SAMPLES_MAX */
    double work, unit;
    double most_s;
};
int samples_take(struct check_ctx *c, const struct measured *m, struct samples *ret, struct gp_error *err);

/* Kernels that write a pattern and find differences from it. */
struct pattern_room {
    const struct device_ops *ops;
    struct device *dev;
    int64_t deadline_ms;
    int gpu;
    dev_addr log, seen;
    uint64_t *seen_host;
    int items;
};
/* dev: c's own device, or another that this process has opened (gpu: its number). */
int pattern_open(struct pattern_room *p, const struct check_ctx *c, struct device *dev, int gpu, struct gp_error *err);
void pattern_close(struct pattern_room *p);
struct pattern {
    dev_addr base;
    size_t bytes; /* a multiple of 16 */
    enum mem_pattern kind;
    uint64_t seed;
};
int pattern_fill(struct pattern_room *p, const struct pattern *a, struct gp_error *err);
/* Waits. ret: the differences, sorted by address. -GP_EPROTO when the kernel did not read everything. */
int pattern_verify(struct pattern_room *p, const struct pattern *a, struct mem_log *ret, struct gp_error *err);
/* Fails r: "WHAT: 3 wrong words, the first at ...", with the noted words in data.wrong_words. */
void pattern_blame(struct agent_result *r, const char *code, const struct mem_log *log, const char *what);
/* The same on the host. Returns the number of words that differ; *ret_first: the first of them. */
void pattern_fill_host(uint64_t *words, size_t n, enum mem_pattern kind, uint64_t seed);
size_t pattern_verify_host(const uint64_t *words, size_t n, enum mem_pattern kind, uint64_t seed, size_t *ret_first);

/* The second half of gpu.bandwidth: the figures h2d and d2h. -code: nothing could be measured. */
int hostlink_measure(struct check_ctx *c, struct agent_result *r, struct gp_error *err);

/* Of kind_cuda.c, each in its own file. */
void gpu_memory_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_bandwidth_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_p2p_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_together_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_gemm_cuda(struct check_ctx *c, struct agent_result *r);
void gpu_gemm_conclude(struct check_ctx *c, struct agent_result *r);
void gpu_gemm_load(struct check_ctx *c); /* finds and starts cuBLASLt: hundreds of MB */
void gpu_sdc_cuda(struct check_ctx *c, struct agent_result *r);
/* Random products of GPUs of one model that multiply in the same way must be equal: those that differ from the
 * majority fail; without a majority all are degraded. */
void gpu_sdc_compare(struct agent_result *each, size_t n);

#endif
