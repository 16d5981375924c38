/* SPDX-License-Identifier: Apache-2.0 */
/* RunPod's errors. Its replies (application/problem+json) have no code besides the HTTP status, and of status 400 only
 * the text tells a lack of capacity from a wrong request. So a code is made of the text first, then of the status.
 * Pure. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include <strings.h>

#define NO_MONEY "NoBalance"
#define NO_CAPACITY "NoCapacity"
#define ADVICE_KEY "check RUNPOD_API_KEY, or apiKey in ~/.runpod/config.toml"
#define ADVICE_MONEY "add credit or raise the limit in RunPod's console"

/* Words of a reply, at any status from 400 on or at one. */
static const struct {
    int status;
    const char *words, *code;
} by_text[] = {
    {0, "spend limit", NO_MONEY},
    {0, "spending limit", NO_MONEY},
    {0, "insufficient balance", NO_MONEY},
    {0, "insufficient funds", NO_MONEY},
    {0, "balance is too low", NO_MONEY},
    {0, "no longer any instances", NO_CAPACITY},
    {0, "does not have the resources", NO_CAPACITY},
    {400, "could not be placed", NO_CAPACITY},
    {400, "no capacity", NO_CAPACITY},
    {400, "out of stock", NO_CAPACITY},
    {400, "available", NO_CAPACITY}, /* "no instances ... available", "not available" */
};

const struct cloud_error runpod_errors[] = {
    {NO_MONEY, GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"HTTP402", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {NO_CAPACITY, GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""}, /* another data center may have it */
    /* RunPod's own advice for other texts: try the next candidate */
    {"HTTP400", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"HTTP401", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_KEY},
    {"HTTP403", GP_EAUTH, GP_SCOPE_ZONE, CLOUD_NO, "give the API key the permission for pods, or use another offer"},
    {"HTTP404", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"HTTP409", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"HTTP422", GP_EUSAGE, GP_SCOPE_PROVIDER, CLOUD_NO, "correct the spec, or report this as a bug"},
    {"HTTP429", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"HTTP5xx", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
};
const size_t runpod_error_count = GP_ARRAY_LEN(runpod_errors);

/* The description of the API gives each status a meaning. */
static const char *code_of(int status, const char *text) {
    static const struct {
        int status;
        const char *code;
    } known[] = {{400, "HTTP400"}, {401, "HTTP401"}, {402, "HTTP402"}, {403, "HTTP403"},
                 {404, "HTTP404"}, {409, "HTTP409"}, {422, "HTTP422"}, {429, "HTTP429"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(by_text); i++)
        if ((by_text[i].status == 0 || by_text[i].status == status) && strcasestr(text, by_text[i].words) != NULL)
            return by_text[i].code;
    for (size_t i = 0; i < GP_ARRAY_LEN(known); i++)
        if (known[i].status == status) return known[i].code;
    return status >= 500 ? "HTTP5xx" : "HTTP4xx";
}

void runpod_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    const char *detail = json_str(json, "detail", "");
    if (resp->status < 400 || json_str(json, "title", "")[0] == '\0' || json_int(json, "status", 0) != resp->status)
        return; /* not RunPod's: a proxy, a wrong endpoint */
    const char *first = json_str(json, "errors.0", "");
    ret->code = code_of(resp->status, detail);
    ret->message = first[0] != '\0' ? first : detail;
}
