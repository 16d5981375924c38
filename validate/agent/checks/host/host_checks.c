/* SPDX-License-Identifier: Apache-2.0 */
/* Node checks of processors, memory and clock. Each runs in a worker process; the table's limits judge the figures,
 * and only other faults get their verdict here. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/device/numeric.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <time.h>

/* --- host.cores: all cores must compute the same bits --- */

#define CORE_MS 300

#define CORES_MAX CPU_SETSIZE

struct core_job {
    pthread_t thread;
    int cpu; /* to run on; -1: any */
    bool started, misplaced;
    uint32_t digest;
    uint64_t rounds;
};

/* Integer and fp32 arithmetic with the same result on every sound core. */
static uint32_t core_round(uint64_t seed) {
    float acc = 0.5f;
    uint64_t z = seed;
    for (int i = 0; i < 20000; i++) {
        z = num_mix(z);
        float x = (float)(uint32_t)(z >> 40) / 16777216.0f;
        acc = (acc * 0.875f + x) / (1.0f + acc * 0.25f);
        acc = num_sqrt(acc * acc + x);
    }
    return num_bits(acc) ^ (uint32_t)z;
}

static void *core_main(void *arg) {
    struct core_job *j = arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    if (j->cpu >= 0) CPU_SET((size_t)j->cpu, &one);
    j->misplaced = j->cpu >= 0 && sched_setaffinity(0, sizeof one, &one) != 0;
    int64_t end = clock_deadline(CORE_MS);
    j->digest = core_round(1);
    do {
        uint32_t again = core_round(1);
        if (again != j->digest) j->digest = again ^ 0x80000000u; /* differs from itself */
        j->rounds++;
    } while (clock_left_ms(end) > 0);
    return NULL;
}

/* Pins each thread to its own core, because the scheduler might leave a core out. With a quota below the number of
 * cores it may choose. */
static void place_jobs(struct core_job *jobs, size_t n) {
    cpu_set_t all;
    bool fits = sched_getaffinity(0, sizeof all, &all) == 0 && (size_t)CPU_COUNT(&all) == n;
    int cpu = -1;
    for (size_t i = 0; i < n; i++) {
        jobs[i].cpu = -1;
        while (fits && cpu + 1 < CORES_MAX && !CPU_ISSET((size_t)++cpu, &all)) {
        }
        if (fits) jobs[i].cpu = cpu;
    }
}

static void cores_run(struct check_ctx *c, struct agent_result *r) {
    int online = 0;
    double usable = agent_cores(&online);
    (void)c;
    size_t n = (size_t)GP_MAX(1, GP_MIN((int)(usable + 0.5), CORES_MAX));
    struct core_job *jobs = xcalloc(n, sizeof *jobs);
    place_jobs(jobs, n);
    for (size_t i = 0; i < n; i++) jobs[i].started = pthread_create(&jobs[i].thread, NULL, core_main, &jobs[i]) == 0;
    uint32_t want = core_round(1);
    size_t wrong = 0, missing = 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < n; i++) {
        if (!jobs[i].started) {
            missing++;
            continue;
        }
        pthread_join(jobs[i].thread, NULL);
        missing += jobs[i].misplaced;
        wrong += jobs[i].digest != want;
        least = GP_MIN(least, jobs[i].rounds);
        most = GP_MAX(most, jobs[i].rounds);
    }
    free(jobs);
    agent_metric(r, "usable", usable);
    agent_metric(r, "online", online);
    if (most > 0 && missing == 0) agent_metric(r, "evenness", (double)least / (double)most);
    if (missing > 0)
        agent_set(r, VERDICT_ERROR, "no_threads",
                  "cannot start %zu of %zu threads, or not on their "
                  "core",
                  missing, n);
    if (wrong > 0)
        agent_set(r, VERDICT_FAIL, "wrong_result", "%zu of %zu cores computed another result than the others", wrong,
                  n);
    agent_say(r, "%.4g of %d cores usable, all with equal results", usable, online);
}

/* --- host.memory --- */

#define MEM_MAX ((size_t)256 << 20)

static size_t mem_verify(const uint64_t *p, size_t words, uint64_t seed, bool inverted) {
    size_t wrong = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t want = (seed + i) * 0x9e3779b97f4a7c15u;
        wrong += p[i] != (inverted ? ~want : want);
    }
    return wrong;
}

static void mem_fill(uint64_t *p, size_t words, uint64_t seed, bool inverted) {
    for (size_t i = 0; i < words; i++) {
        uint64_t v = (seed + i) * 0x9e3779b97f4a7c15u;
        p[i] = inverted ? ~v : v;
    }
}

