/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/azure: the open provider, one call to Azure Resource Manager, and the functions
 * that the files share. One thread at a time, like the provider itself. */
#ifndef GP_AZURE_INT_H
#define GP_AZURE_INT_H

#include "base/json.h"
#include "base/secret.h"
#include "base/str.h"
#include "model/labels.h"
#include "providers/common/launch/slot_create.h"
#include "providers/common/rest.h"
#include "providers/provider.h"

/* Versions of the APIs. If-None-Match on virtual machines needs 2024-07 or newer. */
#define AZURE_RESOURCES "2021-04-01"
#define AZURE_SUBSCRIPTIONS "2021-01-01"
#define AZURE_COMPUTE "2025-04-01"
#define AZURE_NETWORK "2021-02-01"
#define AZURE_SKUS "2019-04-01"
#define AZURE_AUTHORIZATION "2022-04-01"

/* --- credentials (creds.c, creds_assertion.c, creds_cli.c) --- */

struct azure_cred {
    struct secret token; /* empty: none yet */
    int64_t expires_s;   /* wall, the cloud's clock */
    char *source;        /* "the environment (client secret)", for messages */
    char *subscription;  /* the CLI's default; NULL */
};
void azure_cred_clear(struct azure_cred *c);
#define GP_AUTO_AZURE_CRED GP_CLEANUP(azure_cred_clear)

struct azure {
    struct provider base;
    struct http *http;
    struct rest rest;
    struct gp_cancel *cancel;
    struct journal *journal;
    const struct event_sink *sink;
    struct azure_cred cred;
    char *endpoint;     /* "https://management.azure.com", without a slash at its end */
    char *audience;     /* what tokens are for: "https://management.azure.com" */
    char *authority;    /* "https://login.microsoftonline.com" */
    char *subscription; /* a GUID in lower case */
    char *principal_owner;
    char *tenant;             /* of the token, not verified; "" */
    char *fallback_region;    /* of the spec's first azure offer; NULL */
    int64_t role_wait_ms;     /* longest wait for a role assignment to be readable */
    struct strv roles_ok;     /* roles of nodes that were read and fit */
    struct slot_ops slot_ops; /* poll_ms follows Retry-After */
    struct azure_cache *cache;
};
static inline struct azure *azure_of(struct provider *p) { return (struct azure *)p; }

/* rest.ensure: makes a->cred usable for the next five minutes, in the order of azure-identity's
 * DefaultAzureCredential. force: a new token although the old looks valid. */
int azure_creds_ensure(void *ctx, bool force, struct gp_error *err);
const char *azure_env(const char *name); /* NULL: not set, or empty */
/* A client assertion signed with the key of that PEM file: header x5t, RS256. */
int azure_assertion_sign(struct azure *a, const char *file, const char *tenant, const char *client, const char *url,
                         struct secret *ret, struct gp_error *err);
/* Returns 0 and leaves ret->token empty where the az program is not installed. */
int azure_creds_cli(struct azure *a, struct azure_cred *ret, struct gp_error *err);
/* Of a token service's reply: "access_token" and when it expires. */
int azure_cred_from_json(struct azure *a, const json_t *j, const char *what, struct azure_cred *ret,
                         struct gp_error *err);
/* The claims of a token, decoded and not verified: they only name the owner. NULL: it is not a JSON Web Token. New
 * reference. */
json_t *azure_token_claims(const struct secret *token);

/* --- one call (arm.c) --- */

extern const struct cloud_error azure_errors[];
extern const size_t azure_error_count;
void azure_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);
int azure_authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err);

/* The URL of a path below the subscription ("resourcegroups/x"), of that API version. Caller frees. */
char *azure_url(const struct azure *a, const char *version, const char *path_fmt, ...) GP_PRINTF(3, 4);
/* "azure PUT virtualMachines/x", for messages. Caller frees. */
char *azure_what(const char *method, const char *url);
int azure_call(struct azure *a, const char *method, const char *url, const json_t *body, unsigned flags,
               struct rest_reply *ret, struct gp_error *err);
