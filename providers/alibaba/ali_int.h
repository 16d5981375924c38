/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/alibaba: the open provider, one call to a service and lists of it, and the functions
 * that the files share. One thread at a time, like the provider itself. */
#ifndef GP_ALI_INT_H
#define GP_ALI_INT_H

#include "base/ini.h"
#include "base/json.h"
#include "base/secret.h"
#include "model/labels.h"
#include "providers/common/rest.h"
#include "providers/provider.h"

/* --- credentials (creds.c, creds_files.c, creds_remote.c) --- */

struct ali_cred {
    char *id;                 /* access key id; NULL: none yet */
    struct secret key, token; /* token empty: long-lived key */
    int64_t expires_s;        /* wall; 0: never */
    char *source;             /* "the environment", "profile 'x'", for messages */
};
void ali_cred_clear(struct ali_cred *c);
#define GP_AUTO_CRED GP_CLEANUP(ali_cred_clear)

struct ali_cache;
struct ali {
    struct provider base;
    struct http *http;
    struct rest rest; /* signs with cred */
    const struct gp_cancel *cancel;
    struct journal *journal;
    const struct event_sink *sink;
    struct ali_cred cred;
    char *account, *principal_owner; /* of GetCallerIdentity */
    char *region;                    /* of the settings, or of the spec's first offer here; NULL: none */
    struct ali_cache *cache;
};
#define ali_of(p) ((struct ali *)(void *)(p)) /* base is first */

extern const struct cloud_error ali_errors[];
extern const size_t ali_error_count;

/* rest.h's ensure: makes cred usable by the chain of the official tools; force: new credentials. */
int ali_creds_ensure(void *ctx, bool force, struct gp_error *err);
/* Sets the four fields; token may be NULL. Takes source. */
void ali_cred_set(struct ali_cred *c, const char *id, const char *key, const char *token, char *source);
/* {"AccessKeyId", "AccessKeySecret", "SecurityToken", "Expiration"}. Takes source. */
int ali_cred_from_json(const json_t *j, const char *what, char *source, struct ali_cred *ret, struct gp_error *err);
const char *ali_env(const char *name); /* NULL where it is not set or empty */
/* One source each; ret->id stays NULL where there are none. */
int ali_creds_config(struct ali *a, struct ali_cred *ret, struct gp_error *err); /* ~/.aliyun/config.json */
int ali_creds_ini(struct ali *a, struct ali_cred *ret, struct gp_error *err);    /* ~/.alibabacloud/credentials */
int ali_creds_metadata(struct ali *a, const char *role, struct ali_cred *ret, struct gp_error *err);
int ali_creds_uri(struct ali *a, const char *uri, struct ali_cred *ret, struct gp_error *err);
int ali_creds_process(struct ali *a, const char *command, struct ali_cred *ret, struct gp_error *err);
struct ali_assume {
    const char *role_arn, *session_name; /* session NULL: one of gpuprov's */
    const struct ali_cred *with;         /* NULL: by a token of an identity provider */
    const char *oidc_provider, *oidc_file;
};
int ali_creds_assume(struct ali *a, const struct ali_assume *how, struct ali_cred *ret, struct gp_error *err);

/* --- one call (call.c) --- */

enum ali_service { ALI_ECS, ALI_VPC, ALI_STS };
/* A query begins with its region; the others are appended. UserData is the last one. */
void ali_begin(struct str *query, const char *region);
void ali_param(struct str *query, const char *name, const char *value);
void ali_paramf(struct str *query, const char *value, const char *name_fmt, ...) GP_PRINTF(3, 4);
void ali_param_int(struct str *query, const char *name, int64_t value);

int ali_rest_open(struct ali *a, struct gp_error *err);
/* cred NULL: the provider's, renewed when needed. */
int ali_call_as(struct ali *a, const struct ali_cred *cred, enum ali_service service, const char *region,
                const char *action, const struct str *query, unsigned flags, struct rest_reply *ret,
                struct gp_error *err);
int ali_call(struct ali *a, enum ali_service service, const char *region, const char *action, const struct str *query,
             unsigned flags, struct rest_reply *ret, struct gp_error *err);

