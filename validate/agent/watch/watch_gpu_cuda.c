/* SPDX-License-Identifier: Apache-2.0 */
/* Watches one GPU by NVML, in a worker process: counters that moved since the last period, Xids, clocks that the
 * hardware holds down, and a GPU that is busy at low power for minutes. Creates no CUDA context. One thread. */
#include "base/gp_base.h"

#include "validate/agent/watch/watch_cuda.h"

#include "base/clock.h"
#include "validate/agent/base/kernlog.h"
#include "validate/agent/base/worker.h"
#include "validate/agent/checks/gpu/health_cuda.h"
#include "validate/agent/watch/watch.h"

#include <poll.h>

/* One sample alone may be a change of clocks. */
#define SLOW_PERIODS 3
/* A collective whose peers do not come spins: the GPU is 100 % busy at little more than idle power. Own figures,
 * without a published source, so they only make a note. */
#define STALLED_BUSY 95 /* percent of the time */
#define STALLED_POWER 3 /* tenths of the power limit */

struct gpu_watch {
    int out;
    int64_t stalled_ms;
    nvml_device device;
    int64_t power_limit_mw;
    struct nvml_counters last;
    int slow;              /* periods in a row with clocks held down */
    int64_t stalled_since; /* monotonic; 0: it is not busy at low power */
};

static void found(struct gpu_watch *g, enum watch_severity severity, const char *code, const char *advice,
                  const char *fmt, ...) GP_PRINTF(5, 6);
static void found(struct gpu_watch *g, enum watch_severity severity, const char *code, const char *advice,
                  const char *fmt, ...) {
    struct watch_msg m = {.kind = WATCH_FOUND, .f.severity = severity};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m.f.text, sizeof m.f.text, fmt, ap);
    va_end(ap);
    str_put(m.f.code, sizeof m.f.code, code);
    str_put(m.f.advice, sizeof m.f.advice, advice);
    worker_put(g->out, MSG_LINE, &m, sizeof m);
}

/* The increase of a counter; 0 if one of the two is not reported, or if a reset set it back. */
static int64_t more(int64_t before, int64_t now) {
    return before < 0 || now < 0 ? 0 : GP_MAX(now - before, (int64_t)0);
}

static void look_at_memory(struct gpu_watch *g, const struct nvml_counters *n) {
    const struct nvml_counters *b = &g->last;
    int64_t ecc = more(b->ecc[NVML_UNCORRECTED][NVML_VOLATILE][NVML_ANYWHERE],
                       n->ecc[NVML_UNCORRECTED][NVML_VOLATILE][NVML_ANYWHERE]);
    if (ecc > 0)
        found(g, WATCH_FAIL, "ecc_uncorrected",
              "discard the results since the last checkpoint; reset the GPU, then validate the node again",
              "%lld new uncorrectable ECC error%s", (long long)ecc, ecc == 1 ? "" : "s");
    if (more(b->remap_failed, n->remap_failed) > 0)
        found(g, WATCH_FAIL, "remap_failed", "no spare rows are left in that bank: replace the node (RMA)",
              "a memory row could not be remapped");
    if (more(b->remap_pending, n->remap_pending) > 0 || more(b->retired_pending, n->retired_pending) > 0)
        found(g, WATCH_DEGRADED, "remap_pending", "reset the GPU after the job, then validate the node again",
              "memory went bad: a reset of the GPU is due");
}

static void look_at_links(struct gpu_watch *g, const struct nvml_counters *n) {
    const struct nvml_counters *b = &g->last;
    for (int i = 0; i < b->links && i < n->links; i++)
        if (b->link[i].active == 1 && n->link[i].active == 0)
            found(g, WATCH_FAIL, "nvlink_down", "drain and reset the GPU; replace the node if the link goes down again",
                  "NVLink %d went down", i);
    if (more(b->pcie_fatal, n->pcie_fatal) > 0 || more(b->pcie_nonfatal, n->pcie_nonfatal) > 0)
        found(g, WATCH_FAIL, "pcie_errors", "replace the node: the PCIe link loses data",
              "new uncorrectable PCIe errors");
}

