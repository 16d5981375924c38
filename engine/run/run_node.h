/* SPDX-License-Identifier: Apache-2.0 */
/* One slot of a run's stack: its journal record, its machine, its connection, its results. */
#ifndef GP_ENGINE_RUN_NODE_H
#define GP_ENGINE_RUN_NODE_H

#include "engine/run/run.h"

#define RUN_MAX_SLOTS 4096 /* a higher slot in a tag is ignored */

/* Owned by its node thread while the pool runs, by the coordinator otherwise. */
struct run_node {
    struct run *run;
    int slot;

    /* the record and the machine */
    struct node_record rec;
    struct resource res; /* as of the last reconcile or watch; kind RES_INSTANCE or RES_HOST */
    bool exists;         /* the cloud has it and it is not gone */
    char tag_key[64];    /* the fingerprint of its tag, if that is proven (trust.h) and no record has a key; else "" */

    /* the work on it */
    bool skip;       /* nothing to do for it */
    int64_t ttl_s;   /* what was left of the stack's time when the work began, by the cloud's clock; 60 at least */
    int64_t ends_ms; /* monotonic: the stack's deadline; GP_NEVER: it has none */
    struct node_link link;
    struct secret end_credential; /* handed over when the bootstrap is complete; empty: none */
    bool end_given;               /* the node has it and has used it */
    struct gp_cancel cancel;      /* set when the whole run is cancelled or this machine died */
    bool ended;                   /* the machine terminated during the work */
    bool unreached;               /* it did not accept a login */
    int64_t limit_ms;             /* time limit of the phase that begins next; 0: none */
    char said[GP_ERROR_MSG_MAX];  /* why ssh waits, as last reported */

    /* the results */
    struct bootstrap_result boot;
    struct bootstrap_clean clean; /* bake */
    struct report_node report;
    int rc;
    struct gp_error err;
};

/* Makes the run have at least n nodes; new ones are planned and have no machine. */
void run_nodes_alloc(struct run *run, int n);
/* Reads the nodes' records from the journal. */
int run_nodes_recall(struct run *run, struct gp_error *err);
void run_nodes_free(struct run *run);
bool run_any_exists(const struct run *run); /* any node has a machine */
/* Who ends the nodes that exist at their deadline: of several, the one that can be relied on least. A node ends itself
 * where the cloud shows that it may. ENDS_BY_PROVIDER: there is no node. */
enum offer_ends run_nodes_end(const struct run *run);
/* Sets a node back to NODE_REACHING (validate, a changed spec, after a crash) and saves it. */
int run_node_restart(struct run_node *n, struct gp_error *err);
/* The journal has a host key that came with user-data, or its replacement. Then the tags do not decide about the
 * node's key, and it must be rotated. */
bool run_node_has_first_key(const struct run_node *n);
/* That, or a pinned key. */
bool run_node_has_key(const struct run_node *n);
/* Writes its record to the journal. */
int run_node_save(const struct run_node *n, struct gp_error *err);
/* Moves a node to a phase (legal transitions only), saves it and reports it. */
int run_node_phase(struct run_node *n, enum node_phase phase, struct gp_error *err);
/* Whether that place may have another node: the nodes of one stack connect over private addresses, so all of them are
 * in the region of the first. Nodes beyond the spec's number do not count: `up` destroys them. */
bool run_nodes_beside(const struct run *run, const char *provider, const char *region);

#endif
