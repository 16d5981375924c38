/* SPDX-License-Identifier: Apache-2.0 */
/* Watches every check that loads a GPU: counters before and after, samples in between, new kernel log lines, and a
 * verdict from changed counters. gpu.health judges the earlier state. In a worker process of one GPU; the sampling
 * thread only reads NVML and is joined by health_after. */
#include "base/gp_base.h"

#include "health_cuda.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/kernlog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SAMPLE_MS 100
/* A minute's corrected errors: a sound GPU has none or a few. HBM repairs single cells, SRAM has none to spare. */
#define STORM_DRAM 1000
#define STORM_SRAM 100
#define BER_FAIL 1e-12     /* ibdiagnet's default limit of a link's bit error rate */
#define BER_DEGRADED 1e-14 /* own: an error a minute on a link of 400 Gbit/s per direction */

struct summary {
    int64_t samples, hw_slow, sw_slow; /* number of samples; of these, samples with such a reason */
    int64_t last_reasons;              /* of the sample before */
    int64_t temperature_c, memory_c, power_mw, sm_mhz_min, sm_mhz_max; /* NVML_NOT_TOLD: never reported */
    int64_t pcie_gen, pcie_width;                                      /* the best seen */
    int64_t reasons;                                                   /* all that were seen */
    bool lost;
};

static struct {
    bool on;
    nvml_device device;
    struct gp_error err; /* why there are no samples */
    struct nvml_facts facts;
    struct nvml_counters before;
    int64_t began_ms;
    struct kern_log log;
    int log_rc;
    pthread_t thread;
    bool sampling;
    int stop;             /* eventfd; -1 */
    pthread_mutex_t lock; /* of what follows */
    struct summary seen;
} health = {.stop = -1, .log = KERN_LOG_NONE, .lock = PTHREAD_MUTEX_INITIALIZER};

void health_blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *fmt, ...) {
    char text[sizeof r->message];
    va_list ap;
    if (v <= r->verdict) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    agent_set(r, v, code, "%s", text);
    agent_suggest(r, "%s", advice);
}

const struct gpu_model *health_model(const struct check_ctx *c, const struct nvml_facts *f) {
    if (c->model != NULL) return c->model;
    if (f->pci_device < 0) return NULL;
    return gpu_model_find((unsigned)f->pci_device, (unsigned)GP_MAX(f->pci_subsystem, (int64_t)0));
}

/* --- samples --- */

static void keep_max(int64_t *to, int64_t v) { *to = GP_MAX(*to, v); }

static void sample_once(void) {
    struct nvml_sample s;
    nvml_sample_read(health.device, &s);
    pthread_mutex_lock(&health.lock);
    struct summary *to = &health.seen;
    to->samples++;
    to->lost = to->lost || s.lost;
    keep_max(&to->temperature_c, s.temperature_c);
    keep_max(&to->memory_c, s.memory_c);
    keep_max(&to->power_mw, s.power_mw);
    keep_max(&to->sm_mhz_max, s.sm_mhz);
    keep_max(&to->pcie_gen, s.pcie_gen);
    keep_max(&to->pcie_width, s.pcie_width);
    if (s.sm_mhz >= 0 && (to->sm_mhz_min < 0 || s.sm_mhz < to->sm_mhz_min)) to->sm_mhz_min = s.sm_mhz;
    if (s.reasons >= 0) {
        to->reasons = GP_MAX(to->reasons, (int64_t)0) | s.reasons;
        bool again = (to->last_reasons & NVML_REASONS_HW) != 0;
        to->hw_slow += (s.reasons & NVML_REASONS_HW_CERTAIN) != 0 || (again && (s.reasons & NVML_REASONS_HW) != 0);
        to->last_reasons = s.reasons;
        to->sw_slow += (s.reasons & NVML_REASON_SW_THERMAL) != 0;
    }
    pthread_mutex_unlock(&health.lock);
}

static void *sample_main(void *arg) {
    int stop = *(const int *)arg;
    do sample_once();
    while (gp_wait_fd(stop, POLLIN, clock_deadline(SAMPLE_MS), NULL, NULL, NULL) == -GP_ETIMEOUT);
    return NULL;
}

void health_copy_runs(void) {
    if (health.on) sample_once();
}

