// SPDX-License-Identifier: Apache-2.0
/* Lambda's error codes (API description 1.10.0): how far each reaches and what a person does next. Pure. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#define ADVICE_KEY "check the API key ('gpuprov doctor' names where it is from), or make a new one in the console"
#define ADVICE_MONEY "verify the account's address and means of payment in the console"

const struct cloud_error lambda_errors[] = {
    {"instance-operations/launch/insufficient-capacity", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"instance-operations/launch/file-system-in-wrong-region", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    /* The reply does not say which quota: that of this type or of the account. */
    {"global/quota-exceeded", GP_EQUOTA, GP_SCOPE_OFFER, CLOUD_NO,
     "ask Lambda's support for more, or end other instances"},
    {"global/account-inactive", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"global/invalid-address", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"global/invalid-api-key", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_KEY},
    {"global/forbidden", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "use a key of an account that may do this"},
    {"global/object-does-not-exist", GP_ENOTFOUND, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"global/not-found", GP_ENOTFOUND, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"global/invalid-parameters", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"global/duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"global/conflict", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"firewall-rulesets/firewall-ruleset-in-use", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"global/internal-error", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    /* errors of the services behind Lambda's: it may have acted */
    {"provider/*", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
};
const size_t lambda_error_count = GP_ARRAY_LEN(lambda_errors);

void lambda_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    (void)resp;
    *ret = (struct cloud_said){json_str(json, "error.code", ""), json_str(json, "error.message", ""), ""};
}
