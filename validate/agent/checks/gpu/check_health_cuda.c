/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.health: the state of a GPU before anything loads it, by NVML and the kernel log. Limits are NVIDIA's (DCGM)
 * and Azure's; repaired old faults are reported, not judged. Runs in the GPU's worker; puts no load on the GPU. */
#include "base/gp_base.h"

#include "health_cuda.h"

#include "validate/agent/base/kernlog.h"

#include <errno.h>

static void no_nvml(struct agent_result *r, const struct gp_error *err) {
    static const struct {
        const char *detail, *code;
        enum verdict v;
    } words[] = {{"15", "gpu_lost", VERDICT_FAIL},
                 {"16", "reset_required", VERDICT_FAIL},
                 {"18", "nvml_mismatch", VERDICT_FAIL}};
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++)
        if (str_eq(words[i].detail, err->detail)) agent_set_error(r, words[i].v, words[i].code, err);
    agent_set_error(r, VERDICT_ERROR, "nvml", err);
    agent_suggest(r, "%s", nvml_advice(err));
}

static void judge_recovery(const struct nvml_counters *n, struct agent_result *r) {
    if (n->lost)
        health_blame(r, VERDICT_FAIL, "gpu_lost", "look for 'NVRM: Xid' 79 in the kernel log; replace the node",
                     "the GPU fell off the bus");
    if (n->recovery > 0)
        health_blame(r, VERDICT_FAIL, "recovery_action", nvml_recovery_advice(n->recovery),
                     "the driver requires this recovery action: %s (%lld)", nvml_recovery_name(n->recovery),
                     (long long)n->recovery);
    if (n->reset_required)
        health_blame(r, VERDICT_FAIL, "reset_required", nvml_recovery_advice(1), "the GPU needs a reset");
}

static int64_t total(const int64_t *places) {
    return GP_MAX(places[NVML_ANYWHERE], GP_MAX(places[NVML_DRAM], places[NVML_SRAM]));
}

static void judge_ecc(const struct nvml_counters *n, struct agent_result *r) {
    const int64_t *now = n->ecc[NVML_UNCORRECTED][NVML_VOLATILE];
    const int64_t *old = n->ecc[NVML_UNCORRECTED][NVML_AGGREGATE];
    const int64_t *soft = n->ecc[NVML_CORRECTED][NVML_AGGREGATE];
    if (total(now) >= 0) agent_metric(r, "ecc_uncorrected", (double)total(now));
    if (total(now) > 0)
        health_blame(r, VERDICT_FAIL, "ecc_uncorrected",
                     "reset the GPU so that the rows are remapped, then validate again; replace the node if the "
                     "errors return",
                     "%lld uncorrectable ECC errors since the driver was loaded%s", (long long)total(now),
                     now[NVML_SRAM] > 0 ? ", in SRAM too" : "");
    if (n->sram_threshold == 1)
        health_blame(r, VERDICT_FAIL, "sram_threshold", "replace the node (RMA)",
                     "SRAM errors reached NVIDIA's limit for replacement");
    if (old[NVML_SRAM] > 0)
        health_blame(r, VERDICT_DEGRADED, "sram_scars",
                     "validate with a longer time (20m); replace the node on new errors",
                     "%lld uncorrectable SRAM errors in the GPU's lifetime", (long long)old[NVML_SRAM]);
    if (soft[NVML_SRAM] > 10000 || soft[NVML_DRAM] > 20000000)
        health_blame(r, VERDICT_DEGRADED, "ecc_corrected",
                     "validate with a longer time (20m); replace the node on uncorrectable errors",
                     "very many corrected ECC errors: %lld in SRAM, %lld in DRAM", (long long)soft[NVML_SRAM],
                     (long long)soft[NVML_DRAM]);
}

