/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of failed steps, kept on this machine: STATE/stacks/UID/output/SLOT/STEP.log, and for 30 days after the stack
 * below STATE/outputs (stack_dir.h). */
#ifndef GP_ENGINE_STEP_OUTPUT_H
#define GP_ENGINE_STEP_OUTPUT_H

#include "engine/run/run.h"

/* False: machines of a hosts file. Their run has no stack, and its folder here is removed when it ends: only they keep
 * the output. */
bool step_output_stays(const struct run *run);
/* Keeps it if it stays, mode 0600. Appends to `tail` the lines of the event that reports the failure:
 * the last lines, each after "| ", and the places of the whole output. Of many nodes that fail only the first
 * one is shown, and the first ones are kept in full; their nodes have the rest. */
int step_output_keep(struct run *run, int slot, const struct bootstrap_output *o, struct str *tail,
                     struct gp_error *err);
/* Reads one that was kept. -GP_ENOTFOUND: none was. */
int step_output_kept(const struct run *run, int slot, const char *step, struct str *ret, struct gp_error *err);
/* Of the last destroyed stack of that name. -GP_ENOTFOUND: none was kept. */
int step_output_of_gone(const struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                        struct gp_error *err);
/* A new bootstrap begins: what the last one left is outdated. */
void step_output_forget(const struct run *run, int slot);

#endif
