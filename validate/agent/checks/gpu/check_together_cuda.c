/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.together: the links of all GPUs of a node loaded at once, each GPU compared with itself alone. Copies from the
 * host and to it show an uplink that starves some GPUs; each GPU sending to another one, in every shift, shows a
 * switch or link that carries one pair but not all, nor both directions. One worker opens all GPUs; one thread queues
 * the work of all. */
#include "base/gp_base.h"

#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#include "base/stats.h"

#define MIB ((size_t)1 << 20)
enum { COPIES = 8, GPUS_MAX = 16, MANY = 4, MARK_FROM = 0, MARK_TO = 1 };
#define STARVED 0.65       /* of the median share: one uplink carries less than the others */
#define STARVED_OF_FEW 0.5 /* of the best share, with too few GPUs for a median */
#define CROWDED 0.2        /* of its own rate alone: more GPUs on one uplink than any sound design has */
#define PEER_SLOW 0.75     /* through NVSwitch all pairs at once keep nearly their rate alone */
#define PEER_FAILS 0.5

struct peer {
    struct device *dev;
    struct pattern_room room;
    dev_addr from, to;
    void *host;
    double alone, together; /* GB/s, of the way that is measured */
};
struct together {
    struct check_ctx *c;
    struct agent_result *r;
    int n;
    size_t bytes;
    bool direct; /* all pairs that were used */
    struct peer peers[GPUS_MAX];
};
enum way { WAY_H2D, WAY_D2H, WAY_PEER };

static void together_clear(struct together *t) {
    const struct device_ops *ops = agent_kind.device;
    for (int i = 0; i < t->n; i++) {
        struct peer *p = &t->peers[i];
        if (!p->dev) continue;
        ops->free(p->dev, p->from);
        ops->free(p->dev, p->to);
        cuda_host_free(p->dev, p->host);
        pattern_close(&p->room);
        ops->close(p->dev);
    }
}

static struct pattern pattern_of(const struct together *t, int gpu, dev_addr at) {
    return (struct pattern){.base = at, .bytes = t->bytes, .kind = MEM_PAIRED, .seed = 0x70676574u + (unsigned)gpu};
}

static int open_all(struct together *t, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    int64_t machine = 0, host = agent_memory_bytes(&machine);
    int rc = 0;
    t->bytes = GP_MIN(128 * MIB, (size_t)GP_MAX(host, 0) / 16 / (size_t)t->n);
    for (int i = 0; rc == 0 && i < t->n; i++) {
        size_t avail = 0, total = 0;
        rc = ops->open(i, &t->peers[i].dev, err);
        if (rc == 0) rc = cuda_memory(t->peers[i].dev, &avail, &total, err);
        t->bytes = GP_MIN(t->bytes, total / 32);
    }
    t->bytes = GP_MAX(t->bytes & ~(MIB - 1), MIB);
    for (int i = 0; rc == 0 && i < t->n; i++) {
        struct peer *p = &t->peers[i];
        rc = pattern_open(&p->room, t->c, p->dev, i, err);
        if (rc == 0) rc = ops->alloc(p->dev, t->bytes, &p->from, err);
        if (rc == 0) rc = ops->alloc(p->dev, t->bytes, &p->to, err);
        if (rc == 0) rc = cuda_host_alloc(p->dev, t->bytes, &p->host, err);
        struct pattern a = pattern_of(t, i, p->from);
        if (rc == 0) rc = pattern_fill(&p->room, &a, err);
        if (rc == 0) rc = ops->sync(p->dev, t->c->deadline_ms, err);
    }
    return rc;
}

/* --- one load --- */

static int queue(struct together *t, int i, enum way way, int shift, struct gp_error *err) {
    struct peer *p = &t->peers[i], *to = &t->peers[(i + shift) % t->n];
    struct copy_args a = {.kind = way == WAY_H2D ? COPY_TO_DEVICE : COPY_FROM_DEVICE,
                          .dev = way == WAY_H2D ? p->to : p->from,
                          .host = p->host,
                          .bytes = t->bytes};
    return way == WAY_PEER ? cuda_copy_peer(p->dev, p->from, to->dev, to->to, t->bytes, err)
                           : cuda_copy_queue(p->dev, &a, err);
}

