/* SPDX-License-Identifier: Apache-2.0 */
/* Which places that were not looked at are no gap. */
#ifndef GP_ENGINE_ASIDE_H
#define GP_ENGINE_ASIDE_H

#include "engine/run/run.h"

/* Sets aside the providers for which this machine has no credentials at all, unless something points there: --in, or
 * anything of the journal. Without credentials for any billed provider nothing is set aside unless `ended`: this
 * machine has seen the end of what is searched for. Where some are refused, that provider is the gap. For looks at
 * every provider; those that a spec names are not such. */
void look_set_aside(const struct engine *e, bool ended, struct coverage *c);

#endif
