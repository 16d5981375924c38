/* SPDX-License-Identifier: Apache-2.0 */
/* What the spec language knows of a provider: one row that the provider owns. Registered once, before the
 * first spec is read (providers/specs.c); core names no provider. Rows are static. */
#ifndef GP_MODEL_SPEC_PROVIDER_H
#define GP_MODEL_SPEC_PROVIDER_H

#include "base/gp_base.h"

struct spec_provider_key {
    const char *name;                  /* a key of offers[] that the provider takes */
    const char *pattern, *pattern_doc; /* its text must be this too; NULL: the language's own rule is enough */
    const char *example;               /* NULL: the language's */
    const char *note;                  /* for docs/spec.md: what it means there; NULL: nothing more */
    bool required;
};

struct spec_provider {
    const char *name;                     /* as provider_ops has it */
    const char *doc;                      /* what it is, in a few words */
    const struct spec_provider_key *keys; /* besides `provider`; name NULL ends */
    bool by_default;                      /* a spec without offers means this one */
    bool zone_in_region;                  /* a zone's name begins with its region's */
    const char *image_id;                 /* pattern of its image ids, for hints; NULL: none */
    const char *(*gpu)(size_t i);         /* the GPU models it has, NULL ends; no function: any may be there */
};

void spec_providers_set(const struct spec_provider *const *rows); /* NULL ends; borrowed */
const struct spec_provider *spec_provider_at(size_t i);           /* NULL ends */
const struct spec_provider *spec_provider_find(const char *name); /* NULL: not registered */
/* Its row for a key of offers[]; NULL: it does not take the key. */
const struct spec_provider_key *spec_provider_key(const struct spec_provider *p, const char *key);

#endif
