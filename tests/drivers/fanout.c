// SPDX-License-Identifier: Apache-2.0
/* The benchmark's client: one thread per host logs in, copies one file and runs one script, all through
 * core/ssh as the engine does. Judges nothing; what a host answered is checked by size and exit status.
 *
 * fanout HOSTS USER KEY KNOWN_HOSTS FILE REMOTE_PATH SCRIPT [separate]
 *   HOSTS: a file with one address per line. SCRIPT: sent to `sh -s`; with "separate" every line of it is
 *   a command of its own, with an exit status of its own. Prints one JSON object; exit 1 if a host failed. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/json.h"
#include "ssh/ssh.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)256 << 10)
#define TIME_MS 120000

struct job {
    const char *user, *key, *known, *remote;
    const void *data;
    size_t size;
    struct str script;
    struct strv lines; /* not empty: each is a command of its own */
};

struct one {
    const struct job *job;
    const char *host;
    pthread_t thread;
    int64_t open_ms, put_ms, run_ms;
    uint64_t bytes; /* of the script's output */
    int rc;
    struct gp_error err;
};

static int run_lines(struct ssh_session *s, struct one *o, int64_t deadline) {
    for (size_t i = 0; i < o->job->lines.n; i++) {
        GP_AUTO_STR struct str out = {0};
        struct ssh_exec_opts opts = {.deadline_ms = deadline};
        int r = ssh_run(s, "a line", o->job->lines.v[i], &opts, &out, &o->err);
        if (r != 0) return r;
        o->bytes += out.len;
    }
    return 0;
}

static int run_script(struct ssh_session *s, struct one *o, int64_t deadline) {
    if (o->job->lines.n > 0) return run_lines(s, o, deadline);
    GP_AUTO_STR struct str out = {0};
    struct ssh_exec_opts opts = {.in = o->job->script.s, .in_len = o->job->script.len, .deadline_ms = deadline};
    int r = ssh_run(s, "the script", "sh -s", &opts, &out, &o->err);
    o->bytes = out.len;
    return r;
}

static int host_run(struct one *o) {
    const struct job *j = o->job;
    GP_AUTO_SSH_TARGET struct ssh_target t = {.label = xstrdup(o->host),
                                              .host = xstrdup(o->host),
                                              .user = xstrdup(j->user),
                                              .known_hosts = xstrdup(j->known),
                                              .key_path = xstrdup(j->key)};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct ssh_open_opts opts = {.deadline_ms = clock_deadline(TIME_MS)};
    int64_t start = clock_ms();
    int r = ssh_open(&t, &opts, &s, &o->err);
    o->open_ms = clock_ms() - start;
    start = clock_ms();
    bool sent = false;
    if (r == 0) r = ssh_put(s, j->remote, 0600, j->data, j->size, opts.deadline_ms, NULL, &sent, &o->err);
    o->put_ms = clock_ms() - start;
    if (r == 0 && !sent) r = gp_fail(&o->err, GP_EUSAGE, "%s: has the file already", o->host);
    start = clock_ms();
    if (r == 0) r = run_script(s, o, opts.deadline_ms);
    o->run_ms = clock_ms() - start;
    return r;
}

static void *host_thread(void *arg) {
    struct one *o = arg;
    o->rc = host_run(o);
    return NULL;
}

static int load(struct job *j, char **argv, struct gp_error *err) {
    GP_AUTO_FD int fd = open(argv[5], O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0)
        return gp_fail(err, GP_EUSAGE, "could not read '%s'", argv[5]);
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return gp_fail(err, GP_EUSAGE, "could not map '%s'", argv[5]);
    j->data = p;
    j->size = (size_t)st.st_size;
    j->script.max = (size_t)64 << 10;
    return fs_read(argv[7], (size_t)64 << 10, &j->script, err);
}

static int64_t worst(const struct one *all, size_t n, size_t offset) {
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = GP_MAX(most, *(const int64_t *)(const void *)((const char *)&all[i] + offset));
    return most;
}

static void report(const struct one *all, size_t n, int64_t wall_ms, size_t failed) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += all[i].bytes;
    double cpu =
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    printf("{\"hosts\": %zu, \"failed\": %zu, \"wall_ms\": %lld, \"cpu_s\": %.3f, \"rss_kib\": %ld, "
           "\"open_ms\": %lld, \"put_ms\": %lld, \"run_ms\": %lld, \"bytes\": %llu}\n",
           n, failed, (long long)wall_ms, cpu, u.ru_maxrss, (long long)worst(all, n, offsetof(struct one, open_ms)),
           (long long)worst(all, n, offsetof(struct one, put_ms)),
           (long long)worst(all, n, offsetof(struct one, run_ms)), (unsigned long long)bytes);
}

static size_t run_all(const struct job *j, const struct strv *hosts) {
    struct one *all = xcalloc(hosts->n, sizeof *all);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int64_t start = clock_ms();
    size_t failed = 0;
    for (size_t i = 0; i < hosts->n; i++) {
        all[i] = (struct one){.job = j, .host = hosts->v[i]};
        if (pthread_create(&all[i].thread, &attr, host_thread, &all[i]) != 0) {
            fputs("fanout: no further thread\n", stderr);
            _exit(1);
        }
    }
    for (size_t i = 0; i < hosts->n; i++) {
        pthread_join(all[i].thread, NULL);
        if (all[i].rc == 0) continue;
        failed++;
        fprintf(stderr, "fanout: %s\n", all[i].err.msg);
    }
    pthread_attr_destroy(&attr);
    report(all, hosts->n, clock_ms() - start, failed);
    free(all);
    return failed;
}

int main(int argc, char **argv) {
    struct gp_error err = {0};
    if (argc < 8) {
        fputs("usage: fanout HOSTS USER KEY KNOWN_HOSTS FILE REMOTE_PATH SCRIPT [separate]\n", stderr);
        return 2;
    }
    struct job j = {.user = argv[2], .key = argv[3], .known = argv[4], .remote = argv[6]};
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv words = {0}, hosts = {0};
    text.max = (size_t)1 << 20;
    int r = load(&j, argv, &err);
    if (r == 0) r = fs_read(argv[1], (size_t)1 << 20, &text, &err);
    if (r == 0) r = ssh_global_init(&err);
    if (r != 0) {
        fprintf(stderr, "fanout: %s\n", err.msg);
        return 2;
    }
    strv_split(&words, text.s, "\n");
    for (size_t i = 0; i < words.n; i++)
        if (words.v[i][0] != '\0') strv_add(&hosts, words.v[i]);
    if (argc > 8) strv_split(&j.lines, j.script.s, "\n");
    while (j.lines.n > 0 && j.lines.v[j.lines.n - 1][0] == '\0') free(j.lines.v[--j.lines.n]);
    size_t failed = run_all(&j, &hosts);
    str_clear(&j.script);
    strv_clear(&j.lines);
    ssh_global_exit();
    return failed == 0 ? 0 : 1;
}
