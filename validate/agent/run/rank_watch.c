/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the ranks of one process: each has a worker that computes, this only reads their messages. At the deadline
 * workers are killed, and each missing result becomes an error. One thread. */
#include "base/gp_base.h"

#include "rank.h"

#include "base/clock.h"
#include "base/fs.h"

#include <poll.h>
#include <stdio.h>

#define LAST_WORDS_MS 5000 /* between the workers' own deadline and the watch's */
#define IDLE_TICKS 5       /* of CPU time meanwhile, for heartbeats */

struct watched {
    struct worker w;
    bool open, done;                                          /* open: more messages may come; done: its end was
                                                               * received */
    int64_t cpu;                                              /* ticks at its deadline */
    bool said[GP_ARRAY_LEN(((struct check_list *)0)->items)]; /* per place in checks */
};
struct watch {
    struct rank_plan *plan;
    const struct rank_ears *ears;
    struct watched *ranks;
};

/* Rank 0 listens: its neighbours in this process wait for the address on their pipes. */
static void pass_address(struct watch *k, const struct worker_msg *m) {
    char addr[sizeof k->plan->rendezvous] = "";
    if (m->body.len >= sizeof addr) return;
    if (m->body.len > 0) memcpy(addr, m->body.s, m->body.len);
    if (k->ears->listen != NULL) k->ears->listen(k->ears->ctx, addr);
    for (int i = 1; i < k->plan->count; i++)
        if (k->ranks[i].w.to >= 0) fs_write_all(k->ranks[i].w.to, addr, sizeof addr);
}

static void take_message(struct watch *k, int local, const struct worker_msg *m) {
    struct watched *r = &k->ranks[local];
    struct agent_result result;
    uint32_t index = 0;
    if (m->kind == MSG_LISTEN) pass_address(k, m);
    if (m->kind == MSG_DONE) r->done = true;
    if (m->kind == MSG_START && m->body.len == sizeof index) {
        memcpy(&index, m->body.s, sizeof index);
        if (index < check_count()) k->ears->begin(k->ears->ctx, local, &check_table[index]);
    }
    if (m->kind != MSG_RESULT || worker_get_result(m, &result, NULL) != 0) return;
    for (size_t i = 0; i < k->plan->checks.n; i++)
        r->said[i] = r->said[i] || &check_table[k->plan->checks.items[i]] == result.check;
    k->ears->result(k->ears->ctx, local, &result);
    agent_result_clear(&result);
}

static void unsaid(struct watch *k, int local, enum verdict v, const char *code, const char *why) {
    for (size_t i = 0; i < k->plan->checks.n; i++) {
        struct agent_result r;
        if (k->ranks[local].said[i]) continue;
        agent_result_init(&r, &check_table[k->plan->checks.items[i]]);
        r.rank = k->plan->first + local;
        agent_set(&r, v, code, "%s", why);
        k->ears->result(k->ears->ctx, local, &r);
        agent_result_clear(&r);
    }
}

/* Reads all messages of this worker so far. False: no more will come. */
static bool hear(struct watch *k, int local) {
    struct watched *r = &k->ranks[local];
    struct worker_msg m = {0};
    struct gp_error err = {0};
    int rc = 0;
    while (!r->done && (rc = worker_next(&r->w, 0, &m, &err)) == 0) take_message(k, local, &m);
    worker_msg_clear(&m);
    return !r->done && rc == -GP_ETIMEOUT;
}

/* Ticks of CPU time that a process has used, children left out; *ret_running: it waits for a core or has one. */
static int64_t cpu_ticks(pid_t pid, bool *ret_running) {
    GP_AUTO_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
    char text[512] = "", state = '?';
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    unsigned long long user = 0, sys = 0;
    if (after == NULL ||
        sscanf(after, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user, &sys) != 3)
        return 0;
    *ret_running = state == 'R';
    return (int64_t)(user + sys);
}

static void close_rank(struct watch *k, int local, bool late) {
    struct watched *r = &k->ranks[local];
    int status = 0, rank = k->plan->first + local;
    bool computes = false;
    int64_t used = late ? cpu_ticks(r->w.pid, &computes) - r->cpu : 0;
    computes = computes || used > IDLE_TICKS;
    char text[80], why[160] = "";
    bool reaped = worker_kill(&r->w, &status) && !agent_fault("unreaped", rank, 0);
    worker_status_text(text, sizeof text, status);
    if (!reaped) str_put(why, sizeof why, "driver hang: SIGKILL did not end the rank's worker");
    else if (!r->done && late)
        snprintf(why, sizeof why, "the rank %s, and was killed",
                 computes ? "still computed at its deadline: the machine is too busy, or too slow for the time given"
                          : "did not end before its deadline, and did nothing");
    else if (!r->done) snprintf(why, sizeof why, "the rank's worker %s", text);
    bool proof = !reaped || (late && !computes);
    unsaid(k, local, proof ? VERDICT_FAIL : VERDICT_ERROR, reaped ? "no_result" : "driver_hang", why);
    k->ears->end(k->ears->ctx, local, why, !reaped);
    r->open = false;
}

static void start_rank(struct watch *k, int local) {
    struct gp_error err = {0};
    k->plan->starting = local;
    k->ears->hello(k->ears->ctx, local);
    if (worker_start(&k->ranks[local].w, rank_worker, k->plan, &err) == 0) {
        k->ranks[local].open = true;
        return;
    }
    unsaid(k, local, VERDICT_ERROR, "no_worker", err.msg);
    k->ears->end(k->ears->ctx, local, err.msg, false);
}

static bool broken(const struct watch *k) { return k->ears->broken != NULL && k->ears->broken(k->ears->ctx); }

void ranks_watch(struct rank_plan *plan, const struct rank_ears *ears) {
    struct watch k = {.plan = plan, .ears = ears};
    struct pollfd polled[RANKS_MAX];
    int n = GP_MIN(plan->count, RANKS_MAX), open = 0;
    k.ranks = xcalloc((size_t)n, sizeof *k.ranks);
    for (int i = 0; i < n; i++) k.ranks[i].w = (struct worker)WORKER_NONE;
    for (int i = 0; i < n; i++) start_rank(&k, i);
    for (int i = 0; i < n; i++) open += k.ranks[i].open;
    explicit_bzero(plan->token, sizeof plan->token);
    int64_t last = plan->deadline_ms + LAST_WORDS_MS;
    bool sampled = false;
    while (open > 0 && clock_left_ms(last) > 0 && !broken(&k)) {
        for (int i = 0; i < n; i++)
            polled[i] = (struct pollfd){.fd = k.ranks[i].open ? k.ranks[i].w.from : -1, .events = POLLIN};
        if (!sampled && clock_left_ms(plan->deadline_ms) == 0) {
            bool ignored = false;
            for (int i = 0; i < n; i++) k.ranks[i].cpu = k.ranks[i].open ? cpu_ticks(k.ranks[i].w.pid, &ignored) : 0;
            sampled = true;
        }
        if (poll(polled, (nfds_t)n, (int)GP_MIN(clock_left_ms(last), 1000)) <= 0) continue;
        for (int i = 0; i < n; i++) {
            if (!k.ranks[i].open || polled[i].revents == 0 || hear(&k, i)) continue;
            close_rank(&k, i, false);
            open--;
        }
    }
    bool late = clock_left_ms(last) == 0;
    for (int i = 0; i < n; i++)
        if (k.ranks[i].open) close_rank(&k, i, late);
    free(k.ranks);
}
