/* SPDX-License-Identifier: Apache-2.0 */
/* Part of a gang whose rest cannot be had. */
#ifndef GP_ENGINE_GIVE_BACK_H
#define GP_ENGINE_GIVE_BACK_H

#include "engine/run/run.h"

/* Destroys the machines of the slots in `slots` (n of them) and waits until each is ending: run->nodes has them no
 * more. -GP_EBILLED with the ids when one of them does not end in time. */
int give_back(struct run *run, const int *slots, size_t n, struct gp_error *err);

#endif
