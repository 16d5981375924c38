/* SPDX-License-Identifier: Apache-2.0 */
/* One watcher polls the cloud for all nodes. */
#ifndef GP_ENGINE_WATCH_H
#define GP_ENGINE_WATCH_H

#include "engine/run/run.h"

struct run_node;

/* Until watch_stop the providers belong to the watcher's thread. */
int watch_start(struct run *run, struct gp_error *err);
void watch_stop(struct run *run); /* joins; safe when not started */
/* Waits until the node runs and has an address, and updates n->res. Runs in the node's thread. */
int watch_wait_running(struct run_node *n, int64_t deadline_ms, struct gp_error *err);

#endif
