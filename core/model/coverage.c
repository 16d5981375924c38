/* SPDX-License-Identifier: Apache-2.0 */
/* Places that were checked for resources, as plain data. Pure. */
#include "base/gp_base.h"

#include "model/coverage.h"

static void look_clear(struct look *l) {
    free(l->provider);
    free(l->region);
    free(l->owner);
}

void coverage_clear(struct coverage *c) {
    for (size_t i = 0; i < c->list.len; i++) look_clear(&c->list.items[i]);
    vec_free(&c->list);
}

static struct look *find(const struct coverage *c, const char *provider, const char *region) {
    for (size_t i = 0; i < c->list.len; i++) {
        struct look *l = &c->list.items[i];
        if (strcmp(l->provider, provider) == 0 && strcmp(l->region, region) == 0) return l;
    }
    return NULL;
}

const struct look *coverage_find(const struct coverage *c, const char *provider, const char *region) {
    return find(c, provider, region);
}

void coverage_put(struct coverage *c, const char *provider, const char *region, const char *owner, bool billed,
                  const struct gp_error *why) {
    struct look *l = find(c, provider, region);
    struct look now = {.provider = xstrdup(provider),
                       .region = xstrdup(region),
                       .owner = xstrdup(owner != NULL ? owner : ""),
                       .checked = why == NULL,
                       .billed = billed};
    if (why != NULL) now.why = *why;
    if (l == NULL) {
        vec_push(&c->list, now);
        return;
    }
    look_clear(l);
    *l = now;
}

void coverage_merge(struct coverage *to, const struct coverage *from) {
    for (size_t i = 0; i < from->list.len; i++) {
        const struct look *l = &from->list.items[i];
        coverage_put(to, l->provider, l->region, l->owner, l->billed, l->checked ? NULL : &l->why);
        struct look *merged = find(to, l->provider, l->region);
        if (merged != NULL) merged->aside = l->aside;
    }
}

void coverage_add_gaps(struct coverage *to, const struct coverage *from) {
    for (size_t i = 0; i < from->list.len; i++) {
        const struct look *l = &from->list.items[i];
        if (!l->checked) coverage_put(to, l->provider, l->region, l->owner, l->billed, &l->why);
    }
}

void coverage_forget(struct coverage *c, const char *provider, bool (*keep)(const void *ctx, const char *region),
                     const void *ctx) {
    size_t n = 0;
    for (size_t i = 0; i < c->list.len; i++) {
        struct look *l = &c->list.items[i];
        bool drop = !l->checked && strcmp(l->provider, provider) == 0 && !keep(ctx, l->region);
        if (drop) look_clear(l);
        else c->list.items[n++] = *l;
    }
    c->list.len = n;
}

void coverage_drop(struct coverage *c, const char *provider) {
    size_t n = 0;
    for (size_t i = 0; i < c->list.len; i++) {
        struct look *l = &c->list.items[i];
        if (strcmp(l->provider, provider) == 0) look_clear(l);
        else c->list.items[n++] = *l;
    }
    c->list.len = n;
}

bool coverage_whole(const struct coverage *c) { return c->list.len > 0 && coverage_gap(c) == NULL; }

const struct look *coverage_gap(const struct coverage *c) {
    const struct look *first = NULL;
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        if (!l->checked && !l->aside && (first == NULL || (l->billed && !first->billed))) first = l;
    }
    return first;
}

static void provider_text(const struct coverage *c, const char *provider, bool checked, size_t max, struct str *out) {
    size_t shown = 0, more = 0;
    const char *owner = "";
    str_addf(out, "%s%s", out->len > 0 ? "; " : "", provider);
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        if (l->checked != checked || l->aside || strcmp(l->provider, provider) != 0 || l->region[0] == '\0') continue;
        if (checked) owner = l->owner;
        if (strcmp(l->region, provider) == 0) continue; /* a cloud that has one list of all its places */
        if (shown < max) str_addf(out, "%s%s", shown > 0 ? ", " : " ", l->region);
        else more++;
        shown++;
    }
    if (more > 0) str_addf(out, " and %zu more", more);
    if (owner[0] != '\0') str_addf(out, " (owner %s)", owner);
}

void coverage_text(const struct coverage *c, bool checked, size_t max, struct str *out) {
    GP_AUTO_STRV struct strv done = {0};
    for (size_t i = 0; i < c->list.len; i++) {
        const struct look *l = &c->list.items[i];
        if (l->checked != checked || l->aside || strv_has(&done, l->provider)) continue;
        strv_add(&done, l->provider);
        provider_text(c, l->provider, checked, max, out);
    }
    if (out->s == NULL) str_add(out, "");
}
