/* SPDX-License-Identifier: Apache-2.0 */
/* Client half of the fan-out benchmark: on each host, at once: connect, copy a file, run a script of ten
 * commands over the same connection. Prints one JSON line: wall time, own CPU time, peak memory.
 *   ssh_fanout JOBS KEY KNOWN_HOSTS USER FILE SCRIPT ADDRESS...
 * JOBS threads, as gpuprov has with --jobs. Not a test: tests/bench/ssh_fanout.py drives it. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "ssh/ssh.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

struct job {
    const char *host;
    int64_t connected_ms, copied_ms, done_ms;
    int rc;
    struct gp_error err;
};

static struct ssh_target common;
static struct str file, script;
static struct ssh_blob blob;

static int fan_out(struct job *j) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    ssh_target_copy(&t, &common);
    t.label = xstrdup(j->host);
    t.host = xstrdup(j->host);
    struct ssh_open_opts open = {.deadline_ms = clock_deadline(120000)};
    int64_t start = clock_ms();
    int r = ssh_open(&t, &open, &s, &j->err);
    j->connected_ms = clock_ms() - start;
    if (r == 0) r = ssh_put_blob(s, "/tmp/f10", 0644, &blob, clock_deadline(120000), NULL, NULL, &j->err);
    j->copied_ms = clock_ms() - start;
    struct ssh_exec_opts run = {.in = script.s, .in_len = script.len, .deadline_ms = clock_deadline(120000)};
    if (r == 0) r = ssh_run(s, "the script", "sh -s", &run, NULL, &j->err);
    j->done_ms = clock_ms() - start;
    return r;
}

static struct job *jobs;
static size_t n_jobs;
static atomic_size_t next_job;

static void *worker(void *arg) {
    (void)arg;
    for (size_t i = atomic_fetch_add(&next_job, 1); i < n_jobs; i = atomic_fetch_add(&next_job, 1))
        jobs[i].rc = fan_out(&jobs[i]);
    return NULL;
}

static double seconds(const struct timeval *t) { return (double)t->tv_sec + (double)t->tv_usec / 1e6; }

int main(int argc, char **argv) {
    int64_t width = 0;
    if (argc < 8 || !str_to_i64(argv[1], 1, 4096, &width)) {
        fprintf(stderr, "usage: ssh_fanout JOBS KEY KNOWN_HOSTS USER FILE SCRIPT ADDRESS...\n");
        return 1;
    }
    struct gp_error err = {0};
    common = (struct ssh_target){.key_path = argv[2], .known_hosts = argv[3], .user = argv[4]};
    if (ssh_global_init(&err) != 0 || fs_read(argv[5], (size_t)64 << 20, &file, &err) != 0 ||
        fs_read(argv[6], (size_t)1 << 20, &script, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    size_t n = n_jobs = (size_t)argc - 7;
    jobs = xcalloc(n, sizeof *jobs);
    for (size_t i = 0; i < n; i++) jobs[i].host = argv[7 + i];
    pthread_t *threads = xcalloc((size_t)width, sizeof *threads);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    int64_t start = clock_ms();
    ssh_blob_make(file.s, file.len, &blob);
    for (int64_t i = 0; i < width; i++)
        if (pthread_create(&threads[i], &attr, worker, NULL) != 0) return 1;
    for (int64_t i = 0; i < width; i++) pthread_join(threads[i], NULL);
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].rc == 0) continue;
        failed++;
        fprintf(stderr, "%s\n", jobs[i].err.msg);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf(
        "{\"wall_s\": %.3f, \"cpu_s\": %.3f, \"peak_mib\": %.1f, \"failed\": %d, \"first\": {\"connected_ms\": %lld, "
        "\"copied_ms\": %lld, \"done_ms\": %lld}}\n",
        (double)(clock_ms() - start) / 1000, seconds(&u.ru_utime) + seconds(&u.ru_stime), (double)u.ru_maxrss / 1024,
        failed, (long long)jobs[0].connected_ms, (long long)jobs[0].copied_ms, (long long)jobs[0].done_ms);
    ssh_global_exit();
    return failed != 0;
}
