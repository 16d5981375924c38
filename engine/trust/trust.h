/* SPDX-License-Identifier: Apache-2.0 */
/* Which machines of a list are the stack's. Its tags are a claim that everybody who may launch or tag a machine in the
 * account can copy; this journal's own records and proofs are not. Decided here and nowhere else. */
#ifndef GP_ENGINE_TRUST_H
#define GP_ENGINE_TRUST_H

#include "engine/run/run_node.h"

/* Sets r->ours if this journal launched the machine, if its provider's list is this machine's own, or if its proof
 * holds (checked with the login key, once where it is needed). Anything else of the stack is unproven: it is reported,
 * and only `down` ends it. */
void trust_machine(struct run *run, struct resource *r);
/* Whether the tags of a launch were made by this stack: slots and attempt count, and not the machine. */
bool trust_launch(struct run *run, const struct resource *r);
/* Whether the deadline in its tags was written by this stack. */
bool trust_deadline(struct run *run, const struct resource *r);
/* Whether the machine's fingerprint tag may be pinned. */
bool trust_host_key(struct run *run, const struct resource *r);
/* Sets tag_key of a node whose host key comes with user-data or the tags, from the machine that it has now. */
void trust_tag_key(struct run_node *n);

/* Sets run->own_uid: the journal has a part (trust_is_member) in the stack's uid, or one of `machines` is the stack's.
 * A claim with another uid may be anybody's. */
void trust_uid(struct run *run, const struct resource_list *machines);
/* Whether the journal has a part (trust_is_member) in a stack of another name or owner with that uid: who gives it to
 * the run's stack has copied it. A journal that cannot be read: true. */
bool trust_is_of_another(const struct run *run, const char *uid);
/* Whether this journal has launched a machine of the stack: then its deadline is the journal's. */
int trust_launched_here(struct journal *j, const char *uid, bool *ret, struct gp_error *err);
/* Whether this journal has launched anything of the stack, or has adopted a machine of it with a proof: a stack that
 * only lists have shown is in the journal too. */
int trust_is_member(struct journal *j, const char *uid, bool *ret, struct gp_error *err);

/* Reports each machine of run->unproven once. */
void trust_report(struct run *run);
/* Before machines are launched for missing nodes. -GP_EREACH: a machine of the stack that has not proven itself yet may
 * be one that another run launches now; -GP_ENOTFOUND: the stack has machines, and this run can prove with neither its
 * journal nor a proof that it belongs to it. */
int trust_may_launch(struct run *run, struct gp_error *err);
/* For a verb that found no node of the stack: -GP_ENOTFOUND, with the unproven and the reason, if there are any; else
 * 0. */
int trust_no_node(struct run *run, struct gp_error *err);

#endif
