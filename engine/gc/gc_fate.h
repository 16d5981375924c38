/* SPDX-License-Identifier: Apache-2.0 */
/* What gc destroys of one stack. A resource's tags are a claim: its own deadline ends it alone, never what the journal
 * knows. Pure; any thread. */
#ifndef GP_ENGINE_GC_FATE_H
#define GP_ENGINE_GC_FATE_H

#include "journal/journal.h"
#include "model/stack.h"

struct gc_group {
    const struct resource_list *all; /* as listed; those with the uid and the stack's name of `of` are the group */
    const struct resource *of;
    bool launched;     /* this journal launched nodes of it */
    bool adopted;      /* else: it has nodes that this journal has adopted, and the login key is at hand */
    int64_t known_s;   /* then its deadline, wall; 0: none that is certain, or the group has another name or owner */
    int64_t claimed_s; /* without the login key: the latest deadline of machines that may be the stack's; 0: none */
    bool keyless;      /* the login key is not at hand, so a tag that may be a proof tells nothing */
    bool complete;     /* every place of the provider was listed */
    const struct intent_list *stones; /* of all stacks that `down` destroyed */
};
struct gc_fate {
    bool whole;                /* launched: everything with the uid ends. Else the group ends as it was listed */
    struct resource_list some; /* else these alone; borrowed, freed by vec_free */
};
bool gc_fate_in_group(const struct resource *r, const struct resource *of);
/* At now_s. Of a stack that this journal launched: all of it at its deadline; before it only machines that nothing
 * proves to be the stack's, each at its own. Of any other: each machine at its own deadline, a proven one at the
 * stack's; what a tombstone names at any time; and the claim with the rest once all that was listed is over, and
 * everything was. A machine without a readable deadline ends then too. */
void gc_fate_find(const struct gc_group *g, int64_t now_s, struct gc_fate *ret);

#endif
