/* SPDX-License-Identifier: Apache-2.0 */
/* The gang checks of one node by itself (gang_local.c): called by `run` without --checks. One thread. */
#ifndef GP_AGENT_GANG_LOCAL_H
#define GP_AGENT_GANG_LOCAL_H

#include "validate/agent/base/emit.h"
#include "validate/agent/verbs.h"

struct gang_local {
    int gpus;
    bool short_form;          /* no time for the long forms of checks */
    bool unjudged;            /* as in struct rank_plan */
    struct check_list checks; /* gang checks, in the order of the run */
    int64_t deadline_ms;      /* monotonic */
};
/* The number of ranks: one per GPU. GPUPROV_NCCL_SAME_GPU=2 (to 8) in the environment: so many on the one GPU of a
 * node with one, for logic only; the results state that they have no bandwidth figure. */
int gang_local_ranks(int gpus);
/* Runs them and reports their results through emit. Blocks until all ranks ended. ret_why: "" or why one ended
 * early. */
void gang_run_local(const struct gang_local *a, struct emit *emit, struct str *ret_why);

#endif
