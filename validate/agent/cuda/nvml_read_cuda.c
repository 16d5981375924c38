/* SPDX-License-Identifier: Apache-2.0 */
/* Reads NVML's data of one GPU into plain numbers; values that it does not report stay NVML_NOT_TOLD. Does not
 * judge. Any thread, once nvml_start has returned. */
#include "base/gp_base.h"

#include "base/str.h"
#include "nvml_api_cuda.h"

#include <math.h>

const char *const nvml_link_error_names[NVML_LINK_ERRORS] = {"replay", "recovery", "ecc", "receive", "crc"};

/* True if the call returned a value. Sets *lost when it returned that the GPU is gone. */
static bool told(int rc, bool *lost) {
    *lost = *lost || rc == NVML_GPU_LOST;
    return rc == 0;
}

static void untell(int64_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = NVML_NOT_TOLD;
}

/* One of the many calls that return an unsigned. */
static int64_t number(int (*get)(nvml_device, unsigned *), nvml_device d, bool *lost) {
    unsigned v = 0;
    return get && told(get(d, &v), lost) ? (int64_t)v : NVML_NOT_TOLD;
}

static int64_t mode(int (*get)(nvml_device, int *), nvml_device d, bool *lost) {
    int v = 0;
    return get && told(get(d, &v), lost) ? v : NVML_NOT_TOLD;
}

static void text(int (*get)(nvml_device, char *, unsigned), nvml_device d, char *dst, size_t n, bool *lost) {
    dst[0] = 0;
    if (!get || !told(get(d, dst, (unsigned)n), lost)) dst[0] = 0;
    dst[n - 1] = 0;
}

static int64_t field_number(const struct nvml_field *f) {
    if (f->rc) return NVML_NOT_TOLD;
    switch (f->type) {
    case 0: return f->value.d >= 0 && f->value.d < 9e18 ? (int64_t)f->value.d : NVML_NOT_TOLD;
    case 1: return (int64_t)f->value.u;
    case 2: return (int64_t)GP_MIN(f->value.ul, (unsigned long)INT64_MAX);
    case 3: return (int64_t)GP_MIN(f->value.ull, (unsigned long long)INT64_MAX);
    case 4: return f->value.ll;
    case 5: return f->value.i;
    case 6: return f->value.us;
    default: return NVML_NOT_TOLD;
    }
}

#define FIELDS_MAX 8
/* ids[i] of the scope (a link's number, or 0) to *ret[i]. */
static void fields(nvml_device d, unsigned scope, const unsigned *ids, int64_t *const *ret, int n, bool *lost) {
    struct nvml_field f[FIELDS_MAX] = {0};
    for (int i = 0; i < n; i++) {
        f[i].id = ids[i];
        f[i].scope = scope;
        f[i].rc = NVML_NOT_SUPPORTED;
        *ret[i] = NVML_NOT_TOLD;
    }
    if (!nvml_api.fields || !told(nvml_api.fields(d, n, f), lost)) return;
    for (int i = 0; i < n; i++) {
        told(f[i].rc, lost);
        *ret[i] = field_number(&f[i]);
    }
}

/* --- identity --- */

static void read_pci(nvml_device d, struct nvml_facts *f) {
    struct nvml_pci p = {0};
    f->pci_device = f->pci_subsystem = NVML_NOT_TOLD;
    if (!nvml_api.pci || !told(nvml_api.pci(d, &p), &f->lost)) return;
    p.bus_id[sizeof p.bus_id - 1] = 0;
    str_put(f->pci, sizeof f->pci, p.bus_id);
    f->pci_device = (int64_t)(p.pci_device >> 16);
    f->pci_subsystem = (int64_t)(p.pci_subsystem >> 16);
}