/* Every page of a list; each as rest_list has it. */
int azure_pages(struct azure *a, const char *url, int (*each)(void *ctx, const json_t *item, struct gp_error *err),
                void *ctx, struct gp_error *err);
/* Lists that are read side by side by rest_pages_many(&a->rest, w.lists.items, w.lists.len). */
struct azure_reads {
    VEC_OF(struct rest_paged) lists;
    struct strv texts;
};
void azure_reads_clear(struct azure_reads *w);
#define GP_AUTO_AZURE_READS GP_CLEANUP(azure_reads_clear)
/* Each returns its index in w->lists. url: taken over. what: of messages; NULL: by the URL. flags: REST_. */
size_t azure_reads_add(struct azure_reads *w, char *url, const char *what, const struct rest_list *list,
                       unsigned flags);
size_t azure_reads_pages(struct azure_reads *w, char *url, unsigned flags,
                         int (*each)(void *ctx, const json_t *item, struct gp_error *err), void *ctx);
/* Milliseconds to wait by the reply's Retry-After: between 100 ms and a minute; def without one. */
int64_t azure_retry_ms(const struct http_fields *headers, int64_t def);
bool azure_is_guid(const char *s);
/* A name of Azure's: letters, digits, '.', '-', '_'; at most 90; not ending in '.'. */
bool azure_is_name(const char *s);
/* "East US" to "eastus"; "" when it is not a region's name. Caller frees. */
char *azure_region(const char *text);
/* Splits "/subscriptions/S/resourceGroups/G/providers/N/TYPE/NAME" of this subscription: group and name in lower
 * case, type as given ("Microsoft.Compute/virtualMachines"). False: it is not such an id. All owned by the caller. */
bool azure_id_split(const struct azure *a, const char *id, char **ret_group, char **ret_type, char **ret_name);

/* The id of a resource in the journal: GROUP@UID for a group, GROUP/NAME@UID for a machine, GROUP/TYPE/NAME@UID for
 * others. Names are used again after a stack has ended; with the uid an id is not. */
struct azure_handle {
    char *group, *type, *name, *uid; /* type and name "" for a group */
};
void azure_handle_clear(struct azure_handle *h);
#define GP_AUTO_AZURE_HANDLE GP_CLEANUP(azure_handle_clear)
char *azure_handle_text(const char *group, const char *type, const char *name, const char *uid); /* caller frees */
bool azure_handle_read(const char *id, struct azure_handle *ret); /* false: it has no such form */
/* Whether two handles name one resource. The uid is from its tags, which somebody may have edited since. */
bool azure_handle_same(const char *a, const char *b);
#define AZURE_VM "virtualMachines"
#define AZURE_GUARD "networkSecurityGroups"
#define AZURE_NET "virtualNetworks"
#define AZURE_DISK "disks"
#define AZURE_SET "availabilitySets"
#define AZURE_GRANT "roleAssignments" /* its name in a handle is that of its machine */

/* --- tags --- */
json_t *azure_tags_json(const struct tags *tags); /* new reference */
void azure_tags_decode(json_t *tags, struct tags *ret);
/* Adds tags to those that a group or resource has. id: below the subscription. */
int azure_tags_merge(struct azure *a, const char *id, json_t *tags, struct gp_error *err);

/* --- the resource group: claim and home of everything (claim.c, prepare.c) --- */
struct azure_group {
    char *name, *region;
    struct tags tags;
    bool exists, deleting;
    bool grants; /* it has AZURE_ROLE_TAG: role assignments may exist below it */
};
void azure_group_clear(struct azure_group *g);
#define GP_AUTO_AZURE_GROUP GP_CLEANUP(azure_group_clear)
/* gpuprov-OWNER-STACK in lower case; where the owner does not fit a group's name, its hash. Caller frees. */
char *azure_group_name(const char *owner, const char *stack);
int azure_group_get(struct azure *a, const char *name, struct azure_group *ret, struct gp_error *err);
int azure_group_read(const json_t *item, struct azure_group *ret, struct gp_error *err);
void azure_group_resource(const struct azure_group *g, struct resource *ret);
int azure_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);

