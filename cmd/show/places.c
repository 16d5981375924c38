/* SPDX-License-Identifier: Apache-2.0 */
/* The options --in and --lock-timeout, and the lines for the places that were looked at and those that were not. */
#include "base/gp_base.h"

#include "app.h"

#include "base/json.h"
#include "providers/provider.h"

#define SHOWN 6 /* regions of one provider in a line */

int app_places(struct invocation *inv, const char *list, struct gp_error *err) {
    struct strv *only = &inv->app->only;
    if (list == NULL) return 0;
    strv_split(only, list, ", ");
    if (only->n == 0)
        return gp_fail(err, GP_EUSAGE, "--in: the list of places is empty; give PROVIDER or PROVIDER/REGION");
    int r = look_check_places(only, err);
    inv->app->engine_opts.only = only;
    return r == 0 ? 0 : gp_wrap(err, "--in");
}

/* The engine's 0 is its default. */
void app_lock_timeout(struct invocation *inv, int64_t ms) { inv->app->engine_opts.lock_timeout_ms = ms > 0 ? ms : -1; }

json_t *looked_json(const struct coverage *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        json_t *j = json_pack("{s:s, s:o, s:o, s:b}", "provider", l->provider, "region",
                              l->region[0] != '\0' ? json_string(l->region) : json_null(), "owner",
                              l->owner[0] != '\0' ? json_any_text(l->owner) : json_null(), "checked", (int)l->checked);
        if (!l->checked) json_object_set_new(j, "error", error_json(&l->why));
        if (!l->checked) json_object_set_new(j, "gap", json_boolean(!l->aside));
        json_array_append_new(list, j);
    }
    return list;
}

/* Providers that this machine has no credentials for are one line; other places that were not looked at another one. */
void show_looked(const struct coverage *c, FILE *to) {
    GP_AUTO_STR struct str seen = {0}, gaps = {0}, none = {0};
    struct coverage others = {0};
    size_t n = 0;
    coverage_text(c, true, SHOWN, &seen);
    if (seen.len > 0) fprintf(to, "looked at: %s\n", seen.s);
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        if (l->checked) continue;
        if (l->region[0] == '\0' && str_eq(l->why.detail, PROVIDER_NO_CREDENTIALS))
            str_addf(&none, "%s%s", n++ > 0 ? ", " : "", l->provider);
        else coverage_put(&others, l->provider, l->region, l->owner, l->billed, &l->why);
    }
    coverage_text(&others, false, SHOWN, &gaps);
    coverage_clear(&others);
    if (gaps.len > 0) fprintf(to, "not looked at: %s\n", gaps.s);
    if (n > 0)
        fprintf(to, "not looked at: %s: this machine has no credentials for %s\n", none.s, n == 1 ? "it" : "them");
}

void show_unreadable(const struct resource_list *l, FILE *to) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        fprintf(to, "left alone: %s %s in %s %s: %s\n", resource_kind_name(r->kind), r->id, r->provider,
                r->zone[0] != '\0' ? r->zone : r->region, r->unreadable);
    }
}
