/* SPDX-License-Identifier: Apache-2.0 */
/* Controller side of validation: chooses checks that fit the time, runs the agent on a node, reads its JSON lines,
 * judges by the table and the spec. */
#ifndef GP_VALIDATE_H
#define GP_VALIDATE_H

#include "model/report.h"
#include "spec/spec.h"
#include "ssh/link.h"
#include "validate/suite/checks.h"

struct validate_plan {
    VEC_OF(const struct check_info *) node_checks; /* CHECK_NODE and, with gpus, CHECK_GPU */
    VEC_OF(const struct check_info *) gang_checks;
    bool short_gang;      /* no time for the long forms of gang checks */
    int64_t node_time_ms; /* the node checks' time, all together, without loading */
    struct strv left_out; /* "id (reason)": in the report as skipped */
};
/* Chooses the checks for this spec: all that apply and fit v->time, required ones first, then the cheapest
 * and most telling (pick.h).
 * A required check that does not fit or cannot apply: -GP_EUSAGE, so that `check` refuses the spec (train.ddp
 * applies to one node: it runs with one rank). Pure. */
int validate_choose(const struct spec *spec, struct validate_plan *ret, struct gp_error *err);
/* The same for the machine that this program runs on. With GPUs gpu.presence must fit the time (-GP_EUSAGE); the
 * others are taken if they fit, else listed in left_out. Gang checks between the GPUs of the machine are among
 * node_checks: one agent runs all. Pure. */
int validate_choose_local(const struct spec *spec, struct validate_plan *ret, struct gp_error *err);
void validate_plan_clear(struct validate_plan *p);

struct validate_env {
    const struct spec *spec;
    const struct validate_plan *plan;
    const char *stack, *uid, *run; /* run: 16 hex digits, new for each validation */
    bool nvidia_expected;
    int gpus_expected; /* per node; 0: none bought */
    int rdma_expected; /* RDMA devices that the node's provider lists; 0 or less: unknown, or none */
    bool all;          /* continue a node's checks after a certain failure */
    struct gp_cancel *cancel;
    const struct event_sink *sink;
};
/* Runs the node checks in the calling (node's) thread; fills rn->checks. 0 also when checks fail: see their
 * verdicts. Negative: the agent did not run at all (GP_EREACH, GP_EAGENT...); every check is then recorded as error
 * with that reason. */
int validate_node(struct node_link *l, const struct validate_env *env, struct report_node *rn, struct gp_error *err);

/* The same on this machine: runs the embedded agent as a child. Leaves nothing on disk. */
int validate_local(const struct validate_env *env, struct report_node *rn, struct gp_error *err);

struct gang_node {
    struct node_link *link;
    const char *private_ip; /* the other ranks connect to it */
    struct report_node *rn;
};
/* Runs the gang checks over all nodes: pushes the token over stdin, starts ranks detached, rank 0
 * first (its rendezvous port comes back), reads all by one poll loop, kills the remaining ranks at the deadline,
 * fills report->gang and each rn's share. Returns as validate_node. */
int validate_gang(struct gang_node *nodes, size_t n, const struct validate_env *env, struct report *report,
                  struct gp_error *err);

/* Compares the GPUs of all nodes with each other (peers.h), after the nodes' own checks: a GPU out of line makes its
 * node's check degraded(outlier) and is reported by an event. */
void validate_peers(const struct validate_env *env, struct report *report);
/* The same for the products of GPUs: random products of gpu.sdc that differ from the majority's of the same model,
 * library and algorithm fail; without a majority all of them are degraded. */
void validate_products(const struct validate_env *env, struct report *report);

/* Applies required/floors/strict of the spec to results (sets has_floor, floor, verdict). Pure. */
void validate_apply_floors(const struct spec *spec, struct check_result *r);
/* The check table's names and figures, for spec_load. */
const struct spec_names *validate_names(void);
char *checks_markdown(void);                          /* docs/checks.md; caller frees */
char *check_markdown(const struct check_info *check); /* its section of that page; caller frees */
char *models_markdown(void);                          /* docs/gpu-models.md; caller frees */

#endif
