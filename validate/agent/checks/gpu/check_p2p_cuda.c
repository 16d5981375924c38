/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.p2p: direct access, rate and correctness of copies for every ordered pair of a node's GPUs. Wrong data is
 * examined by a second method, through the host, before a GPU or link is blamed. One worker opens all GPUs and takes
 * one pair after the other. */
#include "base/gp_base.h"

#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"

#define MIB ((size_t)1 << 20)
enum { SAMPLES = 5, WARM = 1, GPUS_MAX = 16 };
#define MOST_S 3.0 /* of copies, all pairs together: through the host 56 pairs are slow */

struct peer {
    struct device *dev;
    struct pattern_room room;
    dev_addr from, to;
};
struct pair_result {
    bool direct, done;
    double rate; /* GB/s */
    unsigned long long wrong;
};
struct p2p {
    struct check_ctx *c;
    struct agent_result *r;
    int n;
    size_t bytes;
    struct peer peers[GPUS_MAX];
    struct pair_result pairs[GPUS_MAX][GPUS_MAX];
    int from, to; /* the current pair */
};

static struct pattern pattern_of(const struct p2p *p, int gpu, dev_addr at) {
    return (struct pattern){.base = at, .bytes = p->bytes, .kind = MEM_PAIRED, .seed = 0x9e3779b9u + (unsigned)gpu};
}

static void p2p_clear(struct p2p *p) {
    const struct device_ops *ops = agent_kind.device;
    for (int i = 0; i < p->n; i++) {
        struct peer *x = &p->peers[i];
        if (!x->dev) continue;
        ops->free(x->dev, x->from);
        ops->free(x->dev, x->to);
        pattern_close(&x->room);
        ops->close(x->dev);
    }
}

static int open_peer(struct p2p *p, int i, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    struct peer *x = &p->peers[i];
    size_t avail = 0, total = 0;
    int rc = ops->open(i, &x->dev, err);
    if (rc == 0) rc = cuda_memory(x->dev, &avail, &total, err);
    size_t fits = GP_MIN(256 * MIB, total / 64) & ~(MIB - 1);
    p->bytes = GP_MAX(i == 0 ? fits : GP_MIN(p->bytes, fits), MIB);
    return rc < 0 ? rc : pattern_open(&x->room, p->c, x->dev, i, err);
}

static int open_all(struct p2p *p, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    int rc = 0;
    for (int i = 0; rc == 0 && i < p->n; i++) rc = open_peer(p, i, err);
    for (int i = 0; rc == 0 && i < p->n; i++) {
        struct peer *x = &p->peers[i];
        rc = ops->alloc(x->dev, p->bytes, &x->from, err);
        if (rc == 0) rc = ops->alloc(x->dev, p->bytes, &x->to, err);
        struct pattern a = pattern_of(p, i, x->from);
        if (rc == 0) rc = pattern_fill(&x->room, &a, err);
        if (rc == 0) rc = ops->sync(x->dev, p->c->deadline_ms, err);
    }
    return rc;
}

static int queue(void *arg, struct gp_error *err) {
    struct p2p *p = arg;
    struct peer *x = &p->peers[p->from], *y = &p->peers[p->to];
    return cuda_copy_peer(x->dev, x->from, y->dev, y->to, p->bytes, err);
}

static int clear_target(struct p2p *p, struct gp_error *err) {
    struct peer *y = &p->peers[p->to];
    struct pattern none = {.base = y->to, .bytes = p->bytes, .kind = MEM_ZEROS};
    int rc = pattern_fill(&y->room, &none, err);
    return rc < 0 ? rc : agent_kind.device->sync(y->dev, p->c->deadline_ms, err);
}

/* Words of the target that the host reads wrong. */
static int wrong_by_host(struct p2p *p, uint64_t *words, size_t *ret, size_t *ret_first, struct gp_error *err) {
    struct peer *y = &p->peers[p->to];
    struct pattern want = pattern_of(p, p->from, y->to);
    struct copy_args a = {
        .kind = COPY_FROM_DEVICE, .dev = y->to, .host = words, .bytes = p->bytes, .deadline_ms = p->c->deadline_ms};
    int rc = agent_kind.device->copy(y->dev, &a, err);
    *ret = rc < 0 ? 0 : pattern_verify_host(words, p->bytes / 8, want.kind, want.seed, ret_first);
    return rc;
}

/* The kernel on the target found wrong words. Repeats the transfer and reads it on the host; then sends the same
 * data through the host, which separates faults of the link from those of memory. */
