/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of engine/ need of engine.c; the verbs do not see it. */
#ifndef GP_ENGINE_INTERNAL_H
#define GP_ENGINE_INTERNAL_H

#include "engine/engine.h"

/* A private folder in place of the state folder, for an engine that was opened with `scratch`; removed when it
 * is closed. */
int engine_scratch_folder(struct engine *e, struct gp_error *err);
/* Remembers for the second Ctrl-C. */
void engine_note_billed(struct engine *e, const char *id, bool billed);

#endif
