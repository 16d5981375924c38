/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/shadeform: the open provider and one call. A region here is CLOUD.REGION. One thread
 * at a time, like the provider itself. */
#ifndef GP_SHADEFORM_INT_H
#define GP_SHADEFORM_INT_H

#include "model/labels.h"
#include "providers/common/api_key.h"
#include "providers/common/key_claim.h"
#include "providers/common/rest.h"

struct shade {
    struct provider base;
    struct rest rest;
    struct gp_cancel *cancel;
    struct journal *journal;
    const struct event_sink *sink;
    char *endpoint; /* "https://api.shadeform.ai/v1" */
    struct api_key key;
    struct strv accounts; /* names of base.account: api_key_account */
    int64_t pace_ms;
    struct key_claimer claims;
};
static inline struct shade *shade_of(struct provider *p) { return (struct shade *)(void *)p; }

extern const struct cloud_error shade_errors[];
extern const size_t shade_error_count;
void shade_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);

/* One call; path begins with '/'. list: the name of the array that the reply must have; NULL: none. *ret_list: borrowed
 * from reply. */
int shade_call(struct shade *s, const char *method, const char *path, const json_t *body, unsigned flags,
               const char *list, struct rest_reply *reply, json_t **ret_list, struct gp_error *err);

int shade_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err);
/* The startup script that does what cloud-init's user-data does elsewhere: user, login key, first host key. */
void shade_script(const struct create_req *req, struct str *out);
int shade_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);

/* -GP_EPROTO: not an instance. */
int shade_instance_read(const json_t *j, struct resource *ret, struct gp_error *err);
/* Appends all instances of the account that have a tag of gpuprov, or whose id is known. */
int shade_instances(struct shade *s, const struct resource_list *known, struct resource_list *ret,
                    struct gp_error *err);
int shade_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
int shade_delete_instances(struct shade *s, const struct resource_list *what, struct gp_error *err);
int shade_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int shade_tag(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
              struct gp_error *err);

extern const struct key_claim_ops shade_claim_ops;
extern const struct spec_provider shadeform_spec;
extern const struct provider_ops provider_shadeform;

#endif
