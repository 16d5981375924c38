/* SPDX-License-Identifier: Apache-2.0 */
/* gang_stops SEED STALL_MS [computes]: a gang of two to five processes over loopback, of which some are stopped (SIGSTOP) at random
 * moments for 1/20 to 1/2 of STALL_MS (with 20 s: 1 to 10 s), one in four gangs one of them for ever. A rank that
 * continues must not be suspected by anybody; one that never does must be blamed by all others. With `computes` nobody
 * is stopped, and one rank computes for four times STALL_MS, without a look at the others. Prints one JSON line; exit
 * 1: a promise was broken. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "validate/agent/agent.h"
#include "validate/agent/comm/comm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 5, FLOATS = 40000 };

struct outcome {
    int done, code, culprit, stalled;
    char msg[300];
};
struct shared {
    volatile int finish; /* the gang may end */
    volatile int met;    /* ranks that met the others */
    int64_t compute_ms;  /* of rank 1, once */
    struct outcome ranks[RANKS_MAX];
};

static uint64_t state;
static unsigned draw(unsigned least, unsigned most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (unsigned)(state >> 33) % (most - least + 1);
}

static void on_listen(void *ctx, const char *addr) {
    char text[80] = "";
    str_put(text, sizeof text, addr);
    for (int k = 1; k < RANKS_MAX; k++)
        if (write(*(int *)ctx, text, sizeof text) != (ssize_t)sizeof text) _exit(3);
}

static void compute(int64_t ms) {
    volatile double x = 1;
    for (int64_t end = clock_deadline(ms); clock_left_ms(end) > 0;)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001 + 1e-9;
}

/* Work of every kind: ranks that compute, that wait for a device, and all collectives. */
static int work(struct comm *c, int rank, int size, struct shared *s, int64_t pause_ms, struct gp_error *err) {
    float *v = xcalloc(FLOATS, sizeof *v);
    int64_t all[RANKS_MAX] = {0}, own = rank;
    int finish = 0, rc = 0;
    for (int step = 0; rc == 0 && !finish; step++) {
        if (step == 3 && rank == 1) compute(s->compute_ms);
        if (step % size == rank) compute(1 + pause_ms / 20);
        else gp_sleep(pause_ms, NULL, NULL);
        for (size_t i = 0; i < FLOATS; i++) v[i] = 1;
        struct all_reduce_args a = {.buf = (dev_addr)(uintptr_t)v, .count = FLOATS};
        rc = comm_tcp.all_reduce(c, &a, err);
        if (rc == 0 && v[7] != (float)size) rc = gp_fail(err, GP_EVALIDATE, "the sum is %g", (double)v[7]);
        if (rc == 0) rc = comm_tcp.all_gather(c, (dev_addr)(uintptr_t)&own, (dev_addr)(uintptr_t)all, sizeof own, err);
        if (rank == 0) finish = s->finish;
        if (rc == 0) rc = comm_tcp.broadcast(c, (dev_addr)(uintptr_t)&finish, sizeof finish, 0, err);
    }
    if (rc == 0) rc = comm_tcp.barrier(c, err);
    free(v);
    return rc;
}

static void rank_main(int rank, int size, int64_t stall_ms, int *pipes, struct shared *s) {
    static const unsigned char token[16] = "all of one test";
    char addr[80] = "";
    struct gp_error err = {0};
    struct comm *c = NULL;
    if (rank > 0 && read(pipes[0], addr, sizeof addr) != (ssize_t)sizeof addr) _exit(4);
    struct comm_setup setup = {.rank = rank,
                               .size = size,
                               .bind_ip = "127.0.0.1",
                               .rendezvous = addr,
                               .token = token,
                               .token_len = sizeof token,
                               .deadline_ms = clock_deadline(20 * stall_ms + 20000),
                               .meet_ms = 60000,
                               .stall_ms = stall_ms,
                               .dev_ops = &device_host,
                               .on_listen = on_listen,
                               .ctx = &pipes[1]};
    int64_t ms = 0;
    int rc = comm_tcp.init(&setup, &c, &err);
    if (rc != 0) fprintf(stderr, "rank %d did not meet the others: %s\n", rank, err.msg);
    if (rc != 0) _exit(5);
    comm_tcp_crowd(c, size, 2);
    rc = comm_tcp.barrier(c, &err);
    __atomic_add_fetch(&s->met, 1, __ATOMIC_SEQ_CST);
    if (rc == 0) rc = work(c, rank, size, s, GP_MAX(2, stall_ms / 200), &err);
    struct outcome *o = &s->ranks[rank];
    o->code = -rc;
    o->culprit = rc != 0 ? comm_culprit(&err) : -1;
    o->stalled = comm_tcp_stalled(c, &ms);
    str_put(o->msg, sizeof o->msg, err.msg);
    o->done = 1;
    comm_tcp.abort(c, rc != 0 ? err.msg : NULL, o->culprit);
    _exit(0);
}

