/* SPDX-License-Identifier: Apache-2.0 */
/* An offer: a place where a node can be bought, with its type, zone, market, image and price. */
#ifndef GP_MODEL_OFFER_H
#define GP_MODEL_OFFER_H

#include "base/vec.h"
#include "spec/spec.h"

/* The terminator of an offer's nodes at their deadline when gpuprov does not run. */
enum offer_ends {
    ENDS_BY_PROVIDER, /* in an offer: the default of its provider's row */
    ENDS_SERVER,      /* the cloud itself */
    ENDS_GUEST,       /* the node: a unit on it, and a poweroff terminates it */
    ENDS_GC_ONLY,     /* only 'gpuprov gc', on any machine */
    ENDS_NEVER        /* machines that gpuprov never terminates */
};
const char *offer_ends_name(enum offer_ends e); /* "server", "guest", "gc-only", "never" */

struct offer {
    size_t spec_index;              /* index of its entry in spec->offers */
    char *provider, *region, *zone; /* "local", "ssh": region "here", zone "" */
    char *instance_type;            /* "p5.48xlarge"; local: "node" */
    enum spec_market market;
    char *image, *image_name; /* id and readable name; local/ssh: "" */
    char *subnet;             /* id or "" */
    char *gpu_model;          /* as the provider names it; "" without */
    int gpus, vcpus;
    double memory_gib;
    double price_usd_per_h; /* per node; negative: unknown */
    char *price_source;     /* "spot price history 2026-11-21", "catalogue 2026-07"; "" */
    int max_count;          /* most nodes of this offer; 0: unknown */
    enum offer_ends ends;
};
struct offer_list {
    VEC_OF(struct offer) list;
};
void offer_clear(struct offer *o);
/* Clears what was in `to` (zeroed or valid) first. */
void offer_copy(struct offer *to, const struct offer *from);
void offer_list_clear(struct offer_list *l);
/* "aws us-east-2a p5.48xlarge spot" for messages; caller frees. */
char *offer_text(const struct offer *o);
/* Stable sort: listed keeps the spec's order; cheapest by price, unknown prices last, ties by list. */
void offer_list_sort(struct offer_list *l, enum spec_order order);
#define GP_AUTO_OFFERS GP_CLEANUP(offer_list_clear)

#endif
