/* SPDX-License-Identifier: Apache-2.0 */
/* net.pair: round trips and bandwidth between pairs of nodes over their private addresses, every byte
 * compared. Only the first rank of each node takes part; the others receive the records. Up to 4 nodes: all pairs,
 * one after the other; more nodes: neighbours, disjoint pairs at once. One thread. */
#include "base/gp_base.h"

#include "validate/agent/gang/gang.h"

#include "base/stats.h"
#include "validate/agent/comm/comm_tcp.h"
#include "validate/agent/device/numeric.h"

#include <unistd.h>

#define TRIPS 200
#define WARM_TRIPS 10
#define BLOCK ((size_t)1 << 20)
#define PROBE_BLOCKS 4
#define MIN_BLOCKS 4
#define MAX_BLOCKS 60
#define PAUSE_S 0.5
#define TARGET_S 0.15 /* for the blocks after the probe, each way */
#define ALL_PAIRS_MAX 4
/* A round with a pair that looks slow is measured again: a busy processor slows one attempt, a network slows all. Not
 * when all rounds have taken so long already: the check has stated its seconds. */
#define ATTEMPTS 3
#define AGAIN_WITHIN_S 4.0

struct pair_record { /* each rank's record after a round */
    int32_t peer;    /* -1: not in this round */
    int32_t valid;
    double latency_us, recv_gb_s, took_s;
    uint64_t wrong;
};
struct pair_state {
    struct check_ctx *c;
    unsigned char *out, *in, *want;
    struct pair_record *all;   /* of one attempt, per rank */
    struct pair_record *best;  /* of one round, per rank: the best figures of its attempts, all wrong bytes */
    double slow_us, slow_gb_s; /* the limits of this check, beyond which a pair looks slow */
    int attempt;               /* of this round */
    size_t again;              /* attempts beyond the first, of all rounds */
    double spent_s;            /* by the slowest pair of each attempt so far; the same on all ranks */
    int *nodes;                /* the first rank of each node */
    int n_nodes, me;           /* me: which of them this rank is; -1: none */
    double worst_us, worst_gb_s;
    uint64_t wrong;
    int worst_a, worst_b; /* the slowest pair */
    int *wrong_from;      /* per rank: the number of ranks with wrong bytes from it */
    struct str text;      /* members of data.pairs */
    size_t said;
};

static void pattern(unsigned char *p, uint64_t seed) {
    for (size_t i = 0; i < BLOCK; i += 8) {
        seed = num_mix(seed);
        memcpy(p + i, &seed, 8);
    }
}

static uint64_t pattern_seed(const struct check_ctx *c, int from, int to) {
    return num_mix(c->seed ^ ((uint64_t)from << 32 | (uint64_t)to));
}

static int send_blocks(struct pair_state *s, int peer, int n, struct gp_error *err) {
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) r = comm_exchange(s->c->comm, peer, s->out, BLOCK, -1, NULL, 0, err);
    return r;
}

static int recv_blocks(struct pair_state *s, int peer, int n, double *ret_gb_s, uint64_t *ret_wrong,
                       struct gp_error *err) {
    double first = 0, last = 0, before = 0, longest = 0;
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        r = comm_exchange(s->c->comm, -1, NULL, 0, peer, s->in, BLOCK, err);
        if (agent_fault("pair-slow", peer, 0) || (s->attempt == 0 && agent_fault("pair-late", peer, 0))) usleep(80000);
        last = gang_now_s();
        if (i == 0) first = before = last; /* the first block includes the peer's delay */
        longest = GP_MAX(longest, last - before);
        before = last;
        if (agent_fault("wire", peer, 0)) s->in[77] ^= 4;
        if (r == 0 && memcmp(s->in, s->want, BLOCK) != 0)
            for (size_t k = 0; k < BLOCK; k++) *ret_wrong += s->in[k] != s->want[k];
    }
    /* includes the comparison: blocks that arrive meanwhile wait in buffers and would look too fast */
    bool paused = n > 2 && longest > PAUSE_S; /* one pause says nothing about the network */
    double spent = last - first - (paused ? longest : 0);
    *ret_gb_s = spent > 0 ? (double)(n - 1 - paused) * (double)BLOCK / spent / 1e9 : 0;
    return r;
}

