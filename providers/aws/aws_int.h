/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/aws: the open provider, one call to a service, and the functions that the
 * files share. One thread at a time, like the provider itself. */
#ifndef GP_AWS_INT_H
#define GP_AWS_INT_H

#include "base/ini.h"
#include "base/json.h"
#include "base/secret.h"
#include "base/str.h"
#include "base/xml.h"
#include "model/labels.h"
#include "providers/aws/errors.h"
#include "providers/http.h"
#include "providers/provider.h"

/* --- credentials and configuration (config.c, creds.c, creds_remote.c) --- */

struct aws_cred {
    char *id;                 /* access key id; NULL: none yet */
    struct secret key, token; /* token empty: long-lived key */
    int64_t expires_s;        /* wall; 0: never */
    char *source;             /* "environment", "profile 'x'", for messages */
};
void aws_cred_clear(struct aws_cred *c);
#define GP_AUTO_CRED GP_CLEANUP(aws_cred_clear)

/* Environment and files, read once. */
struct aws_config {
    char *profile;      /* AWS_PROFILE, AWS_DEFAULT_PROFILE or "default" */
    bool profile_named; /* the user named it */
    struct ini config, credentials;
    char *region;    /* NULL: none */
    char *ca_bundle; /* NULL: system */
};
int aws_config_load(struct aws_config *c, struct gp_error *err);
bool aws_region_valid(const char *region); /* checks only the form */
void aws_config_clear(struct aws_config *c);
/* A key of a profile; for access keys the credentials file comes before the config file. NULL when absent. */
const char *aws_config_get(const struct aws_config *c, const char *profile, const char *key);
bool aws_config_has(const struct aws_config *c, const char *profile);
/* "https://ec2.us-east-1.amazonaws.com", without a slash at its end; NULL: the region is
 * malformed. Caller frees. */
char *aws_endpoint(const struct aws_config *c, const char *service, const char *region);

struct aws {
    struct provider base;
    struct http *http;
    const struct gp_cancel *cancel;
    const struct http_watch *watch; /* of a bucket; NULL */
    struct journal *journal;
    const struct event_sink *sink;
    struct aws_config cfg;
    struct aws_cred cred;
    char *account, *principal_owner; /* of GetCallerIdentity */
    char *fallback_region;           /* of the spec's first aws offer; NULL */
    struct aws_cache *cache;         /* images, types, groups already looked up (cache.c) */
    struct proof_key image_key;      /* of baked images; not known: none is proven */
    bool borrowed;                   /* credentials are shared with other threads: used, never renewed */
};

/* Makes a->cred usable for the next five minutes by the AWS CLI's chain; refreshes credentials that
 * expire. force: get new ones although the old look valid. -GP_EAUTH names every place that was tried. */
int aws_creds_ensure(struct aws *a, bool force, struct gp_error *err);
/* The parts of the chain that need the network or a program (creds_remote.c). */
struct aws_assume {
    const char *role_arn, *session_name, *external_id;
    int64_t duration_s;          /* 0: the role's own */
    const struct aws_cred *with; /* NULL: web identity */
    const char *token_file;
};
int aws_sts_assume(struct aws *a, const struct aws_assume *how, struct aws_cred *ret, struct gp_error *err);
int aws_creds_process(struct aws *a, const char *command, const char *profile, struct aws_cred *ret,
                      struct gp_error *err);
/* Returns 0 and leaves ret->id NULL where there is no such service. */
int aws_creds_container(struct aws *a, struct aws_cred *ret, struct gp_error *err);
int aws_creds_imds(struct aws *a, struct aws_cred *ret, struct gp_error *err);
/* shlex-like words of a command line; false: an unclosed quote. */
bool aws_split_command(const char *command, struct strv *ret);
/* Decodes {"AccessKeyId", "SecretAccessKey", token_key, "Expiration"}. */
int aws_cred_from_json(const json_t *j, const char *token_key, const char *what, struct aws_cred *ret,
                       struct gp_error *err);

/* --- one call (query.c) --- */

int aws_http_open(const struct aws *a, struct http **ret, struct gp_error *err);

struct aws_reply {
    struct xml_node *xml; /* query services */
    json_t *json;         /* JSON services */
    char request_id[80];
    char code[64]; /* error code when the call failed */
    bool sent;
};
void aws_reply_clear(struct aws_reply *r);
#define GP_AUTO_REPLY GP_CLEANUP(aws_reply_clear)

