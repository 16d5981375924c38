/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.bandwidth: rates of the collectives by nccl-tests' formulas, over message sizes; the figure is all_reduce's
 * bus bandwidth at the largest size. Time is the GPU's, by events around many calls, of the slowest rank. In a slow
 * gang the check searches for the slow rank or link. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/clock.h"

#define CURVE_MS 15000 /* larger sizes are left out then; a search gets twice that */
#define MOST_BYTES ((size_t)8 << 30)
#define SMALL_GPU ((size_t)1 << 30) /* with less free memory: less of it and few calls, so that it stays quick */
enum { PART_OF_FREE = 3, PART_OF_SMALL = 12, CURVE_MAX = 64 };

struct point {
    int op;
    size_t bytes;
    double time_us, host_us, algbw, busbw; /* host_us: of this rank, for each call */
};
struct bandwidth {
    struct check_ctx *c;
    struct agent_result *r;
    struct nccl_buffers b;
    int64_t until_ms;
    struct point points[CURVE_MAX];
    size_t n;
    double last_gb_s; /* of the last size, to predict the time of the next one */
    double host_us;
};

static int calls_of(const struct bandwidth *w, size_t bytes) {
    if (w->b.bytes < SMALL_GPU / PART_OF_SMALL) return bytes > w->b.bytes / 2 ? 1 : 2;
    return bytes >= ((size_t)1 << 30) ? 5 : 20;
}

/* One size of one collective. The slowest rank's time counts, and all ranks know it. */
static int measure(struct bandwidth *w, struct comm *comm, enum nccl_op op, size_t bytes, double *ret_us,
                   struct gp_error *err) {
    int calls = calls_of(w, bytes), warm = GP_MIN(calls, bytes >= ((size_t)64 << 20) ? 1 : 5);
    size_t real = 0, count = nccl_elements(op, COMM_F32, bytes, w->c->size, &real);
    double rate = w->last_gb_s > 0 ? w->last_gb_s : 0.5;
    int64_t expected = (int64_t)((double)real * (calls + warm) / rate / 1e6) + 1000;
    double spent = 0;
    struct gp_error own = {0};
    int rc = nccl_follow_device(comm, &own);
    if (rc != 0) nccl_keep(comm, &own);
    for (int i = 0; i < warm; i++) nccl_queue_plain(&w->b, comm, op, COMM_F32, count, 0);
    nccl_mark(comm, 0);
    for (int i = 0; i < calls; i++) nccl_queue_plain(&w->b, comm, op, COMM_F32, count, 0);
    nccl_mark(comm, 1);
    rc = nccl_wait(comm, expected, err);
    if (rc == 0) rc = nccl_elapsed(comm, &spent, err);
    *ret_us = rc == 0 ? spent / calls * 1e6 : 0;
    w->host_us = nccl_host_us(comm, calls);
    return rc;
}

static bool point_of(struct bandwidth *w, enum nccl_op op, size_t bytes) {
    struct check_ctx *c = w->c;
    struct gp_error err = {0};
    double us = 0, *all = xcalloc((size_t)c->size, sizeof *all);
    size_t real = 0;
    bool ok = measure(w, c->data, op, bytes, &us, &err) == 0;
    if (!ok) nccl_broken(c, w->r, &w->b, &err);
    ok = ok && gang_gather(c, w->r, &us, all, sizeof us);
    for (int i = 0; ok && i < c->size; i++) us = GP_MAX(us, all[i]);
    free(all);
    if (!ok) return false;
    nccl_elements(op, COMM_F32, bytes, c->size, &real);
    struct point p = {.op = (int)op, .bytes = real, .time_us = us, .host_us = w->host_us};
    p.algbw = us > 0 ? (double)real / us / 1e3 : 0;
    p.busbw = p.algbw * nccl_bus_factor(op, c->size);
    w->last_gb_s = p.algbw;
    if (w->n < CURVE_MAX) w->points[w->n++] = p;
    return true;
}

/* Whether the time suffices for a size; rank 0's clock decides for all. */
static bool time_for(struct bandwidth *w, size_t bytes, bool *ret_yes) {
    double rate = w->last_gb_s > 0 ? w->last_gb_s : 1;
    double ms = (double)bytes * (2 * calls_of(w, bytes)) / rate / 1e6;
    int32_t yes = (double)clock_left_ms(w->until_ms) > ms;
    bool ok = gang_broadcast(w->c, w->r, &yes, sizeof yes, 0);
    *ret_yes = yes;
    return ok;
}

static bool curve(struct bandwidth *w) {
    bool yes = true;
    for (size_t bytes = 8; bytes < w->b.bytes && yes; bytes *= 4) {
        bool long_one = bytes >= (size_t)1 << 20; /* with a slow network it takes minutes */
        if (long_one && !time_for(w, bytes, &yes)) return false;
        if (yes && !point_of(w, NCCL_ALL_REDUCE, bytes)) return false;
    }
    if (!time_for(w, w->b.bytes, &yes)) return false;
    if (yes && !point_of(w, NCCL_ALL_REDUCE, w->b.bytes)) return false;
    const struct point last = w->points[w->n - 1];
    for (int op = NCCL_ALL_GATHER; op < NCCL_OPS; op++) {
        const size_t sizes[] = {(size_t)1 << 20, last.bytes};
        for (size_t s = 0; s < GP_ARRAY_LEN(sizes); s++) {
            if (sizes[s] > last.bytes || (s > 0 && sizes[s] == sizes[0])) continue;
            if (!time_for(w, sizes[s], &yes)) return false;
            if (yes && !point_of(w, (enum nccl_op)op, sizes[s])) return false;
        }
    }
    return true;
}

