/* SPDX-License-Identifier: Apache-2.0 */
/* Removes old files from the state folder, after down and gc. */
#include "base/gp_base.h"

#include "engine/tidy.h"

#include "engine/plan_file.h"
#include "engine/proof/history.h"
#include "engine/run/eventlog.h"
#include "engine/run/lock.h"
#include "engine/run/old_report.h"
#include "engine/run/stack_dir.h"

void engine_tidy(struct engine *e) {
    struct stack_list known = {0};
    locks_tidy(e->state_dir);
    plan_file_tidy(e->state_dir);
    old_report_tidy(e->state_dir, clock_wall_s());
    stack_dir_tidy_outputs(e->state_dir, clock_wall_s());
    if (journal_stacks(e->journal, &known, NULL) == 0) {
        event_log_tidy(e->state_dir, &known, clock_wall_s());
        history_tidy(e->state_dir, &known, clock_wall_s());
    }
    stack_list_clear(&known);
}
