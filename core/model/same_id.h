/* SPDX-License-Identifier: Apache-2.0 */
/* Resources of different kinds with one id. The journal has one resource of an id. Where users choose a name that is an
 * id, somebody can choose that of another kind's. Decided here and nowhere else. */
#ifndef GP_MODEL_SAME_ID_H
#define GP_MODEL_SAME_ID_H

#include "model/stack.h"

/* For each resource that one provider listed, whether it has the id of another one and yields to it: a machine keeps
 * its id, then what the journal has, then what the cloud named, then what was listed first. Caller frees. */
bool *same_id_of_another(const struct resource_list *journal, const struct resource_list *listed);

#endif
