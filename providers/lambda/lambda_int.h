/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/lambda: the open provider, one call, the claim. One thread at a time, like the
 * provider itself. */
#ifndef GP_LAMBDA_INT_H
#define GP_LAMBDA_INT_H

#include "model/labels.h"
#include "providers/common/api_key.h"
#include "providers/common/key_claim.h"
#include "providers/common/rest.h"

struct lambda {
    struct provider base;
    struct rest rest;
    struct gp_cancel *cancel;
    struct journal *journal;
    const struct event_sink *sink;
    char *endpoint; /* "https://cloud.lambda.ai/api/v1", without a slash at its end */
    struct api_key key;
    struct strv accounts;  /* names of base.account: api_key_account */
    int64_t pace_ms;       /* least time between two requests */
    int64_t launch_due_ms; /* monotonic: when the next launch may be sent */
    struct key_claimer claims;
    bool global_seen;    /* global firewall rules that are wider than the spec's were reported */
    struct strv regions; /* of GET /regions; empty: not read yet */
};
static inline struct lambda *lambda_of(struct provider *p) { return (struct lambda *)(void *)p; }

/* --- errors (errors.c) --- */

extern const struct cloud_error lambda_errors[];
extern const size_t lambda_error_count;
void lambda_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);

/* --- calls (lambda.c) --- */

#define LAMBDA_LIST 0x100U /* the reply's `data` must be a list */
/* One call; path begins with '/'. *ret_data: the reply's `data`, borrowed from reply. */
int lambda_call(struct lambda *l, const char *method, const char *path, const json_t *body, unsigned flags,
                struct rest_reply *reply, json_t **ret_data, struct gp_error *err);

/* --- spec (spec.c) and offers (offers.c) --- */

/* Where the newest image of a system is looked for, in this order; family NULL ends. */
struct lambda_os {
    const char *name, *family, *version;
};
extern const struct lambda_os lambda_systems[];
int lambda_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err);

/* --- the claim (claim.c) --- */

extern const struct key_claim_ops lambda_claim_ops;
int lambda_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);

/* --- firewall rulesets (firewall.c) --- */

struct lambda_ruleset {
    char *id, *name, *region;
};
struct lambda_rulesets {
    VEC_OF(struct lambda_ruleset) list;
};
void lambda_rulesets_clear(struct lambda_rulesets *r);
#define GP_AUTO_RULESETS GP_CLEANUP(lambda_rulesets_clear)
/* Appends every ruleset that has the name of a stack's, also of other owners. */
int lambda_rulesets_read(struct lambda *l, struct lambda_rulesets *ret, struct gp_error *err);
/* owner and stack: what its name may stand for; stack NULL: only claims tell. */
void lambda_ruleset_resource(const struct lambda_ruleset *s, const struct key_claims *claims, const char *owner,
                             const char *stack, struct resource *ret);
int lambda_ruleset_delete(struct lambda *l, const char *id, struct gp_error *err); /* missing or in use: success */
/* Creates the stack's ruleset of the region, or sets its rules. *ret_id NULL: the spec names no networks. */
int lambda_firewall_ensure(struct lambda *l, const struct stack *s, const struct spec *spec, const char *region,
                           char **ret_id, struct gp_error *err);
int lambda_firewall_apply(struct lambda *l, const struct prepare_req *req, struct gp_error *err);

/* --- nodes (list.c, create.c, destroy.c) --- */

void lambda_tags_decode(const json_t *instance, struct tags *ret);
/* The name of an instance that carries its late tags: base64 of the host key's SHA-256 (32 bytes) and the proof (16),
 * 64 characters, which is as long as a name may be. NULL: not a fingerprint and a proof. Caller frees. */
char *lambda_name_of(const char *hostkey, const char *proof);
/* -GP_EPROTO: not an instance of Lambda's. */
int lambda_instance_read(const json_t *j, struct resource *ret, struct gp_error *err);
/* Appends all instances of the account that have a tag of gpuprov, or whose id is known. */
int lambda_instances(struct lambda *l, const struct resource_list *known, struct resource_list *ret,
                     struct gp_error *err);
int lambda_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int lambda_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int lambda_terminate(struct lambda *l, const struct resource_list *what, struct gp_error *err);
int lambda_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int lambda_tag(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
               struct gp_error *err);

int lambda_doctor(struct str *text, bool *ret_usable, struct gp_error *err);

extern const struct spec_provider lambda_spec;
extern const struct provider_ops provider_lambda;

#endif
