/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by gang_session.c (runs the ranks) and gang_merge.c (merges their results). */
#ifndef GP_VALIDATE_GANG_H
#define GP_VALIDATE_GANG_H

#include "base/secret.h"
#include "validate/lines.h"
#include "validate/validate.h"

enum place_state {
    PLACE_IDLE, /* not started */
    PLACE_RUNNING,
    PLACE_DONE, /* all its ranks sent their end line */
    PLACE_GONE  /* with `reason`; no earlier result of its ranks counts as passed */
};
struct gang;
/* A node's part: its ranks (one, or one for each GPU) run in one process tree, write one file, and are
 * started, followed and stopped by one command each. */
struct gang_place {
    struct gang *gang;
    struct gang_node *node;
    size_t first, count; /* its ranks */
    enum place_state state;
    char *reason;   /* of PLACE_GONE, or of trouble after its end; owned */
    int rereads;    /* connections lost so far */
    bool asked;     /* its start command was sent, and no stop command since */
    bool following; /* the output is the ranks' file, so its lines move the offset */
    bool heard[2];  /* see agent_line_foreign; of the running command */
};
struct gang_rank {
    struct gang_place *place;
    size_t index;
    int gpu;                    /* of its node; -1: none */
    struct agent_stream stream; /* the first rank's also has the place's lines: listen, at */
    bool began;                 /* set by gang_merge: it began a check */
};
struct gang {
    const struct validate_env *env;
    size_t n, n_places, n_checks; /* n: ranks */
    int gpus;                     /* per node, a rank each; 0: one rank per node, on the host */
    const struct check_info *const *checks;
    int64_t seconds; /* the checks' time, all together */
    int64_t crowd;   /* times that a command takes longer, because nodes share a machine */
    struct secret token;
    struct gang_place *places;
    struct gang_rank *ranks;
};

/* "llm/1", or "llm/1 gpu 3" where the rank has one. Caller frees. */
char *gang_rank_label(const struct gang_rank *r);

/* Fills report->gang and each node's share from the ranks' results; a rank without a result makes the gang's result
 * an error that names its node. why: the trouble that ended the whole gang, or NULL. */
void gang_merge(struct gang *g, const char *why, struct report *report);
bool gang_began(const struct gang *g); /* at least one rank began a check */

#endif