static int second_look(struct p2p *p, struct pair_result *pr, const struct mem_log *log, struct gp_error *err) {
    struct peer *x = &p->peers[p->from], *y = &p->peers[p->to];
    GP_AUTO_FREE uint64_t *words = xmalloc(p->bytes);
    size_t direct = 0, around = 0, first = 0, ignored = 0;
    int rc = clear_target(p, err);
    if (rc == 0) rc = queue(p, err);
    if (rc == 0) rc = agent_kind.device->sync(x->dev, p->c->deadline_ms, err);
    if (rc == 0) rc = wrong_by_host(p, words, &direct, &first, err);
    uint64_t got = direct ? words[first] : 0;
    struct copy_args a = {
        .kind = COPY_FROM_DEVICE, .dev = x->from, .host = words, .bytes = p->bytes, .deadline_ms = p->c->deadline_ms};
    if (rc == 0) rc = agent_kind.device->copy(x->dev, &a, err);
    a.kind = COPY_TO_DEVICE;
    a.dev = y->to;
    if (rc == 0) rc = agent_kind.device->copy(y->dev, &a, err);
    if (rc == 0) rc = wrong_by_host(p, words, &around, &ignored, err);
    if (rc < 0) return rc;
    if (direct == 0) {
        agent_set(p->r, VERDICT_DEGRADED, "p2p_once",
                  "gpu %d to gpu %d: %llu words arrived wrong, but right when sent again and read by the host", p->from,
                  p->to, log->wrong);
        agent_suggest(p->r, "run again with more time; replace the node if the fault returns");
        return 0;
    }
    pr->wrong = direct;
    uint64_t want = mem_value(0, (ki64)first, MEM_PAIRED, pattern_of(p, p->from, 0).seed);
    agent_set(p->r, VERDICT_FAIL, around ? "p2p_memory" : "p2p_wrong",
              "gpu %d to gpu %d: %zu words arrive wrong, also when sent again and read by the host (word "
              "%zu: 0x%016llx, bits 0x%llx); through the host %s",
              p->from, p->to, direct, first, (unsigned long long)got, (unsigned long long)(got ^ want),
              around ? "too: the memory of one of the two is faulty"
                     : "they arrive right: the link between the two is faulty");
    return 0;
}

static int run_pair(struct p2p *p, int from, int to, struct gp_error *err) {
    struct peer *x = &p->peers[from], *y = &p->peers[to];
    struct pair_result *pr = &p->pairs[from][to];
    struct samples s = {0};
    struct measured m = {.queue = queue,
                         .arg = p,
                         .dev = x->dev,
                         .n = SAMPLES,
                         .warm = WARM,
                         .work = (double)p->bytes,
                         .unit = 1e9,
                         .most_s = MOST_S / (p->n * (p->n - 1))};
    struct pattern want = pattern_of(p, from, y->to);
    struct mem_log log = {0};
    p->from = from;
    p->to = to;
    int rc = cuda_peer_enable(x->dev, y->dev, &pr->direct, err);
    if (rc == 0) rc = clear_target(p, err);
    if (rc == 0) rc = samples_take(p->c, &m, &s, err);
    if (rc == 0) rc = pattern_verify(&y->room, &want, &log, err);
    if (rc == 0 && log.wrong) rc = second_look(p, pr, &log, err);
    pr->rate = samples_median(&s);
    pr->done = rc == 0;
    return rc < 0 ? rc : cuda_peer_disable(x->dev, y->dev, err);
}

/* --- verdicts --- */

struct extreme {
    int from, to;
    double rate;
};

static void say_matrix(const struct p2p *p) {
    struct str *s = &p->r->data;
    str_addf(s, "%s\"bytes\":%zu,\"matrix\":[", s->len ? "," : "", p->bytes);
    for (int i = 0; i < p->n; i++) {
        str_add(s, i ? ",[" : "[");
        for (int j = 0; j < p->n; j++) {
            str_add(s, j ? "," : "");
            if (p->pairs[i][j].done) agent_json_num(s, p->pairs[i][j].rate);
            else str_add(s, "null");
        }
        str_addc(s, ']');
    }
    str_add(s, "],\"not_direct\":[");
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        for (int j = 0; j < p->n; j++) {
            if (!p->pairs[i][j].done || p->pairs[i][j].direct) continue;
            str_addf(s, "%s[%d,%d]", any ? "," : "", i, j);
            any = true;
        }
    }
    str_addc(s, ']');
}

