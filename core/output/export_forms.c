/* SPDX-License-Identifier: Apache-2.0 */
/* The list of export forms, and the checks that they share. Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

#include "base/form.h"

#define ROW(name) &export_form_##name,
const struct export_form *const export_forms[] = {EXPORT_FORM_LIST(ROW, ROW) NULL};
#undef ROW

const struct export_form *export_form(const char *name) {
    for (size_t i = 0; export_forms[i] != NULL; i++)
        if (strcmp(export_forms[i]->name, name) == 0) return export_forms[i];
    return NULL;
}

static int check_ready(const struct export_stack *s, struct gp_error *err) {
    for (size_t i = 0; i < s->nodes.len; i++) {
        const struct export_node *n = &s->nodes.items[i];
        if (n->ready) continue;
        return gp_fail(err, GP_EVALIDATE,
                       "%s/%d: not ready, so it is not exported: 'gpuprov status %s' prints its state, and --unproven "
                       "exports it as it is",
                       s->name, n->slot, s->name);
    }
    if (s->nodes.len >= (size_t)s->wanted) return 0;
    return gp_fail(err, GP_EVALIDATE,
                   "%s: %zu of %d nodes have an address, so it is not exported: 'gpuprov up' continues it, and "
                   "--unproven exports it as it is",
                   s->name, s->nodes.len, s->wanted);
}

int export_write(const struct export_stack *s, const struct export_form *form, bool unproven, struct str *out,
                 struct gp_error *err) {
    if (!form->any_node && !unproven) {
        int r = check_ready(s, err);
        if (r != 0) return r;
    }
    int r = form->write(s, out, err);
    if (r == 0 && out->truncated) r = gp_fail(err, GP_EIO, "%s: larger than 64 MiB as %s", s->name, form->name);
    return r;
}

int export_refuse(const struct export_node *n, const char *what, const char *value, const char *why,
                  struct gp_error *err) {
    return gp_fail(err, GP_EUSAGE, "%s: %s '%.100s' cannot be exported: %s", n->name, what, value, why);
}

int export_check_text(const struct export_node *n, const char *what, const char *value, struct gp_error *err) {
    uint32_t c = 0;
    for (size_t left = strlen(value), len = 0; left > 0; left -= len, value += len)
        if ((len = str_utf8(value, left, &c)) == 0)
            return gp_fail(err, GP_EUSAGE, "%s: %s cannot be exported: it is not UTF-8", n->name, what);
    return 0;
}

int export_check_address(const struct export_node *n, const char *address, struct gp_error *err) {
    if (address[0] == '\0') return gp_fail(err, GP_EUSAGE, "%s: cannot be exported: it has no address yet", n->name);
    if (form_host(address) && strchr(address, '%') == NULL) return 0;
    return export_refuse(n, "the address", address, "it is neither a host name nor an address without a zone", err);
}
