/* SPDX-License-Identifier: Apache-2.0 */
/* RunPod's errors. Its replies (application/problem+json) have no code besides the HTTP status, and of status 400 only
 * the text tells a lack of capacity from a wrong request. Pure. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#define ADVICE_KEY "check RUNPOD_API_KEY, or apiKey in ~/.runpod/config.toml"
#define ADVICE_MONEY "add credit or raise the limit in RunPod's console"

const struct cloud_error runpod_errors[] = {
    /* money: no other offer of this cloud will do */
    {"402", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"*|spend limit", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"*|spending limit", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"*|insufficient balance", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"*|insufficient funds", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"*|balance is too low", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    /* no capacity: another data center may have it; the text comes with other statuses too */
    {"*|no longer any instances", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"*|does not have the resources", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"400|could not be placed", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"400|no capacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"400|out of stock", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"400|available", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""}, /* "no instances ... available", "not available" */
    /* RunPod's own advice for other texts: try the next candidate */
    {"400", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"401", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_KEY},
    {"403", GP_EAUTH, GP_SCOPE_ZONE, CLOUD_NO, "give the API key the permission for pods, or use another offer"},
    {"404", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"409", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"422", GP_EUSAGE, GP_SCOPE_PROVIDER, CLOUD_NO, "correct the spec, or report this as a bug"},
    {"429", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"5xx", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
};
const size_t runpod_error_count = GP_ARRAY_LEN(runpod_errors);

/* The status as a code: the description of the API gives each a meaning. */
static const char *code_of(int status) {
    static const struct {
        int status;
        const char *code;
    } known[] = {{400, "400"}, {401, "401"}, {402, "402"}, {403, "403"},
                 {404, "404"}, {409, "409"}, {422, "422"}, {429, "429"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(known); i++)
        if (known[i].status == status) return known[i].code;
    return status >= 500 ? "5xx" : "4xx";
}

void runpod_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    const char *detail = json_str(json, "detail", "");
    if (resp->status < 400 || json_str(json, "title", "")[0] == '\0' || json_int(json, "status", 0) != resp->status)
        return; /* not RunPod's: a proxy, a wrong endpoint */
    const char *first = json_str(json, "errors.0", "");
    ret->code = code_of(resp->status);
    ret->message = first[0] != '\0' ? first : detail;
}