enum aws_call_flags {
    AWS_ONCE = 1,     /* creates a resource: never sent again when the outcome is unknown; then
                         the call returns -GP_EUNKNOWN */
    AWS_UNSIGNED = 2, /* web identity */
    AWS_OPTIONAL = 4  /* one try, short time: its failure is not fatal to the caller */
};
struct aws_call {
    const char *service; /* "ec2", "sts", "ssm", "servicequotas" */
    const char *region;
    const char *action; /* for messages and as target of JSON services */
    const char *body;
    unsigned flags;
    const struct aws_cred *cred; /* NULL: a->cred, refreshed when needed */
    int64_t deadline_ms;         /* of the whole, monotonic; 0: none */
};
int aws_call(struct aws *a, const struct aws_call *c, struct aws_reply *ret, struct gp_error *err);

/* The body of a query call. */
void aws_begin(struct str *body, const char *action); /* EC2's version */
void aws_param(struct str *body, const char *name, const char *value);
void aws_paramf(struct str *body, const char *value, const char *name_fmt, ...) GP_PRINTF(3, 4);
void aws_param_int(struct str *body, const char *name, int64_t value);
/* Filter.n.Name and Filter.n.Value.1 (value2 may be NULL). */
void aws_filter(struct str *body, int n, const char *name, const char *value);
/* aws_call on "ec2". */
int aws_ec2(struct aws *a, const char *region, const char *action, const struct str *body, unsigned flags,
            struct aws_reply *ret, struct gp_error *err);
/* Every page of a describe call: each(ctx, item) for the children of `set`. body is without
 * NextToken. page 0: MaxResults is not sent. */
typedef int (*aws_each_fn)(void *ctx, const struct xml_node *item, struct gp_error *err);
int aws_describe(struct aws *a, const char *region, const char *action, const struct str *body, int page,
                 const char *set, aws_each_fn each, void *ctx, struct gp_error *err);

/* The region of calls without a region. Borrowed. */
const char *aws_home(const struct aws *a);
int64_t aws_now_s(const struct aws *a); /* the cloud's clock */

/* --- tags --- */
#define AWS_TAG "gpuprov:"
/* The item's tagSet through the codec (model/tags.h). Caller clears. */
void aws_tags_decode(const struct xml_node *item, struct tags *ret);
/* TagSpecification.N of a body: Name and the tags. */
void aws_tags_encode(struct str *body, int n, const char *type, const char *name, const struct tags *tags);

/* --- the fabric (fabric.c) and placement groups (placement.c) --- */
#define AWS_CARDS_MAX 64
struct aws_nics {
    int efa;        /* EFA interfaces; 0: none */
    uint64_t cards; /* bit i: network card i has one */
};
void aws_nics_read(const struct xml_node *type, struct aws_nics *ret); /* one <item> of instanceTypeSet */
bool aws_nics_several(const struct aws_nics *n);                       /* more cards than the first */
/* What a gang of this spec uses of a type's EFA: all of it, or nothing. -GP_EUSAGE: it cannot, or the type has none. */
int aws_fabric_choose(const struct spec *spec, const char *type, const struct aws_nics *of, struct aws_nics *ret,
                      struct gp_error *err);
/* For `plan`; caller frees. */
char *aws_fabric_text(const struct spec *spec, const struct aws_nics *of, const struct aws_nics *chosen,
                      const char *placement);
/* NetworkInterface.N of a body: the primary one is the first. */
void aws_interfaces_add(struct str *body, const struct aws_nics *chosen, const char *subnet, const char *group);
char *aws_placement_name(const struct stack *s, const char *zone); /* caller frees */
/* The stack's cluster placement group of this zone; creates it when absent. *ret_name: caller frees. */
int aws_placement_ensure(struct aws *a, const struct stack *s, const char *region, const char *zone, char **ret_name,
                         struct gp_error *err);

/* --- the way of nodes without a public address to the internet (routes.c) --- */
struct aws_subnet;
enum aws_way { AWS_WAY_UNKNOWN, AWS_WAY_NONE, AWS_WAY_PUBLIC_ONLY, AWS_WAY_OUT };
enum aws_way aws_way_out(struct aws *a, const char *region, const struct aws_subnet *subnet); /* no cache */

