/* SPDX-License-Identifier: Apache-2.0 */
/* The tags codec: the one place where tags of cloud resources are decoded and encoded. Anyone in the account
 * may have written them. A value that does not have exactly the form that gpuprov writes is not used: its
 * field stays "unknown", and `bad` reports it. Keys are without the provider's prefix ("uid", not
 * "gpuprov:uid"). Pure; any thread. */
#ifndef GP_MODEL_TAGS_H
#define GP_MODEL_TAGS_H

#include "base/str.h"
#include "model/stack.h"

#define TAGS_SLOTS_MAX 4096   /* nodes of a stack; a tag that names a higher slot is bad */
#define TAGS_VALUE_MAX 256    /* EC2's limit of a value, in characters */
#define TAGS_EVERYWHERE "*"   /* regions: all of them */
#define TAGS_REGION "region/" /* key of one more region, value TAGS_YES: two runs that add one lose neither */
#define TAGS_YES "1"

/* The decoded tags of one resource. All strings owned; "" (0, -1): absent or bad. */
struct tags {
    char *owner, *stack, *uid, *spec_hash, *hostkey, *unit;
    char *launch, *proof, *deadline; /* proof.h; hex */
    char *regions;                   /* of a claim at its creation: regions of the stack's resources, "a b" or "*" */
    char *image;                     /* of a baked image and its snapshots: what it has (model/image.h) */
    char *more_regions;              /* of tags that were added later, "a b" */
    int64_t created_s, expires_s;    /* wall */
    int slot_first, slot_count;      /* -1, 0: none */
    int attempt;
    double price_usd_per_h; /* negative: not known */
    bool claim;
    unsigned seen; /* keys that were there, as bits; private */
    char bad[160]; /* the first tag that did not decode and why, one line; "" */
};
void tags_init(struct tags *t); /* "" everywhere */
void tags_clear(struct tags *t);
/* One tag. Keys that are not gpuprov's are ignored; one that comes twice is bad. */
void tags_read(struct tags *t, const char *key, const char *value);
/* Owner, stack and uid are set and decode: only such a resource has an owner. */
bool tags_identify(const struct tags *t);
/* Fills the resource's owner, stack, uid, spec_hash, unit, host_keys, regions, attempt, times, price, claim and
 * `unreadable`; its slot is FIRST + launch_index when that lies within COUNT (launch_index -1: none).
 * A resource without identity keeps owner, stack and uid "". */
void tags_to_resource(const struct tags *t, int launch_index, struct resource *r);

/* Whether gpuprov writes a tag with this key; TAGS_REGION's keys have names of their own. */
bool tags_is_key(const char *key);
/* Records the first tag that gpuprov would not write: "its tag 'KEY' is not WHY". */
void tags_complain(struct tags *t, const char *key, const char *why);

/* --- encoding: tags_read decodes it to the same values --- */
/* The tags that every resource of a stack has; the rest is "unknown". Initialises t; caller clears. */
void tags_of_stack(struct tags *t, const struct stack *s);
/* The tags of the machines of one launch, with the proofs of the launch and of its deadline. key: known. */
struct proof_key;
void tags_of_launch(struct tags *t, const struct stack *s, const struct proof_key *key, int slot_first, int slot_count,
                    int attempt, double price_usd_per_h);
/* Every tag that is set, as key and value. A node's (slot_count > 0) has its price, "" where it is not known. */
void tags_each(const struct tags *t, void (*each)(void *ctx, const char *key, const char *value), void *ctx);
void tags_slots_text(char *dst, size_t n, int first, int count);
void tags_price_text(char *dst, size_t n, double usd_per_h); /* "" when not known */
/* All regions of a claim in one value; "": not known, which means everywhere. Caller frees. */
char *tags_regions(const struct tags *t);
/* Names in sorted order, each once; TAGS_EVERYWHERE when it would not fit a tag. Caller frees. */
char *tags_regions_text(const struct strv *regions);
/* The names of a regions value; false: everywhere, or not known (NULL, ""). */
bool tags_regions_split(const char *text, struct strv *ret);

#endif
