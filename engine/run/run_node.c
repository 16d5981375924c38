/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a run and their records in the journal. */
#include "base/gp_base.h"

#include "engine/run/run_node.h"

#include "engine/run/run_event.h"

#include <assert.h>

static void node_clear(struct run_node *n) {
    node_link_close(&n->link);
    ssh_target_clear(&n->link.target);
    node_record_clear(&n->rec);
    resource_clear(&n->res);
    gp_cancel_clear(&n->cancel);
    bootstrap_result_clear(&n->boot);
    secret_clear(&n->end_credential);
}

void run_nodes_alloc(struct run *run, int n) {
    if (n <= run->n_nodes) return;
    run->nodes = xrealloc(run->nodes, (size_t)n * sizeof *run->nodes);
    for (int i = run->n_nodes; i < n; i++) {
        struct run_node *node = &run->nodes[i];
        *node = (struct run_node){.slot = i, .ends_ms = GP_NEVER};
        node->cancel.efd = -1;
        node->rec = (struct node_record){.slot = i, .phase = NODE_PLANNED};
        resource_init(&node->res, RES_INSTANCE, "");
        node->res.slot = i;
    }
    run->n_nodes = n;
    for (int i = 0; i < n; i++) run->nodes[i].run = run;
}

void run_nodes_free(struct run *run) {
    for (int i = 0; i < run->n_nodes; i++) node_clear(&run->nodes[i]);
    free(run->nodes);
}

int run_nodes_recall(struct run *run, struct gp_error *err) {
    if (run->stack.uid == NULL) return 0;
    struct node_record_list records = {0};
    int r = journal_nodes(run->e->journal, run->stack.uid, &records, err);
    for (size_t i = 0; r == 0 && i < records.list.len; i++) {
        struct node_record *rec = &records.list.items[i];
        if (rec->slot < 0 || rec->slot >= RUN_MAX_SLOTS) continue;
        run_nodes_alloc(run, rec->slot + 1);
        struct run_node *n = &run->nodes[rec->slot];
        node_record_clear(&n->rec);
        n->rec = *rec;
        *rec = (struct node_record){0};
    }
    node_record_list_clear(&records);
    return r;
}

bool run_any_exists(const struct run *run) {
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) return true;
    return false;
}

enum offer_ends run_nodes_end(const struct run *run) {
    enum offer_ends weakest = ENDS_BY_PROVIDER;
    for (int i = 0; i < run->n_nodes; i++) {
        const struct resource *r = &run->nodes[i].res;
        const struct provider_ops *ops = run->nodes[i].exists ? provider_find(r->provider) : NULL;
        if (ops == NULL) continue;
        enum offer_ends one = r->ends_itself ? ENDS_GUEST : ops->ends;
        weakest = GP_MAX(weakest, one);
    }
    return weakest;
}

static bool has(const char *key) { return key != NULL && key[0] != '\0'; }

bool run_node_has_first_key(const struct run_node *n) {
    return has(n->rec.host_key_first) || has(n->rec.host_key_next);
}

bool run_node_has_key(const struct run_node *n) { return has(n->rec.host_key) || run_node_has_first_key(n); }

int run_node_save(const struct run_node *n, struct gp_error *err) {
    return journal_node_put(n->run->e->journal, n->run->stack.uid, &n->rec, err);
}

/* A dry run changes no phase, also if it is killed. */
static int save_phase(const struct run_node *n, struct gp_error *err) {
    bool dry = n->run->pick != NULL && n->run->pick->dry_run;
    return dry ? 0 : run_node_save(n, err);
}

int run_node_restart(struct run_node *n, struct gp_error *err) {
    n->rec.phase = NODE_REACHING;
    free(n->rec.note);
    n->rec.note = NULL;
    return save_phase(n, err);
}

int run_node_phase(struct run_node *n, enum node_phase phase, struct gp_error *err) {
    assert(n->rec.phase == phase || node_phase_legal(n->rec.phase, phase));
    n->rec.phase = phase;
    int r = save_phase(n, err);
    static const char *const says[] = {
        [NODE_REACHING] = "waiting for ssh",         [NODE_BOOTSTRAPPING] = "bootstrapping",
        [NODE_CHECKING] = "checking the node",       [NODE_WAITING] = "waiting for the other nodes",
        [NODE_GANG] = "checking all nodes together", [NODE_READY] = "validated"};
    bool said = (size_t)phase < GP_ARRAY_LEN(says) && says[phase] != NULL;
    if (r == 0)
        event_send(&n->run->sink, (struct event){.node = n->slot,
                                                 .phase = phase,
                                                 .status = phase == NODE_READY ? EVENT_DONE : EVENT_START,
                                                 .text = said ? says[phase] : node_phase_name(phase),
                                                 .limit_ms = n->limit_ms});
    n->limit_ms = 0;
    return r;
}

bool run_nodes_beside(const struct run *run, const char *provider, const char *region) {
    for (int i = 0; i < run->n_nodes && i < run->spec->nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        if (n->exists && (!str_eq(n->res.provider, provider) || !str_eq(n->res.region, region))) return false;
    }
    return true;
}
