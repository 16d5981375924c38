/* SPDX-License-Identifier: Apache-2.0 */
/* The SSH target of a node: address, login key, host keys, bastion. */
#ifndef GP_ENGINE_NODE_TARGET_H
#define GP_ENGINE_NODE_TARGET_H

#include "engine/run/run.h"

struct run_node;

int node_target(const struct run *run, const struct run_node *n, struct ssh_target *ret, struct gp_error *err);
/* The journal has a host key that came with user-data, or its replacement. Then the tags do not decide about the
 * node's key, and it must be rotated. */
bool node_target_has_first_key(const struct run_node *n);
/* Where the other nodes reach it; the loopback address if the spec has no others. Borrowed. */
const char *node_target_peer_address(const struct run_node *n);

#endif