static const struct point *largest(const struct bandwidth *w) {
    const struct point *best = NULL;
    for (size_t i = 0; i < w->n; i++)
        if (w->points[i].op == NCCL_ALL_REDUCE && (best == NULL || w->points[i].bytes > best->bytes))
            best = &w->points[i];
    return best;
}

static void add_points(struct bandwidth *w) {
    struct str *s = &w->r->data;
    str_add(s, s->len ? ",\"sizes\":[" : "\"sizes\":[");
    for (size_t i = 0; i < w->n; i++) {
        const struct point *p = &w->points[i];
        str_addf(s, "%s{\"op\":\"%s\",\"type\":\"float\",\"bytes\":%zu,\"time_us\":", i ? "," : "",
                 nccl_op_name((enum nccl_op)p->op), p->bytes);
        agent_json_num(s, p->time_us);
        str_add(s, ",\"host_us\":");
        agent_json_num(s, p->host_us);
        str_add(s, ",\"algbw\":");
        agent_json_num(s, p->algbw);
        str_add(s, ",\"busbw\":");
        agent_json_num(s, p->busbw);
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

static int ranks_of_first_node(const struct check_ctx *c) {
    int n = 0;
    for (int i = 0; i < c->size; i++) n += c->who[i].node == 0;
    return n;
}

/* Whether the table can have a row: a gang of the GPUs of one node, each rank with its own GPU. */
static bool is_comparable(const struct check_ctx *c) {
    return ranks_of_first_node(c) == c->size && !nccl_one_gpu_for_all(c);
}

/* Searches for the slow rank or link if the figure misses its limit. The limit itself is judged later (agent_judge
 * or the controller). */
static void search(struct bandwidth *w, const struct point *p, const struct nccl_transport *t) {
    struct check_ctx *c = w->c;
    struct agent_result *r = w->r;
    GP_AUTO_STR struct str who = {.max = 300};
    r->about = (struct limit_about){
        .model = is_comparable(c) ? c->model : NULL,
        .key = {.gpus = c->size, .bytes = (int64_t)p->bytes, .nvls = t->nvls, .nvlink = t->nvlink}};
    struct limit l;
    bool low = agent_limit(r, "busbw", &l) != VERDICT_PASS, known = l.kind == LIMIT_MODEL;
    agent_data_bool(r, "rated", known);
    if (known) { /* so that the figure has its limit; else it is unrated */
        agent_data_num(r, "measured_elsewhere", l.measured);
        agent_data_num(r, "fail_below", l.fail);
        agent_data_str(r, "source", l.source);
    } else {
        r->about.model = NULL;
    }
    /* without a row the peers decide: halves and pairs are compared with each other */
    if (low || (!known && c->size > 2 && !nccl_one_gpu_for_all(c)))
        nccl_isolate(c, r, &w->b, t->nvlink ? NCCL_SLOW : NCCL_SLOW_PCIE, GP_MIN(w->b.bytes, (size_t)64 << 20),
                     w->until_ms, &who);
    if (low)
        snprintf(r->note, sizeof r->note, "; all_reduce over %d GPUs with %.4g MiB%s", c->size,
                 (double)p->bytes / (1 << 20), who.len ? who.s : "");
    else if (r->culprits.len > 0)
        agent_set(r, VERDICT_DEGRADED, "uneven", "all_reduce is much slower with some ranks than with others%s", who.s);
}

void nccl_bandwidth_run(struct check_ctx *c, struct agent_result *r) {
    struct bandwidth w = {.c = c, .r = r};
    struct nccl_transport t = {0};
    char version[16];
    nccl_version_text(nccl_version(c->data), version);
    agent_data_str(r, "version", version);
    w.until_ms = GP_MIN(c->deadline_ms, clock_deadline(CURVE_MS));
    size_t total = 0, free_bytes = 0;
    bool small = cuda_memory(c->dev, &free_bytes, &total, NULL) == 0 && total < SMALL_GPU;
    if (!nccl_buffers_open(c, r, MOST_BYTES, small ? PART_OF_SMALL : PART_OF_FREE, &w.b)) return;
    bool ok = curve(&w);
    w.until_ms = GP_MIN(c->deadline_ms, clock_deadline(2 * CURVE_MS));
    const struct point *p = largest(&w);
    if (ok && p != NULL && nccl_transport_judge(c, r, nccl_log_path(c->data), &t)) {
        add_points(&w);
        agent_metric(r, "busbw", p->busbw);
        agent_metric(r, "latency", w.points[0].time_us);
        agent_data_int(r, "bytes", (int64_t)p->bytes);
        agent_data_bool(r, "nvls", t.nvls);
        search(&w, p, &t);
        agent_say(r, "all_reduce over %d GPUs: %.4g GB/s bus bandwidth with %.4g MiB%s%s", c->size, p->busbw,
                  (double)p->bytes / (1 << 20), nccl_one_gpu_for_all(c) ? "; one GPU for all ranks: " : "",
                  nccl_one_gpu_for_all(c) ? "logic only, no bandwidth figure" : "");
    }
    if (nccl_one_gpu_for_all(c)) agent_data_bool(r, "logic_only", true);
    nccl_buffers_close(&w.b);
}

void nccl_bandwidth_conclude(struct check_ctx *c, struct agent_result *r) {
    (void)c;
    if (r->n_metrics == 0 && r->verdict == VERDICT_PASS)
        agent_set(r, VERDICT_ERROR, "not_measured", "the time did not suffice for any size");
}