/* A list with all its pages; many run side by side. */
struct ali_list {
    enum ali_service service;
    const char *region, *action;
    struct str query;  /* without paging; owned */
    const char *items; /* "Instances.Instance"; NULL: no list, each gets the reply */
    int page;          /* entries of a page; 0: the reply is whole */
    bool numbered;     /* pages have numbers and TotalCount; else NextToken */
    int (*each)(void *ctx, const json_t *item, struct gp_error *err);
    void *ctx;
    /* out */
    int rc;
    struct gp_error err;
    /* private */
    char *next;
    int64_t pages, seen;
    bool done;
};
void ali_list_clear(struct ali_list *l);
/* Each list has its own rc and err. Returns the first failure, err with it. */
int ali_lists(struct ali *a, struct ali_list *lists, size_t n, struct gp_error *err);
/* One list; clears it. */
int ali_list_one(struct ali *a, struct ali_list *l, struct gp_error *err);

const char *ali_home(const struct ali *a); /* the region of calls without a region */
bool ali_region_valid(const char *region); /* its form */
bool ali_id(const char *id, const char *prefix);
int64_t ali_time(const char *text); /* also without seconds; 0: not a time */
/* Every region of the account, and their endpoints. */
int ali_regions(struct ali *a, struct strv *ret, struct gp_error *err);

/* --- tags --- */
#define ALI_TAG "gpuprov:"
void ali_tags_decode(const json_t *item, struct tags *ret);
void ali_tags_add(struct str *query, const struct tags *tags);
/* Owner, and stack and uid where not NULL, as tags that a list is filtered by. */
void ali_tag_filter(struct str *query, const char *owner, const char *stack, const char *uid);

/* --- network (network.c, rules.c) --- */
struct ali_vswitch {
    char *id, *vpc, *region, *zone;
    bool is_default;
};
struct ali_vswitches {
    VEC_OF(struct ali_vswitch) list;
};
void ali_vswitches_clear(struct ali_vswitches *v);
/* Prepares the list that the next function would read; ctx is freed by the caller. False: they are known already. */
bool ali_vswitches_list(struct ali *a, const char *region, const char *id, struct ali_list *ret);
/* The default ones of a region, or that of an id. From the cache if they were read before. */
int ali_vswitches_find(struct ali *a, const char *region, const char *id, struct ali_vswitches *ret,
                       struct gp_error *err);
/* The VSwitch and the security group of a launch: of the offer, the zone's default, or own ones. */
struct ali_place {
    char *vswitch, *vpc, *group;
};
void ali_place_clear(struct ali_place *p);
int ali_place_find(struct ali *a, const struct create_req *req, struct ali_place *ret, struct gp_error *err);
int ali_group_rules(struct ali *a, const struct spec *spec, const char *region, const char *group, bool fresh,
                    struct gp_error *err);

/* --- kinds of resources (list.c) --- */
struct ali_wanted {
    const char *owner, *stack, *uid; /* the last two may be NULL */
};
/* A list of one kind that appends to ret. */
void ali_list_of(struct ali_list *l, enum resource_kind kind, const char *region, const struct ali_wanted *w,
                 struct resource_list *ret);
/* The instances, with the RDMA devices of each where its interfaces are listed. */
int ali_list_instances(struct ali *a, const char *region, const struct ali_wanted *w, struct resource_list *ret,
                       struct gp_error *err);

/* --- deadline (deadline.c) --- */
/* The time that the cloud gets: a whole minute, not before the deadline, at least half an hour ahead. */
int64_t ali_release_s(const struct ali *a, int64_t expires_s);
/* Every machine shows the time of that deadline, which is set where it is missing or another one. -GP_EPROTO: one
 * cannot be given it. */
int ali_release_verify(struct ali *a, const char *region, const struct resource_list *machines, int64_t expires_s,
                       struct gp_error *err);
/* The same for the stack's machines among the known ones, by their ids. An error names a node that did not show the new
 * time: -GP_EPROTO: it shows another one; -GP_EUNKNOWN: it is not listed. */
