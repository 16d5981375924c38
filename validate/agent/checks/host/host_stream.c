/* SPDX-License-Identifier: Apache-2.0 */
/* host.bandwidth: STREAM's copy and triad on all usable cores at once, each thread on its own core with its own
 * arrays, which it touched first (so they are on its own NUMA node). Bytes are counted as in STREAM: two arrays for
 * copy, three for triad. The values are checked. One worker; its threads are joined. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WORDS_USUAL ((size_t)1 << 20) /* 8 MiB an array */
#define WORDS_MIN ((size_t)1 << 16)
/* 64 MiB an array. The largest caches of a core's share need 48 MiB (EPYC 9684X: 1152 MiB for 96 cores). A virtual
 * machine of 2 cores that shows the 300 MiB of its host would touch 3.6 GiB, which took it half a minute beside
 * others. */
#define WORDS_MOST ((size_t)8 << 20)
#define ROUNDS_MAX 20
#define TIME_MS 1000

enum kernel { COPY, TRIAD, KERNELS };

struct stream {
    pthread_barrier_t barrier;
    size_t words, threads;
    int64_t end_ms;
    atomic_bool stop;
    double best_s[KERNELS];
};
struct job {
    struct stream *all;
    pthread_t thread;
    size_t index;
    int cpu; /* -1: any */
    double *a, *b, *c;
    size_t wrong;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void work(const struct job *j, enum kernel k) {
    double *restrict a = j->a, *restrict b = j->b, *restrict c = j->c;
    size_t n = j->all->words;
    if (k == COPY)
        for (size_t i = 0; i < n; i++) c[i] = a[i];
    else
        for (size_t i = 0; i < n; i++) b[i] = c[i] + 3.0 * a[i];
    __asm__ volatile("" ::"r"(a), "r"(b), "r"(c) : "memory");
}

static void *job_main(void *arg) {
    struct job *j = arg;
    struct stream *s = j->all;
    cpu_set_t one;
    CPU_ZERO(&one);
    if (j->cpu >= 0) {
        CPU_SET((size_t)j->cpu, &one);
        sched_setaffinity(0, sizeof one, &one); /* refused: the scheduler chooses */
    }
    for (size_t i = 0; i < s->words; i++) {
        j->a[i] = (double)i + 1;
        j->b[i] = j->c[i] = 0;
    }
    for (int round = 0; round < ROUNDS_MAX; round++) {
        for (int k = 0; k < KERNELS; k++) {
            pthread_barrier_wait(&s->barrier);
            double began = now_s();
            work(j, (enum kernel)k);
            pthread_barrier_wait(&s->barrier);
            double took = now_s() - began;
            if (j->index == 0 && round > 0 && (s->best_s[k] <= 0 || took < s->best_s[k])) s->best_s[k] = took;
        }
        if (j->index == 0 && round > 0 && clock_left_ms(s->end_ms) == 0) atomic_store(&s->stop, true);
        pthread_barrier_wait(&s->barrier);
        if (atomic_load(&s->stop)) break;
    }
    for (size_t i = 0; i < s->words; i++) j->wrong += j->c[i] != (double)i + 1 || j->b[i] != 4 * ((double)i + 1);
    return NULL;
}

/* Bytes of all last-level caches of the machine; 0: not known. */
static size_t caches(void) {
    size_t sum = 0;
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
        GP_AUTO_STR struct str size = {0};
        GP_AUTO_STR struct str shared = {0};
        GP_AUTO_FREE char *folder = xasprintf("/sys/devices/system/cpu/cpu%ld/cache/index3", cpu);
        GP_AUTO_FREE char *size_path = xasprintf("%s/size", folder);
        GP_AUTO_FREE char *shared_path = xasprintf("%s/shared_cpu_list", folder);
        if (fs_read(size_path, 64, &size, NULL) < 0 || fs_read(shared_path, 4096, &shared, NULL) < 0 ||
            size.s == NULL || shared.s == NULL)
            continue;
        /* counted once, by the first core that shares it; "32768K" */
        if (strtol(shared.s, NULL, 10) == cpu) sum += (size_t)strtoul(size.s, NULL, 10) << 10;
    }
    return sum;
}

