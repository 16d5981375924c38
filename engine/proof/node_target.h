/* SPDX-License-Identifier: Apache-2.0 */
/* The SSH target of a node: address, login key, host keys, bastion. */
#ifndef GP_ENGINE_NODE_TARGET_H
#define GP_ENGINE_NODE_TARGET_H

#include "engine/run/run.h"

struct run_node;

int node_target(const struct run *run, const struct run_node *n, struct ssh_target *ret, struct gp_error *err);
/* Where the other nodes reach it; the loopback address if the spec has no others. Borrowed. */
const char *node_target_peer_address(const struct run_node *n);

#endif
