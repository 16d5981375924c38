/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/google: the open provider, one call, and the functions that the files share. One
 * thread at a time, like the provider itself. */
#ifndef GP_GOOGLE_INT_H
#define GP_GOOGLE_INT_H

#include "base/json.h"
#include "base/secret.h"
#include "base/str.h"
#include "model/labels.h"
#include "providers/common/rest.h"
#include "providers/provider.h"

#define GOOGLE_NAME_MAX 63 /* of an instance, a rule, a network tag */
#define GOOGLE_SCOPE "https://www.googleapis.com/auth/cloud-platform"

/* --- credentials (creds.c, creds_remote.c) --- */

struct google_cred {
    struct secret token; /* empty: none yet */
    int64_t expires_s;   /* wall */
    char *source;        /* "the file '/x/key.json'", for messages; NULL: none yet */
    char *email;         /* of the principal; NULL: the source does not name it */
    char *project;       /* that the source names; NULL: none */
};
void google_cred_clear(struct google_cred *c);
#define GP_AUTO_GOOGLE_CRED GP_CLEANUP(google_cred_clear)

struct google {
    struct provider base;
    struct http *http;
    struct rest rest;
    const struct gp_cancel *cancel;
    const struct http_watch *watch; /* of a bucket; NULL */
    struct journal *journal;
    const struct event_sink *sink;
    struct google_cred cred;
    char *project, *principal_owner;
    char *endpoint; /* with "/compute/v1/" and the slash at its end */
    struct google_cache *cache;
};
static inline struct google *google_of(struct provider *p) { return (struct google *)p; }

/* Opens g->http and sets g->rest; g->cancel is set. */
int google_http_open(struct google *g, struct gp_error *err);
/* rest.ensure: makes the token usable for the next five minutes by the order of Application Default Credentials. */
int google_creds_ensure(void *ctx, bool force, struct gp_error *err);
/* Decode the replies of token services: {"access_token", "expires_in"} and {"accessToken", "expireTime"}. The token is
 * printable, ends within a day and is registered with the redactor. */
int google_cred_from_json(const struct google *g, const json_t *json, const char *what, struct google_cred *ret,
                          struct gp_error *err);
int google_cred_from_impersonation(const struct google *g, const json_t *json, const char *what,
                                   struct google_cred *ret, struct gp_error *err);
/* A URL that may get a secret: the rule of http_url_check. */
bool google_url_trusted(const char *url);
/* The parts that need the network. file: the credentials file, decoded. */
int google_token_of_key(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err);
int google_token_of_user(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err);
int google_token_of_exchange(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err);
/* A token for another account, by the token in `with`. url: generateAccessToken. */
int google_token_for(struct google *g, const char *url, json_t *delegates, const struct secret *with,
                     struct google_cred *ret, struct gp_error *err);
/* Returns 0 and leaves ret->source NULL where there is no such service. */
int google_token_of_metadata(struct google *g, struct google_cred *ret, struct gp_error *err);
/* The account in ".../serviceAccounts/NAME:generateAccessToken". NULL: none. Caller frees. */
char *google_email_in(const char *url);

/* --- one call (call.c, errors.c) --- */

extern const struct cloud_error google_errors[];
extern const size_t google_error_count;
void google_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);

int64_t google_now_s(const struct google *g); /* the cloud's clock */
/* "ENDPOINT/projects/PROJECT/" and the rest. Caller frees. */
char *google_url(const struct google *g, const char *fmt, ...) GP_PRINTF(2, 3);
/* The same with requestId. Empty: no random bytes. */
int google_url_once(const struct google *g, char **url, struct gp_error *err);
/* body NULL: none. */
int google_call(struct google *g, const char *what, const char *method, const char *url, const json_t *body,
                unsigned flags, struct rest_reply *ret, struct gp_error *err);
/* Waits for the operation in a reply. zone NULL: a global one. -GP_EUNKNOWN: it is not done in time. */
#define GOOGLE_WAIT_MS (5 * 60 * 1000)
/* ret_end_s: when Google ended it, or NULL; 0: not known. */
int google_wait(struct google *g, const char *zone, const json_t *operation, const char *what, int64_t *ret_end_s,
                struct gp_error *err);
