/* SPDX-License-Identifier: Apache-2.0 */
/* Where was looked for a stack, and where not: what every statement of absence or readiness rests on. A place
 * is a provider and one of its regions; region "" is the whole provider (it could not be opened, or its
 * regions are not known). Plain data; pure; one thread at a time. */
#ifndef GP_MODEL_COVERAGE_H
#define GP_MODEL_COVERAGE_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

struct look {
    char *provider, *region; /* owned; region "": the whole provider */
    char *owner;             /* whose tags were asked for; "": not known, since it did not open */
    bool checked;            /* the last look there was answered wholly */
    bool billed;             /* what is there may cost money */
    struct gp_error why;     /* when not checked */
};
struct coverage {
    VEC_OF(struct look) list;
};
void coverage_clear(struct coverage *c);
/* Replaces what was known of that place. why NULL: it was checked. */
void coverage_put(struct coverage *c, const char *provider, const char *region, const char *owner, bool billed,
                  const struct gp_error *why);
/* Drops all that is known of a provider: it is looked at anew. */
void coverage_drop(struct coverage *c, const char *provider);
/* Merges `from` place by place. */
void coverage_merge(struct coverage *to, const struct coverage *from);
const struct look *coverage_find(const struct coverage *c, const char *provider, const char *region);
/* Drops places of the provider that were not checked and that keep() refuses: nothing can be there. */
void coverage_forget(struct coverage *c, const char *provider, bool (*keep)(const void *ctx, const char *region),
                     const void *ctx);
/* Some place was looked at, and every one was checked. */
bool coverage_whole(const struct coverage *c);
/* The first place that was not checked, one where something may be billed before others; NULL: none. */
const struct look *coverage_gap(const struct coverage *c);
/* "aws us-east-1, us-west-2 (owner ci); local here (owner me)": the checked places, with the owner whose
 * resources were asked for; or the unchecked ones, without it; "": none. At most `max` names for each
 * provider, then "and N more". */
void coverage_text(const struct coverage *c, bool checked, size_t max, struct str *out);

#endif
