/* SPDX-License-Identifier: Apache-2.0 */
/* An offer: a place where a node can be bought, with its type, zone, market, image and price. */
#ifndef GP_MODEL_OFFER_H
#define GP_MODEL_OFFER_H

#include "base/str.h"
#include "base/vec.h"
#include "spec/spec.h"

/* The terminator of an offer's nodes at their deadline when gpuprov does not run. */
/* From the most to the least reliable. */
enum offer_ends {
    ENDS_BY_PROVIDER, /* in an offer: the default of its provider's row */
    ENDS_SERVER,      /* the cloud itself */
    ENDS_GUEST,       /* the node: a unit on it, and a poweroff terminates it */
    ENDS_GC_ONLY,     /* only 'gpuprov gc', on any machine */
    ENDS_NEVER        /* machines that gpuprov never terminates */
};
const char *offer_ends_name(enum offer_ends e); /* "server", "guest", "gc-only", "never" */

/* The provider's own signal of how many could be had now. It promises nothing. */
enum offer_stock { OFFER_STOCK_UNKNOWN, OFFER_STOCK_NONE, OFFER_STOCK_LOW, OFFER_STOCK_MEDIUM, OFFER_STOCK_HIGH };
const char *offer_stock_name(enum offer_stock s); /* "", "none", "low", "medium", "high" */

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
    int disk_gib;             /* root disk that create requests; 0: the image's, or unknown */
    double price_usd_per_h;   /* per node, with its disk where the price of that is known; negative: unknown */
    double disk_usd_per_h;    /* the disk's part of it; 0: not part of it */
    char *price_source;       /* "spot price history 2026-11-21", "catalogue 2026-07"; "" */
    char *currency;           /* ISO code of the price that the cloud bills; "" or NULL: USD */
    double price_in_currency; /* per node, in `currency`, where that is not USD */
    char *rate_date;          /* of the conversion to USD; "" or NULL: none was needed */
    enum offer_stock stock;
    char *fabric;  /* the network between its nodes: "EFA x32, ..."; NULL or "": the usual one */
    char *quota;   /* "8 of 16 GPUs used"; "" or NULL: not known */
    int max_count; /* most nodes of this offer; 0: unknown */
    enum offer_ends ends;
    int64_t ttl_ms; /* how long nodes of it may live, where limits.max_cost decides that; 0: limits.ttl does */
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
/* Sets the price of a node from `amount` in the currency of that ISO code (NULL, "": USD), converted at the rates of
 * model/currency.h. Negative, or a currency without a rate: the price in USD is not known. */
void offer_set_price(struct offer *o, double amount, const char *currency);
/* " (150.24 CNY/h at the rate of 2026-10-05)"; "" for prices in USD. Caller frees. */
char *offer_price_note(const struct offer *o);
/* Whether a node of the offer has the CPUs, memory and disk that the spec requires; else why has the reason. Values
 * that are not known do not fit. */
bool offer_fits(const struct offer *o, const struct spec *spec, struct str *why);
/* The places and types of the offers from `first` on are the provider's own names: no secrets, even if the spec has
 * them from ${env:..}. */
void offer_list_reveal(const struct offer_list *l, size_t first);
/* Stable sort: listed keeps the spec's order; cheapest by price in USD, unknown prices after those, offers without
 * stock last, ties by list. */
void offer_list_sort(struct offer_list *l, enum spec_order order);
#define GP_AUTO_OFFERS GP_CLEANUP(offer_list_clear)

#endif