/* When an operation of the zone ended. 0: Google has forgotten it, or it is not over. */
int google_operation_end(struct google *g, const char *zone, const char *name, int64_t *ret, struct gp_error *err);
/* The name of an operation; NULL: the reply is not one. */
const char *google_operation_name(const json_t *operation);
/* Every page of a list, or of several side by side with rest_pages_many. what and url are borrowed until then. */
typedef int (*google_page_fn)(void *ctx, const json_t *page, struct gp_error *err);
struct rest_paged google_paged(const char *what, const char *url, google_page_fn page, void *ctx);
int google_pages(struct google *g, const char *what, const char *url, google_page_fn page, void *ctx,
                 struct gp_error *err);

/* --- forms --- */
bool google_name_valid(const char *s); /* a-z, 0-9, '-'; at most 63 */
/* The id of an instance or disk is "NAME/NUMBER". Its URL has the name, which is unique in a zone while it exists. The
 * number is Google's own and is never given again. The name of such an id, caller frees; NULL: it is none. In journals
 * of older builds the id is the name alone. */
char *google_id_name(const char *id);
/* zones/ZONE/KIND/NAME of a resource, and more, which may be "", after it. Caller frees; NULL: zone or id is none. */
char *google_zonal_url(const struct google *g, const struct resource *r, const char *kind, const char *more);
/* The region of offers that name none, of the environment or of gcloud's configuration. Caller frees; NULL: none. */
char *google_default_region(void);
bool google_project_valid(const char *s);
const char *google_last(const char *url); /* after the last '/' */
/* "us-central1" of "us-central1-a". Caller frees; NULL: not the name of a zone. */
char *google_region_of(const char *zone);
/* A UUID from text. */
void google_uuid(const char *text, char ret[37]);

/* --- offers (offers.c, machines.c, images.c, quota.c) --- */
struct google_gpu {                  /* an accelerator type, as facts that the API does not give */
    const char *accelerator, *model; /* "nvidia-tesla-t4", "T4" */
    int memory_gb;
    const char *quota; /* the metric in regions.get; NULL: only in the Cloud Quotas API */
};
const struct google_gpu *google_gpu_find(const char *accelerator); /* NULL: unknown */
const char *google_gpu_at(size_t i);                               /* models, each once; NULL ends */
/* The spec's model is this accelerator: name, form and, where the spec has it, memory. */
bool google_gpu_matches(const char *wanted, const char *accelerator);
struct google_type {
    char *name, *zone, *accelerator; /* accelerator "": none */
    char *attach;                    /* accelerator type to attach (N1); "" */
    int gpus, vcpus, memory_mib;
    bool arm;
};
struct google_types {
    VEC_OF(struct google_type) list;
};
void google_types_clear(struct google_types *t);
/* Types of all these zones for offers[index], read side by side, with the image. */
int google_types_find(struct google *g, const struct strv *zones, const struct spec *spec, size_t index,
                      struct google_types *ret, struct gp_error *err);
struct google_image {
    char *key, *id, *name; /* key: what was looked up; id: "projects/P/global/images/NAME" */
    int gib;
    bool arm;
};
int google_image_find(struct google *g, const struct spec *spec, size_t index, bool arm,
                      const struct google_image **ret, struct gp_error *err);
/* The address of the image that most types take, to be read side by side with other things. NULL: not needed. Caller
 * frees. The reply is kept if it is an image; else the offers read it again, with its error. */
char *google_image_ahead(const struct google *g, const struct spec *spec, size_t index);
void google_image_came(struct google *g, const char *url, const json_t *json);
int google_image_by_id(struct google *g, const char *id, const struct google_image **ret, struct gp_error *err);
const char *google_os(size_t i); /* systems of image.os; NULL ends */
/* --- the boot disk (disk.c) --- */
const char *google_disk_type(const char *type);
/* GiB: the spec's, else a size that suffices; at least the image's. */
int google_disk_gib(const struct spec *spec, const struct google_image *image, int gpus);
/* -GP_EUSAGE: the spec's size is too small for the image. */
int google_disk_check(const struct spec *spec, const struct google_image *image, struct gp_error *err);
/* USD/h of a disk that the spec asks for; 0: it asks for none. Negative: not known. */
double google_disk_price(const struct spec *spec, const struct google_image *image, const char *type,
                         const char *region);
