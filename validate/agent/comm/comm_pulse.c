/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats of the tcp communicator, and the judgement of silence by progress. A thread of each rank answers its
 * peers while the rank computes, and reports progress and CPU time. A rank that waits counts the silence of the peers
 * it waits for, in the time during which it could observe them. A peer that reaches the limit once is suspected; the
 * second time it is blamed. */
#include "base/gp_base.h"

#include "comm_tcp.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define STALLS_BLAMED 2
#define CPU_LEAST_US 1000 /* of the computing thread between two reports: it computes */

/* The measures of time follow the limit, so that tests can scale all of them. */
static int64_t part(const struct comm *c, int n, int64_t least, int64_t most) {
    return GP_MAX(least, GP_MIN(most, c->stall_ms / n));
}

static int64_t beat_ms(const struct comm *c) { return part(c, 100, 10, 200); }
static int64_t ping_every_ms(const struct comm *c) { return part(c, 20, 20, 1000); }
int comm_look_ms(const struct comm *c) { return (int)part(c, 200, 5, 100); }

static int64_t late_ms(struct comm *c, bool most) {
    pthread_mutex_lock(&c->state);
    int64_t ms = most ? c->latest_ms : c->late_ms;
    pthread_mutex_unlock(&c->state);
    return ms;
}

/* Grows with the ranks per core of the most crowded machine, with the longest exchange, and while this rank is late
 * itself. */
static int64_t limit_ms(struct comm *c) {
    int64_t crowd = c->cores > 0 ? c->stall_ms / 20 * c->ranks / c->cores : 0;
    return c->stall_ms + crowd + GP_MIN(2 * c->slowest_ms, c->stall_ms / 2) + 4 * late_ms(c, false);
}

/* --- this rank's own pulse --- */

void comm_pulse_mark(struct comm *c, bool waiting) {
    pthread_mutex_lock(&c->state);
    c->own.waiting = waiting;
    c->own.progress += !waiting;
    pthread_mutex_unlock(&c->state);
}

struct pulse comm_pulse_own(struct comm *c) {
    struct timespec t = {0};
    if (c->beating) clock_gettime(c->cpu_clock, &t);
    pthread_mutex_lock(&c->state);
    struct pulse p = c->own;
    p.patience_ms = (uint32_t)GP_MIN(clock_left_ms(c->patient_until_ms), 3600000);
    p.late_ms = (uint32_t)GP_MIN(c->late_ms, 3600000);
    pthread_mutex_unlock(&c->state);
    p.cpu_us = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    return p;
}

void comm_tcp_patience(struct comm *c, int64_t patience_ms) {
    pthread_mutex_lock(&c->state);
    c->patient_until_ms = clock_deadline(patience_ms);
    c->own.progress++;
    pthread_mutex_unlock(&c->state);
}

void comm_tcp_crowd(struct comm *c, int ranks, int cores) {
    c->ranks = ranks;
    c->cores = cores;
}

/* --- the heartbeat thread --- */