/* GPUs [first, last] at once; their rates to ret. */
static int load(struct together *t, int first, int last, enum way way, int shift, double *ret, struct gp_error *err) {
    int rc = 0;
    for (int k = 0; rc == 0 && k <= COPIES; k++) /* the first one only sets all of them in motion */
        for (int i = first; rc == 0 && i <= last; i++) {
            rc = queue(t, i, way, shift, err);
            if (rc == 0 && (k == 0 || k == COPIES)) rc = cuda_mark(t->peers[i].dev, k ? MARK_TO : MARK_FROM, err);
        }
    for (int i = first; rc == 0 && i <= last; i++) {
        double s = 0;
        rc = agent_kind.device->sync(t->peers[i].dev, t->c->deadline_ms, err);
        if (rc == 0) rc = cuda_elapsed(t->peers[i].dev, MARK_FROM, MARK_TO, &s, err);
        ret[i] = s > 0 ? (double)t->bytes * COPIES / s / 1e9 : 0;
    }
    return rc;
}

/* Empties the targets, so that data of an earlier copy is not taken for this one's. */
static int forget(struct together *t, enum way way, struct gp_error *err) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < t->n; i++) {
        struct peer *p = &t->peers[i];
        struct pattern none = {.base = p->to, .bytes = t->bytes, .kind = MEM_ZEROS};
        if (way == WAY_D2H) memset(p->host, 0, t->bytes);
        else rc = pattern_fill(&p->room, &none, err);
        if (rc == 0) rc = agent_kind.device->sync(p->dev, t->c->deadline_ms, err);
    }
    return rc;
}

static int verify(struct together *t, int shift, unsigned long long *ret_wrong, struct gp_error *err) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < t->n; i++) {
        int at = (i + shift) % t->n;
        struct peer *to = &t->peers[at];
        struct pattern want = pattern_of(t, i, to->to);
        struct mem_log log = {0};
        GP_AUTO_FREE char *way =
            shift ? xasprintf("gpu %d to gpu %d", i, at) : xasprintf("gpu %d to the host and back", i);
        rc = pattern_verify(&to->room, &want, &log, err);
        *ret_wrong += log.wrong;
        if (rc == 0 && log.wrong)
            agent_set(t->r, VERDICT_FAIL, "together_wrong", "%s: %llu words arrived wrong while all GPUs sent", way,
                      log.wrong);
    }
    return rc;
}

static void add_rates(struct together *t, const char *key, const double *v) {
    agent_data_nums(t->r, key, v, (size_t)t->n);
}

/* --- from and to the host --- */

static void name_starved(struct together *t, int gpu, const char *way, double usual) {
    const struct peer *p = &t->peers[gpu];
    agent_set(t->r, VERDICT_DEGRADED, "starved_link",
              "gpu %d: %.4g GB/s %s the host when all GPUs copy at once, %.0f %% of its rate alone; the others keep "
              "%.0f %%",
              gpu, p->together, way, 100 * p->together / p->alone, 100 * usual);
    agent_suggest(t->r, "look at the uplink of this GPU's PCIe switch ('lspci -vv', LnkSta of the bridges above it), "
                        "power-cycle the machine; replace the node");
}

static void judge_host(struct together *t, const char *way) {
    double share[GPUS_MAX], best = 0;
    for (int i = 0; i < t->n; i++) {
        share[i] = t->peers[i].alone > 0 ? t->peers[i].together / t->peers[i].alone : 0;
        best = GP_MAX(best, share[i]);
    }
    bool many = t->n >= MANY;
    double usual = many ? stats_median(share, (size_t)t->n) : best;
    for (int i = 0; i < t->n; i++) {
        if (share[i] < usual * (many ? STARVED : STARVED_OF_FEW)) name_starved(t, i, way, usual);
        else if (share[i] < CROWDED)
            agent_set(t->r, VERDICT_DEGRADED, "crowded_link",
                      "gpu %d: %.4g GB/s %s the host when all GPUs copy at once, %.0f %% of its rate alone", i,
                      t->peers[i].together, way, 100 * share[i]);
    }
}

static int run_host(struct together *t, enum way way, const char *figure, const char *text, struct gp_error *err) {
    double alone[GPUS_MAX] = {0}, all[GPUS_MAX] = {0};
    GP_AUTO_FREE char *alone_key = xasprintf("%s_alone", figure);
    GP_AUTO_FREE char *all_key = xasprintf("%s_together", figure);
    int rc = 0;
    for (int i = 0; rc == 0 && i < t->n; i++) rc = load(t, i, i, way, 0, alone, err);
    if (rc == 0) rc = forget(t, way, err);
    if (rc == 0) rc = load(t, 0, t->n - 1, way, 0, all, err);
    if (rc < 0) return rc;
    for (int i = 0; i < t->n; i++) {
        t->peers[i].alone = alone[i];
        t->peers[i].together = all[i];
    }
    add_rates(t, alone_key, alone);
    add_rates(t, all_key, all);
    agent_metric(t->r, figure, stats_quantile(all, (size_t)t->n, 0));
    judge_host(t, text);
    return 0;
}

