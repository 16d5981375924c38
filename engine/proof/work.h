/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes' part of the story, all nodes at once. */
#ifndef GP_ENGINE_WORK_H
#define GP_ENGINE_WORK_H

#include "engine/run/run.h"

struct run_node;

void work_begin(struct run *run); /* fills run->validation: the facts of this run that the checks get */
/* work(n) for every wanted node that has a machine, from its beginning, under the watcher. */
int work_on_nodes(struct run *run, void (*work)(struct run_node *n), struct gp_error *err);
/* Whether nodes that were READY answer and were not rebooted since; each that differs is reported. */
int work_look_again(struct run *run, bool *ret_same, struct gp_error *err);
/* The one late tag: the fingerprint of each node's own host key. */
int work_tag_host_keys(struct run *run, struct gp_error *err);

#endif