/* NVLink by the model's data sheet: then every pair must reach the other directly. */
static void judge_direct(const struct p2p *p, const struct gpu_model *model) {
    if (!model || gpu_model_spec(model, "nvlink_gb_per_s") <= 0 ||
        gpu_model_spec(model, "nvlink_bridge") > 0) /* a bridge is optional */
        return;
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->n; j++)
            if (p->pairs[i][j].done && !p->pairs[i][j].direct) {
                agent_set(p->r, VERDICT_FAIL, "p2p_not_direct",
                          "gpu %d has no direct access to gpu %d, but %s has NVLink between all GPUs", i, j,
                          gpu_model_name(model));
                agent_suggest(p->r, "look at 'nvidia-smi topo -m' and 'nvidia-smi nvlink -s', and at the "
                                    "fabric manager's log; replace the node");
            }
}

static void judge_rates(const struct p2p *p, const struct extreme *worst) {
    struct limit l;
    enum verdict v = agent_limit(p->r, "worst", &l);
    if (v != VERDICT_PASS) {
        agent_set(p->r, v, "slow_pair", "gpu %d to gpu %d: %.4g GB/s, below the %.4g of %s (%s)", worst->from,
                  worst->to, worst->rate, v == VERDICT_FAIL ? l.fail : l.degraded, gpu_model_name(l.model), l.source);
        return;
    }
    /* For every model: a direct link has the same rate both ways. Through the host it has not: the ways from and to
     * a GPU differ, and so do the host's two sockets. */
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->n; j++)
            if (p->pairs[i][j].direct && p->pairs[j][i].direct && p->pairs[i][j].rate < 0.8 * p->pairs[j][i].rate)
                agent_set(p->r, VERDICT_DEGRADED, "slow_pair",
                          "gpu %d to gpu %d: %.4g GB/s, but %.4g the "
                          "other way",
                          i, j, p->pairs[i][j].rate, p->pairs[j][i].rate);
}

static void judge(const struct p2p *p) {
    struct extreme best = {-1, -1, 0}, worst = {-1, -1, 0};
    unsigned long long wrong = 0;
    for (int i = 0; i < p->n; i++) {
        for (int j = 0; j < p->n; j++) {
            const struct pair_result *pr = &p->pairs[i][j];
            if (!pr->done) continue;
            wrong += pr->wrong;
            if (best.from < 0 || pr->rate > best.rate) best = (struct extreme){i, j, pr->rate};
            if (worst.from < 0 || pr->rate < worst.rate) worst = (struct extreme){i, j, pr->rate};
        }
    }
    say_matrix(p);
    if (best.from < 0) return;
    unsigned device = 0, subsystem = 0;
    bool known = cuda_pci_ids(p->peers[0].dev, &device, &subsystem);
    const struct gpu_model *model = known ? gpu_model_find(device, subsystem) : NULL;
    agent_metric(p->r, "best", best.rate);
    agent_metric(p->r, "worst", worst.rate);
    agent_metric(p->r, "wrong", (double)wrong);
    agent_metric(p->r, "gpus", p->n);
    str_addf(&p->r->data, ",\"best_pair\":[%d,%d],\"worst_pair\":[%d,%d]", best.from, best.to, worst.from, worst.to);
    p->r->about.model = model;
    p->r->about.key.gpus = p->n;
    judge_direct(p, model);
    judge_rates(p, &worst);
    agent_say(p->r,
              "%d pairs; gpu %d to gpu %d is the fastest with %.4g GB/s, gpu %d to gpu %d the "
              "slowest with %.4g",
              p->n * (p->n - 1), best.from, best.to, best.rate, worst.from, worst.to, worst.rate);
}

void gpu_p2p_cuda(struct check_ctx *c, struct agent_result *r) {
    GP_CLEANUP(p2p_clear) struct p2p p = {.c = c, .r = r};
    const struct cuda_api *cu = NULL;
    struct gp_error err = {0};
    int rc = cuda_start(&cu, &err);
    if (rc == 0) {
        cu_result cr = cu->device_count(&p.n);
        p.n = cr ? 0 : GP_MIN(p.n, GPUS_MAX);
        rc = cr ? cuda_fail(&err, cr, "count GPUs") : 0;
    }
    if (rc == 0 && p.n < 2) {
        agent_set(r, VERDICT_SKIPPED, "one_gpu", "this node has one GPU, so there is no pair");
        return;
    }
    if (rc == 0) rc = open_all(&p, &err);
    for (int i = 0; rc == 0 && i < p.n; i++)
        for (int j = 0; rc == 0 && j < p.n; j++)
            if (i != j) rc = run_pair(&p, i, j, &err);
    judge(&p);
    if (rc < 0) cuda_verdict(r, &err);
}
