/* SPDX-License-Identifier: Apache-2.0 */
/* NVML by dlopen: a GPU's identity, state and counters. A value that this driver or GPU does not report is
 * NVML_NOT_TOLD, never 0. Only the functions that we call are declared, by hand. One process loads once: nvml_start
 * and nvml_device_of from one thread; after that the nvml_*_read functions may be called from any thread. A faulty
 * driver may hang in any call: call it in a worker. */
#ifndef GP_AGENT_NVML_H
#define GP_AGENT_NVML_H

#include "base/error.h"

typedef struct nvml_device_st *nvml_device; /* nvmlDevice_t; NVML's own, never freed */

#define NVML_NOT_TOLD ((int64_t)-1)

enum { /* nvmlReturn_t values that are distinguished */
       NVML_NOT_SUPPORTED = 3,
       NVML_NO_DRIVER = 9,
       NVML_GPU_LOST = 15,
       NVML_RESET_REQUIRED = 16,
       NVML_BLOCKED = 17, /* by cgroups */
       NVML_MISMATCH = 18
};

/* Loads libnvidia-ml.so.1 and starts it, once per process. -GP_EENV: detail "NO_NVML" when no such
 * library loads, "OLD_NVML" when one lacks a required function, else NVML's own number. */
int nvml_start(struct gp_error *err);
const char *nvml_advice(const struct gp_error *err); /* advice for that error; "" */
const char *nvml_path(void);                         /* what was loaded; "" */

struct nvml_system {
    int64_t gpus, cuda;        /* cuda: 13000 */
    char driver[96], nvml[96]; /* "580.65.06", "13.580.65.06"; "" not reported */
};
void nvml_system_read(struct nvml_system *ret); /* after nvml_start */

/* The device of CUDA's GPU number `gpu` (found by its PCI address: CUDA and NVML count differently);
 * starts CUDA's library (cuInit) and NVML if necessary. Kept for the next call. */
int nvml_device_of(int gpu, nvml_device *ret, struct gp_error *err);
int nvml_device_at(const char *pci, nvml_device *ret, struct gp_error *err);

/* --- identity and settings --- */

#define NVML_PROCESSES_MAX 16
struct nvml_process {
    int64_t pid, bytes; /* bytes: NVML_NOT_TOLD if not reported */
    bool graphics;
    char name[64]; /* "" not reported */
};
struct nvml_facts {
    bool lost;                                               /* a call returned that the GPU fell off the bus */
    char uuid[96], name[96], serial[40], vbios[40], pci[32]; /* "" not reported */
    int64_t pci_device, pci_subsystem;                       /* 0x2330, 0x16c1 (without the vendor) */
    int64_t memory_bytes;
    int64_t ecc, ecc_pending, ecc_default; /* 0 off, 1 on */
    int64_t mig, persistence;              /* 0 off, 1 on */
    int64_t compute_mode;                  /* 0 default, 2 prohibited, 3 exclusive process */
    int64_t power_limit_mw;
    int64_t slowdown_c, shutdown_c, gpu_max_c; /* temperatures from which it slows down, ... */
    int64_t pcie_gen_max, pcie_width_max;      /* the maximum of GPU and slot together */
    /* NVSwitch fabric: 0 not supported, 1 not started, 2 in progress, 3 completed (then fabric_status
     * is an nvmlReturn_t). fabric_health: bits, see nvml_fabric_sick. */
    int64_t fabric_state, fabric_status, fabric_health;
    size_t n_processes, processes_left_out;
    bool processes_told;
    struct nvml_process processes[NVML_PROCESSES_MAX];
};
void nvml_facts_read(nvml_device d, struct nvml_facts *ret);
void nvml_facts_none(struct nvml_facts *ret); /* all values not reported */
/* The fault in fabric_health, as text for messages; NULL: none. */
const char *nvml_fabric_sick(int64_t health);

/* --- counters --- */

