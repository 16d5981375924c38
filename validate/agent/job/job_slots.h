/* SPDX-License-Identifier: Apache-2.0 */
/* A small text in a file that needs no space once it is made: two places of 4 KiB are written in turn, each with a
 * number and a checksum. A full disk, a crash in the middle or a reader at the same time always leave one valid
 * text. One writer at a time, which the caller ensures; any number of readers. */
#ifndef GP_AGENT_JOB_SLOTS_H
#define GP_AGENT_JOB_SLOTS_H

#include "base/error.h"
#include "base/str.h"

#define SLOT_SIZE 4096
#define SLOT_TEXT_MAX (SLOT_SIZE - 40) /* bytes of the text; no newline, no blank at its end */

struct slots {
    int fd;
    uint64_t seq; /* of the newest text */
};
/* Makes the file, mode 0600, with both places written and synced. It must not exist. */
int slots_create(const char *path, const char *text, struct gp_error *err);
/* For slots_put. -GP_ENOTFOUND: no such file; -GP_EPROTO: it has no valid text. The caller closes ret->fd. */
int slots_open(const char *path, struct slots *ret, struct gp_error *err);
/* Replaces the text. sync: it is on the disk when this returns. 0 or -errno. */
int slots_put(struct slots *s, const char *text, bool sync);
/* The newest valid text; ret is appended to. Codes of slots_open. */
int slots_get(const char *path, struct str *ret, struct gp_error *err);
/* The same from an open file. False: none is valid. */
bool slots_get_fd(int fd, struct str *ret, uint64_t *ret_seq);

#endif
