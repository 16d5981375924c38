/* SPDX-License-Identifier: Apache-2.0 */
/* The work on one node, in its own thread. Results: n->rc, n->err, n->report. */
#ifndef GP_ENGINE_NODE_RUN_H
#define GP_ENGINE_NODE_RUN_H

#include "base/error.h"

struct run_node;

void node_run_up(struct run_node *n);
void node_run_validate(struct run_node *n);
/* Connects and removes what must not be in an image of the node (bootstrap_clean): n->clean. The record's note is
 * NODE_CLEANED from before the first removal on. */
#define NODE_CLEANED "cleaned for an image"
void node_run_clean(struct run_node *n);
/* Bootstraps with run->pick and runs no check; a success leaves the node in NODE_BOOTSTRAPPING, unless it is a dry run,
 * which changes no record. */
void node_run_bootstrap(struct run_node *n);
/* Only connects: fails if the node does not answer or was rebooted since its validation. Changes no record. */
void node_run_look(struct run_node *n);
/* Only connects, for the caller's own work over n->link. Under the watcher; in the node's thread. Changes no record. */
int node_run_connect(struct run_node *n, int64_t timeout_ms, struct gp_error *err);
/* Gives the node its credential, if one was made for it (self_end.h). In the node's thread, connected. */
int node_run_hand_over(struct run_node *n, struct gp_error *err);

#endif