/* --- GPUDirect between the nodes of a gang (fabric.c) --- */
struct google_place {
    const char *type, *region, *zone;
};
struct google_nics {     /* besides the first interface */
    struct strv subnets; /* of the region: those of gVNICs, then those of MRDMA cards */
    int cards;
};
void google_nics_clear(struct google_nics *n);
#define GP_AUTO_NICS GP_CLEANUP(google_nics_clear)
struct google_data_network { /* one of the offer's `networks`, as Google has it */
    char *name;
    char *zone;          /* of its RoCE profile; NULL: an ordinary network */
    struct strv subnets; /* "REGION/NAME", sorted */
    int mtu;
};
void google_data_network_clear(struct google_data_network *n);
/* The offer's networks that a launch needs and the cache lacks, to be read side by side with other things. A reply is
 * kept if it is that network; else the choice reads it again, with its error. */
void google_networks_ahead(const struct google *g, const struct spec *spec, const struct spec_offer *want,
                           struct strv *ret);
void google_network_came(struct google *g, const char *name, const json_t *reply);
/* The interfaces of a node of that type there; none: an ordinary node. Reads networks that the cache lacks.
 * -GP_EUSAGE: the spec has GPUDirect, and this type cannot have it there. */
int google_nics_choose(struct google *g, const struct spec *spec, const struct spec_offer *want,
                       const struct google_place *at, struct google_nics *ret, struct gp_error *err);
/* For the plan; "": nothing to say. Caller frees. */
char *google_fabric_text(const struct spec *spec, const char *type, const struct google_nics *chosen);
/* Adds them to the array of a request, which has the first interface. */
void google_nics_add(const struct google *g, const char *region, const struct google_nics *chosen, json_t *interfaces);
int google_cards_of(const json_t *instance); /* its MRDMA cards */

/* regions.get, and projects.get side by side with it; both are kept for a minute. *ret: borrowed until the next
 * call. */
int google_region_read(struct google *g, const char *region, const json_t **ret, struct gp_error *err);
/* Of an offer, from the last regions.get; "": not known. Caller frees. */
char *google_quota_text(const struct google *g, const char *region, const char *accelerator, enum spec_market market);
int google_quota_check(struct google *g, const struct offer *o, int count, struct gp_error *err);

/* --- the claim and the rules of a network (rules.c, prepare.c) --- */
struct google_rule {
    char *name; /* NULL: there is none */
    char *network;
    char *home; /* region of the stack; "" */
    struct tags tags;
    struct strv from;    /* sourceRanges */
    struct strv others;  /* further sources that gpuprov does not give such a rule: tags, service accounts */
    struct strv changed; /* members that are not as gpuprov makes them, but for the networks of SSH, description, log */
};
void google_rule_clear(struct google_rule *r);
#define GP_AUTO_RULE GP_CLEANUP(google_rule_clear)
char *google_claim_name(const char *owner, const char *stack); /* unique in the project; caller frees */
char *google_members_name(const char *uid);                    /* the rule between the nodes; caller frees */
char *google_tag_name(const char *uid);                        /* the network tag of the nodes; caller frees */
/* One item of firewalls.list or firewalls.get. */
int google_rule_read(const json_t *item, struct google_rule *ret, struct gp_error *err);
int google_rule_get(struct google *g, const char *name, struct google_rule *ret, struct gp_error *err);
/* Creates the claim (from: networks of SSH, regions not NULL) or the rule between nodes (from NULL), after its intent.
 * -GP_EEXISTS: the name is taken; -GP_EUNKNOWN: read it back. */
struct google_new_rule {
    const struct stack *stack;
    const char *name, *network, *regions;
    const struct strv *from;
};
int google_rule_create(struct google *g, const struct google_new_rule *n, struct google_rule *ret,
                       struct gp_error *err);
/* The same in two parts, so that the call is sent side by side with others: begin commits the intent and makes `call`,
 * end takes its result. */
struct google_rule_call {
    struct google_rule rule;
    struct intent in;
    char *url;
    struct rest_call call; /* borrows from url and in */
};
void google_rule_call_clear(struct google_rule_call *c);
#define GP_AUTO_RULE_CALL GP_CLEANUP(google_rule_call_clear)
int google_rule_begin(struct google *g, const struct google_new_rule *n, struct google_rule_call *ret,
                      struct gp_error *err);
int google_rule_end(struct google *g, struct google_rule_call *c, struct rest_result *sent, struct google_rule *ret,
                    struct gp_error *err);
/* Writes networks, tags and all that `changed` looks at into a rule that exists, reads it back, and reports what was
 * removed. from NULL: between nodes. -GP_EPROTO: it is still not as gpuprov makes it. */
