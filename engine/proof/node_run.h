/* SPDX-License-Identifier: Apache-2.0 */
/* One node's part of the story, in its own thread. */
#ifndef GP_ENGINE_NODE_RUN_H
#define GP_ENGINE_NODE_RUN_H

struct run_node;

void node_run_up(struct run_node *n);
void node_run_validate(struct run_node *n);
/* Only looks: n->rc and n->err say whether it is still what was proven. Changes no record. */
void node_run_look(struct run_node *n);

#endif