/* --- reserved capacity (reserve.c) --- */
struct aws_reservation {
    char *id, *region, *type, *zone, *state; /* owned */
    char *placement;                         /* name of its placement group; "": none */
    bool block;                              /* a Capacity Block */
    int free_nodes;
    int64_t starts_s, ends_s; /* 0: none */
};
void aws_reservation_clear(struct aws_reservation *r);
/* fresh: reads it from EC2, else the one that was read before. Borrowed from the cache until the next call. */
int aws_reservation_find(struct aws *a, const char *region, const char *id, bool fresh,
                         const struct aws_reservation **ret, struct gp_error *err);
/* Refuses one that this offer cannot use now, or that ends before the deadline. */
int aws_reservation_check(const struct aws_reservation *r, const struct spec *spec, const struct spec_offer *offer,
                          int64_t now_s, struct gp_error *err);
void aws_reservation_add(struct str *body, const struct aws_reservation *r);

/* --- offers (types.c, images.c, prices.c, quota.c) --- */
struct aws_type {
    char *name, *arch; /* "x86_64", "arm64" */
    char *gpu_name;    /* "" without */
    int gpus, gpu_mib, vcpus, memory_mib;
    bool current, bare_metal, spot, nvidia;
    struct aws_nics nics;
};
struct aws_types {
    VEC_OF(struct aws_type) list;
};
void aws_types_clear(struct aws_types *t);
/* Driver requirement of an old GPU: the open kernel modules support Turing and newer. */
struct aws_old_gpu {
    const char *model, *architecture;
    int last_branch; /* last driver branch with this architecture */
};
const struct aws_old_gpu *aws_old_gpu(const char *gpu_name); /* NULL: the open modules support it */
bool aws_gpu_matches(const char *wanted, const struct aws_type *t);
/* The interfaces of a type by its name, cached. */
int aws_type_nics(struct aws *a, const char *region, const char *type, struct aws_nics *ret, struct gp_error *err);
int aws_types_find(struct aws *a, const char *region, const struct spec *spec, const struct spec_offer *offer,
                   struct aws_types *ret, struct gp_error *err);
/* Appends the zones that sell these types, as "type/zone", with one call for all. n > 0. */
int aws_type_zones(struct aws *a, const char *region, const struct aws_type *types, size_t n, struct strv *ret,
                   struct gp_error *err);
#define AWS_DISKS_MAX 16 /* EBS devices of an image beside its root */
struct aws_disk {
    char device[32]; /* "/dev/sdb" */
    int gib;         /* 0: the snapshot's own */
};
struct aws_image {
    char *region, *id, *name, *arch, *root_device;
    int root_gib;
    struct aws_disk disks[AWS_DISKS_MAX]; /* further volumes of an instance */
    int n_disks;
};
void aws_image_clear(struct aws_image *i);
/* GiB of a node's root disk: the spec's, else a size that suffices; at least the image's. */
int aws_disk_gib(const struct spec *spec, const struct aws_image *image, int gpus);
/* One <item> of imagesSet. -GP_EPROTO: a malformed field, or more disks than AWS_DISKS_MAX. */
int aws_image_read(const struct xml_node *item, const char *region, struct aws_image *ret, struct gp_error *err);
/* For this type (its architecture, its GPU). Borrowed from the cache. */
int aws_image_find(struct aws *a, const char *region, const struct spec *spec, size_t index,
                   const struct aws_type *type, const struct aws_image **ret, struct gp_error *err);
/* The image that aws_image_find most likely returns, read beside other calls: first() an id or the parameter that has
 * it, second() the image of that id. Neither uses the cache; keep() puts the results into it. */
struct aws_image_ahead {
    const char *region;
    const struct aws_os_row *row; /* NULL: by id */
    char *id;
    struct aws_image image;
};
void aws_image_ahead_first(struct aws *a, const char *region, const struct spec *spec, size_t index,
                           struct aws_image_ahead *ret);
bool aws_image_ahead_pending(const struct aws_image_ahead *x); /* second() has something to read */
void aws_image_ahead_second(struct aws *a, struct aws_image_ahead *x);
void aws_image_ahead_keep(struct aws *a, struct aws_image_ahead *x);
void aws_image_ahead_clear(struct aws_image_ahead *x);
int aws_image_by_id(struct aws *a, const char *region, const char *id, const struct aws_image **ret,
                    struct gp_error *err);
