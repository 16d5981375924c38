/* SPDX-License-Identifier: Apache-2.0 */
/* `rank`: this node's part of the gang checks, one rank or one for each GPU. Goes to the background (own
 * session), so that it outlives the connection that started it, and writes its lines to a file. The background
 * process only watches (rank_watch.c); workers compute and communicate. The token comes over stdin and is wiped once
 * the workers have it. */
#include "base/gp_base.h"

#include "rank.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/emit.h"
#include "validate/agent/base/rank_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEET_MAX_MS 45000
#define MEET_RANK_MS 2000 /* many ranks may share a machine */

struct rank {
    const char *dir;
    int64_t rank, ranks, size, gpu, deadline_in_ms;
    struct rank_plan plan;
    struct emit emits[RANKS_MAX]; /* each counts its own results; all write one file */
};

/* --- output to the file --- */

static void say_hello(void *ctx, int local) {
    struct rank *k = ctx;
    emit_hello(&k->emits[local], (int)k->rank + local, (int)k->size);
}

static void say_listen(void *ctx, const char *addr) {
    struct rank *k = ctx;
    GP_AUTO_FREE char *t = xasprintf("{\"type\":\"listen\",\"addr\":\"%s\"}\n", addr);
    emit_line(&k->emits[0], t, strlen(t));
}

static void say_begin(void *ctx, int local, const struct check_info *check) {
    struct rank *k = ctx;
    emit_start(&k->emits[local], check);
}

static void say_result(void *ctx, int local, const struct agent_result *r) {
    struct rank *k = ctx;
    emit_result(&k->emits[local], r);
}

static void say_end(void *ctx, int local, const char *why, bool hang) {
    struct rank *k = ctx;
    if (hang) k->emits[local].worst = VERDICT_FAIL;
    emit_end(&k->emits[local], why);
}

static bool file_broken(void *ctx) {
    const struct rank *k = ctx;
    for (int i = 0; i < k->plan.count; i++)
        if (k->emits[i].broken) return true;
    return false;
}

/* --- the start --- */

static int hex_token(const char *line, struct rank_plan *k, struct gp_error *err) {
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
        r = gp_fail(err, GP_EUSAGE, "stdin needs the token and rank 0's address, one line each");
    } else {
        *second++ = '\0';
        second[strcspn(second, "\n")] = '\0';
        r = hex_token(buf, &k->plan, err);
        if (r == 0 && !str_put(k->plan.rendezvous, sizeof k->plan.rendezvous, second))
            r = gp_fail(err, GP_EUSAGE, "the second line of stdin is too long");
        if (r == 0 && (k->plan.rendezvous[0] == '\0') != (k->rank == 0))
            r = gp_fail(err, GP_EUSAGE,
                        k->rank == 0 ? "rank 0 takes no address: leave the second line empty"
                                     : "rank 0's address is missing on stdin");
    }
    explicit_bzero(buf, sizeof buf);
    return r;
}

static void make_plan(struct rank *k, int64_t began_ms) {
    struct rank_plan *p = &k->plan;
    p->first = (int)k->rank;
    p->count = (int)k->ranks;
    p->size = (int)k->size;
    p->gpu = (int)k->gpu;
    p->deadline_ms = began_ms + k->deadline_in_ms;
    /* it ends before the deadline: the ranks still tell each other who is missing */
    p->meet_ms = GP_MIN(GP_MAX(MEET_MAX_MS, p->size * MEET_RANK_MS), k->deadline_in_ms * 3 / 4);
    for (int i = 0; i < p->count; i++) k->emits[i] = (struct emit){.ranked = k->ranks > 1, .rank = p->first + i};
}

/* "fp32" alone, or with "bf16", "fp16". NULL: the device's own choice. */
static int precisions_parse(const char *text, unsigned *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    if (text == NULL) return 0;
    strv_split(&names, text, ",");
    *ret = 1u << GEMM_F32;
    for (size_t i = 0; i < names.n; i++) {
        if (str_eq(names.v[i], "bf16")) *ret |= 1u << GEMM_BF16;
        else if (str_eq(names.v[i], "fp16")) *ret |= 1u << GEMM_F16;
        else if (!str_eq(names.v[i], "fp32"))
            return gp_fail(err, GP_EUSAGE, "--precision: '%s' is not fp32, bf16 or fp16", names.v[i]);
    }
    return 0;
}

