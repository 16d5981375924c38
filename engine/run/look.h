/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the resources of a stack at the providers. */
#ifndef GP_ENGINE_LOOK_H
#define GP_ENGINE_LOOK_H

#include "engine/run/run.h"

void look_clear(struct run_look *look);
/* Calls p->list for this run and updates the look, which is the run's own or that of one of several providers that are
 * listed side by side. ret gets, once each, the resources with readable tags of the wanted owner and stack. On an error
 * ret has the resources that were seen. Reads the run and changes nothing in it. */
int look_list(const struct run *run, struct run_look *look, struct provider *p, const struct list_req *wanted,
              struct resource_list *ret, struct gp_error *err);
/* Lists the run's stack at every open provider, side by side, in the regions of spec, claim and journal, or in every
 * region where these may be incomplete. The results are in the providers' order. When ending, a provider that cannot be
 * listed is only recorded in run->look.covered. */
int look_for_run(struct run *run, struct resource_list *seen, struct gp_error *err);
/* Once run->own_uid is known: what the stack's claim in `seen` does not name cannot have anything of the stack. Without
 * it anybody may have made the claim, so a region that could not be read stays one that was not looked at. */
void look_narrow(struct run *run, const struct resource_list *seen);
/* Whether --in includes the place; region "": any region of the provider. */
bool look_allows(const struct engine *e, const char *provider, const char *region);
int look_left_out(struct gp_error *err); /* the error of a place that --in excludes; err not NULL */
/* The provider is open and its last list of that region was complete. Only then is an unlisted resource gone. */
bool look_is_seen(const struct run *run, const char *provider, const char *region);
/* Reports the places that were not looked at, if they changed. */
void look_report(struct run *run);
/* Adds the short reason why a place was not looked at, and the next step; command: what to repeat, or NULL. */
void look_gap_text(const struct look *gap, const char *command, struct str *reason, struct str *next);
/* -GP_EBILLED with the ids if some of these may be billed: they are neither destroyed nor reported as gone. Else 0. */
int look_unreadable_error(const struct resource_list *unreadable, const char *what, struct gp_error *err);

#endif
