/* SPDX-License-Identifier: Apache-2.0 */
/* A program that prints credentials: run without a shell, with a deadline and a bounded output. Its messages (stderr)
 * go to the terminal. Blocks. Any thread. */
#ifndef GP_COMMON_PROGRAM_H
#define GP_COMMON_PROGRAM_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

#define PROGRAM_MAX ((size_t)64 << 10)
#define PROGRAM_MS 60000

/* argv[0] is searched in PATH. ret: the output, at most PROGRAM_MAX bytes; the caller wipes and frees it, also after an
 * error. -GP_ENOTFOUND: there is no such program. -GP_EAUTH: it failed. -GP_ETIMEOUT, -GP_ECANCELLED, -GP_EPROTO (it
 * printed too much): it was killed. cancel may be NULL. */
int program_run(char *const argv[], int64_t timeout_ms, const struct gp_cancel *cancel, struct str *ret,
                struct gp_error *err);

#endif
