/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's functions, structs and field numbers as its library has them; for nvml_*_cuda.c only. Sizes are those of
 * nvml.h of API version 13; tests/unit/agent/test_nvml_layout.c checks them. */
#ifndef GP_AGENT_NVML_API_H
#define GP_AGENT_NVML_API_H

#include "nvml_cuda.h"

typedef struct nvml_event_set_st *nvml_event_set;

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem; /* ids: device << 16 | vendor */
    char bus_id[32];
};
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process_info {
    unsigned pid;
    unsigned long long bytes; /* all ones: not available */
    unsigned gpu_instance, compute_instance;
};
union nvml_value {
    double d;
    int i;
    unsigned u;
    unsigned long ul;
    unsigned long long ull;
    long long ll;
    unsigned short us;
};
struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type; /* 0 double, 1 unsigned, 2 unsigned long, 3 unsigned long long, 4 long long, 5 int */
    int rc;
    union nvml_value value;
};
struct nvml_fabric {
    unsigned version; /* NVML_FABRIC_V2 */
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
#define NVML_FABRIC_V2 ((unsigned)sizeof(struct nvml_fabric) | 2u << 24)
struct nvml_sram {
    unsigned version; /* NVML_SRAM_V1 */
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long l2, sm, pcie, microcontroller, other;
    unsigned threshold_exceeded;
};
#define NVML_SRAM_V1 ((unsigned)sizeof(struct nvml_sram) | 1u << 24)
struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};
struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
#define NVML_EVENT_XID 8ull

enum { /* field numbers of nvmlDeviceGetFieldValues */
       NVML_FI_SLOW_POWER = 74,
       NVML_FI_SLOW_THERMAL = 75,
       NVML_FI_MEMORY_TEMP = 82,
       NVML_FI_LINK_COUNT = 91,
       NVML_FI_PCIE_NONFATAL = 179,
       NVML_FI_PCIE_FATAL = 180,
       NVML_FI_LINK_MALFORMED = 206,
       NVML_FI_LINK_OVERRUN = 207,
       NVML_FI_LINK_RECEIVE = 208,
       NVML_FI_LINK_INTEGRITY = 211,
       NVML_FI_LINK_LOST = 214,
       NVML_FI_LINK_EFFECTIVE_BER = 220,
       NVML_FI_LINK_SYMBOL_BER = 222,
       NVML_FI_RECOVERY_ACTION = 230,
       NVML_FI_SLOW_SW_THERMAL = 269,
       NVML_FI_SLOW_HW_THERMAL = 270,
       NVML_FI_SLOW_HW_BRAKE = 271
};

/* A function that this library lacks is NULL; the first six are never NULL. */
struct nvml_api {
    int (*init)(void);
    const char *(*error)(int rc);
    int (*count)(unsigned *ret);
    int (*by_pci)(const char *pci, nvml_device *ret);
    int (*driver_version)(char *dst, unsigned n);
    int (*name)(nvml_device d, char *dst, unsigned n);
    int (*nvml_version)(char *dst, unsigned n);
    int (*cuda_version)(int *ret);
    int (*process_name)(unsigned pid, char *dst, unsigned n);
    int (*serial)(nvml_device d, char *dst, unsigned n);
    int (*uuid)(nvml_device d, char *dst, unsigned n);
    int (*vbios)(nvml_device d, char *dst, unsigned n);
    int (*pci)(nvml_device d, struct nvml_pci *ret);
    int (*memory)(nvml_device d, struct nvml_memory *ret);
    int (*ecc_mode)(nvml_device d, int *current, int *pending);
    int (*ecc_default)(nvml_device d, int *mode);
    int (*mig_mode)(nvml_device d, unsigned *current, unsigned *pending);
    int (*persistence)(nvml_device d, int *mode);
    int (*compute_mode)(nvml_device d, int *mode);
    int (*fabric)(nvml_device d, struct nvml_fabric *info);
    int (*compute_processes)(nvml_device d, unsigned *count, struct nvml_process_info *p);
    int (*graphics_processes)(nvml_device d, unsigned *count, struct nvml_process_info *p);
    int (*temperature)(nvml_device d, int sensor, unsigned *ret);
    int (*temperature_limit)(nvml_device d, int kind, unsigned *ret);
    int (*power)(nvml_device d, unsigned *ret_mw);
    int (*power_limit)(nvml_device d, unsigned *ret_mw);
    int (*clock)(nvml_device d, int kind, unsigned *ret_mhz);
    int (*utilization)(nvml_device d, struct nvml_utilization *ret);
    int (*reasons)(nvml_device d, unsigned long long *ret);
    int (*reasons_old)(nvml_device d, unsigned long long *ret);
    int (*pcie_gen)(nvml_device d, unsigned *ret);
    int (*pcie_width)(nvml_device d, unsigned *ret);
    int (*pcie_gen_max)(nvml_device d, unsigned *ret);
    int (*pcie_width_max)(nvml_device d, unsigned *ret);
    int (*pcie_replays)(nvml_device d, unsigned *ret);
    int (*ecc_total)(nvml_device d, int kind, int span, unsigned long long *ret);
    int (*ecc_place)(nvml_device d, int kind, int span, int place, unsigned long long *ret);
    int (*sram)(nvml_device d, struct nvml_sram *status);
    int (*remapped)(nvml_device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
    int (*retired)(nvml_device d, int cause, unsigned *count, unsigned long long *addresses);
    int (*retired_pending)(nvml_device d, int *ret);
    int (*link_state)(nvml_device d, unsigned link, int *ret);
    int (*link_errors)(nvml_device d, unsigned link, int counter, unsigned long long *ret);
    int (*fields)(nvml_device d, int n, struct nvml_field *values);
    int (*event_set_new)(nvml_event_set *ret);
    int (*event_set_free)(nvml_event_set set);
    int (*event_register)(nvml_device d, unsigned long long types, nvml_event_set set);
    int (*event_wait)(nvml_event_set set, struct nvml_event *ret, unsigned timeout_ms);
};
#define NVML_REQUIRED 6 /* of the members above, the first */

/* Set by nvml_start; all members are NULL before. */
extern struct nvml_api nvml_api;

#endif