/* --- network (network.c) --- */
/* Ids of what a machine refers to; set NULL: it is in no availability set. Freed by the caller. */
struct azure_places {
    char *subnet, *guard, *set;
};
/* The security group and the network of a region in the stack's group, and the availability set of a size there if
 * the machines are to be together. */
int azure_network_ensure(struct azure *a, const struct stack *s, const struct spec *spec, const struct offer *o,
                         bool together, struct azure_places *ret, struct gp_error *err);
/* Writes the rules of the spec to the region's security group. */
int azure_guard_put(struct azure *a, const struct stack *s, const struct spec *spec, const char *region,
                    struct gp_error *err);

/* --- offers (sizes.c, offers.c, prices.c) --- */
struct azure_size {
    char *name, *family, *arch, *gpu_model;
    int gpus, vcpus, gpu_gib;
    double memory_gib;
    bool spot, vgpu, rdma;
    char *refused;     /* why this subscription cannot have it in the region; NULL: it can */
    struct strv zones; /* "eastus-1"; empty: the region sells it without zones */
};
struct azure_usage {
    char *family, *name; /* the name is for people */
    int64_t used, limit;
};
/* What a region sells, and the quotas there when it was read. */
struct azure_sizes {
    char *region;
    VEC_OF(struct azure_size) list;
    VEC_OF(struct azure_usage) usages; /* empty: not known */
};
struct azure_cache {
    VEC_OF(struct azure_sizes *) regions;
    struct strv networks_ready; /* "REGION/GROUP" */
    struct strv quotas_ok;
    char *public_cidr;
};
void azure_cache_free(struct azure_cache *c);
/* All sizes of a region, borrowed from the cache; NULL: they were not read. */
struct azure_sizes *azure_sizes_known(struct azure *a, const char *region);
/* Adds the lists of a region's sizes and quotas to w; azure_sizes_end takes them into the cache, or fails. */
struct azure_sizes_read {
    struct azure_sizes *fresh;
    size_t sizes, usages; /* indices in w */
};
void azure_sizes_begin(struct azure *a, const char *region, struct azure_reads *w, struct azure_sizes_read *ret);
int azure_sizes_end(struct azure *a, struct azure_reads *w, struct azure_sizes_read *read, struct gp_error *err);
int azure_sizes_load(struct azure *a, const char *region, struct gp_error *err); /* the same, of one region alone */
const struct azure_size *azure_size_find(const struct azure_sizes *s, const char *name);
/* Those that fit the spec and its offer, best first: borrowed pointers. */
struct azure_picks {
    VEC_OF(const struct azure_size *) list;
};
int azure_sizes_pick(const struct azure_sizes *all, const struct spec *spec, const struct spec_offer *offer,
                     struct azure_picks *ret, struct gp_error *err);
/* Names of the sizes that azure_sizes_pick can take, before a region's sizes are known. */
void azure_sizes_guess(const struct spec *spec, const struct spec_offer *offer, struct strv *ret);
int azure_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err);
/* The quota of the size's family, or of all spot cores. -GP_EQUOTA: there is too little. */
int azure_quota_check(struct azure *a, const struct offer *offer, int count, struct gp_error *err);
size_t azure_usages_add(struct azure *a, struct azure_sizes *to, struct azure_reads *w);
void azure_usages_forget(struct azure_sizes *s);
/* USD per hour of sizes from the retail prices, and of the disk that the spec asks for; negative: not known. */
struct azure_prices {
    const char *region; /* borrowed */
    bool spot;
    struct strv names;
    double *usd;
    char *disk_sku;        /* "P10 LRS"; NULL: the spec asks for no disk */
    double disk_usd_per_h; /* 0: the spec asks for none */
    size_t lists[2];       /* indices in the reads: sizes, disk */
};
void azure_prices_begin(const char *region, bool spot, int disk_gib, const struct strv *names, struct azure_reads *w,
                        struct azure_prices *ret);
