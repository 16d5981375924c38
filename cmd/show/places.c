/* SPDX-License-Identifier: Apache-2.0 */
/* The options --in and --lock-timeout, and the lines for the places that were looked at and those that were not. */
#include "base/gp_base.h"

#include "cmd/app.h"

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

#define REASON_SHOWN 200

/* The gaps at one provider, with the reason of the first. */
static void show_gap(const struct coverage *gaps, const struct look *first, FILE *to) {
    GP_AUTO_STR struct str places = {0};
    struct coverage one = {0};
    for (size_t i = 0; i < gaps->list.len; i++) {
        const struct look *l = &gaps->list.items[i];
        if (str_eq(l->provider, first->provider))
            coverage_put(&one, l->provider, l->region, l->owner, l->billed, &l->why);
    }
    coverage_text(&one, false, SHOWN, &places);
    coverage_clear(&one);
    const char *why = str_without_name(first->why.msg, first->provider);
    fprintf(to, "not looked at: %s: %.*s%s\n", places.s, REASON_SHOWN, why, strlen(why) > REASON_SHOWN ? "..." : "");
}

/* Gaps at one provider alone are named without the reason, which the verb's error has; at several each has its own. */
static void show_gaps(const struct coverage *gaps, FILE *to) {
    GP_AUTO_STRV struct strv done = {0};
    for (size_t i = 0; i < gaps->list.len; i++)
        if (!strv_has(&done, gaps->list.items[i].provider)) strv_add(&done, gaps->list.items[i].provider);
    if (done.n == 1) {
        GP_AUTO_STR struct str places = {0};
        coverage_text(gaps, false, SHOWN, &places);
        fprintf(to, "not looked at: %s\n", places.s);
        return;
    }
    strv_clear(&done);
    for (size_t i = 0; i < gaps->list.len; i++) {
        const struct look *l = &gaps->list.items[i];
        if (strv_has(&done, l->provider)) continue;
        strv_add(&done, l->provider);
        show_gap(gaps, l, to);
    }
}

/* Providers that this machine has no credentials for are one line. */
void show_looked(const struct coverage *c, FILE *to) {
    GP_AUTO_STR struct str seen = {0}, none = {0};
    struct coverage gaps = {0};
    size_t n = 0;
    coverage_text(c, true, SHOWN, &seen);
    if (seen.len > 0) fprintf(to, "looked at: %s\n", seen.s);
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        if (l->checked) continue;
        if (l->region[0] == '\0' && provider_no_credentials(&l->why))
            str_addf(&none, "%s%s", n++ > 0 ? ", " : "", l->provider);
        else coverage_put(&gaps, l->provider, l->region, l->owner, l->billed, &l->why);
    }
    show_gaps(&gaps, to);
    coverage_clear(&gaps);
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
