/* SPDX-License-Identifier: Apache-2.0 */
/* The plan that `up` and `run` show before they change anything, and the question about it. */
#ifndef GP_CMD_APPROVAL_H
#define GP_CMD_APPROVAL_H

#include "cmd/ask/confirm.h"

#include "base/json.h"

struct approval {
    struct invocation *inv;
    struct app_work *work; /* of the spec; its progress pauses */
    bool yes;              /* skip the question */
    /* Before anything is shown: an error ends the run with it. NULL: nothing is checked. */
    int (*check)(void *ctx, const struct plan *plan, struct gp_error *err);
    void *check_ctx;
    json_t *plan; /* for the result of --json: owned by the caller */
};
/* Before the engine's verb: its notifications wait for the answer, where a person is asked. */
void approval_hold(const struct approval *a);
/* For engine->approve, ctx: a struct approval. Shows the plan, and asks if a person can answer. */
int approval_ask(void *ctx, const struct plan *plan, struct gp_error *err);

#endif
