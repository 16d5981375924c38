/* SPDX-License-Identifier: Apache-2.0 */
/* A provider's part of the spec language: one static row that the provider owns. Registered once, before the
 * first spec is read (providers/specs.c); core names no provider. */
#ifndef GP_SPEC_SPEC_PROVIDER_H
#define GP_SPEC_SPEC_PROVIDER_H

#include "base/gp_base.h"

struct spec_provider_key {
    const char *name;                  /* a key of offers[] that the provider takes */
    const char *pattern, *pattern_doc; /* further form of its value; NULL: only the language's own rule */
    const char *example;               /* NULL: the language's */
    const char *note;                  /* for docs/spec.md: its meaning at this provider; NULL: none */
    bool required;
};

/* A key of the spec that nodes of a provider cannot have. */
struct spec_refused {
    const char *key;    /* "access.ssh_from" */
    const char *reason; /* "RunPod has no firewall: ..." */
    const char *unless; /* this value is accepted: "none", "true"; NULL: no value is */
};

/* Whether its nodes can end themselves, so that billing stops. */
enum spec_self_end { SELF_END_NEVER, SELF_END_BY_ROLE /* with `role` in the offer */, SELF_END_ALWAYS };

struct spec_provider {
    const char *name;                     /* as provider_ops has it */
    const char *doc;                      /* short description */
    const struct spec_provider_key *keys; /* besides `provider`; name NULL ends */
    bool by_default;                      /* a spec without offers uses this provider */
    bool moves_deadline;                  /* a changed ttl moves the deadline of running nodes, else it is refused */
    enum spec_self_end self_end;          /* else limits that the node enforces are refused */
    bool container;                       /* its nodes are containers: keys that need a machine are refused */
    const struct spec_refused *refused;   /* further keys, key NULL ends; NULL: none */
    bool zone_in_region;                  /* a zone's name begins with its region's */
    const char *image_id;                 /* pattern of its image ids, for hints; NULL: none */
    const char *(*gpu)(size_t i);         /* its GPU models, NULL ends; no function: any model */
    const char *(*os)(size_t i);          /* its systems for image.os, NULL ends; no function: any */
};

void spec_providers_set(const struct spec_provider *const *rows); /* NULL ends; borrowed */
const struct spec_provider *spec_provider_at(size_t i);           /* NULL ends */
const struct spec_provider *spec_provider_find(const char *name); /* NULL: not registered */
/* Its row for a key of offers[]; NULL: it does not take the key. */
const struct spec_provider_key *spec_provider_key(const struct spec_provider *p, const char *key);

#endif
