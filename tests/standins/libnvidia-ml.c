/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1: H100-like GPUs at 0000:01:00.0, 0000:02:00.0, ... that are well
 * until GPUPROV_STANDIN_NVML says otherwise:
 * (number and model of the GPUs are libcuda's, as GPUPROV_STANDIN says, unless said here)
 *   gpus=8 init=18 (the error of nvmlInit)  driver=580.65.06 nvml=13.580.65.06 cuda=13000
 *   name=NVIDIA_H100_80GB_HBM3 (_ is a space)  device=0x2330 subsystem=0x16c1 memory_mib=81559
 *   gpu=3     all below is this GPU's only
 *   after=N   all counters below hold 0 (a link is up) until this GPU's counters were read N times: what
 *             moves while a check runs. Reads are counted by calls for the recovery action
 *   recovery=2 ecc=1 (volatile uncorrectable) ecc_old=1 (aggregate) corrected=N corrected_old=N sram=1 (ecc
 *             in SRAM instead of DRAM) sram_threshold=1
 *   remap_corrected=N remap=N (uncorrectable) remap_pending=1 remap_failed=1
 *   retired=N retired_dbe=N retired_pending=1
 *   links=18 links_up=12 link_down=3 (that link) link_error=K (0 replay, 1 recovery, 2 crc, 4 ecc) link_errors=N
 *   symbol_ber=0x30d effective_ber (of link 3: 3e-13)
 *   replays=N pcie_fatal=N pcie_nonfatal=N pcie_gen=5 pcie_width=16 pcie_gen_max pcie_width_max
 *   reasons_at=9 (the reasons below only when asked for the tenth time)
 *   reasons=0x40 slow_ns=N (of the HW thermal slowdown) temperature=45 slowdown=92 power=300000 (mW) busy=0 (%)
 *   clock=1980 (MHz) ecc_mode=1 ecc_default=1 mig=0 persistence=1 compute_mode=0
 *   fabric=3 fabric_status=0 fabric_health=0x1aa
 *   pid=1234 (a compute process) graphics=1234  xid=79 (an event, once)
 *   kmsg=79 (writes the line of that Xid to /dev/kmsg, once, at read after+1; only where that is a plain
 *   file of the test's)  lost=1 (every call about the GPU gives 15; after= counts)  hang=1 (that call never returns)
 *   lacks=ecc (functions of an older driver: the symbols with this word give "not supported")
 * One process; any thread. */
#include "standin.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define VAR "GPUPROV_STANDIN_NVML"
#define GET(key, def) standin_get(VAR, key, def)
#define EXPORT __attribute__((visibility("default")))

enum { NOT_SUPPORTED = 3, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };

enum { GPUS_MAX = 64 };
static struct gpu {
    int index;
    atomic_int reads, xid_given;
} gpus[GPUS_MAX];
typedef struct gpu *device;

/* The models that the stand-in for libcuda has. */
static const struct profile {
    const char *key, *name;
    long long device, memory_mib, links, gen;
} profiles[] = {{"h100", "NVIDIA H100 80GB HBM3", 0x2330, 81559, 18, 5},
                {"a100", "NVIDIA A100-SXM4-80GB", 0x20b2, 81920, 12, 4},
                {"t4", "Tesla T4", 0x1eb8, 15360, 0, 3},
                {"unknown", "NVIDIA Stand-in", 0x7ffe, 81559, 0, 5}};

static const struct profile *profile(void) {
    const char *s = getenv("GPUPROV_STANDIN");
    const char *at = s ? strstr(s, "profile=") : NULL;
    for (size_t i = 0; at && i < sizeof profiles / sizeof profiles[0]; i++)
        if (strncmp(at + 8, profiles[i].key, strlen(profiles[i].key)) == 0) return &profiles[i];
    return &profiles[0];
}

static long long gpu_count(void) { return GET("gpus", standin_get("GPUPROV_STANDIN", "gpus", 8)); }

static int mine(device d) {
    long long only = GET("gpu", -1);
    return only < 0 || only == d->index;
}

static long long get(device d, const char *key, long long def) { return mine(d) ? GET(key, def) : def; }

/* As get, of what moves only after some reads. */
static long long counter(device d, const char *key, long long def) {
    return atomic_load(&d->reads) > get(d, "after", -1) ? get(d, key, def) : def;
}

static int lacks(const char *what) {
    char text[128];
    standin_words(VAR, "lacks", "", text, sizeof text);
    return text[0] && strstr(what, text) != NULL;
}

/* What every call about a GPU gives first. */
static int state(device d, const char *what) {
    if (d < gpus || d >= gpus + GPUS_MAX) return INVALID;
    while (counter(d, "hang", 0)) pause();
    if (counter(d, "lost", 0)) return LOST;
    return lacks(what) ? NOT_SUPPORTED : 0;
}

#define BEGIN(d, what)            \
    do {                          \
        int rc_ = state(d, what); \
        if (rc_) return rc_;      \
    } while (0)

/* --- the system --- */

EXPORT int nvmlInit_v2(void) {
    for (int i = 0; i < GPUS_MAX; i++) gpus[i].index = i;
    return (int)GET("init", 0);
}

EXPORT int nvmlShutdown(void) { return 0; }

EXPORT int nvmlDeviceGetCount_v2(unsigned *ret) {
    *ret = (unsigned)gpu_count();
    return 0;
}

EXPORT int nvmlSystemGetDriverVersion(char *dst, unsigned n) {
    standin_words(VAR, "driver", "580.65.06", dst, n);
    return 0;
}

EXPORT int nvmlSystemGetNVMLVersion(char *dst, unsigned n) {
    standin_words(VAR, "nvml", "13.580.65.06", dst, n);
    return 0;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *ret) {
    *ret = (int)GET("cuda", 13000);
    return 0;
}

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *dst, unsigned n) {
    snprintf(dst, n, "process-%u", pid);
    return 0;
}

EXPORT const char *nvmlErrorString(int code) {
    static const struct {
        int code;
        const char *text;
    } all[] = {{3, "Not Supported"},
               {9, "Driver Not Loaded"},
               {15, "GPU is lost"},
               {16, "GPU requires reset"},
               {17, "Blocked by the operating system"},
               {18, "Driver/library version mismatch"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].code == code) return all[i].text;
    return "Unknown Error";
}

/* --- one GPU --- */

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, device *ret) {
    unsigned domain = 0, bus = 0;
    if (sscanf(pci, "%x:%x:", &domain, &bus) != 2 || domain != 0 || bus < 1 || bus > gpu_count()) return NOT_FOUND;
    *ret = &gpus[bus - 1];
    return 0;
}

