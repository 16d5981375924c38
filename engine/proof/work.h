/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the work on all nodes in parallel. */
#ifndef GP_ENGINE_WORK_H
#define GP_ENGINE_WORK_H

#include "engine/run/run.h"

struct run_node;

void work_begin(struct run *run); /* fills run->validation for the checks of this run */
/* Resets every wanted node that has a machine and calls work(n) for it, under the watcher. */
int work_on_nodes(struct run *run, void (*work)(struct run_node *n), struct gp_error *err);
/* Connects to the READY nodes. *ret_same: all answer and none was rebooted; the others are reported. */
int work_look_again(struct run *run, bool *ret_same, struct gp_error *err);
/* Tags each node with the fingerprint of its own host key. */
int work_tag_host_keys(struct run *run, struct gp_error *err);

#endif