static void read_processes(nvml_device d, bool graphics, struct nvml_facts *f) {
    int (*get)(nvml_device, unsigned *, struct nvml_process_info *) =
        graphics ? nvml_api.graphics_processes : nvml_api.compute_processes;
    struct nvml_process_info p[NVML_PROCESSES_MAX * 2] = {0};
    unsigned n = GP_ARRAY_LEN(p);
    if (!get) return;
    int rc = get(d, &n, p);
    if (rc == 7) { /* more than fit: n is their number */
        f->processes_left_out += n;
        f->processes_told = true;
        return;
    }
    if (!told(rc, &f->lost)) return;
    f->processes_told = true;
    for (unsigned i = 0; i < n && i < GP_ARRAY_LEN(p); i++) {
        if (f->n_processes == NVML_PROCESSES_MAX) {
            f->processes_left_out++;
            continue;
        }
        struct nvml_process *to = &f->processes[f->n_processes++];
        *to = (struct nvml_process){.pid = (int64_t)p[i].pid, .graphics = graphics};
        to->bytes = p[i].bytes > (unsigned long long)INT64_MAX ? NVML_NOT_TOLD : (int64_t)p[i].bytes;
        if (!nvml_api.process_name || nvml_api.process_name(p[i].pid, to->name, sizeof to->name)) to->name[0] = 0;
        to->name[sizeof to->name - 1] = 0;
    }
}

static void read_fabric(nvml_device d, struct nvml_facts *f) {
    struct nvml_fabric fabric = {.version = NVML_FABRIC_V2};
    f->fabric_state = f->fabric_status = f->fabric_health = NVML_NOT_TOLD;
    if (!nvml_api.fabric || !told(nvml_api.fabric(d, &fabric), &f->lost)) return;
    f->fabric_state = fabric.state;
    f->fabric_status = fabric.status;
    f->fabric_health = (int64_t)fabric.health;
}

const char *nvml_fabric_sick(int64_t health) {
    if (health < 0) return NULL;
    if ((health & 3) == 1) return "degraded bandwidth";
    if ((health >> 2 & 3) == 1) return "route recovery in progress";
    if ((health >> 4 & 3) == 1) return "an unhealthy route";
    if ((health >> 6 & 3) == 1) return "access timeout recovery in progress";
    if ((health >> 8 & 15) > 1) return "an incorrect configuration";
    return NULL;
}

static int64_t limit(nvml_device d, int kind, bool *lost) {
    unsigned v = 0;
    if (!nvml_api.temperature_limit || !told(nvml_api.temperature_limit(d, kind, &v), lost)) return NVML_NOT_TOLD;
    return (int64_t)v;
}

static void read_modes(nvml_device d, struct nvml_facts *f) {
    int now = 0, pending = 0;
    unsigned mig = 0, mig_pending = 0;
    f->ecc = f->ecc_pending = f->mig = NVML_NOT_TOLD;
    if (nvml_api.ecc_mode && told(nvml_api.ecc_mode(d, &now, &pending), &f->lost)) {
        f->ecc = now;
        f->ecc_pending = pending;
    }
    f->ecc_default = mode(nvml_api.ecc_default, d, &f->lost);
    if (nvml_api.mig_mode && told(nvml_api.mig_mode(d, &mig, &mig_pending), &f->lost)) f->mig = (int64_t)mig;
    f->persistence = mode(nvml_api.persistence, d, &f->lost);
    f->compute_mode = mode(nvml_api.compute_mode, d, &f->lost);
}

void nvml_facts_none(struct nvml_facts *ret) {
    *ret = (struct nvml_facts){.pci_device = NVML_NOT_TOLD,
                               .pci_subsystem = NVML_NOT_TOLD,
                               .memory_bytes = NVML_NOT_TOLD,
                               .ecc = NVML_NOT_TOLD,
                               .ecc_pending = NVML_NOT_TOLD,
                               .ecc_default = NVML_NOT_TOLD,
                               .mig = NVML_NOT_TOLD,
                               .persistence = NVML_NOT_TOLD,
                               .compute_mode = NVML_NOT_TOLD,
                               .power_limit_mw = NVML_NOT_TOLD,
                               .slowdown_c = NVML_NOT_TOLD,
                               .shutdown_c = NVML_NOT_TOLD,
                               .gpu_max_c = NVML_NOT_TOLD,
                               .pcie_gen_max = NVML_NOT_TOLD,
                               .pcie_width_max = NVML_NOT_TOLD,
                               .fabric_state = NVML_NOT_TOLD,
                               .fabric_status = NVML_NOT_TOLD,
                               .fabric_health = NVML_NOT_TOLD};
}

