/* SPDX-License-Identifier: Apache-2.0 */
/* One node that gives a folder to others, or fetches it from one: commands of the agent. Private to engine/transfer. */
#ifndef GP_ENGINE_PEERS_H
#define GP_ENGINE_PEERS_H

#include "ssh/link.h"
#include "tree/tree.h"

#define TREE_AGENT "exec \"$HOME/.gpuprov/agent/gpuprov-agent\" tree serve"

struct peer_ask {
    struct node_link *link;
    const struct tree_request *request;
    const void *list; /* share: sent after the request; NULL */
    size_t list_n;
    int64_t deadline_ms;                     /* monotonic; GP_NEVER: none */
    int64_t answer_ms;                       /* until it must have answered: signs of life do not count */
    const struct gp_cancel *cancel;          /* ends the command */
    void (*ready)(void *ctx, uint64_t port); /* share: it listens */
    void *ctx;
};
/* Lets a node share a folder until `cancel` is set; then 0. Blocks. */
int peer_share(const struct peer_ask *a, struct gp_error *err);
/* Lets a node fetch it. Blocks. *ret_bytes: came from the other node. Another error than -GP_ECANCELLED leaves the
 * node with a part of the folder at worst. */
int peer_fetch(const struct peer_ask *a, uint64_t *ret_bytes, struct gp_error *err);

#endif
