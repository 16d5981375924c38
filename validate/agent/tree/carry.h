/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the bytes of one side of a transfer. Private to validate/agent/tree. */
#ifndef GP_AGENT_TREE_CARRY_H
#define GP_AGENT_TREE_CARRY_H

#include "tree/tree.h"

#define CARRY_BYTES ((size_t)256 << 10)
#define CARRY_PING_MS (10 * 1000) /* gpuprov ends a transfer of which it heard nothing for a minute */

struct carry {
    struct tree_side *side;
    int in, out;        /* non-blocking; may be one descriptor */
    int control;        /* ends the transfer when it ends; what it sends is dropped. -1: none */
    int64_t ping_ms;    /* between pings to the other side */
    int beat;           /* gets a newline with each ping, as tree_say_alive; -1: none */
    unsigned char *buf; /* CARRY_BYTES */
    int64_t heard_ms, ping_at_ms;
};
void carry_nonblocking(int fd);
/* For the side's options: pings while the side works for long. ctx: the carry, whose side may not be made yet. */
void carry_beat(void *ctx);
/* A newline, which gpuprov skips before the answer and drops after it. */
void carry_say_alive(int fd);
/* Until the side has ended and all is sent. -GP_ELOST: the other side, or control, is gone or was not heard for a
 * minute; else the side's error. */
int carry_all(struct carry *c, struct gp_error *err);
/* Reports to the other side why this one failed, if it still listens. */
void carry_last_message(struct carry *c, const struct gp_error *why);
/* "~/x" and "x" below the home folder; absolute paths as they are. Caller frees. */
char *carry_home_path(const char *path);

/* --- share.c --- */
/* `tree share`: the list comes after the request, of which `have` bytes are in buf already. Ends with stdin. */
int tree_share(const struct tree_request *q, unsigned char *buf, size_t have, struct gp_error *err);
/* `tree fetch`: *ret_bytes came from the other node. */
int tree_fetch(const struct tree_request *q, unsigned char *buf, uint64_t *ret_bytes, struct gp_error *err);

#endif
