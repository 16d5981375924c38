/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the work on all nodes: the pool under one watcher, and the tag that lets other machines pin the host keys. Runs
 * in the verb's thread; only `work` runs in the pool's threads. */
#include "base/gp_base.h"

#include "engine/proof/work.h"

#include "engine/proof/console.h"
#include "engine/proof/node_run.h"
#include "engine/proof/run_cache.h"
#include "engine/proof/watch.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/trust/proof_key.h"

void work_begin(struct run *run) {
    run->validation.started_ms = clock_ms();
    run->validation.env = (struct validate_env){.spec = run->spec,
                                                .plan = &run->validation.plan,
                                                .stack = run->stack.name,
                                                .uid = run->stack.uid,
                                                .run = run->id,
                                                .nvidia_expected = run->spec->gpu.count > 0,
                                                .gpus_expected = run->spec->gpu.count,
                                                .all = run->e->opts.check_all,
                                                .cancel = &run->e->cancel,
                                                .sink = &run->sink};
}

static int watched(struct run *run, void (*work)(struct run_node *), struct gp_error *err) {
    int r = watch_start(run, err);
    run_cache_open(run);
    if (r == 0) r = pool_run(run, work, err);
    run_cache_close(run);
    watch_stop(run);
    return r;
}

int work_on_nodes(struct run *run, void (*work)(struct run_node *), struct gp_error *err) {
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        n->skip = i >= run->spec->nodes || !n->exists;
        if (n->skip) continue;
        int64_t left_s = run->stack.expires_s - run_cloud_s(run, n->res.provider);
        n->ttl_s = GP_MAX(left_s, (int64_t)60);
        n->ends_ms = run->stack.expires_s > 0 ? clock_deadline(left_s * 1000) : GP_NEVER;
        int r = run_node_restart(n, err);
        if (r != 0) return r;
    }
    int r = watched(run, work, err);
    console_report(run);
    return r;
}

int work_look_again(struct run *run, bool *ret_same, struct gp_error *err) {
    for (int i = 0; i < run->n_nodes; i++) run->nodes[i].skip = i >= run->spec->nodes;
    int r = watched(run, node_run_look, err);
    if (r == 0 && gp_cancelled(&run->e->cancel)) r = gp_fail(err, GP_ECANCELLED, "cancelled");
    *ret_same = true;
    for (int i = 0; i < run->spec->nodes; i++) {
        struct run_node *n = &run->nodes[i];
        node_link_close(&n->link);
        gp_cancel_clear(&n->cancel);
        if (n->rc == 0) continue;
        *ret_same = false;
        if (r == 0) run_event(run, i, NODE_REACHING, EVENT_WARN, "look", "%s: validating it again", n->err.msg);
        n->rc = 0;
        gp_error_clear(&n->err);
    }
    return r;
}

/* Whether the machine's tags already say what its key proves. */
static bool is_tagged(const struct run_node *n, const char *fingerprint, const char *proof) {
    return strcmp(n->res.host_keys, fingerprint) == 0 && strcmp(n->res.proof, proof) == 0;
}

/* The tags let a machine with an empty journal and the login key pin the keys, also of nodes that failed later. */
int work_tag_host_keys(struct run *run, struct gp_error *err) {
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        const struct provider_ops *ops = n->skip ? NULL : provider_find(n->res.provider);
        if (ops == NULL || ops->tag == NULL || !ops->key_rotation) continue;
        if (n->rec.host_key == NULL || n->rec.host_key[0] == '\0') continue;
        char fingerprint[80], proof[PROOF_SIZE] = "";
        struct provider *p = NULL;
        struct gp_error why = {0};
        int r = ssh_key_fingerprint(n->rec.host_key, fingerprint, sizeof fingerprint, &why);
        if (r == 0) r = run_proof_key(run, false, &why);
        if (r == 0) proof_of_machine(&run->proof, run->stack.uid, n->res.provider, n->res.id, i, fingerprint, proof);
        if (r == 0 && is_tagged(n, fingerprint, proof)) continue;
        if (r == 0) r = run_provider(run, n->res.provider, &p, &why);
        struct resource_list one = {.list = {.items = &n->res, .len = 1, .cap = 1}};
        const struct late_tag tags[] = {{"hostkey", fingerprint}, {"proof", proof}};
        if (r == 0) r = ops->tag(p, &one, tags, GP_ARRAY_LEN(tags), &why);
        if (r == 0 || n->rc != 0) continue; /* the node's own failure counts; it may be gone */
        if (err != NULL) *err = why;
        return gp_wrap(err, "%s/%d: could not tag its host key", run->stack.name, i);
    }
    return 0;
}
