// SPDX-License-Identifier: Apache-2.0
/* The check that a cloud's resource is this stack's. */
#include "base/gp_base.h"

#include "providers/common/ownership.h"

bool cloud_is_ours(const struct provider *p, const struct resource *r) {
    return r->owner[0] == '\0' || str_eq(r->owner, p->owner);
}

int cloud_check_owner(const struct tags *t, const char *what, const struct stack *s, const char *uid,
                      struct gp_error *err) {
    if (t->bad[0] != '\0' || !tags_identify(t))
        return gp_fail(err, GP_EEXISTS, "%s exists, but %s: remove it, or choose another stack name", what,
                       t->bad[0] != '\0' ? t->bad : "it has no tags of gpuprov");
    if (str_eq(t->owner, s->owner) && str_eq(t->stack, s->name) && (uid == NULL || str_eq(t->uid, uid))) return 0;
    return gp_fail(err, GP_EEXISTS,
                   "%s belongs to the stack '%s' (%s) of '%s': choose another stack name or "
                   "--owner",
                   what, t->stack, t->uid, t->owner);
}
