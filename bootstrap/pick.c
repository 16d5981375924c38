/* SPDX-License-Identifier: Apache-2.0 */
/* Steps by their names: chooses those of a run, checks names, and prints a step as a script. No I/O; the verb's or the
 * node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

/* The names of a spec's steps in their order, whatever a node needs of them. */
static void step_names(const struct spec *spec, struct strv *ret) {
    for (const struct boot_step *s = boot_steps; s->file; s++) {
        if (s->name) strv_add(ret, s->name);
        for (size_t i = 0; !s->name && i < spec->steps.len; i++) strv_add(ret, spec->steps.items[i].name);
    }
}

int bootstrap_step_known(const struct spec *spec, const char *name, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    step_names(spec, &names);
    if (strv_has(&names, name)) return 0;
    const char *near = str_closest(name, (const char *const *)names.v); /* a NULL ends it */
    if (near) return gp_fail(err, GP_EUSAGE, "unknown step '%s'; did you mean '%s'?", name, near);
    GP_AUTO_FREE char *all = strv_join(&names, ", ");
    return gp_fail(err, GP_EUSAGE, "unknown step '%s'; steps: %s", name, all);
}

static size_t place_of(const struct strv *names, const char *name) {
    size_t i = 0;
    while (i < names->n && strcmp(names->v[i], name) != 0) i++;
    return i;
}

/* Once: a step that --only names and this node does not need is not "nothing to do". */
static void tell_absent(struct boot *b, const struct strv *only) {
    for (size_t i = 0; !b->absent_told && only && i < only->n; i++) {
        bool found = false;
        for (size_t k = 0; k < b->items.len; k++) found = found || strcmp(b->items.items[k].name, only->v[i]) == 0;
        if (!found)
            event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_WARN, only->v[i],
                       "is no step of this node: the spec does not ask for it, or the node has nothing for it");
    }
    b->absent_told = true;
}

void boot_pick(struct boot *b) {
    const struct bootstrap_pick *pick = b->req->pick;
    if (!pick) return;
    tell_absent(b, pick->only);
    GP_AUTO_STRV struct strv names = {0};
    step_names(b->req->spec, &names);
    size_t kept = 0, from = pick->from ? place_of(&names, pick->from) : 0;
    for (size_t i = 0; i < b->items.len; i++) {
        const struct boot_item *it = &b->items.items[i]; /* new: it owns nothing yet */
        bool only = !pick->only || pick->only->n == 0 || strv_has(pick->only, it->name);
        if (only && place_of(&names, it->name) >= from) b->items.items[kept++] = *it;
    }
    b->items.len = kept;
}

static const char BY_HAND[] =
    "case $1 in\n"
    "probe | apply | verify)\n"
    "    mkdir -p \"$NODE_DIR\" && cd \"$(mktemp -d)\" || exit 1\n"
    "    \"$1\"\n"
    "    rc=$?\n"
    "    [ \"$1\" != probe ] || [ $rc -ne 10 ] || echo 'to be applied'\n"
    "    exit $rc\n"
    "    ;;\n"
    "*)\n"
    "    echo 'usage: sh SCRIPT probe|apply|verify (probe exits with 10 if the step must be applied)' >&2\n"
    "    exit 2\n"
    "    ;;\n"
    "esac\n";

/* Becomes part of the script, in a comment. */
static int check_os(const char *os, size_t room, struct gp_error *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    if (*os && strlen(os) < room && strspn(os, letters) == strlen(os)) return 0;
    return gp_fail(err, GP_EUSAGE, "'%.40s' is not the name of a system: write --os ubuntu-24.04 or another", os);
}

int bootstrap_print_script(const struct spec *spec, const char *name, const char *os, struct str *out,
                           struct gp_error *err) {
    struct bootstrap_req req = {
        .spec = spec, .stack = spec->name, .uid = "", .packages_allowed = true, .deadline_ms = clock_deadline(3600000)};
    GP_CLEANUP(boot_clear) struct boot b = {.req = &req};
    struct boot_item item = {.name = name, .tries = 1};
    int r = bootstrap_step_known(spec, name, err);
    for (const struct boot_step *s = boot_steps; r == 0 && s->file && !item.step; s++) {
        if (s->name && strcmp(s->name, name) == 0) item.step = s;
        for (size_t i = 0; !s->name && i < spec->steps.len; i++) {
            if (strcmp(spec->steps.items[i].name, name) != 0) continue;
            item.step = s;
            item.user = &spec->steps.items[i];
        }
    }
    if (r != 0 || !item.step) return r;
    boot_step_id(name, item.user != NULL, item.id);
    if (item.user) boot_hash(item.hash, (const char *const[]){item.user->run, item.user->check, NULL});
    bool named = os != NULL;
    if (named) r = check_os(os, sizeof b.facts.os, err);
    else if (spec->offers.len > 0) os = spec_effective(spec, 0).image->os;
    if (r != 0) return r;
    snprintf(b.facts.os, sizeof b.facts.os, "%s", os ? os : "");
    if (item.step->vars == boot_driver_vars) r = boot_software_by_spec(&b, err);
    if (r != 0) return r;
    struct gp_error ignored = {0};
    if (item.step->apply) (void)boot_agents_load(&b, &ignored); /* without agents the script has no hashes of them */
    str_addf(out,
             "#!/bin/sh\n# Step '%s' of 'gpuprov bootstrap'. Run it on the node as the login user: sh SCRIPT "
             "probe|apply|verify\n",
             name);
    if (b.facts.os[0]) str_addf(out, "# For %s%s.\n", b.facts.os, named ? "" : ", the image that the spec names");
    if (item.step->apply) str_add(out, "# gpuprov itself applies this step: only probe works by hand.\n");
    if (item.step->secrets && spec->secrets.len > 0) {
        str_add(out, "# Secrets, set them in the environment:");
        for (size_t i = 0; i < spec->secrets.len; i++) str_addf(out, " %s", spec->secrets.items[i].env);
        str_addc(out, '\n');
    }
    r = boot_file("run/lib", out, err);
    if (r == 0 && item.step->packages) r = boot_file("run/pkg", out, err);
    return r == 0 ? boot_item_script(&b, &item, BY_HAND, out, err) : r;
}