/* Stops ranks, one after the other and at once, and continues them. */
static void stop_some(const pid_t *pids, int size, unsigned stall_ms, int spared) {
    int rounds = (int)draw(1, 2);
    for (int k = 0; k < rounds; k++) {
        int64_t until[RANKS_MAX] = {0}, last = 0;
        usleep(draw(0, stall_ms / 10) * 1000);
        for (int i = 0; i < size; i++) {
            if (i == spared || draw(0, 2) == 0) continue;
            kill(pids[i], SIGSTOP);
            until[i] = clock_deadline(draw(stall_ms / 20, stall_ms / 2));
            last = GP_MAX(last, until[i]);
            usleep(draw(0, stall_ms / 20) * 1000);
        }
        for (bool more = last > 0; more; gp_sleep(1, NULL, NULL)) {
            more = false;
            for (int i = 0; i < size; i++) {
                if (until[i] == 0) continue;
                if (clock_left_ms(until[i]) > 0) more = true;
                else {
                    kill(pids[i], SIGCONT);
                    until[i] = 0;
                }
            }
        }
    }
}

int main(int argc, char **argv) {
    int64_t seed = 0, stall_ms = 0;
    bool computes = argc == 4 && str_eq(argv[3], "computes");
    if (argc != 3 + computes || !str_to_i64(argv[1], 0, 1 << 30, &seed) ||
        !str_to_i64(argv[2], 100, 60000, &stall_ms)) {
        fprintf(stderr, "usage: gang_stops SEED STALL_MS [computes]\n");
        return 2;
    }
    state = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 8; i++) draw(0, 1);
    int size = (int)draw(2, RANKS_MAX), victim = draw(0, 3) == 0 && !computes ? (int)draw(0, (unsigned)size - 1) : -1,
        pipes[2];
    pid_t pids[RANKS_MAX];
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED || pipe(pipes) != 0) return 2;
    s->compute_ms = computes ? 4 * stall_ms : 0;
    for (int i = 0; i < size; i++) {
        pids[i] = fork();
        if (pids[i] == 0) rank_main(i, size, stall_ms, pipes, s);
    }
    for (int64_t end = clock_deadline(60000); s->met < size && clock_left_ms(end) > 0;) gp_sleep(2, NULL, NULL);
    if (!computes) stop_some(pids, size, (unsigned)stall_ms, victim);
    else gp_sleep(stall_ms, NULL, NULL);
    int64_t began = clock_ms(), named_ms = 0;
    if (victim >= 0) kill(pids[victim], SIGSTOP);
    else s->finish = 1;
    for (int i = 0; i < size; i++)
        if (i != victim) waitpid(pids[i], NULL, 0);
    named_ms = clock_ms() - began;
    if (victim >= 0) {
        kill(pids[victim], SIGKILL);
        waitpid(pids[victim], NULL, 0);
    }
    bool good = s->met == size;
    for (int i = 0; i < size; i++) {
        const struct outcome *o = &s->ranks[i];
        if (i == victim) continue;
        bool right =
            o->done && (victim < 0 ? o->code == 0 && o->stalled < 0 : o->code == GP_ELOST && o->culprit == victim);
        if (!right)
            fprintf(stderr, "seed %d: rank %d of %d, victim %d: done %d, code %d, blames %d, suspects %d: %s\n",
                    (int)seed, i, size, victim, o->done, o->code, o->culprit, o->stalled, o->msg);
        good = good && right;
    }
    printf("{\"seed\":%d,\"size\":%d,\"for_ever\":%s,\"good\":%s,\"end_ms\":%d}\n", (int)seed, size,
           victim >= 0 ? "true" : "false", good ? "true" : "false", (int)named_ms);
    return good ? 0 : 1;
}