struct aws_subnet {
    char *id, *zone, *vpc;
    bool is_default;
    bool ipv6_only; /* its nodes have no IPv4 address at all */
};
struct aws_subnets {
    VEC_OF(struct aws_subnet) list;
};
void aws_subnets_clear(struct aws_subnets *s);
/* One <item> of subnetSet. -GP_EPROTO: a malformed field. */
int aws_subnet_read(const struct xml_node *item, struct aws_subnet *ret, struct gp_error *err);
/* The default subnet of every zone, or the named one. Empty: no default VPC. Cached. */
int aws_subnets_find(struct aws *a, const char *region, const char *id, struct aws_subnets *ret, struct gp_error *err);
/* A cached result of aws_subnets_find; borrowed, NULL: not cached. id NULL: any default one. */
const struct aws_subnet *aws_subnet_seen(const struct aws *a, const char *region, const char *id);
/* Newest spot price per type and zone, one call for all types. n > 0. */
struct aws_spot {
    char *type, *zone;
    double usd_per_h;
    int64_t at_s;
};
struct aws_spots {
    VEC_OF(struct aws_spot) list;
};
void aws_spots_clear(struct aws_spots *s);
int aws_spot_prices(struct aws *a, const char *region, const struct aws_type *types, size_t n, struct aws_spots *ret,
                    struct gp_error *err);
/* Refuses with -GP_EQUOTA when the account's vCPU quota is below what `count` nodes need. An
 * account without permission to read quotas passes. */
int aws_quota_check(struct aws *a, const struct offer *offer, int count, struct gp_error *err);
struct aws_quota {
    char region[64], code[32], name[80];
    double vcpus; /* negative: it could not be read */
};
bool aws_quota_known(const struct aws *a, const char *region, const char *code); /* code NULL: there is none */
void aws_quota_read(struct aws *a, const char *region, const char *code, struct aws_quota *ret); /* no cache */
void aws_quota_keep(struct aws *a, const struct aws_quota *q);         /* empty: nothing was read */
const char *aws_quota_code(const char *type, enum spec_market market); /* "L-417A185B"; NULL */

/* --- groups (prepare.c decides, group.c reads and creates, rules.c sets the rules) --- */
struct aws_rule {    /* one source of one ingress permission, as EC2 lists it; strings owned */
    char *protocol;  /* "tcp", "-1" */
    char *from, *to; /* ports; "" where EC2 names none */
    enum { AWS_FROM_IPV4, AWS_FROM_IPV6, AWS_FROM_PREFIX_LIST, AWS_FROM_GROUP } kind;
    char *source;  /* CIDR, prefix list id or group id */
    char *account; /* of the group; "" */
};
struct aws_group {
    char *id, *name, *vpc; /* id NULL: there is none */
    struct tags tags;
    VEC_OF(struct aws_rule) rules;
};
void aws_group_clear(struct aws_group *g);
/* "gpuprov-OWNER/STACK", or with "/UID" (uid not NULL) for a group that is not a claim. Neither a stack's name
 * nor an owner has a '/', so names of two stacks differ. Caller frees. */
char *aws_group_name(const char *owner, const char *stack, const char *uid);
/* By name in one VPC; ret->id stays NULL when absent. */
int aws_group_find(struct aws *a, const char *region, const char *vpc, const char *name, struct aws_group *ret,
                   struct gp_error *err);
int aws_group_by_id(struct aws *a, const char *region, const char *id, struct aws_group *ret,
                    struct gp_error *err); /* the same by id; absent: id stays NULL */
/* -GP_EEXISTS when the group is not this stack's: no tags of gpuprov, wrong ones, or another's. uid NULL:
 * any uid that decodes. */
int aws_group_is_of(const struct aws_group *g, const struct stack *s, const char *uid, struct gp_error *err);
/* Creates a group after its intent; *ret is the group, without rules. -GP_EEXISTS: the name is taken;
 * -GP_EUNKNOWN: the caller reads it back (the intent stays open). regions: for a
 * claim, the regions of its stack's resources (tags.h). */