enum nvml_ecc_kind { NVML_CORRECTED, NVML_UNCORRECTED };
enum nvml_ecc_span { NVML_VOLATILE, NVML_AGGREGATE }; /* since the driver was loaded; for life */
enum nvml_ecc_place { NVML_ANYWHERE, NVML_DRAM, NVML_SRAM, NVML_ECC_PLACES };

#define NVML_LINKS_MAX 36
enum nvml_link_error {
    NVML_LINK_REPLAY,
    NVML_LINK_RECOVERY,
    NVML_LINK_ECC,
    NVML_LINK_RECEIVE, /* NVLink 5: malformed, overrun, bad packets, lost recoveries */
    NVML_LINK_CRC,     /* flits and data; a few are normal */
    NVML_LINK_ERRORS
};
extern const char *const nvml_link_error_names[NVML_LINK_ERRORS];
struct nvml_link {
    int64_t active; /* 0, 1 */
    int64_t errors[NVML_LINK_ERRORS];
    double ber; /* NVLink 5: the worse of effective and symbol bit error rate; negative: not reported */
};
enum nvml_slow { NVML_SLOW_POWER, NVML_SLOW_HW_THERMAL, NVML_SLOW_HW_BRAKE, NVML_SLOW_SW_THERMAL, NVML_SLOW_KINDS };

struct nvml_counters {
    bool lost, reset_required;          /* returned by a call */
    int64_t recovery;                   /* 0 none, else see nvml_recovery_advice */
    int64_t ecc[2][2][NVML_ECC_PLACES]; /* [kind][span][place] */
    int64_t sram_threshold;             /* 1: SRAM errors reached NVIDIA's limit for replacement */
    int64_t remap_corrected, remap_uncorrected, remap_pending, remap_failed;
    int64_t retired_corrected, retired_uncorrected, retired_pending;
    int64_t pcie_replays, pcie_fatal, pcie_nonfatal;
    int64_t slow_ns[NVML_SLOW_KINDS]; /* time with lowered clocks for this reason */
    int links;
    struct nvml_link link[NVML_LINKS_MAX];
};
void nvml_counters_read(nvml_device d, struct nvml_counters *ret);
const char *nvml_recovery_name(int64_t action);   /* "reset the GPU" */
const char *nvml_recovery_advice(int64_t action); /* "" for none */

/* --- current state --- */

/* Bits of nvml_sample.reasons: why clocks are lower than they could be. */
#define NVML_REASON_IDLE 0x1
#define NVML_REASON_APPLICATION 0x2
#define NVML_REASON_POWER_CAP 0x4
#define NVML_REASON_HW_SLOWDOWN 0x8
#define NVML_REASON_SYNC_BOOST 0x10
#define NVML_REASON_SW_THERMAL 0x20
#define NVML_REASON_HW_THERMAL 0x40
#define NVML_REASON_HW_BRAKE 0x80
#define NVML_REASON_DISPLAY 0x100
/* HW_SLOWDOWN alone may be a change of clocks: drivers report it briefly then. */
#define NVML_REASONS_HW_CERTAIN (NVML_REASON_HW_THERMAL | NVML_REASON_HW_BRAKE)
#define NVML_REASONS_HW (NVML_REASON_HW_SLOWDOWN | NVML_REASON_HW_THERMAL | NVML_REASON_HW_BRAKE)

struct nvml_sample {
    bool lost;
    int64_t sm_mhz, memory_mhz, temperature_c, memory_c, power_mw;
    int64_t reasons; /* bits above */
    int64_t pcie_gen, pcie_width;
};
void nvml_sample_read(nvml_device d, struct nvml_sample *ret);
/* Percent of the last sampling period in which a kernel ran; NVML_NOT_TOLD: not reported. */
int64_t nvml_busy_percent(nvml_device d);
/* The names of the bits, joined by '+': "HW thermal slowdown+power cap"; "none". */
void nvml_reasons_text(int64_t reasons, char *dst, size_t n);

/* Xid events, which NVML reports without root. watch begins anew; take returns the numbers seen since, or
 * since the last take (at most max; returns their count, -1: not supported). One watch per process. */
void nvml_xids_watch(nvml_device d);
int nvml_xids_take(int64_t *ret, int max);

#endif