static double copy_gb_per_s(char *p, size_t bytes, int64_t deadline_ms) {
    size_t half = bytes / 2;
    double best = 0;
    for (int k = 0; k < 5 && (k == 0 || clock_left_ms(deadline_ms) > 1000); k++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        memcpy(p + half, p, half);
        __asm__ volatile("" ::"r"(p) : "memory");
        clock_gettime(CLOCK_MONOTONIC, &b);
        double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
        if (s > 0) best = GP_MAX(best, 2.0 * (double)half / s / 1e9); /* read and written */
    }
    return best;
}

int64_t agent_memory_available(void) {
    GP_AUTO_STR struct str s = {0};
    long long kib = 0;
    if (fs_read("/proc/meminfo", 65536, &s, NULL) == 0) {
        const char *p = strstr(s.s, "MemAvailable:");
        if (p != NULL && sscanf(p, "MemAvailable: %lld", &kib) == 1) return (int64_t)kib * 1024;
    }
    struct sysinfo si = {0};
    sysinfo(&si);
    return (int64_t)si.freeram * si.mem_unit;
}

static void memory_run(struct check_ctx *c, struct agent_result *r) {
    int64_t machine = 0, usable = agent_memory_bytes(&machine), available = agent_memory_available();
    size_t bytes = GP_MIN(MEM_MAX, (size_t)GP_MAX((int64_t)1 << 20, GP_MIN(usable, available) / 8));
    bytes &= ~(size_t)0xfffff;
    agent_metric(r, "size", (double)usable / (1 << 30));
    agent_metric(r, "available", (double)available / (1 << 30));
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        agent_set(r, VERDICT_FAIL, "no_memory", "cannot allocate %zu MiB of memory: %s", bytes >> 20, strerror(errno));
        return;
    }
    size_t words = bytes / 8, wrong = 0, tested = 0;
    for (int k = 0; k < 2 && (k == 0 || clock_left_ms(c->deadline_ms) > 5000); k++) {
        mem_fill((uint64_t *)(void *)p, words, 7, k == 1);
        __asm__ volatile("" ::"r"(p) : "memory");
        wrong += mem_verify((const uint64_t *)(const void *)p, words, 7, k == 1);
        tested++;
    }
    agent_metric(r, "copy", copy_gb_per_s(p, bytes, c->deadline_ms));
    munmap(p, bytes);
    agent_metric(r, "wrong_words", (double)wrong);
    agent_data_int(r, "tested_mib", (int64_t)(bytes >> 20));
    agent_data_int(r, "patterns", (int64_t)tested);
    if (wrong > 0)
        agent_set(r, VERDICT_FAIL, "wrong_memory", "%zu words of %zu MiB read back wrong", wrong, bytes >> 20);
    agent_say(r, "%.1f GiB usable; %zu MiB written and read back", (double)usable / (1 << 30), bytes >> 20);
}

/* --- host.clock --- */

static void clock_run(struct check_ctx *c, struct agent_result *r) {
    struct timex t = {.modes = 0};
    int state = adjtimex(&t);
    bool known = state >= 0, synced = known && state != TIME_ERROR && (t.status & STA_UNSYNC) == 0;
    if (known) {
        agent_data_bool(r, "synchronised", synced);
        agent_metric(r, "estimated_error", (double)t.esterror / 1e6);
    }
    if (c->same_clock) {
        agent_set(r, VERDICT_SKIPPED, "same_clock",
                  "the controller's clock is this node's, so there is no other to compare with; %s",
                  !known   ? "cannot read whether a time service synchronises it"
                  : synced ? "a time service synchronises it"
                           : "no time service synchronises it");
    } else if (c->has_controller_now) {
        double s = (double)c->clock_offset_ms / 1000.0;
        agent_data_num(r, "signed_offset_s", s);
        agent_metric(r, "offset", s < 0 ? -s : s);
        agent_say(r, "%.1f s from the controller's clock; %s", s,
                  !known   ? "cannot read whether it is synchronised"
                  : synced ? "synchronised"
                           : "not synchronised by a time service yet");
    } else if (synced) {
        agent_say(r, "synchronised by a time service");
    } else if (known) {
        agent_set(r, VERDICT_DEGRADED, "not_synchronised",
                  "no time service synchronises this clock, and the controller's time was not given");
    } else {
        agent_set(r, VERDICT_SKIPPED, "no_reference",
                  "no clock to compare with: adjtimex failed with '%s' and --now-ms was not given", strerror(errno));
    }
}

const struct check_ops host_checks[] = {
    {.id = "host.cores", .run = cores_run},         {.id = "host.memory", .run = memory_run},
    {.id = "host.disk", .run = disk_run},           {.id = "host.clock", .run = clock_run},
    {.id = "host.kernlog", .run = kernlog_run},     {.id = "host.bandwidth", .run = stream_run},
    {.id = "host.limits", .run = limits_run},       {.id = "host.rdma", .run = rdma_run},
    {.id = "host.container", .run = container_run}, {.id = NULL},
};