int aws_group_create(struct aws *a, const struct stack *s, const char *region, const char *vpc, const char *name,
                     const char *regions, struct aws_group *ret, struct gp_error *err);
/* Sets the group's ingress to exactly this: SSH from the spec's networks, everything between its members.
 * Revokes and reports all other rules. Adds new rules before it revokes old ones. */
int aws_group_rules(struct aws *a, const struct spec *spec, const char *region, const struct aws_group *g,
                    struct gp_error *err);
/* Ends every open group intent of this name: done where its uid is the group's, else failed. */
int aws_group_settle(struct aws *a, const char *region, const struct aws_group *g, struct gp_error *err);
/* The ingress of a group in a reply, as resource.ingress has it. */
void aws_group_ingress(const struct xml_node *item, const char *id, struct str *out);
void aws_group_resource(const struct aws_group *g, const char *region, struct resource *ret);
/* The group of nodes in this VPC: the claim itself, or one more of the stack. Creates it when
 * absent and sets its rules. *ret_id: caller frees. */
int aws_group_ensure(struct aws *a, const struct stack *stack, const struct spec *spec, const char *region,
                     const char *vpc, char **ret_id, struct gp_error *err);

/* --- the cache of one open provider --- */
struct aws_cache {
    VEC_OF(struct aws_image *) images; /* keyed by region and query */
    struct strv image_keys;
    struct strv groups_ready; /* "region/id": rules checked by this process */
    VEC_OF(struct aws_quota) quotas;
    struct strv placements; /* "region/name" */
    struct strv nics_of;    /* "region/type", one for each of nics */
    VEC_OF(struct aws_nics) nics;
    struct aws_reservation reservation; /* id NULL: none was read */
    struct aws_subnets subnets;
    struct strv subnet_regions; /* one for each of subnets */
    /* The claim as prepare read it, so that a create right after does not read it again. */
    struct {
        char *region, *vpc, *uid, *id; /* id NULL: not cached */
        int64_t until_ms;              /* clock_deadline */
    } claim;
    char *public_cidr; /* this controller's address; NULL: not read yet */
};
void aws_cache_free(struct aws_cache *c);

/* --- slots of provider_ops in their own files --- */
int aws_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret, struct gp_error *err);
int aws_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);
int aws_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int aws_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int aws_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int64_t aws_boot_timeout(const char *instance_type, int gpus);
int aws_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err);
int aws_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                 struct gp_error *err);
/* Instances with these tags (NULL: any), appended. */
struct aws_wanted {
    const char *owner, *stack, *uid, *slots, *attempt;
    bool live; /* instances only: the cloud may leave out the terminated ones */
};
int aws_list_instances(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                       struct gp_error *err);
int aws_list_volumes(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                     struct gp_error *err);
int aws_list_placements(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                        struct gp_error *err);
/* Adds tag filters from number n on; returns the next free number. */
int aws_tag_filters(struct str *body, int n, const struct aws_wanted *w);
/* Decodes one <item> of instancesSet; ret is valid in every case. -GP_EPROTO: its id is malformed. */
int aws_instance_read(const struct xml_node *item, const char *region, struct resource *ret, struct gp_error *err);
/* --- baked images (images_bake.c) --- */
extern const struct image_ops aws_image_ops;
/* The images and snapshots with the owner's tag that this account owns, with `ours`. */
int aws_list_images(struct aws *a, const char *region, const char *owner, struct resource_list *ret,
                    struct gp_error *err);
/* The newest image that fits. *ret_id NULL: none, *ret_why has the reason; caller frees both. */
int aws_image_baked(struct aws *a, const char *region, const struct spec *spec, const struct spec_image *want,
                    const struct aws_type *type, char **ret_id, char **ret_why, struct gp_error *err);

/* Reads that do not need each other's results, side by side; returns when all are done. A task that failed because
 * the credentials had expired is run again with new ones, so run clears its result first. It must not use the
 * cache. */
struct aws_task {
    int (*run)(struct aws *a, void *ctx, struct gp_error *err);
    void *ctx;
    int r; /* out */
    struct gp_error err;
};
void aws_run_tasks(struct aws *a, struct aws_task *list, size_t n);

static inline struct aws *aws_of(struct provider *p) { return (struct aws *)(void *)p; }

#endif
