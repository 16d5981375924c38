/* SPDX-License-Identifier: Apache-2.0 */
/* The question of the verbs that launch or destroy, and the option that skips it. */
#ifndef GP_CMD_CONFIRM_H
#define GP_CMD_CONFIRM_H

#include "cmd/app.h"

/* The row of the option --yes. */
#define YES_ROW(struct_, member)                                                             \
    {                                                                                        \
        .name = "yes", .letter = 'y', .type = OPT_FLAG, .offset = offsetof(struct_, member), \
        .help = "skip the confirmation"                                                      \
    }

/* Whether a person can answer: stdin and stderr are terminals, and --json was not given. */
bool confirm_can_ask(const struct invocation *inv);
/* Prints "QUESTION [y/N] " on stderr and waits for a line of stdin. 0: the answer is "y" or "yes" in any case.
 * -GP_ECANCELLED: any other answer, the end of stdin, or Ctrl-C.
 * Call it only if confirm_can_ask; end progress before it. Blocks; verb's thread. */
int confirm_ask(struct engine *e, const char *question, struct gp_error *err);

#endif