/* --- among each other --- */

static int enable(struct together *t, int shift, bool on, struct gp_error *err) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < t->n; i++) {
        struct device *to = t->peers[(i + shift) % t->n].dev;
        bool direct = false;
        rc = on ? cuda_peer_enable(t->peers[i].dev, to, &direct, err) : cuda_peer_disable(t->peers[i].dev, to, err);
        if (on) t->direct = t->direct && direct;
    }
    return rc;
}

/* NVSwitch: every pair has its full rate whatever the others do. */
static bool all_joined(const struct together *t) {
    const struct gpu_model *m = t->r->about.model;
    return m && t->direct && gpu_model_spec(m, "nvlink_gb_per_s") > 0 && gpu_model_spec(m, "nvlink_bridge") <= 0;
}

static void judge_peers(struct together *t, int shift, const double *alone, const double *all) {
    for (int i = 0; i < t->n && all_joined(t); i++) {
        double share = alone[i] > 0 ? all[i] / alone[i] : 0;
        if (share >= PEER_SLOW) continue;
        agent_set(t->r, share < PEER_FAILS ? VERDICT_FAIL : VERDICT_DEGRADED, "slow_together",
                  "gpu %d to gpu %d: %.4g GB/s while all GPUs send, %.0f %% of its rate alone (%.4g)", i,
                  (i + shift) % t->n, all[i], 100 * share, alone[i]);
        agent_suggest(t->r, "look at 'nvidia-smi nvlink -e' and the fabric manager's log; replace the node");
    }
}

static int run_peers(struct together *t, struct gp_error *err) {
    double alone[GPUS_MAX] = {0}, all[GPUS_MAX] = {0}, worst = 0;
    unsigned long long wrong = 0;
    int rc = verify(t, 0, &wrong, err); /* what came back from the host */
    t->direct = true;
    for (int shift = 1; rc == 0 && shift < t->n; shift++) {
        rc = enable(t, shift, true, err);
        for (int i = 0; rc == 0 && i < t->n; i++) rc = load(t, i, i, WAY_PEER, shift, alone, err);
        if (rc == 0) rc = forget(t, WAY_PEER, err);
        if (rc == 0) rc = load(t, 0, t->n - 1, WAY_PEER, shift, all, err);
        if (rc == 0) rc = verify(t, shift, &wrong, err);
        if (rc == 0) rc = enable(t, shift, false, err);
        double least = stats_quantile(all, (size_t)t->n, 0);
        if (shift == 1 || least < worst) worst = least;
        if (rc == 0) judge_peers(t, shift, alone, all);
        if (shift == 1) add_rates(t, "peer_alone", alone);
        if (shift == 1) add_rates(t, "peer_together", all);
    }
    if (rc < 0) return rc;
    agent_metric(t->r, "peer_all", worst);
    agent_metric(t->r, "wrong", (double)wrong);
    return 0;
}

void gpu_together_cuda(struct check_ctx *c, struct agent_result *r) {
    GP_CLEANUP(together_clear) struct together t = {.c = c, .r = r};
    const struct cuda_api *cu = NULL;
    struct gp_error err = {0};
    int rc = cuda_start(&cu, &err);
    if (rc == 0) {
        cu_result cr = cu->device_count(&t.n);
        t.n = cr ? 0 : GP_MIN(t.n, GPUS_MAX);
        rc = cr ? cuda_fail(&err, cr, "count GPUs") : 0;
    }
    if (rc == 0 && t.n < 2) {
        agent_set(r, VERDICT_SKIPPED, "one_gpu", "this node has one GPU, so nothing shares its links");
        return;
    }
    if (rc == 0) rc = open_all(&t, &err);
    unsigned device = 0, subsystem = 0;
    if (rc == 0 && cuda_pci_ids(t.peers[0].dev, &device, &subsystem))
        r->about.model = gpu_model_find(device, subsystem);
    if (rc == 0) rc = run_host(&t, WAY_D2H, "d2h_all", "to", &err); /* the host sends back what it received */
    if (rc == 0) rc = run_host(&t, WAY_H2D, "h2d_all", "from", &err);
    if (rc == 0) rc = run_peers(&t, &err);
    agent_metric(r, "gpus", t.n);
    if (rc < 0) cuda_verdict(r, &err);
    else
        agent_say(r, "all %d GPUs at once: at least %.4g GB/s to the host, %.4g from it, %.4g to another GPU", t.n,
                  r->metrics[0].value, r->metrics[1].value, r->metrics[2].value);
}