/* Pins the threads to the cores that this process may use, in order; cpu -1 beyond. */
static void place(struct job *jobs, size_t n) {
    cpu_set_t all;
    int cpu = -1;
    bool known = sched_getaffinity(0, sizeof all, &all) == 0 && (size_t)CPU_COUNT(&all) == n;
    for (size_t i = 0; i < n; i++) {
        jobs[i].cpu = -1;
        while (known && cpu + 1 < CPU_SETSIZE && !CPU_ISSET((size_t)++cpu, &all)) {
        }
        if (known) jobs[i].cpu = cpu;
    }
}

static bool run_jobs(struct stream *s, struct job *jobs, struct agent_result *r) {
    size_t started = 0;
    if (pthread_barrier_init(&s->barrier, NULL, (unsigned)s->threads) != 0) return false;
    s->end_ms = clock_deadline(TIME_MS);
    while (started < s->threads && pthread_create(&jobs[started].thread, NULL, job_main, &jobs[started]) == 0)
        started++;
    if (started < s->threads) {
        /* the started threads wait for the others: the worker ends with this check's verdict */
        agent_set(r, VERDICT_ERROR, "no_threads", "cannot start %zu of %zu threads", s->threads - started, s->threads);
        return false;
    }
    for (size_t i = 0; i < started; i++) pthread_join(jobs[i].thread, NULL);
    pthread_barrier_destroy(&s->barrier);
    return true;
}

void stream_run(struct check_ctx *c, struct agent_result *r) {
    struct stream s = {.words = WORDS_USUAL};
    (void)c;
    s.threads = (size_t)GP_MAX(1, GP_MIN((int)(agent_cores(NULL) + 0.5), CPU_SETSIZE));
    size_t most = (size_t)GP_MAX((int64_t)0, agent_memory_available() / 4) / (s.threads * 3 * sizeof(double));
    size_t wanted = s.words, cache = caches();
    if (s.words * sizeof(double) * s.threads < 4 * cache)
        wanted = s.words = GP_MIN(4 * cache / (sizeof(double) * s.threads), WORDS_MOST); /* STREAM's rule for arrays */
    while (s.words > most && s.words > WORDS_MIN) s.words /= 2;
    size_t bytes = s.threads * 3 * s.words * sizeof(double);
    double *p =
        s.words > most ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        agent_set(r, VERDICT_ERROR, "no_memory", "cannot allocate %zu MiB of memory for %zu cores", bytes >> 20,
                  s.threads);
        return;
    }
    struct job *jobs = xcalloc(s.threads, sizeof *jobs);
    place(jobs, s.threads);
    for (size_t i = 0; i < s.threads; i++) {
        double *at = p + i * 3 * s.words;
        jobs[i].all = &s;
        jobs[i].index = i;
        jobs[i].a = at, jobs[i].b = at + s.words, jobs[i].c = at + 2 * s.words;
    }
    if (!run_jobs(&s, jobs, r)) return; /* threads may still use the memory */
    size_t wrong = 0;
    for (size_t i = 0; i < s.threads; i++) wrong += jobs[i].wrong;
    free(jobs);
    munmap(p, bytes);
    double array = (double)(s.threads * s.words * sizeof(double));
    double copy = s.best_s[COPY] > 0 ? 2 * array / s.best_s[COPY] / 1e9 : 0;
    double triad = s.best_s[TRIAD] > 0 ? 3 * array / s.best_s[TRIAD] / 1e9 : 0;
    agent_metric(r, "copy", copy);
    agent_metric(r, "triad", triad);
    agent_data_bool(r, "larger_than_caches", s.words == wanted && cache > 0);
    agent_data_int(r, "cache_mib", (int64_t)(cache >> 20));
    agent_data_int(r, "threads", (int64_t)s.threads);
    agent_data_int(r, "array_mib", (int64_t)((s.threads * s.words * sizeof(double)) >> 20));
    if (wrong > 0) agent_set(r, VERDICT_FAIL, "wrong_memory", "%zu values are wrong", wrong);
    agent_say(r, "%.4g GB/s copy, %.4g GB/s triad on %zu cores", copy, triad, s.threads);
}
