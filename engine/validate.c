/* SPDX-License-Identifier: Apache-2.0 */
/* The verb validate: runs the checks on the nodes of an existing stack. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/proof/barrier.h"
#include "engine/proof/node_run.h"
#include "engine/proof/run_baseline.h"
#include "engine/proof/work.h"
#include "engine/run/notify.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/adopt.h"
#include "engine/stack/open_known.h"

int engine_validate(struct engine *e, const char *name, const struct spec *spec, struct report *ret,
                    struct gp_error *err) {
    struct run *run = NULL;
    int r = run_open_known(e, spec, name, &run, err);
    if (r == 0) r = adopt_existing(run, err);
    if (r == 0) r = validate_choose(run->spec, &run->validation.plan, err);
    if (r == 0) r = run_baseline_open(e, run->spec, &run->validation.baseline, err);
    if (r == 0) {
        work_begin(run);
        ret->started_s = clock_wall_s();
        r = work_on_nodes(run, node_run_validate, err);
    }
    if (r == 0) r = barrier_run(run, ret, err);
    if (r == 0) notify_ready(run);
    if (r != 0 && run != NULL && run->stack.uid != NULL) run_event_end(run, err);
    run_close(run);
    return r;
}