void azure_prices_end(const struct azure_reads *w, struct azure_prices *p);
double azure_price_of(const struct azure_prices *p, const char *size);
void azure_prices_clear(struct azure_prices *p);
#define AZURE_DISK_MAX_GIB 4095                        /* of a disk that a machine starts from */
int azure_disk_gib(const struct spec *spec, int gpus); /* the disk of each node */

/* --- InfiniBand (fabric.c) --- */
/* *ret: the machines of the gang share InfiniBand. -GP_EUSAGE: the spec requires it, and this offer cannot have it. */
int azure_fabric_choose(const struct spec *spec, const struct spec_offer *want, const struct azure_size *size,
                        bool *ret, struct gp_error *err);
char *azure_fabric_text(const struct spec *spec, const struct spec_offer *want, const struct azure_size *size);
int azure_fabric_cards(const char *size, int gpus); /* InfiniBand devices of a size that has it: at least so many */

/* --- images (images.c) --- */
const char *azure_image_os(size_t i);
/* "publisher:offer:sku:version" or an id, for this size and its use. Caller frees. */
int azure_image_find(const struct spec *spec, size_t index, const struct azure_size *size, bool infiniband, char **ret,
                     struct gp_error *err);
json_t *azure_image_json(const char *image); /* the body's imageReference; new reference */

/* --- rights of nodes (grants.c) --- */

/* The tag of a machine that is to delete itself: its role. Of its group, written before: assignments may exist. */
#define AZURE_ROLE_TAG "gpuprov-role"
/* A GUID from the subscription, the stack's uid and the machine's name. Caller frees. */
char *azure_grant_name(const struct azure *a, const char *uid, const char *vm);
char *azure_grants_url(const struct azure *a, const char *group); /* the list; caller frees */
/* Of a machine's reply, "" where it has none: its own managed identity, and the role that it was launched with. */
const char *azure_vm_principal(const json_t *vm);
const char *azure_vm_role(const json_t *vm);
/* Whether the assignment of a reply gives that role to that principal, in that machine's scope, unconditionally */
bool azure_grant_is(const struct azure *a, const json_t *item, const char *group, const char *vm, const char *principal,
                    const char *role);
/* -GP_EUSAGE: the role does not exist, or allows other actions than a node needs. */
int azure_role_check(struct azure *a, const char *role, struct gp_error *err);
/* Before the first machine with that role: checks the role and the right to read assignments, and tags the group. */
int azure_grants_begin(struct azure *a, const struct stack *s, const char *role, struct gp_error *err);
/* Gives the machines of the list their right and reads it back, within role_wait_ms; sets ends_itself of each. An error
 * is that of the first one without the right. */
int azure_grants_make(struct azure *a, const struct stack *stack, const struct spec *spec,
                      struct resource_list *machines, struct gp_error *err);
bool azure_grants_may_lack(const struct azure *a, const struct spec *spec, const struct gp_error *why);
int azure_grants_complete(struct azure *a, const struct prepare_req *req, struct gp_error *err);
/* Of the handle of an assignment. Caller frees. */
char *azure_grant_end_url(const struct azure *a, const struct azure_handle *h);

/* --- the rest --- */
int azure_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int azure_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
/* One virtual machine of a reply. */
int azure_vm_read(const struct azure *a, const json_t *item, struct resource *ret, struct gp_error *err);
/* The machines of a group with their power states, and their addresses. */
int azure_list_vms(struct azure *a, const char *group, struct resource_list *ret, struct gp_error *err);
int azure_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int azure_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                   struct gp_error *err);
int azure_doctor(struct str *text, bool *ret_usable, struct gp_error *err);
int azure_policy_json(const char *owner, char **ret, struct gp_error *err);
int azure_node_policy_json(const char *owner, char **ret, struct gp_error *err);
extern const struct spec_provider azure_spec;

#endif
