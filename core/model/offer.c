/* SPDX-License-Identifier: Apache-2.0 */
/* Offers as plain data: copy, text, ranking. Independent of clouds and price sources. Any thread. */
#include "base/gp_base.h"

#include "base/str.h"
#include "model/offer.h"

const char *offer_ends_name(enum offer_ends e) {
    static const char *const names[] = {[ENDS_BY_PROVIDER] = "gc-only",
                                        [ENDS_SERVER] = "server",
                                        [ENDS_GUEST] = "guest",
                                        [ENDS_GC_ONLY] = "gc-only",
                                        [ENDS_NEVER] = "never"};
    return names[e];
}

void offer_clear(struct offer *o) {
    free(o->provider);
    free(o->region);
    free(o->zone);
    free(o->instance_type);
    free(o->image);
    free(o->image_name);
    free(o->subnet);
    free(o->gpu_model);
    free(o->price_source);
    *o = (struct offer){.price_usd_per_h = -1};
}

void offer_copy(struct offer *to, const struct offer *from) {
    if (to == from) return;
    offer_clear(to);
    *to = *from;
    to->provider = xstrdup(from->provider);
    to->region = xstrdup(from->region);
    to->zone = xstrdup(from->zone);
    to->instance_type = xstrdup(from->instance_type);
    to->image = xstrdup(from->image);
    to->image_name = xstrdup(from->image_name);
    to->subnet = xstrdup(from->subnet);
    to->gpu_model = xstrdup(from->gpu_model);
    to->price_source = xstrdup(from->price_source);
}

void offer_list_clear(struct offer_list *l) {
    for (size_t i = 0; i < l->list.len; i++) offer_clear(&l->list.items[i]);
    vec_free(&l->list);
}

static bool said(const char *s) { return s != NULL && s[0] != '\0'; }

char *offer_text(const struct offer *o) {
    struct str s = {0};
    str_add(&s, said(o->provider) ? o->provider : "?");
    /* "here": a provider without places, types or markets (local, ssh) */
    if (!said(o->region) || strcmp(o->region, "here") == 0) return str_steal(&s);
    str_addf(&s, " %s", said(o->zone) ? o->zone : o->region);
    if (said(o->instance_type)) str_addf(&s, " %s", o->instance_type);
    str_addf(&s, " %s", spec_market_name(o->market));
    return str_steal(&s);
}

/* True if b belongs strictly before a, so that equal offers keep their order. */
static bool before(const struct offer *b, const struct offer *a, enum spec_order order) {
    if (order == ORDER_CHEAPEST) {
        bool known_a = a->price_usd_per_h >= 0, known_b = b->price_usd_per_h >= 0;
        if (known_a != known_b) return known_b;
        if (known_a && b->price_usd_per_h < a->price_usd_per_h) return true;
        if (known_a && b->price_usd_per_h > a->price_usd_per_h) return false;
    }
    return b->spec_index < a->spec_index;
}

void offer_list_sort(struct offer_list *l, enum spec_order order) {
    struct offer *v = l->list.items;
    for (size_t i = 1; i < l->list.len; i++) {
        struct offer moved = v[i];
        size_t at = i;
        for (; at > 0 && before(&moved, &v[at - 1], order); at--) v[at] = v[at - 1];
        v[at] = moved;
    }
}
