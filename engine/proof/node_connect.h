/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to one node of a stack that exists, for verbs that do one thing on it. */
#ifndef GP_ENGINE_NODE_CONNECT_H
#define GP_ENGINE_NODE_CONNECT_H

#include "engine/run/run_node.h"

/* After reconcile. The node's link is connected, and closed with the run. timeout_ms: also of a later reconnect.
 * -GP_ENOTFOUND: there is no such node. Blocks on the network. */
int node_connect(struct run *run, int slot, int64_t timeout_ms, struct gp_error *err);
/* The same, but the link is only prepared: node_link_ensure connects it. Does not block on the network. */
int node_connect_prepare(struct run *run, int slot, int64_t timeout_ms, struct gp_error *err);

#endif