int google_rule_patch(struct google *g, const struct google_rule *r, const struct strv *from, struct gp_error *err);
void google_rule_resource(const struct google_rule *r, struct resource *ret);
int google_rule_settle(struct google *g, const struct google_rule *r, struct gp_error *err);
/* The networks that may open SSH: of all offers, or this controller's address. */
int google_ssh_from(struct google *g, const struct spec *spec, struct strv *ret, struct gp_error *err);
/* The network of an offer in that region: of its subnet, else its `network`, else "default". Cached. -GP_EUSAGE: the
 * subnet is in another network than `network`. */
int google_network_of(struct google *g, const char *region, const struct spec_offer *offer, char **ret,
                      struct gp_error *err);
/* The rule between the nodes exists when this returns. */
int google_members_ensure(struct google *g, const struct stack *s, const char *network, struct gp_error *err);
/* The rule between the nodes, if it exists, is this stack's and as gpuprov makes it when this returns. */
int google_members_look(struct google *g, const struct stack *s, bool *ret_there, struct gp_error *err);
/* Whether an earlier call of this process has shown that it exists. */
bool google_members_known(const struct google *g, const char *uid);
/* Its insert in two parts, as google_rule_begin and _end. A rule that exists is a success, too. */
int google_members_begin(struct google *g, const struct stack *s, const char *network, struct google_rule_call *ret,
                         struct gp_error *err);
int google_members_end(struct google *g, const struct stack *s, const char *network, struct google_rule_call *c,
                       struct rest_result *sent, struct gp_error *err);

/* --- lists (list.c, list_read.c) --- */
struct google_wanted {
    const char *owner, *stack, *uid; /* NULL: any; owner is never NULL */
};
void google_tags_decode(json_t *labels, struct tags *ret);
/* An object of labels. NULL: they do not fit. */
json_t *google_tags_encode(const struct tags *t);
char *google_filter(const struct google_wanted *w); /* caller frees */
bool google_is_wanted(const struct resource *r, const struct google_wanted *w);
int google_instance_read(const json_t *item, struct resource *ret, struct gp_error *err);
int google_disk_read(const json_t *item, struct resource *ret, struct gp_error *err);
/* When Google deletes the instance; 0: it does not. */
int64_t google_ends_s(const json_t *item);
#define GOOGLE_PAGE "500" /* of a list */

/* --- the nodes of one launch (read_back.c) --- */
struct google_made {
    /* Set by the caller: when the launch's operation ended, wall; 0: not known. An instance of that name which was made
     * later is somebody else's: the launch's own is gone. */
    int64_t until_s;
    struct resource_list nodes; /* in any state, with the launch's identity, whatever their labels are */
    struct strv late;           /* their names where Google does not delete them at the launch's deadline */
    struct strv foreign;        /* their names where they do not have the request's user-data: another run's with the
                                   same token, which Google answers with that run's operation. Nothing of it is ours */
};
void google_made_clear(struct google_made *m);
#define GP_AUTO_GOOGLE_MADE GP_CLEANUP(google_made_clear)
/* All instances with the names of the intent's request. On an error ret may have some. */
int google_read_back(struct google *g, const struct stack *stack, const struct intent *in, struct google_made *ret,
                     struct gp_error *err);
/* At most 63 characters. 20 hex digits of the launch's token: nobody without the proof key can take the name first, and
 * launches in two zones have two. Caller frees. */
char *google_instance_name(const char *uid, int slot, int attempt, const char *token);
int google_delete(struct google *g, const struct resource_list *what, struct gp_error *err); /* instances of it */

/* --- the cache of one open provider --- */
struct google_cache {
    VEC_OF(struct google_image *) images;
    struct strv networks; /* "region/subnet=network" */
    VEC_OF(struct google_data_network) data_networks;
    struct strv quotas_ok;     /* "region/metric/count" */
    struct strv members_ready; /* uids */
    bool members_refused;      /* a rule between nodes: the next one is created before its nodes */
    char *public_cidr;
    char *region;                   /* of the replies below; NULL: none */
    json_t *of_region, *of_project; /* of_project NULL: it could not be read */
    int64_t read_until_ms;
};
void google_cache_free(struct google_cache *c);

/* --- slots of provider_ops in their own files --- */
extern const struct spec_provider google_spec;
int google_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err);
int google_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);
int google_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int google_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int google_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int google_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                    struct gp_error *err);
int google_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err);
int google_doctor(struct str *text, bool *ret_usable, struct gp_error *err);
int google_policy_json(const char *owner, char **ret, struct gp_error *err);

#endif
