/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a node gets the checkpoint that is here, or keeps its own, which is the newer one. A file on the node notes
 * which stack's checkpoint its folder has, and whether one that was sent is whole. Each function blocks for a round
 * trip on the link, which belongs to the calling thread. */
#ifndef GP_ENGINE_JOB_CHECKPOINT_H
#define GP_ENGINE_JOB_CHECKPOINT_H

#include "ssh/link.h"

/* path: on the node, absolute or relative to the home folder. *ret_send: it has nothing there, or what an interrupted
 * job_files_send or another stack left. The caller then sends (some: it has something to send), and calls
 * job_checkpoint_sent. Errors: those of node_link_sh; -GP_EIO: the note could not be written. */
int job_checkpoint_claim(struct node_link *l, const char *uid, const char *path, bool some, bool *ret_send,
                         struct gp_error *err);
int job_checkpoint_sent(struct node_link *l, const char *uid, const char *path, struct gp_error *err);

#endif
