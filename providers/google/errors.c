// SPDX-License-Identifier: Apache-2.0
/* Error codes of Compute Engine, its operations, OAuth2 and IAM: how far each reaches and what a person does next. A
 * call is refused by a reason ("quotaExceeded"), an accepted request by the code of its operation ("QUOTA_EXCEEDED").
 * Pure. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#define ADVICE_QUOTA "ask for more on the page 'IAM & Admin > Quotas', or offer another region"
#define ADVICE_ADC "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS"
#define ADVICE_ROLE "give this principal the role that 'gpuprov providers google --policy' prints"
#define ADVICE_API "enable the Compute Engine API: gcloud services enable compute.googleapis.com"

const struct cloud_error google_errors[] = {
    /* no capacity: another zone may have it */
    {"ZONE_RESOURCE_POOL_EXHAUSTED", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"stockout", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"STOCKOUT", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"resourcePoolExhausted", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"VM_MIN_COUNT_NOT_REACHED", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"VM_MIN_COUNT_NOT_REACHED.*", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"IP_SPACE_EXHAUSTED", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO,
     "the subnet has no free addresses: use another subnet or region"},
    {"IP_SPACE_EXHAUSTED_WITH_DETAILS", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO,
     "the subnet has no free addresses: use another subnet or region"},
    {"UNSUPPORTED_OPERATION", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    /* quota: another region has its own, but for the global one */
    {"QUOTA_EXCEEDED|GPUS_ALL_REGIONS", GP_EQUOTA, GP_SCOPE_PROVIDER, CLOUD_NO,
     "ask for more of the quota GPUS_ALL_REGIONS"},
    {"quotaExceeded|GPUS_ALL_REGIONS", GP_EQUOTA, GP_SCOPE_PROVIDER, CLOUD_NO,
     "ask for more of the quota GPUS_ALL_REGIONS"},
    {"QUOTA_EXCEEDED", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"quotaExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"limitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    /* slow down */
    {"rateLimitExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"userRateLimitExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RATE_LIMIT_EXCEEDED", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RESOURCE_EXHAUSTED", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"concurrentOperationQuotaExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"operationRateExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RESOURCE_OPERATION_RATE_EXCEEDED", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_NO, "try again later"},
    {"temporarily_unavailable", GP_ETHROTTLED, GP_SCOPE_PROVIDER, CLOUD_SLOW, "try again later"},
    /* credentials and permissions: nothing else in this cloud will do */
    {"authError", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_ADC},
    {"UNAUTHENTICATED", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_ADC},
    {"ACCESS_TOKEN_EXPIRED", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_ADC},
    {"required", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_ADC},
    {"invalid_grant|Token must be a short-lived token", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK,
     "correct this machine's clock"},
    {"invalid_grant", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the key or login was revoked, or this machine's clock is wrong: " ADVICE_ADC},
    {"invalid_client", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ADC},
    {"unauthorized_client", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ADC},
    {"invalid_scope", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ADC},
    {"invalid_request", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ADC},
    {"invalid_target", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check the audience of the credentials file"},
    {"insufficientPermissions", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the token lacks the scope cloud-platform: give the machine that scope"},
    {"ACCESS_TOKEN_SCOPE_INSUFFICIENT", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the token lacks the scope cloud-platform: give the machine that scope"},
    {"accessNotConfigured", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_API},
    {"SERVICE_DISABLED", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_API},
    {"billingNotEnabled", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, "enable billing for the project"},
    {"*|billing account for the owning project is disabled", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO,
     "enable billing for the project"},
    {"forbidden", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"FORBIDDEN", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"PERMISSION_DENIED", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"PERMISSIONS_ERROR", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"IAM_PERMISSION_DENIED", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"CONDITION_NOT_MET", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO,
     "a policy of the organization forbids it: ask who administers it"},
    /* it is there already, or still in use */
    {"alreadyExists", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"RESOURCE_ALREADY_EXISTS", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"resourceInUseByAnotherResource", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"resourceNotReady", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"RESOURCE_NOT_READY", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"conditionNotMet", GP_EBUSY, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* what is not there */
    {"notFound|/networks/", GP_EUSAGE, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the project has no such network: give a subnet in the offer"},
    {"notFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"RESOURCE_NOT_FOUND", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"NOT_FOUND", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* the cloud's own trouble */
    {"backendError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"internalError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"INTERNAL_ERROR", GP_EPROTO, GP_SCOPE_ZONE, CLOUD_NO, ""}, /* of an operation: it is over */
    {"RESOURCE_AVAILABILITY", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"UNAVAILABLE", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"INTERNAL", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"internal_failure", GP_EPROTO, GP_SCOPE_PROVIDER, CLOUD_TROUBLE, "try again later"},
    /* the request itself */
    {"invalid", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"invalidParameter", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"badRequest", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"INVALID_ARGUMENT", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"INVALID_FIELD_VALUE", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"INVALID_USAGE", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"conditionFailed", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    /* other codes, by Google's sentence */
    {"*|does not have enough resources", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
};
const size_t google_error_count = GP_ARRAY_LEN(google_errors);

/* {"error": {"errors": [{"reason"}], "status", "message"}} of an API, {"error": "CODE", "error_description"} of a token
 * service. */
void google_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    const json_t *error = json_at(json, "error");
    if (resp->status / 100 == 2) return; /* the error of an operation is its own, not the call's */
    if (json_is_string(error)) {
        ret->code = json_string_value(error);
        ret->message = json_str(json, "error_description", "");
    } else if (json_is_object(error)) {
        ret->code =
            json_str(error, "errors.0.reason", json_str(error, "details.0.reason", json_str(error, "status", "")));
        ret->message = json_str(error, "message", "");
    }
}
