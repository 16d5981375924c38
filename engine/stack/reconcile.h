/* SPDX-License-Identifier: Apache-2.0 */
/* Updates the run and the journal from the clouds, and returns what the caller must act on. The clouds are
 * authoritative; the journal has the intents. Launches, destroys and forgets nothing. */
#ifndef GP_ENGINE_RECONCILE_H
#define GP_ENGINE_RECONCILE_H

#include "engine/run/run.h"

/* What was found of the stack, besides its nodes (run->nodes) and everything else of it (run->others). */
struct finding {
    /* Machines of the stack that no node uses: second ones for a slot, stopped ones, those that are ending. `up`
     * destroys them (extras.h); `plan` lists them. */
    struct resource_list extras;
    /* Other uids of resources with the stack's name, left by earlier stacks. `down` destroys them too. */
    struct strv earlier_uids;
    /* The uid in the journal, if the cloud's claim has another one: somebody else destroyed the stack and launched it
     * again. run->stack has the cloud's uid already; adopt_stack() (adopt.h) updates the journal. Else NULL. */
    char *ended_uid;
    /* Launches under way or cut, whose outcome is not known. `plan` lists them, `up` settles them (settle.h). */
    struct intent_list unknown;
};
void finding_clear(struct finding *f);
#define GP_AUTO_FINDING GP_CLEANUP(finding_clear)
/* Whether there are extras that are not terminating already. */
bool finding_has_extras(const struct finding *f);

/* Reads the journal, lists every provider that may have resources of the stack, and records them in run->stack,
 * run->nodes, run->others and the journal. Without the stack's lock, node records and a stack that was launched again
 * are not written. The caller initialises ret ({0}); its old content is freed; NULL: not wanted. Blocks on the
 * network, up to the settling time of the providers. */
int reconcile(struct run *run, struct finding *ret, struct gp_error *err);
/* The same from a listing that the caller has, such as the journal's. */
int reconcile_listing(struct run *run, const struct resource_list *seen, struct finding *ret, struct gp_error *err);

#endif
