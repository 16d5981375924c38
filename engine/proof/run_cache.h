/* SPDX-License-Identifier: Apache-2.0 */
/* The package cache of a run (bootstrap.cache: first-node). The first node that has packages to install runs it; a
 * thread of its own keeps it alive over its own connection. It ends with the work on the nodes. */
#ifndef GP_ENGINE_RUN_CACHE_H
#define GP_ENGINE_RUN_CACHE_H

#include "bootstrap/bootstrap.h"
#include "engine/run/run_node.h"

/* Before the work on the nodes, and after it. Without the key, or with one node, there is no cache. Nothing runs on a
 * node until one has packages to install. */
void run_cache_open(struct run *run);
void run_cache_close(struct run *run);
/* For the bootstrap of this node. */
struct bootstrap_cache run_cache_of(struct run_node *n);

#endif