void nvml_facts_read(nvml_device d, struct nvml_facts *ret) {
    nvml_facts_none(ret);
    text(nvml_api.name, d, ret->name, sizeof ret->name, &ret->lost);
    text(nvml_api.uuid, d, ret->uuid, sizeof ret->uuid, &ret->lost);
    text(nvml_api.serial, d, ret->serial, sizeof ret->serial, &ret->lost);
    text(nvml_api.vbios, d, ret->vbios, sizeof ret->vbios, &ret->lost);
    read_pci(d, ret);
    struct nvml_memory m = {0};
    if (nvml_api.memory && told(nvml_api.memory(d, &m), &ret->lost)) ret->memory_bytes = (int64_t)m.total;
    read_modes(d, ret);
    read_fabric(d, ret);
    ret->power_limit_mw = number(nvml_api.power_limit, d, &ret->lost);
    ret->pcie_gen_max = number(nvml_api.pcie_gen_max, d, &ret->lost);
    ret->pcie_width_max = number(nvml_api.pcie_width_max, d, &ret->lost);
    ret->shutdown_c = limit(d, 0, &ret->lost);
    ret->slowdown_c = limit(d, 1, &ret->lost);
    ret->gpu_max_c = limit(d, 3, &ret->lost);
    read_processes(d, false, ret);
    read_processes(d, true, ret);
}

/* --- counters --- */

static void read_ecc(nvml_device d, struct nvml_counters *c) {
    static const int places[NVML_ECC_PLACES] = {-1, 2, 7}; /* DRAM, SRAM of nvmlMemoryLocation_t */
    for (int kind = 0; kind < 2; kind++) {
        for (int span = 0; span < 2; span++) {
            for (int place = 0; place < NVML_ECC_PLACES; place++) {
                unsigned long long v = 0;
                int rc = NVML_NOT_SUPPORTED;
                if (place == NVML_ANYWHERE && nvml_api.ecc_total) rc = nvml_api.ecc_total(d, kind, span, &v);
                else if (place != NVML_ANYWHERE && nvml_api.ecc_place)
                    rc = nvml_api.ecc_place(d, kind, span, places[place], &v);
                c->ecc[kind][span][place] = told(rc, &c->lost) ? (int64_t)v : NVML_NOT_TOLD;
            }
        }
    }
    struct nvml_sram s = {.version = NVML_SRAM_V1};
    c->sram_threshold = NVML_NOT_TOLD;
    if (nvml_api.sram && told(nvml_api.sram(d, &s), &c->lost)) c->sram_threshold = s.threshold_exceeded != 0;
}

static int64_t read_retired(nvml_device d, int cause, bool *lost) {
    unsigned n = 0; /* no space: only the number is wanted */
    unsigned long long none = 0;
    if (!nvml_api.retired) return NVML_NOT_TOLD;
    int rc = nvml_api.retired(d, cause, &n, &none);
    return rc == 7 || told(rc, lost) ? (int64_t)n : NVML_NOT_TOLD;
}

static void read_pages(nvml_device d, struct nvml_counters *c) {
    unsigned v[4] = {0};
    untell(&c->remap_corrected, 4);
    if (nvml_api.remapped && told(nvml_api.remapped(d, &v[0], &v[1], &v[2], &v[3]), &c->lost)) {
        c->remap_corrected = (int64_t)v[0];
        c->remap_uncorrected = (int64_t)v[1];
        c->remap_pending = v[2] != 0;
        c->remap_failed = v[3] != 0;
    }
    c->retired_corrected = read_retired(d, 0, &c->lost);
    c->retired_uncorrected = read_retired(d, 1, &c->lost);
    c->retired_pending = mode(nvml_api.retired_pending, d, &c->lost);
}

static int64_t sum(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : a + b; }