static void judge_pages(const struct nvml_counters *n, struct agent_result *r) {
    if (n->remap_failed == 1)
        health_blame(r, VERDICT_FAIL, "remap_failed", "no spare rows are left in that bank: replace the node (RMA)",
                     "a memory row could not be remapped");
    if (n->remap_pending == 1)
        health_blame(r, VERDICT_FAIL, "remap_pending", "reset the GPU (nvidia-smi -r) or reboot, then validate again",
                     "memory rows wait to be remapped by a reset");
    if (n->retired_pending == 1)
        health_blame(r, VERDICT_FAIL, "retirement_pending", "reboot the node, then validate again",
                     "memory pages wait to be retired by a reboot");
    if (n->remap_uncorrected >= 0) agent_metric(r, "remapped_rows", (double)n->remap_uncorrected);
    if (n->remap_uncorrected >= 512)
        health_blame(r, VERDICT_FAIL, "remapped_rows", "replace the node (RMA)",
                     "%lld rows were remapped for uncorrectable errors", (long long)n->remap_uncorrected);
    if (n->retired_corrected < 0 && n->retired_uncorrected < 0) return;
    int64_t pages = GP_MAX(n->retired_corrected, (int64_t)0) + GP_MAX(n->retired_uncorrected, (int64_t)0);
    agent_metric(r, "retired_pages", (double)pages);
    if (pages >= 63)
        health_blame(r, VERDICT_FAIL, "retired_pages", "replace the node (RMA)", "%lld memory pages are retired",
                     (long long)pages);
}

static void judge_links(const struct check_ctx *c, const struct gpu_model *model, const struct nvml_counters *n,
                        struct agent_result *r) {
    int active = 0;
    GP_AUTO_STR struct str down = {.max = 120};
    for (int i = 0; i < n->links; i++) {
        active += n->link[i].active == 1;
        if (n->link[i].active == 0) str_addf(&down, "%s%d", down.len ? "," : "", i);
    }
    double want = model != NULL ? gpu_model_spec(model, "nvlink_links") : -1;
    int bridge = model != NULL ? (int)gpu_model_spec(model, "nvlink_bridge") : 0;
    agent_data_int(r, "nvlinks", n->links);
    agent_data_int(r, "nvlinks_active", active);
    if (n->links == 0 || (active == 0 && (c->gpus <= 1 || bridge > 0 || want < 0)))
        return;                                     /* no links; no peer; no bridge */
    if (bridge > 0 && active % bridge == 0) return; /* as many bridges as are plugged in, each whole */
    if (want > 0 && active >= (int)want) return;
    if (want < 0 && active == n->links) return;
    health_blame(r, bridge > 0 || want < 0 ? VERDICT_DEGRADED : VERDICT_FAIL, "nvlink_down",
                 "drain and reset the GPU, check nvidia-fabricmanager's log; replace the node if links stay down",
                 "%d of %d NVLinks are up; down: %s", active, want > 0 ? (int)want : n->links,
                 down.len ? down.s : "those that are not listed");
}

static void judge_sample(const struct gpu_model *model, const struct nvml_facts *f, const struct nvml_sample *s,
                         struct agent_result *r) {
    if (s->temperature_c >= 0) agent_metric(r, "temperature", (double)s->temperature_c);
    if (s->temperature_c >= 0 && f->slowdown_c > 0 && s->temperature_c >= f->slowdown_c)
        health_blame(r, VERDICT_FAIL, "hot", "cooling has failed: replace the node",
                     "%lld C before any load; the GPU slows down from %lld C", (long long)s->temperature_c,
                     (long long)f->slowdown_c);
    if (s->power_mw >= 0) agent_metric(r, "power", (double)s->power_mw / 1000);
    if (s->reasons > 0 && (s->reasons & NVML_REASONS_HW)) {
        char text[160];
        nvml_reasons_text(s->reasons & NVML_REASONS_HW, text, sizeof text);
        health_blame(r, VERDICT_DEGRADED, "hw_slowdown",
                     "cooling or power supply is not enough: replace the node, or have it serviced",
                     "the hardware holds the clocks down before any load: %s", text);
    }
    double tdp = model != NULL ? gpu_model_spec(model, "tdp_w") : -1;
    if (tdp > 0 && f->power_limit_mw > 0 && (double)f->power_limit_mw < 900 * tdp)
        health_blame(r, VERDICT_DEGRADED, "power_limit", "raise the limit (nvidia-smi -pl), or accept lower rates",
                     "the power limit is %.0f W; this model has %.0f W", (double)f->power_limit_mw / 1000, tdp);
}

static void add(struct str *s, const char *name, int64_t v) {
    if (v >= 0) str_addf(s, "%s\"%s\":%lld", s->len ? "," : "", name, (long long)v);
}

