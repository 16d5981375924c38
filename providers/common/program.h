/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose output is read: run without a shell, with a deadline and a bounded output. Blocks. Any thread. */
#ifndef GP_COMMON_PROGRAM_H
#define GP_COMMON_PROGRAM_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

#define PROGRAM_MAX ((size_t)64 << 10)
#define PROGRAM_MS 60000

/* For programs that print credentials: their messages (stderr) go to the terminal. argv[0] is searched in PATH.
 * ret: the output, at most PROGRAM_MAX bytes; the caller wipes and frees it, also after an
 * error. -GP_ENOTFOUND: there is no such program. -GP_EAUTH: it failed. -GP_ETIMEOUT, -GP_ECANCELLED, -GP_EPROTO (it
 * printed too much): it was killed. cancel may be NULL. Processes that it leaves behind are not waited for. */
int program_run(char *const argv[], int64_t timeout_ms, const struct gp_cancel *cancel, struct str *ret,
                struct gp_error *err);
/* The same with at most `max` bytes of output, for a program that asks nobody: it has a process group of its own, which
 * is killed as a whole. Its messages do not go to the terminal: ret_messages gets the last 4 KiB
 * of them, also when it failed; caller frees. */
int program_run_quiet(char *const argv[], size_t max, int64_t timeout_ms, const struct gp_cancel *cancel,
                      struct str *ret, struct str *ret_messages, struct gp_error *err);

#endif