/* One direction: the receiver derives the number of blocks from a probe. */
static int one_way(struct pair_state *s, int peer, bool sending, struct pair_record *rec, struct gp_error *err) {
    int32_t blocks = 0;
    double gb_s = 0;
    if (sending) {
        int r = send_blocks(s, peer, PROBE_BLOCKS, err);
        if (r == 0) r = comm_exchange(s->c->comm, -1, NULL, 0, peer, &blocks, sizeof blocks, err);
        if (r == 0 && (blocks < MIN_BLOCKS || blocks > MAX_BLOCKS))
            return gp_fail(err, GP_EPROTO, "rank %d requested %d blocks", peer, (int)blocks);
        return r == 0 ? send_blocks(s, peer, blocks, err) : r;
    }
    int r = recv_blocks(s, peer, PROBE_BLOCKS, &gb_s, &rec->wrong, err);
    double fit = gb_s * 1e9 * TARGET_S / (double)BLOCK;
    blocks = (int32_t)GP_MAX((double)MIN_BLOCKS, GP_MIN((double)MAX_BLOCKS, fit));
    if (r == 0) r = comm_exchange(s->c->comm, peer, &blocks, sizeof blocks, -1, NULL, 0, err);
    return r == 0 ? recv_blocks(s, peer, blocks, &rec->recv_gb_s, &rec->wrong, err) : r;
}

static int trips(struct pair_state *s, int peer, bool first, struct pair_record *rec, struct gp_error *err) {
    double times[TRIPS];
    uint64_t ball = 0;
    int r = 0;
    for (int i = 0; i < WARM_TRIPS + TRIPS && r == 0; i++) {
        double began = gang_now_s();
        uint64_t want = num_mix((uint64_t)i);
        if (first) {
            ball = want;
            r = comm_exchange(s->c->comm, peer, &ball, sizeof ball, -1, NULL, 0, err);
            if (r == 0) r = comm_exchange(s->c->comm, -1, NULL, 0, peer, &ball, sizeof ball, err);
        } else {
            r = comm_exchange(s->c->comm, -1, NULL, 0, peer, &ball, sizeof ball, err);
            if (r == 0) r = comm_exchange(s->c->comm, peer, &ball, sizeof ball, -1, NULL, 0, err);
        }
        rec->wrong += r == 0 && ball != want;
        if (i >= WARM_TRIPS) times[i - WARM_TRIPS] = (gang_now_s() - began) * 1e6;
    }
    if (r == 0) rec->latency_us = stats_median(times, TRIPS);
    return r;
}

static int one_pair(struct pair_state *s, int peer, struct pair_record *rec, struct gp_error *err) {
    bool first = s->c->rank < peer;
    pattern(s->out, pattern_seed(s->c, s->c->rank, peer));
    pattern(s->want, pattern_seed(s->c, peer, s->c->rank));
    rec->peer = peer;
    rec->valid = 1;
    double began = gang_now_s();
    int r = trips(s, peer, first, rec, err);
    if (r == 0) r = one_way(s, peer, first, rec, err);
    if (r == 0) r = one_way(s, peer, !first, rec, err);
    rec->took_s = gang_now_s() - began;
    return r;
}

