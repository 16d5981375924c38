/* SPDX-License-Identifier: Apache-2.0 */
/* `rank`: this node's part of the gang checks. Goes to the background (own session), so that it
 * outlives the connection that started it, and writes its lines to a file. The background process only
 * watches: a worker computes and talks; at the deadline the worker is killed and what it did not say
 * becomes an error. The token comes over stdin and is wiped once the worker has it. */
#include "base/gp_base.h"

#include "verbs.h"

#include "base/clock.h"
#include "base/fs.h"
#include "emit.h"
#include "rank_dir.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_WORDS_MS 5000 /* between the worker's own deadline and the watch's */
#define MEET_MAX_MS 45000

struct rank {
    const char *dir, *bind;
    int64_t rank, size, deadline_in_ms, stall_ms, seed, steps;
    int64_t deadline_ms; /* monotonic: the worker's own */
    struct check_list checks;
    unsigned char token[COMM_TOKEN_MAX];
    size_t token_len;
    char rendezvous[80];
    struct emit emit;
    bool said[64]; /* per place in checks: its result was said */
};

/* --- the worker --- */

struct rank_out {
    int out;
};

static void on_listen(void *ctx, const char *addr) {
    struct rank_out *o = ctx;
    GP_AUTO_FREE char *t = xasprintf("{\"type\":\"listen\",\"addr\":\"%s\"}\n", addr);
    worker_put(o->out, MSG_LINE, t, strlen(t));
}

static void one_check(struct check_ctx *c, int index, int out) {
    const struct check_info *info = &check_table[index];
    const struct check_ops *ops = agent_check_ops(info->id);
    struct agent_result r;
    agent_result_init(&r, info);
    r.rank = c->rank;
    int64_t began = clock_ms();
    if (ops == NULL) {
        agent_set(&r, AGENT_SKIPPED, "no_code", "this agent has no code for %s", info->id);
    } else if (c->comm_err.code != GP_OK) {
        agent_set(&r, AGENT_ERROR, "comm_failed", "not run: %s", c->comm_err.msg);
        if (comm_culprit(&c->comm_err) >= 0) agent_culprit(&r, comm_culprit(&c->comm_err));
    } else if (ops->needs == NULL || ops->needs(c, &r)) {
        ops->run(c, &r);
        if (r.verdict != AGENT_SKIPPED && r.verdict != AGENT_ERROR)
            (ops->judge != NULL ? ops->judge(c, &r) : agent_judge_limits(&r));
    }
    r.took_ms = clock_ms() - began;
    worker_put_result(out, &r);
    agent_result_clear(&r);
}

static void rank_worker(void *arg, int in, int out) {
    struct rank *k = arg;
    struct rank_out o = {.out = out};
    struct check_ctx c = {.deadline_ms = k->deadline_ms,
                          .gpu = -1,
                          .rank = (int)k->rank,
                          .size = (int)k->size,
                          .seed = (uint64_t)k->seed,
                          .steps = (int)k->steps,
                          .dev_ops = &device_host,
                          .data_ops = agent_kind.comm};
    (void)in;
    struct comm_setup s = {.rank = c.rank,
                           .size = c.size,
                           .bind_ip = k->bind,
                           .rendezvous = k->rendezvous,
                           .token = k->token,
                           .token_len = k->token_len,
                           .deadline_ms = k->deadline_ms,
                           .meet_ms = GP_MIN(MEET_MAX_MS, k->deadline_in_ms),
                           .stall_ms = k->stall_ms,
                           .dev_ops = &device_host,
                           .on_listen = on_listen,
                           .ctx = &o};
#ifdef GPUPROV_FAULTS
    /* the host's arithmetic under another name: a device that is not held to the reference's bits */
    struct device_ops other = device_host;
    other.name = "other";
    const char *fault = getenv("GPUPROV_FAULT");
    if (fault != NULL && str_starts(fault, "other-")) c.dev_ops = &other;
#endif
    if (comm_tcp.init(&s, &c.comm, &c.comm_err) != 0) c.comm = NULL;
    explicit_bzero(k->token, sizeof k->token);
    c.data = c.comm;
    for (size_t i = 0; i < k->checks.n; i++) {
        uint32_t index = (uint32_t)k->checks.items[i];
        worker_put(out, MSG_START, &index, sizeof index);
        one_check(&c, (int)index, out);
    }
    if (c.comm != NULL && c.comm_err.code == GP_OK) comm_tcp.barrier(c.comm, &c.comm_err);
    comm_tcp.abort(c.comm, c.comm_err.code != GP_OK ? c.comm_err.msg : NULL, comm_culprit(&c.comm_err));
    worker_put(out, MSG_DONE, "", 0);
}

