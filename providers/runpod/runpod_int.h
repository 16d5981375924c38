/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of providers/runpod/. One thread at a time. */
#ifndef GP_PROVIDERS_RUNPOD_INT_H
#define GP_PROVIDERS_RUNPOD_INT_H

#include "base/secret.h"
#include "base/str.h"
#include "model/tags.h"
#include "providers/common/rest.h"
#include "providers/provider.h"

#define RUNPOD_TAG "GPUPROV_TAG_"      /* of the variables that carry a pod's identity; labels_runpod has it too */
#define RUNPOD_START "GPUPROV_START"   /* the start script, in base64 */
#define RUNPOD_REGION "GPUPROV_REGION" /* the offer's region, for a pod without a data center */
#define RUNPOD_ANYWHERE "any"          /* region of hosts that are in no data center of RunPod's */
#define RUNPOD_SECURE "secure"         /* the kinds of hosts; a zone is "US-KS-2-secure" */
#define RUNPOD_COMMUNITY "community"
#define RUNPOD_AT_ONCE 8

struct runpod_key {
    struct secret value;
    char *source; /* "RUNPOD_API_KEY", a path; owned */
};
void runpod_key_clear(struct runpod_key *k);
/* Finds the key as RunPod's own programs do. -GP_EAUTH: there is none, or it has not the form of a key. */
int runpod_key_find(struct runpod_key *ret, struct gp_error *err);

struct runpod {
    struct provider base; /* first */
    struct gp_cancel *cancel;
    struct journal *journal;
    char *url; /* "https://api.runpod.io/v2" */
    struct runpod_key key;
    struct strv accounts; /* names of base.account: api_key_account */
    struct http *http;
    struct rest rest;
};
struct runpod *runpod_of(struct provider *p);

/* errors.c */
extern const struct cloud_error runpod_errors[];
extern const size_t runpod_error_count;
void runpod_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);

/* runpod.c: path begins with '/'; what: "runpod list pods". */
int runpod_call(struct runpod *r, const char *what, const char *method, const char *path, const char *body,
                unsigned flags, struct rest_reply *ret, struct gp_error *err);

/* list.c */
struct runpod_pod {
    struct resource res;
    struct tags tags;
    bool ours;   /* it has variables of gpuprov */
    bool placed; /* it has a host */
    bool failed; /* it will not run: res.state_reason */
};
void runpod_pod_clear(struct runpod_pod *p);
/* Of one pod of a reply. -GP_EPROTO: it has no id of a pod. ret: cleared by the caller in every case. */
int runpod_pod_read(const json_t *pod, struct runpod_pod *ret, struct gp_error *err);
/* Live pods of this owner with this stack's name, whatever uid they have. */
int runpod_list_stack(struct runpod *r, const char *owner, const char *stack, struct resource_list *ret,
                      struct gp_error *err);
int runpod_list_uid(struct runpod *r, const char *uid, struct resource_list *ret, struct gp_error *err);
int runpod_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);

/* spec.c */
extern const struct spec_provider runpod_spec;
extern const char *const runpod_image;      /* of `image: auto` */
extern const char *const runpod_image_cuda; /* "12.8" */
int runpod_disk_gb(const struct spec *spec, int gpus);
const char *runpod_image_of(const struct spec *spec, size_t index);

int runpod_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err);
/* The lowest CUDA version that hosts of this entry must support; "": any. */
void runpod_minimum_cuda(const struct spec *spec, size_t index, char *ret, size_t n);
int runpod_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err);
int runpod_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
int runpod_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err);
int runpod_doctor(struct str *text, bool *ret_usable, struct gp_error *err);

#endif
