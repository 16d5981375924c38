/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program with pipes for its input, its report and its other output. Leaves no child behind. One thread. */
#include "base/gp_base.h"

#include "child.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_LONGEST 400
#define WORDS_KEPT 8192
#define REAP_MS 2000

extern char **environ;

/* A pipe whose ends are none of the descriptors that the child gets by number. */
static int high_pipe(int fds[2]) {
    int low[2];
    if (pipe2(low, O_CLOEXEC) != 0) return -errno;
    for (int i = 0; i < 2; i++) {
        fds[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 10);
        close(low[i]);
    }
    if (fds[0] >= 0 && fds[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) close(fds[i]);
    return -EMFILE;
}

static void shut(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* environ without the names of `more`, and `more`. */
static void merged_env(const struct strv *more, struct strv *ret) {
    for (char **e = environ; *e != NULL; e++) {
        size_t n = strcspn(*e, "=");
        bool mine = false;
        for (size_t i = 0; i < more->n; i++) mine = mine || (strncmp(more->v[i], *e, n) == 0 && more->v[i][n] == '=');
        if (!mine) strv_add(ret, *e);
    }
    for (size_t i = 0; i < more->n; i++) strv_add(ret, more->v[i]);
}

static int spawn(const char *const *argv, const struct strv *env, int in, int out, int log, int report, pid_t *ret) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    char **envp = xcalloc(env->n + 1, sizeof *envp);
    for (size_t i = 0; i < env->n; i++) envp[i] = env->v[i];
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, log, 2);
    if (report != out) posix_spawn_file_actions_adddup2(&files, report, 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    /* posix_spawn takes argv as char *const[] but does not change it */
    int rc = posix_spawn(ret, argv[0], &files, &attr, (char *const *)(uintptr_t)argv, envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    free(envp);
    return rc;
}

int child_start(struct child *c, const char *const *argv, const struct strv *env, struct gp_error *err) {
    int in[2] = {-1, -1}, report[2] = {-1, -1}, log[2] = {-1, -1};
    *c = (struct child){.to = -1, .report = -1, .log = -1, .on_stdout = c->on_stdout};
    int rc = high_pipe(in);
    if (rc == 0) rc = high_pipe(report);
    if (rc == 0) rc = high_pipe(log);
    if (rc == 0) {
        GP_AUTO_STRV struct strv whole = {0};
        merged_env(env, &whole);
        rc = -spawn(argv, &whole, in[0], c->on_stdout ? report[1] : log[1], log[1], report[1], &c->pid);
    }
    shut(&in[0]);
    shut(&report[1]);
    shut(&log[1]);
    c->to = in[1];
    c->report = report[0];
    c->log = log[0];
    if (rc == 0) return 0;
    c->pid = 0;
    child_end(c);
    return gp_fail_errno(err, GP_EENV, -rc, "cannot start '%s'", argv[0]);
}

static void keep_words(struct child *c) {
    char some[4096];
    ssize_t n = read(c->log, some, sizeof some);
    if (n <= 0) {
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) shut(&c->log);
        return;
    }
    if (c->words.len > WORDS_KEPT) { /* the last ones count */
        GP_AUTO_FREE char *tail = xstrndup(c->words.s + c->words.len - WORDS_KEPT / 2, WORDS_KEPT / 2);
        str_clear(&c->words);
        str_add(&c->words, tail);
    }
    for (ssize_t i = 0; i < n; i++) str_addc(&c->words, some[i] == '\0' ? ' ' : some[i]);
}

/* Passes on the whole lines of part. */
static int take_lines(struct child *c, bool (*take)(void *ctx, char *line), void *ctx, struct gp_error *err) {
    GP_AUTO_FREE char *text = str_steal(&c->part);
    char *line = text, *end = NULL;
    for (; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        for (const unsigned char *p = (const unsigned char *)line; *p; p++)
            if (*p < 0x20 || *p > 0x7e) return gp_fail(err, GP_EPROTO, "its report has a byte that is no text");
        if (end - line > LINE_LONGEST) return gp_fail(err, GP_EPROTO, "its report has a line that is too long");
        if (!take(ctx, line)) {
            str_add(&c->part, end + 1); /* for the next time */
            return 0;
        }
    }
    if (line != NULL && strlen(line) > LINE_LONGEST)
        return gp_fail(err, GP_EPROTO, "its report has a line that is too long");
    if (line != NULL) str_add(&c->part, line);
    return 0;
}

static int read_report(struct child *c, bool (*take)(void *ctx, char *line), void *ctx, struct gp_error *err) {
    char some[1024];
    ssize_t n = read(c->report, some, sizeof some);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (n <= 0) {
        shut(&c->report);
        c->ended = true;
        return 0;
    }
    if (memchr(some, '\0', (size_t)n) != NULL) return gp_fail(err, GP_EPROTO, "its report has a byte that is no text");
    str_add_mem(&c->part, some, (size_t)n);
    return take_lines(c, take, ctx, err);
}

int child_read(struct child *c, int wait_ms, bool (*take)(void *ctx, char *line), void *ctx, struct gp_error *err) {
    struct pollfd p[2] = {{.fd = c->report, .events = POLLIN}, {.fd = c->log, .events = POLLIN}};
    if (poll(p, 2, wait_ms) <= 0) return 0;
    if (p[1].revents != 0) keep_words(c);
    return p[0].revents != 0 ? read_report(c, take, ctx, err) : 0;
}

bool child_tell(struct child *c, const char *line) {
    bool told = c->to >= 0 && fs_write_all(c->to, line, strlen(line)) == 0;
    shut(&c->to);
    return told;
}

void child_end(struct child *c) {
    shut(&c->to);
    if (c->pid > 0) {
        /* one that has closed its report is about to end by itself, and its status is of interest */
        int64_t end = clock_deadline(c->ended ? REAP_MS / 4 : 0);
        pid_t got = 0;
        while ((got = waitpid(c->pid, &c->status, WNOHANG)) == 0 && clock_left_ms(end) > 0) gp_sleep(5, NULL, NULL);
        kill(-c->pid, SIGKILL);
        end = clock_deadline(REAP_MS);
        while (got == 0 && (got = waitpid(c->pid, &c->status, WNOHANG)) == 0 && clock_left_ms(end) > 0)
            gp_sleep(5, NULL, NULL);
        c->pid = 0;
    }
    while (c->log >= 0) { /* its last words */
        struct pollfd p = {.fd = c->log, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0) break;
        keep_words(c);
    }
    shut(&c->report);
    shut(&c->log);
    str_clear(&c->part);
}

static char *cleaned(const char *line) {
    struct str clean = {.max = 200};
    for (const unsigned char *p = (const unsigned char *)line; *p && clean.len < 180; p++)
        str_addc(&clean, *p >= 0x20 && *p < 0x7f ? (char)*p : '?');
    return str_steal(&clean);
}

char *child_last_words(const struct child *c, const char *word) {
    GP_AUTO_STRV struct strv lines = {0};
    const char *last = "";
    strv_split(&lines, c->words.s != NULL ? c->words.s : "", "\n");
    for (size_t i = lines.n; i-- > 0;) {
        const char *line = str_trim(lines.v[i]);
        if (*line == '\0') continue;
        if (word == NULL || strstr(line, word) != NULL) return cleaned(line);
        if (*last == '\0') last = line;
    }
    return cleaned(last);
}