int ali_release_move(struct ali *a, const struct stack *stack, const struct resource_list *known, struct gp_error *err);

/* --- slots of provider_ops --- */
int ali_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret, struct gp_error *err);
int ali_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);
int ali_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int ali_list_all(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int ali_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int ali_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                 struct gp_error *err);
int ali_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err);
int ali_policy_json(const char *owner, char **ret_json, struct gp_error *err);
int ali_doctor(struct str *text, bool *ret_usable, struct gp_error *err);
const char *ali_image_os(size_t i); /* systems of image.os */

/* What a launch must know of an image. */
struct ali_image {
    char *id;
    int gib;    /* least size of the system disk; 0: unknown */
    bool token; /* its cloud-init reads metadata with a token */
};
struct ali_images {
    VEC_OF(struct ali_image) list;
};
const struct ali_image *ali_image_seen(const struct ali *a, const char *id); /* NULL: not read by this process */

/* --- the system disk (disk.c) --- */
#define ALI_DISK_MIN_GIB 20 /* of an ESSD of level PL1 */
#define ALI_DISK_MAX_GIB 2048
/* GiB: the spec's, else a size that suffices; at least the image's. */
int ali_disk_gib(const struct ali *a, const struct spec *spec, const char *image, int gpus);
/* -GP_EUSAGE: the spec's size is too small for the image, or too large for the cloud. */
int ali_disk_check(const struct ali *a, const struct spec *spec, const char *region, const char *image,
                   struct gp_error *err);
void ali_disk_query(struct str *query, int gib); /* DescribePrice of such a disk */

/* --- the fabric (fabric.c) --- */
struct ali_erdma {
    char *region, *type;
    int interfaces, cards, pairs; /* elastic RDMA interfaces, network cards, queue pairs; 0: none, or unknown */
};
/* Remembers what a type has; region and type of `has` are not read. */
void ali_fabric_seen(struct ali *a, const char *region, const char *type, const struct ali_erdma *has);
char *ali_fabric_text(const struct ali *a, const struct spec *spec, const char *region,
                      const char *type); /* of an offer; caller frees */
/* The interfaces of a launch: VSwitch, group and, where the gang uses it, eRDMA. */
void ali_interface_add(struct str *query, const struct ali *a, const struct create_req *req,
                       const struct ali_place *at);
/* Tags the interfaces that a launch made beside the primary ones, and reads the RDMA devices of its machines. What
 * fails is reported as a warning: the interfaces go with their machines. */
void ali_fabric_settle(struct ali *a, const struct intent *in, const char *owner, const char *stack,
                       struct resource_list *machines);
/* The same for the machines of a stack whose launch was cut before that. */
void ali_fabric_complete(struct ali *a, const struct spec *spec, const struct stack *stack,
                         const struct resource_list *known);

/* --- quotas (quota.c) --- */
struct ali_vcpus {
    int64_t most, used; /* negative: unknown */
};
struct ali_quota {
    char *region;
    struct ali_vcpus vcpus[2]; /* by market */
    int64_t until_ms;          /* 0: not read */
};
/* Prepares the list that reads a region's quotas into the cache. False: they were read a moment ago. */
bool ali_quota_list(struct ali *a, const char *region, struct ali_list *ret);
char *ali_quota_text(const struct ali *a, const char *region, enum spec_market market); /* of an offer; caller frees */
/* -GP_EQUOTA: the region's quota is too small for so many more nodes of the offer. */
int ali_quota_check(struct ali *a, const struct offer *o, int count, struct gp_error *err);

/* What was read before, for the life of the open provider. */
struct ali_cache {
    struct strv regions, endpoints; /* of the same index */
    struct ali_vswitches vswitches;
    struct strv vswitch_regions; /* whose default ones are known */
    struct strv groups_ready;    /* "region/id" with the rules of the spec */
    VEC_OF(struct ali_erdma) erdma;
    struct ali_images images;
    VEC_OF(struct ali_quota *) quotas;
    char *claim_made; /* uid of a stack that this process has just claimed: it has nothing yet */
    char *public_cidr;
};

#endif