/* --- the watch --- */

static void take_message(struct rank *k, const struct worker_msg *m) {
    struct agent_result r;
    uint32_t index = 0;
    if (m->kind == MSG_LINE) emit_line(&k->emit, m->body.s, m->body.len);
    if (m->kind == MSG_START && m->body.len == sizeof index) {
        memcpy(&index, m->body.s, sizeof index);
        if (index < check_count()) emit_start(&k->emit, &check_table[index]);
    }
    if (m->kind != MSG_RESULT || worker_get_result(m, &r, NULL) != 0) return;
    for (size_t i = 0; i < k->checks.n; i++)
        k->said[i] = k->said[i] || &check_table[k->checks.items[i]] == r.check;
    emit_result(&k->emit, &r);
    agent_result_clear(&r);
}

static void unsaid(struct rank *k, enum agent_verdict v, const char *code, const char *why) {
    for (size_t i = 0; i < k->checks.n; i++) {
        struct agent_result r;
        if (k->said[i]) continue;
        agent_result_init(&r, &check_table[k->checks.items[i]]);
        r.rank = (int)k->rank;
        agent_set(&r, v, code, "%s", why);
        emit_result(&k->emit, &r);
        agent_result_clear(&r);
    }
}

static void rank_watch(struct rank *k) {
    struct worker w = WORKER_NONE;
    struct worker_msg m = {0};
    struct gp_error err = {0};
    char text[80], why[160] = "";
    int status = 0;
    bool done = false;
    emit_hello(&k->emit, (int)k->rank, (int)k->size);
    if (worker_start(&w, rank_worker, k, &err) != 0) {
        unsaid(k, AGENT_ERROR, "no_worker", err.msg);
        emit_end(&k->emit, err.msg);
        return;
    }
    explicit_bzero(k->token, sizeof k->token);
    int64_t last = k->deadline_ms + LAST_WORDS_MS;
    while (!done && !k->emit.broken && worker_next(&w, last, &m, &err) == 0) {
        done = m.kind == MSG_DONE;
        take_message(k, &m);
    }
    worker_msg_clear(&m);
    bool reaped = worker_kill(&w, &status) && !agent_fault("unreaped", (int)k->rank, 0);
    worker_status_text(text, sizeof text, status);
    if (!reaped)
        str_put(why, sizeof why, "driver hang: the rank's worker could not be ended by SIGKILL");
    else if (!done && err.code == GP_ETIMEOUT)
        str_put(why, sizeof why, "the rank had not ended at its deadline and was killed");
    else if (!done)
        snprintf(why, sizeof why, "the rank's worker %s", text);
    unsaid(k, reaped && err.code != GP_ETIMEOUT ? AGENT_ERROR : AGENT_FAIL,
           reaped ? "no_result" : "driver_hang", why);
    emit_end(&k->emit, done && reaped ? "" : why);
}

/* --- the start --- */

static int hex_token(const char *line, struct rank *k, struct gp_error *err) {
    size_t n = strlen(line);
    if (n < 32 || n > 2 * sizeof k->token || n % 2 != 0 || strspn(line, "0123456789abcdef") != n)
        return gp_fail(err, GP_EUSAGE, "the first line of stdin is not a token of 32 to 128 hex digits");
    for (size_t i = 0; i < n / 2; i++) {
        unsigned v = 0;
        char two[3] = {line[2 * i], line[2 * i + 1], '\0'};
        sscanf(two, "%x", &v);
        k->token[i] = (unsigned char)v;
    }
    k->token_len = n / 2;
    return 0;
}

