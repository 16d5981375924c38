/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud is the truth, the journal a memory of intentions: this makes them agree, and returns what its caller
 * has to act on. Nothing is launched, ended or forgotten here. */
#ifndef GP_ENGINE_RECONCILE_H
#define GP_ENGINE_RECONCILE_H

#include "engine/run/run.h"

/* What was found of the stack, besides its nodes (run->nodes) and everything else of it (run->others). */
struct finding {
    /* Machines of the stack that no node uses: second ones for a slot, stopped ones, those that are ending. `up` ends
     * them (extras.h); `plan` lists them. */
    struct resource_list extras;
    /* Other uids of what bears the stack's name: earlier stacks left it. `down` ends it too. */
    struct strv earlier_uids;
    /* The journal knew the stack by this uid, and the cloud's claim bears another one: somebody else ended the stack
     * and began it again. run->stack is the cloud's already, the journal's is not: adopt_stack() (adopt.h) does that.
     * NULL: no such thing. */
    char *ended_uid;
    /* Launches under way or cut, whose outcome is not known. `plan` lists them, `up` settles them (settle.h). */
    struct intent_list unknown;
};
void finding_clear(struct finding *f);
#define GP_AUTO_FINDING GP_CLEANUP(finding_clear)
/* Machines that are there for nothing: extras that are not ending already. */
bool finding_has_extras(const struct finding *f);

/* Asks the journal, then every provider that may have something of the stack, and records what is there: in
 * run->stack, run->nodes, run->others and the journal. Without the stack's lock, node records and a stack that
 * somebody else began again are not written. ret is initialised by the caller ({0}), and
 * what it held is freed; NULL: not wanted. Blocks on the
 * network, up to the settling time of the providers. */
int reconcile(struct run *run, struct finding *ret, struct gp_error *err);
/* The same from a listing that the caller has, such as the journal's memory. */
int reconcile_listing(struct run *run, const struct resource_list *seen, struct finding *ret, struct gp_error *err);

#endif