static void note_pair(struct pair_state *s, int a, int b) {
    const struct pair_record *x = &s->best[a], *y = &s->best[b];
    double gb_s = GP_MIN(x->recv_gb_s, y->recv_gb_s), us = GP_MAX(x->latency_us, y->latency_us);
    if (s->worst_gb_s < 0 || gb_s < s->worst_gb_s) {
        s->worst_gb_s = gb_s;
        s->worst_a = a;
        s->worst_b = b;
    }
    s->worst_us = GP_MAX(s->worst_us, us);
    s->wrong += x->wrong + y->wrong;
    s->wrong_from[b] += x->wrong > 0;
    s->wrong_from[a] += y->wrong > 0;
    if (s->said++ >= 64) return;
    str_addf(&s->text, "%s{\"ranks\":[%d,%d],\"latency_us\":", s->text.len > 0 ? "," : "", a, b);
    agent_json_num(&s->text, us);
    str_addf(&s->text, ",\"gb_per_s\":[");
    agent_json_num(&s->text, y->recv_gb_s); /* a to b */
    str_addc(&s->text, ',');
    agent_json_num(&s->text, x->recv_gb_s);
    str_add(&s->text, "]}");
}

static bool in_round(const struct pair_state *s, int a) {
    return s->all[a].valid && s->all[a].peer >= 0 && s->all[a].peer < s->c->size;
}

static void keep_best(struct pair_state *s) {
    for (int a = 0; a < s->c->size; a++) {
        const struct pair_record *now = &s->all[a];
        struct pair_record *best = &s->best[a];
        if (s->attempt == 0) {
            *best = *now;
            continue;
        }
        best->recv_gb_s = GP_MAX(best->recv_gb_s, now->recv_gb_s);
        best->latency_us = GP_MIN(best->latency_us, now->latency_us);
        best->wrong += now->wrong;
    }
}

/* From the records that every rank has: all ranks decide alike. */
static bool again_needed(struct pair_state *s) {
    bool slow = false;
    double longest = 0;
    for (int a = 0; a < s->c->size; a++) {
        if (!in_round(s, a)) continue;
        longest = GP_MAX(longest, s->all[a].took_s);
        slow |= s->best[a].latency_us > s->slow_us || s->best[a].recv_gb_s < s->slow_gb_s;
    }
    s->spent_s += longest;
    return slow && s->spent_s < AGAIN_WITHIN_S;
}

static bool attempt(struct pair_state *s, struct agent_result *r, int peer) {
    struct pair_record rec = {.peer = -1};
    struct gp_error err = {0};
    if (peer >= 0 && one_pair(s, peer, &rec, &err) != 0) {
        gang_broken(s->c, r, &err, false);
        return false;
    }
    return gang_gather(s->c, r, &rec, s->all, sizeof rec);
}

/* One round: this rank pairs with peer (-1: waits); then all ranks exchange their records. */
static bool round_of(struct pair_state *s, struct agent_result *r, int peer) {
    for (s->attempt = 0; s->attempt < ATTEMPTS; s->attempt++) {
        if (!attempt(s, r, peer)) return false;
        s->again += s->attempt > 0;
        keep_best(s);
        if (!again_needed(s)) break;
    }
    for (int a = 0; a < s->c->size; a++)
        if (in_round(s, a) && s->all[a].peer > a) note_pair(s, a, s->all[a].peer);
    return true;
}

static bool all_pairs(struct pair_state *s, struct agent_result *r) {
    for (int a = 0; a < s->n_nodes; a++)
        for (int b = a + 1; b < s->n_nodes; b++)
            if (!round_of(s, r, s->me == a ? s->nodes[b] : s->me == b ? s->nodes[a] : -1)) return false;
    return true;
}

static bool neighbours(struct pair_state *s, struct agent_result *r) {
    int n = s->n_nodes, me = s->me;
    for (int round = 0; round < 2; round++) { /* (0,1)(2,3)...; then (1,2)(3,4)... */
        int lower = (me - round) % 2 == 0 ? me : me - 1;
        int peer = lower == me ? me + 1 : lower;
        bool none = me < 0 || lower < 0 || peer >= n || peer < 0;
        if (!round_of(s, r, none ? -1 : s->nodes[peer])) return false;
    }
    int last = n - 1; /* closes the ring */
    return round_of(s, r, me == 0 ? s->nodes[last] : me == last ? s->nodes[0] : -1);
}

