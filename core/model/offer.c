/* SPDX-License-Identifier: Apache-2.0 */
/* Offers as plain data: copy, text, ranking. Independent of clouds and price sources. Any thread. */
#include "base/gp_base.h"

#include "base/log.h"
#include "model/currency.h"
#include "model/offer.h"

const char *offer_ends_name(enum offer_ends e) {
    static const char *const names[] = {[ENDS_BY_PROVIDER] = "gc-only",
                                        [ENDS_SERVER] = "server",
                                        [ENDS_GUEST] = "guest",
                                        [ENDS_GC_ONLY] = "gc-only",
                                        [ENDS_NEVER] = "never"};
    return names[e];
}

const char *offer_stock_name(enum offer_stock s) {
    static const char *const names[] = {[OFFER_STOCK_UNKNOWN] = "",
                                        [OFFER_STOCK_NONE] = "none",
                                        [OFFER_STOCK_LOW] = "low",
                                        [OFFER_STOCK_MEDIUM] = "medium",
                                        [OFFER_STOCK_HIGH] = "high"};
    return names[s];
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
    free(o->currency);
    free(o->rate_date);
    free(o->quota);
    free(o->fabric);
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
    to->currency = xstrdup(from->currency);
    to->rate_date = xstrdup(from->rate_date);
    to->quota = xstrdup(from->quota);
    to->fabric = xstrdup(from->fabric);
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

void offer_set_price(struct offer *o, double amount, const char *currency) {
    bool usd = !said(currency) || strcmp(currency, "USD") == 0;
    double rate = currency_usd(currency);
    free(o->currency);
    free(o->rate_date);
    o->currency = xstrdup(usd ? "" : currency);
    o->rate_date = xstrdup(usd || rate < 0 ? "" : currency_date);
    o->price_in_currency = usd ? 0 : amount;
    o->price_usd_per_h = amount < 0 || rate < 0 ? -1 : amount * rate;
}

char *offer_price_note(const struct offer *o) {
    if (!said(o->currency) || o->price_in_currency < 0) return xstrdup("");
    if (!said(o->rate_date)) return xasprintf(" (%.2f %s/h; no rate to USD)", o->price_in_currency, o->currency);
    return xasprintf(" (%.2f %s/h at the rate of %s)", o->price_in_currency, o->currency, o->rate_date);
}

bool offer_fits(const struct offer *o, const struct spec *spec, struct str *why) {
    GP_AUTO_FREE char *text = offer_text(o);
    size_t start = why->len;
    if (spec->cpus > 0 && o->vcpus == 0) str_addf(why, "%s: its number of CPUs is not known, and 'cpus' is set", text);
    else if (o->vcpus < spec->cpus) str_addf(why, "%s has %d CPUs, fewer than 'cpus: %d'", text, o->vcpus, spec->cpus);
    else if (spec->memory_gib > 0 && o->memory_gib <= 0)
        str_addf(why, "%s: its memory is not known, and 'memory' is set", text);
    else if (o->memory_gib < spec->memory_gib)
        str_addf(why, "%s has %.1f GiB of memory, less than 'memory: %d GiB'", text, o->memory_gib, spec->memory_gib);
    else if (spec->disk_gib > 0 && o->disk_gib == 0)
        str_addf(why, "%s: the size of its root disk is not known, and 'disk' is set", text);
    else if (o->disk_gib < spec->disk_gib)
        str_addf(why, "%s has a root disk of %d GiB, less than 'disk: %d GiB'", text, o->disk_gib, spec->disk_gib);
    return why->len == start;
}

/* True if b belongs strictly before a, so that equal offers keep their order. */
static bool before(const struct offer *b, const struct offer *a, enum spec_order order) {
    if (order == ORDER_CHEAPEST) {
        bool none_a = a->stock == OFFER_STOCK_NONE, none_b = b->stock == OFFER_STOCK_NONE;
        if (none_a != none_b) return none_a;
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

void offer_list_reveal(const struct offer_list *l, size_t first) {
    for (size_t i = first; i < l->list.len; i++) {
        const struct offer *o = &l->list.items[i];
        const char *const names[] = {o->region, o->zone, o->instance_type};
        for (size_t k = 0; k < GP_ARRAY_LEN(names); k++)
            if (names[k] != NULL && names[k][0] != '\0') log_reveal(names[k]);
    }
}
