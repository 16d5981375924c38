/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/openstack: the open provider, one call to a service, and the functions that the
 * files share. One thread at a time, like the provider itself. */
#ifndef GP_OPENSTACK_INT_H
#define GP_OPENSTACK_INT_H

#include "base/secret.h"
#include "model/labels.h"
#include "providers/common/rest.h"
#include "providers/http.h"
#include "providers/provider.h"

/* --- configuration (config.c) --- */

/* What was found, as openstacksdk finds it. Strings owned, NULL: not given. */
struct os_config {
    char *source; /* "the environment (OS_*)", "cloud 'x' of PATH": for messages */
    char *auth_type, *auth_url, *region, *interface, *cacert;
    char *username, *user_id, *user_domain_name, *user_domain_id;
    char *project_name, *project_id, *project_domain_name, *project_domain_id;
    char *app_id, *app_name;
    char *system_scope;
    struct secret password, app_secret, token;
};
int os_config_load(struct os_config *c, struct gp_error *err);
void os_config_clear(struct os_config *c);

/* --- the session (session.c) --- */

enum os_service { OS_COMPUTE, OS_NETWORK, OS_IMAGE };
struct os_endpoint {
    enum os_service service;
    char *region, *url; /* without a slash at its end */
    char *microversion; /* of compute, once it was asked for; NULL */
};
struct os {
    struct provider base;
    struct rest rest;
    struct os_config cfg;
    const struct gp_cancel *cancel;
    struct journal *journal;
    const struct event_sink *sink;
    struct secret token;
    int64_t token_until_s, token_life_s;
    bool restricted; /* the token is of an application credential that may not create others */
    char *user_id, *user_name, *project_id, *project_name, *principal_owner;
    VEC_OF(struct os_endpoint) endpoints;
    struct os_cache *cache;
};
static inline struct os *os_of(struct provider *p) { return (struct os *)(void *)p; }

int os_login(struct os *o, struct gp_error *err);
/* Takes keystone's reply to a login: token, end, user, project, catalogue. */
int os_take_token(struct os *o, const struct rest_reply *reply, struct gp_error *err);
void os_session_init(struct os *o);
void os_session_clear(struct os *o);
/* The regions that have the compute service. */
void os_regions(const struct os *o, struct strv *ret);
/* The region of calls without one: the configured one, else the only one. NULL: there are several. Borrowed. */
const char *os_home(const struct os *o);
/* -GP_EUSAGE: auth_url is https, and a service of the region has an http URL. Such a service gets no call. */
int os_check_encrypted(const struct os *o, const char *region, struct gp_error *err);
/* "https://keystone.example/v3"; NULL: not a URL that a login may go to. Caller frees. */
char *os_identity_url(const char *auth_url);
/* Borrowed; NULL: the catalogue has none. */
const char *os_endpoint_url(const struct os *o, enum os_service service, const char *region);
/* The highest microversion of nova in the region that is used here; NULL: not asked for yet. */
const char *os_microversion(const struct os *o, const char *region);

struct os_call {
    enum os_service service;
    const char *region, *method;
    const char *path; /* "/servers/ID", with its query */
    const char *body; /* NULL: none */
    unsigned flags;   /* rest_flags */
};
int os_call(struct os *o, const struct os_call *c, struct rest_reply *ret, struct gp_error *err);
/* n calls to one service of one region side by side. */
int os_call_many(struct os *o, const struct os_call *calls, size_t n, struct rest_result *ret, struct gp_error *err);
/* Every page of GET path. items: the member with the list; key: the member of an item that is the marker of a page. */
struct os_list {
    enum os_service service;
    const char *region, *path, *items;
    int (*each)(void *ctx, const json_t *item, struct gp_error *err);
    void *ctx;
};
int os_pages(struct os *o, const struct os_list *l, struct gp_error *err);

/* --- errors (errors.c) --- */
extern const struct cloud_error os_errors[];
extern const size_t os_error_count;
void os_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);
/* Sets err from the fault of a server in ERROR. Returns -err->code. */
int os_fault(struct gp_error *err, const char *what, const char *message);

/* --- forms and tags (tags.c) --- */
bool os_uuid(const char *s);
/* A name of a flavor, network or image in a message or a reply: printable, at most 255. */
bool os_name(const char *s);
/* The tags of a server, from its metadata. ret: not initialised; caller clears. */
void os_tags_of_server(const json_t *server, struct tags *ret);
/* metadata and tags of a create call; new references. NULL: they do not fit. */
json_t *os_metadata(const struct tags *t);
/* "gpuprov owner=.. stack=.. uid=..": the tags of groups and addresses, which have a description of 255 characters
 * only. False: it does not fit. */
bool os_description(const struct tags *t, struct str *ret);
/* False: not gpuprov's. ret as above. */
bool os_description_read(const char *text, struct tags *ret);
/* The name of a claim, unique per user: "gpuprov-STACK-HASH" of owner and stack. Caller frees. */
char *os_claim_name(const char *owner, const char *stack);
/* A public key that nobody has the private key of, with the tags in its comment. Caller frees. */
char *os_claim_key(const struct tags *t);
/* False: not gpuprov's, or its name is not that of its own tags. */
bool os_claim_read(const char *name, const char *public_key, struct tags *ret);

/* --- what the cloud has (flavors.c, images.c, networks.c) --- */
struct os_flavor {
    char *id, *name;
    char gpu[64]; /* the table's name; "": none, or unknown */
    int gpus;     /* 0: none; -1: some of an unknown kind */
    int vcpus, memory_mib, disk_gib;
};
struct os_flavors {
    VEC_OF(struct os_flavor) list;
};
void os_flavors_clear(struct os_flavors *f);
int os_flavors_get(struct os *o, const char *region, const struct os_flavors **ret, struct gp_error *err);
/* The GPUs that a flavor's extra specs name. */
void os_flavor_gpu(const json_t *extra_specs, struct os_flavor *ret);

