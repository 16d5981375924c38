/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's side of a holder's control socket (ctl.c). Internal to providers/local. */
#ifndef GP_LOCAL_ASK_H
#define GP_LOCAL_ASK_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

/* Waits until a holder that lives can be asked: its record is there before it has set up, when another
 * gpuprov starts it. No holder, or none that listens in time: -GP_ENOTFOUND. Blocks. */
int local_await(const char *dir, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err);

/* Sends one request line (without newline) and reads the answer to its end. Nobody listens:
 * -GP_ENOTFOUND (nothing was asked). Lost or late after it was sent: -GP_EUNKNOWN. */
int local_ask(const char *dir, const char *request, int64_t deadline_ms, const struct gp_cancel *cancel,
              struct str *ret, struct gp_error *err);

#endif