static int read_stdin(struct rank *k, struct gp_error *err) {
    char buf[512];
    size_t n = 0;
    /* two lines, read without stdio so that no copy of the token stays in a buffer */
    while (n < sizeof buf - 1) {
        ssize_t got = read(STDIN_FILENO, buf + n, sizeof buf - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
        const char *first = memchr(buf, '\n', n);
        if (first != NULL && memchr(first + 1, '\n', n - (size_t)(first + 1 - buf)) != NULL) break;
    }
    buf[n] = '\0';
    char *second = strchr(buf, '\n');
    int r = 0;
    if (second == NULL) {
        r = gp_fail(err, GP_EUSAGE, "stdin must hold the token and rank 0's address, a line each");
    } else {
        *second++ = '\0';
        second[strcspn(second, "\n")] = '\0';
        r = hex_token(buf, k, err);
        if (r == 0 && !str_put(k->rendezvous, sizeof k->rendezvous, second))
            r = gp_fail(err, GP_EUSAGE, "the second line of stdin is too long");
        if (r == 0 && (k->rendezvous[0] == '\0') != (k->rank == 0))
            r = gp_fail(err, GP_EUSAGE, k->rank == 0 ? "rank 0 takes no address: the second line is empty"
                                                     : "rank 0's address is missing on stdin");
    }
    explicit_bzero(buf, sizeof buf);
    return r;
}

static int rank_options(struct rank *k, int argc, char **argv, struct gp_error *err) {
    const char *ids = NULL;
    *k = (struct rank){.deadline_in_ms = 120000, .stall_ms = 20000, .seed = 1, .steps = 200};
    const struct arg args[] = {{"--dir", ARG_TEXT, true, &k->dir},
                               {"--rank", ARG_INT, true, &k->rank},
                               {"--size", ARG_INT, true, &k->size},
                               {"--bind", ARG_TEXT, true, &k->bind},
                               {"--check", ARG_TEXT, true, &ids},
                               {"--deadline", ARG_MS, false, &k->deadline_in_ms},
                               {"--stall", ARG_MS, false, &k->stall_ms},
                               {"--seed", ARG_INT, false, &k->seed},
                               {"--steps", ARG_INT, false, &k->steps},
                               {.name = NULL}};
    int r = args_parse(argc, argv, args, err);
    if (r == 0) r = check_list_parse(ids, true, &k->checks, err);
    if (r == 0 && (k->size < 1 || k->size > 1024 || k->rank < 0 || k->rank >= k->size))
        r = gp_fail(err, GP_EUSAGE, "rank %lld of %lld makes no sense", (long long)k->rank,
                    (long long)k->size);
    if (r == 0 && (k->steps < 20 || k->steps > 100000 || k->seed < 0))
        r = gp_fail(err, GP_EUSAGE, "--steps is from 20 to 100000, --seed not negative");
    return r == 0 ? read_stdin(k, err) : r;
}

static int make_dir(struct rank *k, struct gp_error *err) {
    struct rank_owner o;
    GP_AUTO_FREE char *path = fs_join(k->dir, "rank.jsonl");
    if (mkdir(k->dir, 0700) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, errno, "could not make '%s'", k->dir);
    if (rank_owner_read(k->dir, &o, NULL) == 0 && rank_session_count(&o, false) > 0)
        return gp_fail(err, GP_EEXISTS, "a rank is still running in '%s'", k->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    k->emit.fd = fd;
    return 0;
}

/* In the background process: away from the terminal and the connection. ready: told once the pid file
 * is there. */
static void background(struct rank *k, int ready) {
    struct gp_error err = {0};
    char ok = rank_owner_write(k->dir, getpid(), &err) == 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++) dup2(null, fd);
    fs_write_all(ready, &ok, 1);
    close(ready);
    if (ok) rank_watch(k);
    _exit(0);
}

/* Forks twice, so that nobody waits for the rank and it has no terminal; returns its pid. */
static int detach(struct rank *k, pid_t *ret_pid, struct gp_error *err) {
    int p[2];
    if (pipe2(p, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not make a pipe");
    pid_t child = fork();
    if (child == 0) {
        close(p[0]);
        setsid();
        /* the session leader is the rank itself: `stop` finds all of it by the session's number */
        pid_t pid = getpid();
        fs_write_all(p[1], &pid, sizeof pid);
        signal(SIGHUP, SIG_IGN);
        background(k, p[1]);
    }
    close(p[1]);
    if (child < 0) {
        close(p[0]);
        return gp_fail_errno(err, GP_EENV, errno, "could not start the rank");
    }
    char ok = 0;
    bool good = read(p[0], ret_pid, sizeof *ret_pid) == (ssize_t)sizeof *ret_pid &&
                read(p[0], &ok, 1) == 1 && ok;
    close(p[0]);
    if (!good) return gp_fail(err, GP_EIO, "could not write to '%s'", k->dir);
    return 0;
}

int verb_rank(int argc, char **argv) {
    struct gp_error err = {0};
    struct rank k;
    pid_t pid = 0;
    int64_t began = clock_ms();
    int r = rank_options(&k, argc, argv, &err);
    k.deadline_ms = began + k.deadline_in_ms;
    if (r == 0) r = make_dir(&k, &err);
    if (r == 0) r = detach(&k, &pid, &err);
    explicit_bzero(k.token, sizeof k.token);
    if (r != 0) {
        fprintf(stderr, "gpuprov-agent rank: %s\n", err.msg);
        return AGENT_EXIT_UNKNOWN;
    }
    printf("{\"type\":\"started\",\"pid\":%d}\n", (int)pid);
    return 0;
}