/* A mantissa of 4 bits and the negative exponent of ten below it (NVML_NVLINK_BER_...). */
static double bit_error_rate(int64_t v) {
    if (v < 0) return -1;
    return (double)(v >> 8 & 15) * pow(10, -(double)(v & 255));
}

static double read_ber(nvml_device d, unsigned i, bool *lost) {
    static const unsigned ids[] = {NVML_FI_LINK_EFFECTIVE_BER, NVML_FI_LINK_SYMBOL_BER};
    int64_t v[2] = {0};
    int64_t *const to[] = {&v[0], &v[1]};
    fields(d, i, ids, to, 2, lost);
    return GP_MAX(bit_error_rate(v[0]), bit_error_rate(v[1]));
}

/* One link: false when this GPU has no such link. */
static bool read_link(nvml_device d, unsigned i, struct nvml_link *link, bool *lost) {
    static const unsigned newer[] = {NVML_FI_LINK_MALFORMED, NVML_FI_LINK_OVERRUN, NVML_FI_LINK_RECEIVE,
                                     NVML_FI_LINK_INTEGRITY, NVML_FI_LINK_LOST};
    static const int places[] = {NVML_LINK_REPLAY, NVML_LINK_RECOVERY, NVML_LINK_CRC, NVML_LINK_CRC,
                                 NVML_LINK_ECC}; /* of nvmlNvLinkErrorCounter_t 0 to 4 */
    int active = 0;
    link->active = NVML_NOT_TOLD;
    untell(link->errors, NVML_LINK_ERRORS);
    if (!nvml_api.link_state || !told(nvml_api.link_state(d, i, &active), lost)) return false;
    link->active = active;
    for (size_t k = 0; nvml_api.link_errors && k < GP_ARRAY_LEN(places); k++) {
        unsigned long long v = 0;
        if (told(nvml_api.link_errors(d, i, (int)k, &v), lost))
            link->errors[places[k]] = sum(link->errors[places[k]], (int64_t)v);
    }
    link->ber = read_ber(d, i, lost);
    int64_t v[GP_ARRAY_LEN(newer)] = {0};
    int64_t *const to[] = {&v[0], &v[1], &v[2], &v[3], &v[4]};
    fields(d, i, newer, to, (int)GP_ARRAY_LEN(newer), lost);
    for (size_t k = 0; k < GP_ARRAY_LEN(newer); k++)
        link->errors[NVML_LINK_RECEIVE] = sum(link->errors[NVML_LINK_RECEIVE], v[k]);
    return true;
}

void nvml_counters_read(nvml_device d, struct nvml_counters *ret) {
    static const unsigned ids[] = {NVML_FI_RECOVERY_ACTION, NVML_FI_LINK_COUNT, NVML_FI_PCIE_FATAL,
                                   NVML_FI_PCIE_NONFATAL};
    static const unsigned slow[NVML_SLOW_KINDS] = {NVML_FI_SLOW_POWER, NVML_FI_SLOW_HW_THERMAL, NVML_FI_SLOW_HW_BRAKE,
                                                   NVML_FI_SLOW_SW_THERMAL};
    *ret = (struct nvml_counters){0};
    int64_t links = NVML_NOT_TOLD;
    int64_t *const to[] = {&ret->recovery, &links, &ret->pcie_fatal, &ret->pcie_nonfatal};
    fields(d, 0, ids, to, (int)GP_ARRAY_LEN(ids), &ret->lost);
    int64_t *const slow_to[] = {&ret->slow_ns[0], &ret->slow_ns[1], &ret->slow_ns[2], &ret->slow_ns[3]};
    fields(d, 0, slow, slow_to, NVML_SLOW_KINDS, &ret->lost);
    ret->pcie_replays = number(nvml_api.pcie_replays, d, &ret->lost);
    read_ecc(d, ret);
    read_pages(d, ret);
    int most = links < 0 ? NVML_LINKS_MAX : (int)GP_MIN(links, (int64_t)NVML_LINKS_MAX);
    while (ret->links < most && read_link(d, (unsigned)ret->links, &ret->link[ret->links], &ret->lost)) ret->links++;
    struct nvml_memory m;
    ret->reset_required = nvml_api.memory && nvml_api.memory(d, &m) == NVML_RESET_REQUIRED;
}

