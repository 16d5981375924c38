/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a stack's validations over time. */
#ifndef GP_ENGINE_HISTORY_H
#define GP_ENGINE_HISTORY_H

#include "engine/run/run.h"

/* Adds the report's figures to the stack's history. Never fails; a write error is reported. */
void history_add(const struct run *run, struct report *report);
/* Removes histories of stacks that are not in `known` and had no run for half a year. Never fails. */
void history_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s);

#endif