/* One rank per node: a pair on one machine measures its memory instead of the network. */
static void find_nodes(struct pair_state *s) {
    s->nodes = xcalloc((size_t)s->c->size, sizeof *s->nodes);
    s->me = -1;
    for (int i = 0; i < s->c->size; i++) {
        if (s->c->who[i].node != i) continue;
        if (i == s->c->rank) s->me = s->n_nodes;
        s->nodes[s->n_nodes++] = i;
    }
}

static void find_limits(struct pair_state *s) {
    const struct check_metric_info *m = check_find("net.pair")->metrics;
    for (; m->name != NULL; m++) {
        if (str_eq(m->name, "latency")) s->slow_us = m->degraded;
        if (str_eq(m->name, "bandwidth")) s->slow_gb_s = m->degraded;
    }
}

static void conclude(struct pair_state *s, struct agent_result *r) {
    agent_metric(r, "latency", s->worst_us);
    agent_metric(r, "bandwidth", s->worst_gb_s);
    agent_metric(r, "wrong_bytes", (double)s->wrong);
    str_addf(&r->data, "\"pairs\":[%s]", s->text.s != NULL ? s->text.s : "");
    agent_data_int(r, "pairs_measured", (int64_t)s->said);
    agent_data_int(r, "measured_again", (int64_t)s->again);
    if (s->wrong > 0) {
        int who = 0;
        for (int k = 1; k < s->c->size; k++)
            if (s->wrong_from[k] > s->wrong_from[who]) who = k;
        bool clear = s->n_nodes > 2 && s->wrong_from[who] > 1; /* two ranks received wrong bytes from this one */
        if (clear) agent_culprit(r, who);
        agent_set(r, VERDICT_FAIL, "wrong_data", "%llu bytes arrived wrong%s%s", (unsigned long long)s->wrong,
                  clear ? "; to blame: rank " : "", clear ? r->culprits.s : "");
    }
    snprintf(r->note, sizeof r->note, "; slowest: ranks %d and %d", s->worst_a, s->worst_b);
    size_t n = (size_t)s->n_nodes, due = n <= ALL_PAIRS_MAX ? n * (n - 1) / 2 : n;
    if (s->said != due) agent_set(r, VERDICT_ERROR, "pairs_missing", "%zu of %zu pairs were measured", s->said, due);
    agent_say(r,
              "%zu pair%s; slowest: ranks %d and %d with %.3g GB/s; longest round trip %.0f us; host "
              "memory over TCP, no GPU took part",
              s->said, s->said == 1 ? "" : "s", s->worst_a, s->worst_b, s->worst_gb_s, s->worst_us);
}

void net_pair_run(struct check_ctx *c, struct agent_result *r) {
    struct pair_state s = {.c = c, .worst_gb_s = -1};
    find_nodes(&s);
    if (s.n_nodes < 2) {
        free(s.nodes);
        agent_set(r, VERDICT_SKIPPED, "one_rank", "one node has no pair");
        return;
    }
    str_init(&s.text, 16384);
    s.out = xmalloc(BLOCK);
    s.in = xmalloc(BLOCK);
    s.want = xmalloc(BLOCK);
    s.all = xcalloc((size_t)c->size, sizeof *s.all);
    s.best = xcalloc((size_t)c->size, sizeof *s.best);
    find_limits(&s);
    s.wrong_from = xcalloc((size_t)c->size, sizeof *s.wrong_from);
    bool ok = s.n_nodes <= ALL_PAIRS_MAX ? all_pairs(&s, r) : neighbours(&s, r);
    if (ok) conclude(&s, r);
    else agent_set(r, VERDICT_ERROR, "not_finished", "not all pairs were measured");
    gang_say_device(r, &device_host);
    str_clear(&s.text);
    free(s.out);
    free(s.in);
    free(s.want);
    free(s.all);
    free(s.best);
    free(s.wrong_from);
    free(s.nodes);
}
