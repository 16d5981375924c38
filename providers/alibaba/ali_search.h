/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by offers.c and prices.c: what a search for offers has read of one region. */
#ifndef GP_ALI_SEARCH_H
#define GP_ALI_SEARCH_H

#include "providers/alibaba/ali_int.h"

#define ALI_TYPES_MAX 12   /* sizes of one GPU */
#define ALI_GUESSES_MAX 10 /* with the other lists of the first round no more than run side by side */

struct price {
    double amount;  /* per hour in `currency`; negative: unknown */
    char *currency; /* NULL: unknown */
};
struct type {
    char *name, *gpu; /* gpu "": none */
    int gpus, vcpus;
    double memory_gib, gpu_gib;
    bool x86;
    struct price price; /* on demand with its disk; of a spot search only the currency */
    int disk_gib;       /* of the disk in the price */
};
struct zone_price {
    char *type, *zone;
    double price;
    int64_t at_s;
};
struct image {
    char *id, *name;
    bool x86;
    int64_t created_s;
};
struct search;
struct history {
    struct search *s;
    struct type *type;
};
struct search {
    struct ali *a;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const char *region;
    VEC_OF(struct type) types;
    VEC_OF(struct type) guesses; /* names and prices */
    struct strv sold;            /* "type/zone" */
    struct strv last;            /* those of `sold` whose stock is not filled up again */
    VEC_OF(struct zone_price) spots;
    struct image image;
    struct price disk;              /* of the disk that the spec asks for */
    struct ali_vswitches vswitches; /* of the offer's subnet */
    struct strv models;             /* GPU models of the region, for a message */
    struct offer_list *out;
};

void ali_type_clear(struct type *t);
bool ali_gpu_matches(const char *wanted, const struct type *t);

/* --- prices (prices.c) --- */
/* Types that the region may sell, by the catalogue: their prices can be read before the types are known. */
void ali_guess_types(struct search *s);
/* The lists that read the prices of the guesses and of the disk, to be read with others; what cannot be read stays
 * unknown. histories and lists: room for ALI_GUESSES_MAX + 1. Returns how many there are. */
size_t ali_guess_lists(struct search *s, struct history *histories, struct ali_list *lists);
/* Reads the prices of the first types that no guess was made for. */
void ali_prices_read(struct search *s, size_t types);
/* The price of an offer: of the type in that zone, with the disk. */
void ali_price_set(const struct search *s, const struct type *t, const char *zone, struct offer *o);

#endif