static int rank_options(struct rank *k, int argc, char **argv, struct gp_error *err) {
    const char *ids = NULL, *precision = NULL;
    struct rank_plan *p = &k->plan;
    k->deadline_in_ms = 120000;
    k->ranks = 1;
    k->gpu = -1;
    p->stall_ms = 20000;
    p->seed = 1;
    p->steps = 200;
    const struct arg args[] = {{"--dir", ARG_TEXT, true, &k->dir},
                               {"--rank", ARG_INT, true, &k->rank},
                               {"--ranks", ARG_INT, false, &k->ranks},
                               {"--size", ARG_INT, true, &k->size},
                               {"--gpu", ARG_INT, false, &k->gpu},
                               {"--same-gpu", ARG_FLAG, false, &p->same_gpu},
                               {"--bind", ARG_TEXT, true, &p->bind},
                               {"--python", ARG_TEXT, false, &p->python},
                               {"--container-engine", ARG_TEXT, false, &p->container_engine},
                               {"--images", ARG_TEXT, false, &p->images},
                               {"--check", ARG_TEXT, true, &ids},
                               {"--deadline", ARG_MS, false, &k->deadline_in_ms},
                               {"--stall", ARG_MS, false, &p->stall_ms},
                               {"--seed", ARG_INT, false, &p->seed},
                               {"--steps", ARG_INT, false, &p->steps},
                               {"--timed", ARG_MS, false, &p->timed_ms},
                               {"--precision", ARG_TEXT, false, &precision},
                               {"--unjudged", ARG_FLAG, false, &p->unjudged},
                               {.name = NULL}};
    int64_t began = clock_ms();
    int r = args_parse(argc, argv, args, err);
    if (r == 0) r = check_list_parse(ids, true, &p->checks, err);
    if (r == 0 && (k->size < 1 || k->size > 1024 || k->rank < 0 || k->rank >= k->size))
        r = gp_fail(err, GP_EUSAGE, "rank %lld of %lld is not valid", (long long)k->rank, (long long)k->size);
    if (r == 0 && (k->ranks < 1 || k->ranks > RANKS_MAX || k->rank + k->ranks > k->size))
        r = gp_fail(err, GP_EUSAGE, "--ranks must be from 1 to %d and at most --size minus --rank", RANKS_MAX);
    if (r == 0 && (k->gpu < -1 || k->gpu > 1023))
        r = gp_fail(err, GP_EUSAGE, "--gpu must be the number of the first rank's GPU");
    if (r == 0 && (p->steps < 20 || p->steps > 100000 || p->seed < 0))
        r = gp_fail(err, GP_EUSAGE, "--steps must be from 20 to 100000, --seed not negative");
    if (r == 0) r = precisions_parse(precision, &p->precisions, err);
    if (r == 0) make_plan(k, began);
    return r == 0 ? read_stdin(k, err) : r;
}

static int make_dir(struct rank *k, struct gp_error *err) {
    struct rank_owner o;
    GP_AUTO_FREE char *path = fs_join(k->dir, "rank.jsonl");
    if (mkdir(k->dir, 0700) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, errno, "cannot create '%s'", k->dir);
    if (rank_owner_read(k->dir, &o, NULL) == 0 && rank_session_count(&o, false) > 0)
        return gp_fail(err, GP_EEXISTS, "a rank is still running in '%s'", k->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot write '%s'", path);
    for (int i = 0; i < k->plan.count; i++) k->emits[i].fd = fd;
    return 0;
}

/* In the background process: away from the terminal and the connection. ready: written once the pid file exists. */
static void background(struct rank *k, int ready) {
    struct gp_error err = {0};
    char ok = rank_owner_write(k->dir, getpid(), &err) == 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++) dup2(null, fd);
    fs_write_all(ready, &ok, 1);
    close(ready);
    const struct rank_ears ears = {.ctx = k,
                                   .hello = say_hello,
                                   .listen = say_listen,
                                   .begin = say_begin,
                                   .result = say_result,
                                   .end = say_end,
                                   .broken = file_broken};
    if (ok) ranks_watch(&k->plan, &ears);
    _exit(0);
}

/* Forks twice, so that the rank has no waiting parent and no terminal; returns its pid. */
static int detach(struct rank *k, pid_t *ret_pid, struct gp_error *err) {
    int p[2];
    if (pipe2(p, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "cannot create a pipe");
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
        return gp_fail_errno(err, GP_EENV, errno, "cannot start the rank");
    }
    char ok = 0;
    bool good = read(p[0], ret_pid, sizeof *ret_pid) == (ssize_t)sizeof *ret_pid && read(p[0], &ok, 1) == 1 && ok;
    close(p[0]);
    if (!good) return gp_fail(err, GP_EIO, "cannot write to '%s'", k->dir);
    return 0;
}

int verb_rank(int argc, char **argv) {
    struct gp_error err = {0};
    struct rank *k = xcalloc(1, sizeof *k);
    pid_t pid = 0;
    int r = rank_options(k, argc, argv, &err);
    if (r == 0) r = make_dir(k, &err);
    if (r == 0) r = detach(k, &pid, &err);
    explicit_bzero(k->plan.token, sizeof k->plan.token);
    free(k);
    if (r != 0) {
        fprintf(stderr, "gpuprov-agent rank: %s\n", err.msg);
        return NODE_CHECK_UNKNOWN;
    }
    printf("{\"type\":\"started\",\"pid\":%d}\n", (int)pid);
    return 0;
}
