/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program of the node and reads its output, within a deadline. Linux; any thread. */
#ifndef GP_AGENT_COMMAND_H
#define GP_AGENT_COMMAND_H

#include "base/error.h"
#include "base/str.h"

/* argv[0] is a path, or searched in PATH and the usual folders. ret_out: its stdout and stderr together, at most
 * 16 KiB. ret_status: its exit status; 128 + signal when it was killed. stdin is empty; it gets the
 * caller's environment. -GP_ENOTFOUND: no such program; -GP_ETIMEOUT: killed at the deadline (monotonic ms);
 * -GP_EENV: not started. Blocks. */
int command_run(const char *const *argv, int64_t deadline_ms, struct str *ret_out, int *ret_status,
                struct gp_error *err);
/* The path of that program; NULL: not found. Caller frees. */
char *command_find(const char *name);

#endif
