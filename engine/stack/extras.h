/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of the stack that its spec does not want. */
#ifndef GP_ENGINE_EXTRAS_H
#define GP_ENGINE_EXTRAS_H

#include "engine/run/run.h"

/* Ends what up does not want: second machines, stopped ones, slots past the spec. Waits until gone. */
int extras_end(struct run *run, struct gp_error *err);

#endif
