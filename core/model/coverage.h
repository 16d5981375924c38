/* SPDX-License-Identifier: Apache-2.0 */
/* The places that were checked for a stack's resources, and those that could not be. A stack is reported absent or
 * ready only for checked places. A place is a provider and one of its regions; region "" is the whole provider (it
 * could not be opened, or its regions are unknown). Plain data; pure; one thread at a time. */
#ifndef GP_MODEL_COVERAGE_H
#define GP_MODEL_COVERAGE_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

struct look {
    char *provider, *region; /* owned; region "": the whole provider */
    char *owner;             /* owner whose tags were listed; "": unknown, because the provider did not open */
    bool checked;            /* the last list there was complete */
    bool billed;             /* resources there may cost money */
    bool aside;              /* not checked, and no gap: nothing points there */
    struct gp_error why;     /* set when not checked */
};
struct coverage {
    VEC_OF(struct look) list;
};
void coverage_clear(struct coverage *c);
/* Replaces the entry of that place. why NULL: it was checked. */
void coverage_put(struct coverage *c, const char *provider, const char *region, const char *owner, bool billed,
                  const struct gp_error *why);
/* Drops all entries of a provider, before it is checked anew. */
void coverage_drop(struct coverage *c, const char *provider);
/* Merges `from` place by place. */
void coverage_merge(struct coverage *to, const struct coverage *from);
/* Adds only what `from` did not look at: places that were looked at for another owner keep their entry. */
void coverage_add_gaps(struct coverage *to, const struct coverage *from);
const struct look *coverage_find(const struct coverage *c, const char *provider, const char *region);
/* Drops unchecked places of the provider that keep() refuses, because nothing can be there. */
void coverage_forget(struct coverage *c, const char *provider, bool (*keep)(const void *ctx, const char *region),
                     const void *ctx);
/* There is at least one place, and every place but those set aside was checked. */
bool coverage_whole(const struct coverage *c);
/* The first unchecked place that is not set aside; one that may be billed comes before others. NULL: none. */
const struct look *coverage_gap(const struct coverage *c);
/* "aws us-east-1, us-west-2 (owner ci); local here (owner me)": the checked places, with the owner whose
 * resources were listed; or the gaps, without it; "": none. At most `max` names for each
 * provider, then "and N more". */
void coverage_text(const struct coverage *c, bool checked, size_t max, struct str *out);

#endif