static const struct {
    const char *name, *advice;
} recoveries[] = {
    {"none", ""},
    {"reset the GPU", "end all processes on the GPU and reset it (nvidia-smi -r), then validate again; replace the "
                      "node if the fault returns"},
    {"reboot the node", "reboot the node, then validate again; replace it if the fault returns"},
    {"drain peer-to-peer", "end every process that uses NVLink peers of this GPU, then validate again"},
    {"drain and reset", "end every process on this GPU and its NVLink peers, reset the GPU, then validate "
                        "again; replace the node if the fault returns"},
    {"recover the IMEX domain", "restart nvidia-imex on all nodes of the NVLink domain"},
};

const char *nvml_recovery_name(int64_t action) {
    if (action < 0 || action >= (int64_t)GP_ARRAY_LEN(recoveries))
        return action < 0 ? "not reported" : "an action unknown to this program";
    return recoveries[action].name;
}

const char *nvml_recovery_advice(int64_t action) {
    if (action < 0) return "";
    if (action >= (int64_t)GP_ARRAY_LEN(recoveries))
        return "check 'GPU Recovery Action' in 'nvidia-smi -q'; replace the node";
    return recoveries[action].advice;
}

/* --- current state --- */

static int64_t clock_of(nvml_device d, int kind, bool *lost) {
    unsigned v = 0;
    if (!nvml_api.clock || !told(nvml_api.clock(d, kind, &v), lost)) return NVML_NOT_TOLD;
    return (int64_t)v;
}

void nvml_sample_read(nvml_device d, struct nvml_sample *ret) {
    static const unsigned memory_temp[] = {NVML_FI_MEMORY_TEMP};
    unsigned v = 0;
    unsigned long long reasons = 0;
    *ret = (struct nvml_sample){.temperature_c = NVML_NOT_TOLD, .reasons = NVML_NOT_TOLD};
    ret->sm_mhz = clock_of(d, 1, &ret->lost);
    ret->memory_mhz = clock_of(d, 2, &ret->lost);
    if (nvml_api.temperature && told(nvml_api.temperature(d, 0, &v), &ret->lost)) ret->temperature_c = (int64_t)v;
    int64_t *const to[] = {&ret->memory_c};
    fields(d, 0, memory_temp, to, 1, &ret->lost);
    ret->power_mw = number(nvml_api.power, d, &ret->lost);
    int (*get)(nvml_device, unsigned long long *) = nvml_api.reasons ? nvml_api.reasons : nvml_api.reasons_old;
    if (get && told(get(d, &reasons), &ret->lost)) ret->reasons = (int64_t)(reasons & 0xffff);
    ret->pcie_gen = number(nvml_api.pcie_gen, d, &ret->lost);
    ret->pcie_width = number(nvml_api.pcie_width, d, &ret->lost);
}

int64_t nvml_busy_percent(nvml_device d) {
    struct nvml_utilization u = {0};
    bool lost = false;
    if (!nvml_api.utilization || !told(nvml_api.utilization(d, &u), &lost) || u.gpu > 100) return NVML_NOT_TOLD;
    return (int64_t)u.gpu;
}

void nvml_reasons_text(int64_t reasons, char *dst, size_t n) {
    static const char *const names[] = {"idle",          "application clocks",  "power cap",           "HW slowdown",
                                        "sync boost",    "SW thermal slowdown", "HW thermal slowdown", "HW power brake",
                                        "display clocks"};
    GP_AUTO_STR struct str s = {0};
    for (size_t i = 0; reasons > 0 && i < GP_ARRAY_LEN(names); i++)
        if (reasons >> i & 1) str_addf(&s, "%s%s", s.len ? "+" : "", names[i]);
    str_put(dst, n, reasons < 0 ? "not reported" : s.len ? s.s : "none");
}