static void report_figures(const struct nvml_counters *n, const struct nvml_facts *f, struct agent_result *r) {
    GP_AUTO_STR struct str s = {0};
    add(&s, "recovery_action", n->recovery);
    add(&s, "ecc_uncorrected", total(n->ecc[NVML_UNCORRECTED][NVML_VOLATILE]));
    add(&s, "ecc_corrected", total(n->ecc[NVML_CORRECTED][NVML_VOLATILE]));
    add(&s, "ecc_uncorrected_life", total(n->ecc[NVML_UNCORRECTED][NVML_AGGREGATE]));
    add(&s, "ecc_corrected_life", total(n->ecc[NVML_CORRECTED][NVML_AGGREGATE]));
    add(&s, "sram_uncorrected_life", n->ecc[NVML_UNCORRECTED][NVML_AGGREGATE][NVML_SRAM]);
    add(&s, "remapped_corrected", n->remap_corrected);
    add(&s, "remapped_uncorrected", n->remap_uncorrected);
    add(&s, "remap_pending", n->remap_pending);
    add(&s, "remap_failed", n->remap_failed);
    add(&s, "retired_corrected", n->retired_corrected);
    add(&s, "retired_uncorrected", n->retired_uncorrected);
    add(&s, "pcie_replays", n->pcie_replays);
    add(&s, "power_limit_mw", f->power_limit_mw);
    add(&s, "slowdown_c", f->slowdown_c);
    for (int k = 0; k < NVML_LINK_ERRORS; k++) {
        char name[32];
        int64_t all = NVML_NOT_TOLD;
        for (int i = 0; i < n->links; i++)
            if (n->link[i].errors[k] >= 0) all = GP_MAX(all, (int64_t)0) + n->link[i].errors[k];
        snprintf(name, sizeof name, "nvlink_%s", nvml_link_error_names[k]);
        add(&s, name, all);
    }
    str_addf(&r->data, "%s\"counters\":{%s}", r->data.len ? "," : "", s.s ? s.s : "");
}

/* A reset after which nothing is due: no uncorrected error is counted any more, no row waits, none failed. */
static bool cured(const struct nvml_counters *n) {
    return total(n->ecc[NVML_UNCORRECTED][NVML_VOLATILE]) == 0 && n->remap_pending == 0 && n->remap_failed == 0 &&
           n->retired_pending <= 0 && n->recovery <= 0;
}

static void read_log(const char *pci, const struct nvml_counters *n, struct agent_result *r) {
    struct kern_log log;
    int rc = kernlog_open(&log, false);
    if (rc < 0) {
        GP_AUTO_FREE char *why = xasprintf("not read: %s", strerror(-rc));
        agent_data_str(r, "kernel_log", why);
        return;
    }
    agent_data_int(r, "kernel_lines",
                   health_read_log(&log, pci, cured(n) ? LOG_BEFORE_CURE : LOG_BEFORE, r->check->id, r));
    kernlog_close(&log);
}

void gpu_health_cuda(struct check_ctx *c, struct agent_result *r) {
    struct gp_error err = {0};
    nvml_device d = NULL;
    struct nvml_facts f;
    struct nvml_counters n;
    struct nvml_sample s;
    if (nvml_device_of(c->gpu, &d, &err) < 0) {
        no_nvml(r, &err);
        return;
    }
    nvml_facts_read(d, &f);
    nvml_counters_read(d, &n);
    nvml_sample_read(d, &s);
    n.lost = n.lost || f.lost || s.lost;
    const struct gpu_model *model = health_model(c, &f);
    judge_recovery(&n, r);
    judge_ecc(&n, r);
    judge_pages(&n, r);
    judge_links(c, model, &n, r);
    health_judge_ber(&n, "", r);
    judge_sample(model, &f, &s, r);
    report_figures(&n, &f, r);
    read_log(f.pci, &n, r);
    bool told = n.recovery >= 0 || total(n.ecc[NVML_UNCORRECTED][NVML_VOLATILE]) >= 0 || n.remap_pending >= 0 ||
                n.retired_pending >= 0;
    if (!told)
        agent_set(r, VERDICT_SKIPPED, "not_told",
                  "NVML reports neither recovery action nor ECC nor remapped rows of this GPU");
    agent_say(r, "%s%lld C, %s", n.recovery == 0 ? "no recovery action is due, " : "", (long long)s.temperature_c,
              n.remap_uncorrected > 0 ? "old faults are remapped" : "no fault is known");
}
