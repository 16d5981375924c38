/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by gang.c (runs the ranks) and gang_merge.c (makes verdicts of what they said). */
#ifndef GP_VALIDATE_GANG_H
#define GP_VALIDATE_GANG_H

#include "base/secret.h"
#include "validate/lines.h"
#include "validate/validate.h"

enum rank_state {
    RANK_IDLE,    /* not started */
    RANK_RUNNING,
    RANK_DONE,    /* said its end */
    RANK_GONE     /* reason says why; nothing that it said before counts as passed */
};
struct gang;
struct gang_rank {
    struct gang *gang;
    struct gang_node *node;
    size_t index;
    enum rank_state state;
    struct agent_stream stream;
    char *reason; /* RANK_GONE, or what came after its end; owned */
    int rereads;  /* connections lost so far */
    bool asked;   /* a command that starts it was sent, and it was not stopped since */
    bool following; /* what comes is the rank's file, so its lines move stream.offset */
    bool heard[2]; /* see agent_line_foreign; of the command that runs now */
    bool began;   /* set by gang_merge: it began a check */
};
struct gang {
    const struct validate_env *env;
    size_t n, n_checks;
    const struct check_info *const *checks;
    int64_t seconds; /* what the checks take at most together */
    struct secret token;
    struct gang_rank *ranks;
};

/* Fills report->gang and each node's share from what the ranks said; a rank without a result makes
 * the gang's result an error that names its node. why: the trouble that ended everything, or NULL. */
void gang_merge(struct gang *g, const char *why, struct report *report);
bool gang_began(const struct gang *g); /* at least one rank began a check */

#endif