EXPORT int nvmlDeviceGetName(device d, char *dst, unsigned n) {
    BEGIN(d, "name");
    standin_words(VAR, mine(d) ? "name" : "", profile()->name, dst, n);
    return 0;
}

EXPORT int nvmlDeviceGetSerial(device d, char *dst, unsigned n) {
    BEGIN(d, "serial");
    snprintf(dst, n, "16540231%04d", d->index);
    return 0;
}

EXPORT int nvmlDeviceGetUUID(device d, char *dst, unsigned n) {
    BEGIN(d, "uuid");
    snprintf(dst, n, "GPU-5a3d1c00-0000-4000-8000-%012d", d->index);
    return 0;
}

EXPORT int nvmlDeviceGetVbiosVersion(device d, char *dst, unsigned n) {
    BEGIN(d, "vbios");
    snprintf(dst, n, "96.00.74.00.01");
    return 0;
}

EXPORT int nvmlDeviceGetPciInfo_v3(device d, char *pci) {
    unsigned ids[5] = {0, (unsigned)d->index + 1, 0, (unsigned)get(d, "device", profile()->device) << 16 | 0x10de,
                       (unsigned)get(d, "subsystem", 0x16c1) << 16 | 0x10de};
    BEGIN(d, "pci");
    snprintf(pci, 16, "0000:%02X:00.0", d->index + 1);
    memcpy(pci + 16, ids, sizeof ids);
    snprintf(pci + 36, 32, "00000000:%02X:00.0", d->index + 1);
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(device d, unsigned long long *m) {
    BEGIN(d, "memory");
    m[0] = (unsigned long long)get(d, "memory_mib", profile()->memory_mib) << 20;
    m[1] = m[0] - (500ull << 20);
    m[2] = 500ull << 20;
    return 0;
}

EXPORT int nvmlDeviceGetEccMode(device d, int *now, int *pending) {
    BEGIN(d, "ecc_mode");
    *now = *pending = (int)get(d, "ecc_mode", 1);
    return 0;
}

EXPORT int nvmlDeviceGetDefaultEccMode(device d, int *ret) {
    BEGIN(d, "ecc_default");
    *ret = (int)get(d, "ecc_default", 1);
    return 0;
}

EXPORT int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *pending) {
    BEGIN(d, "mig");
    *now = *pending = (unsigned)get(d, "mig", 0);
    return 0;
}