static void sampling_start(void) {
    health.seen = (struct summary){.temperature_c = NVML_NOT_TOLD,
                                   .memory_c = NVML_NOT_TOLD,
                                   .power_mw = NVML_NOT_TOLD,
                                   .sm_mhz_min = NVML_NOT_TOLD,
                                   .sm_mhz_max = NVML_NOT_TOLD,
                                   .pcie_gen = NVML_NOT_TOLD,
                                   .pcie_width = NVML_NOT_TOLD,
                                   .reasons = NVML_NOT_TOLD};
    health.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (health.stop < 0) return;
    health.sampling = pthread_create(&health.thread, NULL, sample_main, &health.stop) == 0;
}

static void sampling_end(void) {
    uint64_t one = 1;
    if (health.sampling && write(health.stop, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(health.thread, NULL);
    if (health.stop >= 0) close(health.stop);
    health.stop = -1;
    health.sampling = false;
}

/* --- before --- */

void health_before(struct check_ctx *c) {
    health.on = false;
    health.err = (struct gp_error){0};
    if (c->gpu < 0 || nvml_device_of(c->gpu, &health.device, &health.err) < 0) return;
    nvml_facts_read(health.device, &health.facts);
    health.log_rc = kernlog_open(&health.log, true);
    nvml_xids_watch(health.device);
    nvml_counters_read(health.device, &health.before);
    health.began_ms = clock_ms();
    health.on = true;
    sampling_start();
}

/* --- after --- */

int64_t health_replay_budget(int64_t gen, int64_t width, int64_t ms) {
    static const double gb_per_s[] = {0, 2.5, 5, 8, 16, 32, 64}; /* Gbit/s a lane, by generation */
    if (gen < 1 || gen >= (int64_t)GP_ARRAY_LEN(gb_per_s) || width < 1) return -1;
    double a_minute = (double)width * gb_per_s[gen] * 0.06;
    double all = a_minute * GP_MAX(1.0, (double)ms / 60000.0);
    int64_t whole = (int64_t)all;
    return whole + ((double)whole < all);
}

void health_log_address(const char *pci, char *dst, size_t n) {
    const char *colon = strchr(pci, ':');
    const char *from = colon && colon - pci > 4 ? colon - 4 : pci;
    str_put(dst, n, from);
    for (char *p = dst; *p; p++) {
        if (*p == '.') *p = 0;
        if (*p >= 'A' && *p <= 'F') *p = (char)(*p - 'A' + 'a');
        if (!*p) break;
    }
}

/* Judges one finding. */
static void judge_log(const struct kern_finding *f, const char *text, enum health_log when, const char *check,
                      struct agent_result *r) {
    bool ours = when == LOG_OURS;
    if (when == LOG_BEFORE_CURE && f->xid == XID_MEMORY) return;
    enum verdict v = f->action == KERN_FAIL ? VERDICT_FAIL : VERDICT_DEGRADED;
    if (ours && (f->xid == XID_APPLICATION || f->xid == XID_UNKNOWN))
        v = VERDICT_FAIL; /* the application is our own program, which has no such fault */
    else if (f->action < KERN_DEGRADED) return;
    const char *advice = ours && f->xid == XID_APPLICATION
                             ? "run the check again and replace the node if the line returns: gpuprov's own check "
                               "provoked it"
                             : f->advice;
    if (ours) health_blame(r, v, f->code, advice, "the kernel logged while %s ran: %.240s", check, text);
    else health_blame(r, v, f->code, advice, "kernel log: %.240s", text);
}

int64_t health_read_log(struct kern_log *k, const char *pci, enum health_log when, const char *check,
                        struct agent_result *r) {
    const char *text = NULL;
    int64_t n = 0;
    char address[24];
    health_log_address(pci, address, sizeof address);
    while (kernlog_next(k, &text) == 1) {
        struct kern_finding f = kernlog_judge(text);
        bool about = f.nvswitch || (f.xid != XID_NONE && str_eq(f.pci, address)) ||
                     (str_eq(f.code, "gpu_lost") && strstr(text, address));
        if (!about) continue;
        n++;
        judge_log(&f, text, when, check, r);
    }
    return n;
}

/* Changed counters, as members of data and for the verdict. */
struct moved {
    struct agent_result *r;
    const char *check;
    struct str data;
};

/* The difference if both are known, else 0. */
static int64_t delta(struct moved *m, const char *name, int64_t before, int64_t now) {
    if (before < 0 || now < 0 || now == before) return 0;
    str_addf(&m->data, "%s\"%s\":%lld", m->data.len ? "," : "", name, (long long)(now - before));
    return GP_MAX(now - before, (int64_t)0); /* a counter that went back was reset, by a reset GPU too */
}

/* Corrected errors cost no data, but thousands of them under load announce those that cannot be corrected. */
static void storm(struct moved *m, int place, int64_t corrected, int64_t ms) {
    double a_minute = (double)corrected / GP_MAX(1.0, (double)ms / 60000.0);
    bool sram = place == NVML_SRAM;
    if (a_minute <= (sram ? STORM_SRAM : STORM_DRAM)) return;
    health_blame(m->r, VERDICT_DEGRADED, "ecc_storm",
                 "validate with a longer time (20m); replace the node if the errors return",
                 "%lld corrected ECC errors%s while %s ran; the limit is %d a minute", (long long)corrected,
                 sram ? " in SRAM" : "", m->check, sram ? STORM_SRAM : STORM_DRAM);
}

static void moved_ecc(struct moved *m, const struct nvml_counters *b, const struct nvml_counters *n, int64_t ms) {
    static const char *const places[NVML_ECC_PLACES] = {"", "_dram", "_sram"};
    int64_t most = 0;
    const char *where = "";
    for (int p = 0; p < NVML_ECC_PLACES; p++) {
        char name[40];
        snprintf(name, sizeof name, "ecc_corrected%s", places[p]);
        storm(m, p, delta(m, name, b->ecc[NVML_CORRECTED][NVML_VOLATILE][p], n->ecc[NVML_CORRECTED][NVML_VOLATILE][p]),
              ms);
        snprintf(name, sizeof name, "ecc_uncorrected%s", places[p]);
        int64_t d =
            delta(m, name, b->ecc[NVML_UNCORRECTED][NVML_VOLATILE][p], n->ecc[NVML_UNCORRECTED][NVML_VOLATILE][p]);
        if (d > 0) where = p == NVML_SRAM ? " in SRAM" : p == NVML_DRAM ? " in DRAM" : where;
        most = GP_MAX(most, d);
    }
    if (most == 0) return;
    health_blame(m->r, VERDICT_FAIL, "ecc_uncorrected",
                 "reset the GPU so that the rows are remapped, then validate again; replace the node if the errors "
                 "return",
                 "%lld new uncorrectable ECC error%s%s while %s ran", (long long)most, most == 1 ? "" : "s", where,
                 m->check);
}

static void moved_pages(struct moved *m, const struct nvml_counters *b, const struct nvml_counters *n) {
    int64_t failed = delta(m, "remap_failed", b->remap_failed, n->remap_failed);
    int64_t pending = delta(m, "remap_pending", b->remap_pending, n->remap_pending);
    int64_t rows = delta(m, "remapped_uncorrected", b->remap_uncorrected, n->remap_uncorrected);
    int64_t soft = delta(m, "remapped_corrected", b->remap_corrected, n->remap_corrected);
    int64_t pages = delta(m, "retired_uncorrected", b->retired_uncorrected, n->retired_uncorrected);
    pages += delta(m, "retired_corrected", b->retired_corrected, n->retired_corrected);
    int64_t waits = delta(m, "retired_pending", b->retired_pending, n->retired_pending);
    if (failed) {
        health_blame(m->r, VERDICT_FAIL, "remap_failed", "no spare rows are left in that bank: replace the node (RMA)",
                     "a memory row could not be remapped while %s ran", m->check);
    }
    if (rows || pending || pages || waits) {
        health_blame(m->r, VERDICT_FAIL, "remapped",
                     "reset the GPU, then validate again; replace the node if the fault returns",
                     "memory went bad while %s ran: %lld rows remapped, %lld "
                     "pages retired%s",
                     m->check, (long long)rows, (long long)pages, pending || waits ? ", a reset is due" : "");
    }
    if (soft) {
        health_blame(m->r, VERDICT_DEGRADED, "remapped",
                     "validate again with a longer time; replace the node if the errors return",
                     "%lld rows remapped for corrected errors while %s ran", (long long)soft, m->check);
    }
}

/* The link with the highest rate, if it is too high; -1: none. */
static int worst_ber(const struct nvml_counters *n) {
    int worst = -1;
    for (int i = 0; i < n->links; i++)
        if (n->link[i].ber > BER_DEGRADED && (worst < 0 || n->link[i].ber > n->link[worst].ber)) worst = i;
    return worst;
}

void health_judge_ber(const struct nvml_counters *n, const char *when, struct agent_result *r) {
    int worst = worst_ber(n);
    if (worst < 0) return;
    double ber = n->link[worst].ber;
    health_blame(r, ber > BER_FAIL ? VERDICT_FAIL : VERDICT_DEGRADED, "nvlink_ber",
                 "reset the GPU so that the link trains again, check its other end; replace the node if the rate stays",
                 "NVLink %d has a bit error rate of %.0e%s; the limit is %.0e", worst, ber, when,
                 ber > BER_FAIL ? BER_FAIL : BER_DEGRADED);
}

static void moved_links(struct moved *m, const struct nvml_counters *b, const struct nvml_counters *n, int64_t ms) {
    for (int i = 0; i < b->links && i < n->links; i++) {
        char name[48];
        snprintf(name, sizeof name, "nvlink_%d_active", i);
        delta(m, name, b->link[i].active, n->link[i].active);
        if (b->link[i].active == 1 && n->link[i].active == 0) {
            health_blame(m->r, VERDICT_FAIL, "nvlink_down",
                         "drain and reset the GPU; replace the node if the link goes down again",
                         "NVLink %d went down while %s ran", i, m->check);
        }
        for (int k = 0; k < NVML_LINK_ERRORS; k++) {
            snprintf(name, sizeof name, "nvlink_%d_%s", i, nvml_link_error_names[k]);
            int64_t d = delta(m, name, b->link[i].errors[k], n->link[i].errors[k]);
            /* the link repeats data after a CRC error: only many errors matter */
            if (d == 0 || (k == NVML_LINK_CRC && d * 1000 < 100 * GP_MAX(ms, (int64_t)1000))) continue;
            health_blame(m->r, VERDICT_FAIL, "nvlink_errors",
                         "drain and reset the GPU, check the link's other end; replace the node if the errors return",
                         "NVLink %d: %lld new %s errors while %s ran", i, (long long)d, nvml_link_error_names[k],
                         m->check);
        }
    }
}

static void moved_pcie(struct moved *m, const struct nvml_counters *b, const struct nvml_counters *n, int64_t ms) {
    int64_t fatal = delta(m, "pcie_fatal", b->pcie_fatal, n->pcie_fatal);
    int64_t nonfatal = delta(m, "pcie_nonfatal", b->pcie_nonfatal, n->pcie_nonfatal);
    int64_t replays = delta(m, "pcie_replays", b->pcie_replays, n->pcie_replays);
    if (fatal || nonfatal) {
        health_blame(m->r, VERDICT_FAIL, "pcie_errors", "replace the node: the PCIe link loses data",
                     "%lld new uncorrectable PCIe errors while %s ran", (long long)fatal + (long long)nonfatal,
                     m->check);
    }
    int64_t budget = health_replay_budget(health.seen.pcie_gen, health.seen.pcie_width, ms);
    int64_t most = m->r->check->loads_link ? 80 : 160; /* DCGM's for pcie, targeted_stress */
    if (budget < 0 || replays <= budget) return;
    health_blame(m->r, replays > GP_MAX(most, budget) ? VERDICT_FAIL : VERDICT_DEGRADED, "pcie_replays",
                 "replace the node if the replays return: the PCIe link is marginal",
                 "%lld new PCIe replays while %s ran; the limit is %lld at generation %lld with %lld lanes",
                 (long long)replays, m->check, (long long)budget, (long long)health.seen.pcie_gen,
                 (long long)health.seen.pcie_width);
}

/* The share of the load's time with lowered clocks; by the driver's own counter if it has one. */
static double slow_share(struct moved *m, const char *name, int64_t before, int64_t now, int64_t ms, int64_t sampled) {
    double share = 0;
    int64_t d = delta(m, name, before, now);
    if (before >= 0 && now >= 0) share = ms > 0 ? (double)d / ((double)ms * 1e6) : 0;
    else if (health.seen.samples > 0) share = (double)sampled / (double)health.seen.samples;
    return GP_MIN(share, 1.0);
}

static void moved_clocks(struct moved *m, const struct nvml_counters *b, const struct nvml_counters *n, int64_t ms) {
    const struct summary *s = &health.seen;
    double hw = slow_share(m, "hw_thermal_slowdown_ns", b->slow_ns[NVML_SLOW_HW_THERMAL],
                           n->slow_ns[NVML_SLOW_HW_THERMAL], ms, s->hw_slow);
    double brake = slow_share(m, "hw_power_brake_ns", b->slow_ns[NVML_SLOW_HW_BRAKE], n->slow_ns[NVML_SLOW_HW_BRAKE],
                              ms, s->hw_slow);
    double sw = slow_share(m, "sw_thermal_slowdown_ns", b->slow_ns[NVML_SLOW_SW_THERMAL],
                           n->slow_ns[NVML_SLOW_SW_THERMAL], ms, s->sw_slow);
    double sampled = s->samples > 0 ? (double)s->hw_slow / (double)s->samples : 0;
    if (m->r->check->idle) sampled = 0; /* no load: the check itself reports its samples */
    double worst = GP_MAX(GP_MAX(hw, brake), sampled);
    delta(m, "power_cap_ns", b->slow_ns[NVML_SLOW_POWER], n->slow_ns[NVML_SLOW_POWER]); /* normal at load */
    if (worst > 0) {
        char text[160];
        nvml_reasons_text(s->reasons > 0 ? s->reasons & NVML_REASONS_HW : 0, text, sizeof text);
        health_blame(m->r, worst >= 0.1 ? VERDICT_FAIL : VERDICT_DEGRADED, "hw_slowdown",
                     "cooling or power supply is not enough: replace the node, or have it serviced",
                     "the hardware held the clocks down for %.0f %% of %s (seen: %s; up to %lld C, %.0f W)",
                     worst * 100, m->check, text, (long long)s->temperature_c,
                     s->power_mw < 0 ? -1.0 : (double)s->power_mw / 1000);
    }
    if (sw > 0.01) {
        health_blame(m->r, VERDICT_DEGRADED, "sw_thermal_slowdown",
                     "cooling is not enough: look at fans and inlet temperature",
                     "the driver held the clocks down for heat for %.0f %% of %s (up to %lld C)", sw * 100, m->check,
                     (long long)s->temperature_c);
    }
}

/* A guest sees the GPU's own maximum, not that of the host's slot, which may be a generation older. */
static bool in_a_guest(void) {
    GP_AUTO_STR struct str cpu = {.max = 65536};
    const char *file = getenv("GPUPROV_CPUINFO"); /* tests */
    fs_read(file != NULL ? file : "/proc/cpuinfo", 65536, &cpu, NULL);
    return cpu.s != NULL && strstr(cpu.s, " hypervisor") != NULL;
}

/* Only where data ran between host and GPU: an idle link trains down. A link that is narrow by design is no fault;
 * the limits of its rates are those of what is wired. */
static void link_under_load(struct moved *m, const struct check_ctx *c) {
    const struct summary *s = &health.seen;
    if (!m->r->check->loads_link || s->pcie_gen < 0 || s->pcie_width < 0) return;
    const struct gpu_model *model = health_model(c, &health.facts);
    double least = model != NULL ? gpu_model_spec(model, "pcie_min_width") : -1;
    double lanes = model != NULL ? gpu_model_spec(model, "pcie_width") : -1;
    double gen = model != NULL ? gpu_model_spec(model, "pcie_gen") : -1;
    bool by_design = least > 0 && (double)s->pcie_width >= least;
    bool narrow = s->pcie_width < health.facts.pcie_width_max && !by_design;
    bool older_host = s->pcie_gen >= 4 && s->pcie_gen == health.facts.pcie_gen_max - 1 && in_a_guest();
    static const char advice[] = "power-cycle the machine so that the link trains again; replace the node if the "
                                 "link stays slow";
    if ((double)s->pcie_width < (least > 0 ? least : lanes) || (narrow && lanes < 0)) {
        health_blame(m->r, VERDICT_FAIL, "pcie_width", advice, "PCIe ran with %lld lanes under load; %lld are wired",
                     (long long)s->pcie_width,
                     (long long)GP_MAX((int64_t)(least > 0 ? least : lanes), health.facts.pcie_width_max));
    } else if (narrow) {
        health_blame(m->r, VERDICT_DEGRADED, "pcie_width", advice, "PCIe ran with %lld of %lld lanes under load",
                     (long long)s->pcie_width, (long long)health.facts.pcie_width_max);
    }
    if (s->pcie_gen < 3 || (s->pcie_gen < health.facts.pcie_gen_max && !older_host))
        health_blame(m->r, s->pcie_gen < 3 ? VERDICT_FAIL : VERDICT_DEGRADED, "pcie_gen", advice,
                     "PCIe ran at generation %lld under load; GPU and slot support %lld", (long long)s->pcie_gen,
                     (long long)health.facts.pcie_gen_max);
    double share = 1;
    if (by_design && lanes > 0 && (double)s->pcie_width < lanes) share *= (double)s->pcie_width / lanes;
    if (older_host && (double)s->pcie_gen < gen) share /= 2;
    if (share < 1) m->r->about.key.pcie = share;
}

static void xids(struct moved *m) {
    int64_t seen[16];
    int n = nvml_xids_take(seen, (int)GP_ARRAY_LEN(seen));
    for (int i = 0; i < n; i++) {
        char text[64];
        struct kern_finding f = kernlog_judge_xid(seen[i]);
        snprintf(text, sizeof text, "Xid %lld (reported by NVML)", (long long)seen[i]);
        str_addf(&m->data, "%s\"xid_%lld\":1", m->data.len ? "," : "", (long long)seen[i]);
        judge_log(&f, text, LOG_OURS, m->check, m->r);
    }
    if (health.log_rc == 0) {
        int64_t lines = health_read_log(&health.log, health.facts.pci, LOG_OURS, m->check, m->r);
        if (lines > 0) str_addf(&m->data, "%s\"kernel_lines\":%lld", m->data.len ? "," : "", (long long)lines);
    }
    kernlog_close(&health.log);
}

static void add_number(struct str *s, const char *name, int64_t v, double unit) {
    if (v < 0) return;
    str_addf(s, "%s\"%s\":", s->len ? "," : "", name);
    agent_json_num(s, (double)v / unit);
}

static void add_load(struct agent_result *r, int64_t ms) {
    const struct summary *s = &health.seen;
    GP_AUTO_STR struct str j = {0};
    char reasons[160];
    nvml_reasons_text(s->reasons, reasons, sizeof reasons);
    add_number(&j, "seconds", ms, 1000);
    add_number(&j, "samples", s->samples, 1);
    add_number(&j, "temperature_c", s->temperature_c, 1);
    add_number(&j, "memory_c", s->memory_c, 1);
    add_number(&j, "power_w", s->power_mw, 1000);
    add_number(&j, "sm_mhz_min", s->sm_mhz_min, 1);
    add_number(&j, "sm_mhz_max", s->sm_mhz_max, 1);
    add_number(&j, "pcie_gen", s->pcie_gen, 1);
    add_number(&j, "pcie_width", s->pcie_width, 1);
    str_addf(&j, ",\"reasons\":\"%s\",\"kernel_log\":\"%s\"", reasons, health.log_rc == 0 ? "read" : "not readable");
    str_addf(&r->data, "%s\"load\":{%s}", r->data.len ? "," : "", j.s);
}

void health_after(struct check_ctx *c, struct agent_result *r) {
    if (!health.on) {
        if (health.err.code) agent_data_str(r, "counters", health.err.msg);
        return;
    }
    sampling_end();
    int64_t ms = GP_MAX(clock_ms() - health.began_ms, (int64_t)1);
    struct nvml_counters now;
    struct moved m = {.r = r, .check = r->check->id};
    nvml_counters_read(health.device, &now);
    health.on = false;
    if (now.lost || health.seen.lost) {
        health_blame(r, VERDICT_FAIL, "gpu_lost", "look for 'NVRM: Xid' 79 in the kernel log; replace the node",
                     "the GPU fell off the bus while %s ran", m.check);
    }
    xids(&m);
    if (health.before.recovery >= 0 && now.recovery > 0 && now.recovery != health.before.recovery) {
        health_blame(r, VERDICT_FAIL, "recovery_action", nvml_recovery_advice(now.recovery),
                     "since %s ran the driver requires this recovery action: %s", m.check,
                     nvml_recovery_name(now.recovery));
    }
    moved_ecc(&m, &health.before, &now, ms);
    moved_pages(&m, &health.before, &now);
    moved_links(&m, &health.before, &now, ms);
    GP_AUTO_FREE char *when = xasprintf(" since %s began", m.check);
    if (worst_ber(&health.before) < 0) health_judge_ber(&now, when, r); /* else gpu.health has told it */
    moved_pcie(&m, &health.before, &now, ms);
    moved_clocks(&m, &health.before, &now, ms);
    link_under_load(&m, c);
    add_load(r, ms);
    if (m.data.len) str_addf(&r->data, ",\"moved\":{%s}", m.data.s);
    str_clear(&m.data);
}