static void look_at_state(struct gpu_watch *g, const struct nvml_counters *n) {
    if (n->lost) found(g, WATCH_FAIL, "gpu_lost", "replace the node", "the GPU fell off the bus");
    else if (n->reset_required)
        found(g, WATCH_FAIL, "reset_required", "reset the GPU, then validate the node again",
              "the driver requires a reset of the GPU");
    if (n->recovery > 0 && g->last.recovery <= 0)
        found(g, WATCH_FAIL, "recovery_action", nvml_recovery_advice(n->recovery), "the driver requires: %s",
              nvml_recovery_name(n->recovery));
}

static void look_at_xids(struct gpu_watch *g) {
    int64_t seen[16];
    int n = nvml_xids_take(seen, (int)GP_ARRAY_LEN(seen));
    for (int i = 0; i < n; i++) {
        struct kern_finding k = kernlog_judge_xid(seen[i]);
        found(g, watch_severity(&k), k.code, k.advice, "Xid %lld (reported by NVML)", (long long)seen[i]);
    }
}

static void look_at_work(struct gpu_watch *g) {
    struct nvml_sample s;
    nvml_sample_read(g->device, &s);
    bool slow = s.reasons > 0 && (s.reasons & NVML_REASONS_HW_CERTAIN) != 0;
    g->slow = slow ? g->slow + 1 : 0;
    if (g->slow == SLOW_PERIODS) {
        char text[160];
        nvml_reasons_text(s.reasons & NVML_REASONS_HW, text, sizeof text);
        found(g, WATCH_DEGRADED, "hw_slowdown",
              "cooling or power supply is not enough: replace the node, or have it serviced",
              "the hardware holds the clocks down (%s, %lld C)", text, (long long)s.temperature_c);
    }
    int64_t busy = nvml_busy_percent(g->device);
    bool idle_heat = s.power_mw >= 0 && g->power_limit_mw > 0 && s.power_mw * 10 < g->power_limit_mw * STALLED_POWER;
    if (busy < STALLED_BUSY || !idle_heat) {
        g->stalled_since = 0;
        return;
    }
    if (g->stalled_since == 0) g->stalled_since = clock_ms();
    if (clock_ms() - g->stalled_since >= g->stalled_ms)
        found(g, WATCH_NOTE, "busy_at_low_power",
              "look whether the job makes progress: a collective may wait for a rank that does not come",
              "the GPU has been %lld %% busy with %lld W of %lld W for %lld s", (long long)busy,
              (long long)(s.power_mw / 1000), (long long)(g->power_limit_mw / 1000),
              (long long)((clock_ms() - g->stalled_since) / 1000));
}

static bool begin(struct gpu_watch *g, int gpu) {
    struct gp_error err = {0};
    struct watch_msg m = {.kind = WATCH_IS_AT};
    if (nvml_device_of(gpu, &g->device, &err) < 0) {
        m.kind = WATCH_BLIND;
        str_put(m.f.text, sizeof m.f.text, err.msg);
        worker_put(g->out, MSG_LINE, &m, sizeof m);
        return false;
    }
    struct nvml_facts facts;
    nvml_facts_read(g->device, &facts);
    g->power_limit_mw = facts.power_limit_mw;
    health_log_address(facts.pci, m.pci, sizeof m.pci);
    nvml_xids_watch(g->device);
    nvml_counters_read(g->device, &g->last);
    return worker_put(g->out, MSG_LINE, &m, sizeof m);
}

void watch_gpu_cuda(int gpu, const struct watch_opts *opts, int in, int out) {
    struct gpu_watch g = {.out = out, .stalled_ms = opts->stalled_ms};
    const struct watch_msg alive = {.kind = WATCH_ALIVE};
    if (!begin(&g, gpu)) return;
    for (bool last = false; worker_put(out, MSG_LINE, &alive, sizeof alive);) {
        struct nvml_counters now;
        nvml_counters_read(g.device, &now);
        look_at_state(&g, &now);
        look_at_memory(&g, &now);
        look_at_links(&g, &now);
        look_at_xids(&g);
        look_at_work(&g);
        g.last = now;
        if (last) return;
        last = gp_wait_fd(in, POLLIN, clock_deadline(opts->every_ms), NULL, NULL, NULL) == 0;
    }
}