EXPORT int nvmlDeviceGetPersistenceMode(device d, int *ret) {
    BEGIN(d, "persistence");
    *ret = (int)get(d, "persistence", 1);
    return 0;
}

EXPORT int nvmlDeviceGetComputeMode(device d, int *ret) {
    BEGIN(d, "compute_mode");
    *ret = (int)get(d, "compute_mode", 0);
    return 0;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(device d, unsigned char *info) {
    unsigned version = 0, health = (unsigned)get(d, "fabric_health", 0x1aa);
    int status = (int)get(d, "fabric_status", 0);
    memcpy(&version, info, sizeof version);
    BEGIN(d, "fabric");
    if (version != (36 | 2u << 24)) return 25; /* argument version mismatch */
    memcpy(info + 20, &status, sizeof status);
    info[28] = (unsigned char)get(d, "fabric", 3);
    memcpy(info + 32, &health, sizeof health);
    return 0;
}

static int process(device d, const char *key, unsigned *n, char *p) {
    unsigned pid = (unsigned)get(d, key, 0);
    unsigned long long bytes = 1ull << 30;
    if (!pid) {
        *n = 0;
        return 0;
    }
    if (*n < 1) {
        *n = 1;
        return TOO_SMALL;
    }
    memset(p, 0xff, 24); /* no instances */
    memcpy(p, &pid, sizeof pid);
    memcpy(p + 8, &bytes, sizeof bytes);
    *n = 1;
    return 0;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, char *p) {
    BEGIN(d, "processes");
    return process(d, "pid", n, p);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, unsigned *n, char *p) {
    BEGIN(d, "processes");
    return process(d, "graphics", n, p);
}

EXPORT int nvmlDeviceGetTemperature(device d, int sensor, unsigned *ret) {
    BEGIN(d, "temperature");
    if (sensor != 0) return INVALID;
    *ret = (unsigned)get(d, "temperature", 45);
    return 0;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(device d, int kind, unsigned *ret) {
    BEGIN(d, "threshold");
    *ret = kind == 0 ? 97 : kind == 1 ? (unsigned)get(d, "slowdown", 92) : 87;
    return 0;
}

EXPORT int nvmlDeviceGetPowerUsage(device d, unsigned *ret) {
    BEGIN(d, "power");
    *ret = (unsigned)get(d, "power", 300000);
    return 0;
}

EXPORT int nvmlDeviceGetEnforcedPowerLimit(device d, unsigned *ret) {
    BEGIN(d, "power_limit");
    *ret = (unsigned)get(d, "power_limit", 700000);
    return 0;
}

EXPORT int nvmlDeviceGetClockInfo(device d, int kind, unsigned *ret) {
    BEGIN(d, "clock");
    *ret = kind == 1 ? (unsigned)get(d, "clock", 1980) : 2619;
    return 0;
}

struct utilization {
    unsigned gpu, memory;
};

EXPORT int nvmlDeviceGetUtilizationRates(device d, struct utilization *ret) {
    BEGIN(d, "utilization");
    *ret = (struct utilization){.gpu = (unsigned)counter(d, "busy", 0)};
    return 0;
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *ret) {
    static atomic_llong asked;
    BEGIN(d, "reasons");
    long long only = get(d, "reasons_at", -1), this = atomic_fetch_add(&asked, 1);
    *ret = only < 0 || only == this ? (unsigned long long)counter(d, "reasons", 0) : 0;
    return 0;
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(device d, unsigned long long *ret) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(d, ret);
}

static int number(device d, const char *key, long long def, unsigned *ret) {
    BEGIN(d, key);
    *ret = (unsigned)get(d, key, def);
    return 0;
}

EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(device d, unsigned *ret) {
    return number(d, "pcie_gen", profile()->gen, ret);
}

EXPORT int nvmlDeviceGetCurrPcieLinkWidth(device d, unsigned *ret) { return number(d, "pcie_width", 16, ret); }

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(device d, unsigned *ret) {
    return number(d, "pcie_gen_max", profile()->gen, ret);
}

EXPORT int nvmlDeviceGetMaxPcieLinkWidth(device d, unsigned *ret) { return number(d, "pcie_width_max", 16, ret); }

EXPORT int nvmlDeviceGetPcieReplayCounter(device d, unsigned *ret) {
    BEGIN(d, "replays");
    *ret = (unsigned)counter(d, "replays", 0);
    return 0;
}

/* --- counters --- */

static unsigned long long ecc(device d, int kind, int span) {
    if (kind == 1) return (unsigned long long)(counter(d, "ecc", 0) + (span ? get(d, "ecc_old", 0) : 0));
    return (unsigned long long)(counter(d, "corrected", 0) + (span ? get(d, "corrected_old", 0) : 0));
}

EXPORT int nvmlDeviceGetTotalEccErrors(device d, int kind, int span, unsigned long long *ret) {
    BEGIN(d, "ecc");
    *ret = ecc(d, kind, span);
    return 0;
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(device d, int kind, int span, int place, unsigned long long *ret) {
    BEGIN(d, "ecc");
    if (place != 2 && place != 7) return NOT_SUPPORTED;
    *ret = (place == 7) == (get(d, "sram", 0) != 0) ? ecc(d, kind, span) : 0;
    return 0;
}

EXPORT int nvmlDeviceGetSramEccErrorStatus(device d, unsigned char *s) {
    unsigned version = 0, exceeded = (unsigned)get(d, "sram_threshold", 0);
    memcpy(&version, s, sizeof version);
    BEGIN(d, "sram");
    if (version != (104 | 1u << 24)) return 25;
    memset(s + 8, 0, 88);
    memcpy(s + 96, &exceeded, sizeof exceeded);
    return 0;
}

EXPORT int nvmlDeviceGetRemappedRows(device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                     unsigned *failed) {
    BEGIN(d, "remap");
    *corrected = (unsigned)counter(d, "remap_corrected", 0);
    *uncorrected = (unsigned)counter(d, "remap", 0);
    *pending = (unsigned)counter(d, "remap_pending", 0);
    *failed = (unsigned)counter(d, "remap_failed", 0);
    return 0;
}

EXPORT int nvmlDeviceGetRetiredPages(device d, int cause, unsigned *n, unsigned long long *addresses) {
    unsigned have = (unsigned)counter(d, cause ? "retired_dbe" : "retired", 0), room = *n;
    BEGIN(d, "retired");
    if (!addresses) return INVALID;
    *n = have;
    return room < have ? TOO_SMALL : 0;
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(device d, int *ret) {
    BEGIN(d, "retired");
    *ret = (int)counter(d, "retired_pending", 0);
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkState(device d, unsigned link, int *ret) {
    BEGIN(d, "nvlink");
    if (link >= (unsigned)get(d, "links", profile()->links)) return INVALID;
    *ret = counter(d, "link_down", -1) != (long long)link && link < (unsigned)get(d, "links_up", 36);
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(device d, unsigned link, int kind, unsigned long long *ret) {
    BEGIN(d, "nvlink");
    if (link >= (unsigned)get(d, "links", profile()->links)) return INVALID;
    /* all on link 3 */
    *ret = link == 3 && kind == get(d, "link_error", 0) ? (unsigned long long)counter(d, "link_errors", 0) : 0;
    return 0;
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int rc;
    unsigned long long value;
};

/* A line as the driver's kernel module writes it; never into the machine's own log. */
static void write_kmsg(device d) {
    struct stat st;
    long long xid = counter(d, "kmsg", 0);
    if (!xid || atomic_exchange(&d->xid_given, 1)) return;
    int fd = open("/dev/kmsg", O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        dprintf(fd, "3,99,2000,-;NVRM: Xid (PCI:0000:%02x:00): %lld, pid=1, name=standin\n", d->index + 1, xid);
    close(fd);
}

static int one_field(device d, struct field *f) {
    f->type = 3;
    switch (f->id) {
    case 230:
        if (lacks("recovery")) return NOT_SUPPORTED;
        atomic_fetch_add(&d->reads, 1);
        write_kmsg(d);
        f->type = 1;
        f->value = (unsigned long long)counter(d, "recovery", 0);
        return 0;
    case 91: f->value = (unsigned long long)get(d, "links", profile()->links); return 0;
    case 82: f->value = 50; return 0;
    case 179: f->value = (unsigned long long)counter(d, "pcie_nonfatal", 0); return 0;
    case 180: f->value = (unsigned long long)counter(d, "pcie_fatal", 0); return 0;
    case 74:
    case 269:
    case 271: f->value = 0; return 0;
    case 220: /* mantissa << 8 | exponent of a power of ten; 15e-254: none seen */
    case 222:
        f->type = 1;
        f->value = (unsigned long long)(f->scope == 3 ? counter(d, f->id == 220 ? "effective_ber" : "symbol_ber", 0xffe)
                                                      : 0xffe);
        return lacks("ber") || f->scope >= (unsigned)get(d, "links", profile()->links) ? NOT_SUPPORTED : 0;
    case 270: f->value = (unsigned long long)counter(d, "slow_ns", 0); return 0;
    default: return NOT_SUPPORTED;
    }
}

EXPORT int nvmlDeviceGetFieldValues(device d, int n, struct field *f) {
    BEGIN(d, "fields");
    for (int i = 0; i < n; i++) f[i].rc = one_field(d, &f[i]);
    return 0;
}

/* --- events --- */

static struct set { device d; } sets[1];

EXPORT int nvmlEventSetCreate(struct set **ret) {
    *ret = sets;
    return 0;
}

EXPORT int nvmlEventSetFree(struct set *set) {
    set->d = NULL;
    return 0;
}

EXPORT int nvmlDeviceRegisterEvents(device d, unsigned long long types, struct set *set) {
    BEGIN(d, "events");
    if (types != 8) return INVALID;
    set->d = d;
    return 0;
}

EXPORT int nvmlEventSetWait_v2(struct set *set, void *event, unsigned timeout_ms) {
    unsigned long long v[3] = {(unsigned long long)(size_t)set->d, 8, 0};
    unsigned none[2] = {~0u, ~0u};
    (void)timeout_ms;
    if (!set->d || !counter(set->d, "xid", 0) || atomic_exchange(&set->d->xid_given, 1)) return TIMEOUT;
    v[2] = (unsigned long long)get(set->d, "xid", 0);
    memcpy(event, v, sizeof v);
    memcpy((char *)event + sizeof v, none, sizeof none);
    return 0;
}
