/* SPDX-License-Identifier: Apache-2.0 */
/* Looking: the one place where the engine asks a provider what is there. */
#ifndef GP_ENGINE_LOOK_H
#define GP_ENGINE_LOOK_H

#include "engine/run/run.h"

/* p->list for this run: what is understood and of the wanted owner and stack comes back in ret, each once;
 * run->look is brought up to date. On an error ret holds what was seen. */
int look_list(struct run *run, struct provider *p, const struct list_req *wanted, struct resource_list *ret,
              struct gp_error *err);
/* All that the provider has of the run's stack, wherever it may be: the regions of spec, claim and journal;
 * where that is not sure (the journal did not know the stack, its claim is not seen), every region. Fails when
 * one of the regions that are known to matter could not be looked at, or nothing could. */
int look_for_stack(struct run *run, struct provider *p, struct resource_list *seen, struct gp_error *err);
/* What every open provider has for this stack (look_for_stack). When ending, one that cannot be listed is
 * only noted in run->look.covered. */
int look_for_run(struct run *run, struct resource_list *seen, struct gp_error *err);
/* Whether --in lets the place be looked at; region "": some region of it. */
bool look_allows(const struct engine *e, const char *provider, const char *region);
int look_left_out(struct gp_error *err); /* the error of a place that --in leaves out; err not NULL */
/* It is open and its last list of that region was whole: only then does "not listed" mean anything. */
bool look_is_seen(const struct run *run, const char *provider, const char *region);
/* The resource is where the provider's credentials lead, as far as is known. */
bool look_is_in_account(const struct provider *p, const struct resource *r);
/* Emits which places are not looked at, when that changed. */
void look_report(struct run *run);
/* Why a place was not looked at, in short, and what to do; *ret_next is static. */
void look_gap_text(const struct look *gap, struct str *reason, const char **ret_next);
/* -GP_EBILLED with the ids when some of these may be billed: they are neither ended nor called gone. Else 0. */
int look_unreadable_error(const struct resource_list *unreadable, const char *what, struct gp_error *err);

#endif