struct os_image {
    char *id, *name;
    int min_disk_gib, min_memory_mib;
};
void os_image_clear(struct os_image *i);
int os_image_find(struct os *o, const char *region, const struct spec_image *want, struct os_image *ret,
                  struct gp_error *err);

struct os_network {
    char *id, *name;
    bool external, shared, mine;
};
struct os_networks {
    VEC_OF(struct os_network) list;
};
void os_networks_clear(struct os_networks *n);
/* The network of an offer: by name or id, or the only one that nodes can be in. Borrowed from the cache. */
int os_network_find(struct os *o, const char *region, const char *name, const struct os_network **ret,
                    struct gp_error *err);
int os_networks_get(struct os *o, const char *region, const struct os_networks **ret, struct gp_error *err);

struct os_quota {
    int instances, cores, memory_mib; /* left; -1: no limit */
    int used_instances, max_instances;
};
int os_quota_get(struct os *o, const char *region, struct os_quota *ret, struct gp_error *err);

struct os_region_cache {
    char *region;
    struct os_flavors flavors;
    bool has_flavors;
    struct os_networks networks;
    bool has_networks;
};
struct os_cache {
    VEC_OF(struct os_region_cache *) regions;
    struct strv groups_ready; /* "REGION/ID": their rules are those of the spec */
    char *public_cidr;
    bool grants_hidden;    /* this login may not read application credentials */
    struct strv confirmed; /* "SERVER CREDENTIAL": of servers that have used it, as last listed */
};
struct os_region_cache *os_cache_of(struct os *o, const char *region);
void os_cache_free(struct os_cache *c);

/* --- groups and addresses (groups.c, rules.c, addresses.c) --- */
int os_group_ensure(struct os *o, const struct stack *s, const struct spec *spec, const char *region, char **ret_id,
                    struct gp_error *err);
int os_group_rules(struct os *o, const struct spec *spec, const char *region, const char *id, struct gp_error *err);
int os_groups_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err);
/* Makes sure that the server has a public address. ret_missing: its port does not exist yet. */
int os_address_ensure(struct os *o, const struct intent *of, const struct tags *tags, const struct resource *server,
                      bool *ret_missing, struct gp_error *err);
/* The same for each server of the stack, once it is built: a launch may have been cut before. */
int os_addresses_complete(struct os *o, const char *region, const char *uid, struct gp_error *err);
/* Deletes the ports that a failed build left: of the group, and of servers that nova does not have. ret: their number.
 */
int os_ports_end(struct os *o, const char *region, const char *group, size_t *ret, struct gp_error *err);
/* Addresses of gpuprov's; private_ip is where each leads to. Those of `known`, of the journal, have its tags, whatever
 * their descriptions are by now. known: or NULL. */
int os_addresses_list(struct os *o, const char *region, const struct resource_list *known, struct resource_list *ret,
                      struct gp_error *err);
/* Those of the ports of these servers, by neutron: descriptions can be copied. servers: ids. */
int os_addresses_of(struct os *o, const char *region, const struct strv *servers, struct resource_list *ret,
                    struct gp_error *err);

/* An image is copied to the host first; bare metal takes longest. */
#define OS_PLACEMENT_MS ((int64_t)20 * 60000)

/* --- machines (list.c) --- */
/* One server of a reply. -GP_EPROTO: malformed. */
int os_server_read(const json_t *item, const char *region, struct resource *ret, struct gp_error *err);
int os_servers_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err);
/* The fault of a server in ERROR goes into its state_reason: lists may lack it. */
void os_fault_of(struct os *o, struct resource *server);
int os_claims_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err);
/* ret zeroed; ret->id stays NULL when there is none. */
int os_claim_get(struct os *o, const char *region, const char *name, struct resource *ret, struct tags *ret_tags,
                 struct gp_error *err);
/* Deletes exactly this claim; one of another uid stays. */
int os_claim_delete(struct os *o, const struct resource *claim, struct gp_error *err);
/* Ends servers and waits until they are gone, or fails. */
int os_servers_end(struct os *o, const struct resource_list *what, struct gp_error *err);

/* --- nodes that delete themselves (grants.c) --- */
#define OS_CONFIRMED "gpuprov-ends" /* metadata of a server: the application credential that it has used */
bool os_wants_self_delete(const struct spec *spec);
/* -GP_EAUTH: the session may not create application credentials. */
int os_check_may_grant(const struct os *o, struct gp_error *err);
/* Appends the credentials of nodes of the region to ret, and sets ends_itself of the servers in nodes, which are all
 * servers of the region. known: the stack's resources in the journal, or NULL. -GP_EAUTH: it has some, and this login
 * may not read them. */
int os_grants_list(struct os *o, const char *region, const struct resource_list *known, struct resource_list *nodes,
                   struct resource_list *ret, struct gp_error *err);
int os_grant_end(struct os *o, const struct resource *grant, struct gp_error *err);
extern const struct self_end_ops os_self_end;

/* --- slots --- */
int os_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret, struct gp_error *err);
int os_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);
int os_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int os_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int os_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int os_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                struct gp_error *err);
int os_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err);
int os_doctor(struct str *text, bool *ret_usable, struct gp_error *err);
int os_policy(const char *owner, char **ret_json, struct gp_error *err);
extern const struct spec_provider openstack_spec;

#endif
