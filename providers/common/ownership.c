// SPDX-License-Identifier: Apache-2.0
/* Checks that a cloud's resource belongs to this stack; turns login names and principals into owners. */
#include "base/gp_base.h"

#include "providers/common/ownership.h"

#include "base/form.h"

#include <pwd.h>
#include <unistd.h>

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

void owner_to_form(char *s) {
    for (size_t i = 0; s[i] != '\0'; i++) {
        char probe[3] = {'x', s[i], '\0'};
        if (!form_owner(i == 0 ? probe + 1 : probe)) s[i] = i == 0 ? 'x' : '-';
    }
}

char *owner_of_login(void) {
    struct passwd pw, *me = NULL;
    char buf[4096], number[24];
    getpwuid_r(geteuid(), &pw, buf, sizeof buf, &me);
    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    char *owner = xstrndup(me != NULL && me->pw_name[0] != '\0' ? me->pw_name : number, 128);
    owner_to_form(owner);
    return owner;
}
