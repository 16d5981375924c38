/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of the stack while a job is followed. It is read again from the provider, because an `extend` may move
 * it meanwhile, from another machine too. The verb's thread. */
#ifndef GP_ENGINE_JOB_DEADLINE_H
#define GP_ENGINE_JOB_DEADLINE_H

#include "engine/run/run.h"

struct job_deadline {
    struct run *run;
    bool stops;       /* of `run`: the job is stopped before it */
    int64_t warned_s; /* the deadline that the last warning was about; 0: none */
    int64_t look_at_ms;
    int64_t read_ms; /* when it was last read (monotonic); 0: never */
};
/* Before a job begins that will be stopped before the deadline: -GP_EUSAGE if that were at once. */
int job_deadline_room(const struct run *run, struct gp_error *err);
void job_deadline_init(struct job_deadline *d, struct run *run, bool stops);
/* Milliseconds until job_deadline_look has something to do. */
int64_t job_deadline_due_ms(const struct job_deadline *d);
/* If something is due: reads the deadline (run->stack.expires_s is set to it), and warns when it comes near. Blocks on
 * the provider. True: the job has to be stopped now. */
bool job_deadline_look(struct job_deadline *d);

#endif