static struct timespec at_ms(int64_t ms) {
    return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

/* False: stop. Halves the remembered lateness about every 45 beats. */
static bool sleep_a_beat(struct comm *c) {
    int64_t due = clock_deadline(beat_ms(c));
    struct timespec t = at_ms(due);
    pthread_mutex_lock(&c->state);
    while (!c->stop && clock_left_ms(due) > 0) pthread_cond_timedwait(&c->wake, &c->state, &t);
    int64_t late = GP_MAX(0, clock_ms() - due);
    c->late_ms = GP_MAX(late, c->late_ms - (c->late_ms + 63) / 64);
    c->latest_ms = GP_MAX(c->latest_ms, late);
    bool go = !c->stop;
    pthread_mutex_unlock(&c->state);
    return go;
}

static void *beat(void *arg) {
    struct comm *c = arg;
    while (sleep_a_beat(c)) {
        if (pthread_mutex_trylock(&c->lock) != 0) continue; /* an exchange serves the links itself */
        if (c->told.code == GP_OK) comm_serve(c, 0, &c->told);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

void comm_pulse_start(struct comm *c) {
    pthread_condattr_t a;
    if (c->size < 2 || pthread_getcpuclockid(pthread_self(), &c->cpu_clock) != 0) return;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &a);
    pthread_condattr_destroy(&a);
    c->beating = true;
    if (pthread_create(&c->beat, NULL, beat, c) == 0) return;
    c->beating = false; /* it answers only while it waits, as a rank without threads did */
    pthread_cond_destroy(&c->wake);
}

void comm_pulse_stop(struct comm *c) {
    if (!c->beating) return;
    pthread_mutex_lock(&c->state);
    c->stop = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->state);
    pthread_join(c->beat, NULL);
    pthread_cond_destroy(&c->wake);
    c->beating = false;
}

/* --- the judgement --- */

void comm_pulse_heard(struct link *l, const struct pulse *p) {
    bool computed = p->cpu_us >= l->pulse.cpu_us + CPU_LEAST_US;
    if (p->waiting || computed || p->progress != l->pulse.progress) l->idle_ms = 0;
    l->pulse = *p;
    l->heard = true;
}

bool comm_tcp_busy(struct comm *c, struct str *ret) {
    double queue = 0;
    FILE *f = fopen("/proc/loadavg", "re");
    if (f != NULL && fscanf(f, "%lf", &queue) != 1) queue = 0;
    if (f != NULL) fclose(f);
    int64_t late = late_ms(c, true);
    bool crowded = c->cores > 0 && (c->ranks > 2 * c->cores || queue > 4.0 * c->cores);
    if (!crowded && late < c->stall_ms / 10) return false;
    if (ret == NULL) return true;
    str_add(ret, "this machine is too busy: ");
    if (c->cores > 0) str_addf(ret, "%d ranks and a run queue of %.0f on %d cores, ", c->ranks, queue, c->cores);
    str_addf(ret, "heartbeats up to %.1f s late", (double)late / 1000);
    return true;
}

void comm_tcp_late(struct comm *c) { c->late = true; }

int comm_tcp_stalled(struct comm *c, int64_t *ret_ms) {
    int rank = -1;
    for (int i = 0; i < c->size; i++) {
        struct link *l = &c->links[i];
        if (l->stalls == l->reported) continue;
        l->reported = l->stalls;
        *ret_ms = l->stalled_ms;
        rank = i;
    }
    return rank;
}

static bool awaited(const struct link *l) { return !l->gone && (l->post_left > 0 || l->out_left > 0); }

static void silence(const struct comm *c, int rank, int64_t ms, char *dst, size_t n) {
    const struct link *l = &c->links[rank];
    const char *what = l->idles ? "answers, but has made no progress" : "has not answered";
    snprintf(dst, n, "%s for %" PRId64 " s", what, (ms + 500) / 1000);
}

/* The deadline is no proof against a rank. */
static int too_late(struct comm *c, struct gp_error *err) {
    GP_AUTO_STR struct str why = {.max = 300};
    int rank = -1;
    c->late = true;
    for (int i = 0; i < c->size; i++)
        if (awaited(&c->links[i]) && (rank < 0 || !c->links[i].pulse.waiting)) rank = i;
    if (comm_tcp_busy(c, &why)) str_add(&why, ": ");
    str_add(&why, "the gang did not finish in time");
    if (rank < 0) return gp_fail(err, GP_ETIMEOUT, "%s", why.s);
    const struct link *l = &c->links[rank];
    int64_t ms = l->stalled_ms + GP_MAX(l->quiet_ms, l->idle_ms);
    bool silent = ms >= c->stall_ms;
    char text[80] = "was awaited";
    if (silent) silence(c, rank, ms, text, sizeof text);
    gp_fail(err, GP_ETIMEOUT, "%s; rank %d (%s) %s", why.s, rank, l->addr, text);
    if (silent) comm_blame(err, rank);
    return -GP_ETIMEOUT;
}

/* This peer reached the limit. */
static int stalled(struct comm *c, int rank, struct gp_error *err) {
    struct link *l = &c->links[rank];
    int64_t ms = GP_MAX(l->quiet_ms, l->idle_ms);
    l->idles = l->quiet_ms < l->idle_ms && l->quiet_ms < ms / 2;
    l->quiet_ms = l->idle_ms = 0;
    l->stalls++;
    l->stalled_ms += ms;
    if (l->stalls < STALLS_BLAMED) return 0;
    char text[80];
    silence(c, rank, l->stalled_ms, text, sizeof text);
    return comm_lost(c, rank, text, err);
}

int comm_judge(struct comm *c, int64_t looked_ms, struct gp_error *err) {
    int64_t now = clock_ms(), limit = limit_ms(c);
    int rc = 0;
    if (now >= c->deadline_ms) return too_late(c, err);
    looked_ms = GP_MIN(looked_ms, 2 * comm_look_ms(c)); /* the rest of it this rank did not run itself */
    for (int i = 0; i < c->size && rc == 0 && !c->meeting; i++) {
        struct link *l = &c->links[i];
        if (!awaited(l)) continue;
        l->quiet_ms += looked_ms;
        l->idle_ms += looked_ms;
        if (l->ping_ms == 0) l->ping_ms = now + ping_every_ms(c);
        if (now >= l->ping_ms) {
            comm_control(c, i, FRAME_PING, "", 0);
            l->ping_ms = now + ping_every_ms(c);
        }
        int64_t quiet = l->heard ? limit : GP_MAX(limit, c->meet_ms); /* it may still meet the others */
        if (l->quiet_ms >= quiet || l->idle_ms >= GP_MAX(quiet, (int64_t)l->pulse.patience_ms)) rc = stalled(c, i, err);
    }
    return rc;
}
