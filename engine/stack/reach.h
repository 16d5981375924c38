/* SPDX-License-Identifier: Apache-2.0 */
/* Where else a stack may be, for the order in which gc sweeps the clouds. */
#ifndef GP_ENGINE_REACH_H
#define GP_ENGINE_REACH_H

#include "engine/engine.h"

/* Whether a stack of the journal may have something at another cloud than `here`: by its records, or because its spec
 * has offers there. False of a uid that the journal does not know: what has it is judged one by one. */
bool reach_elsewhere(struct engine *e, const char *uid, const char *here);

#endif
