// SPDX-License-Identifier: Apache-2.0
/* Error codes of Azure Resource Manager, its compute and network parts, and Microsoft's token service: how far each
 * reaches and what a person does next. By code, and by text where one code has several meanings. Pure. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#define ADVICE_QUOTA "request more at the portal's Quotas page, or offer another region"
#define ADVICE_ROLE "give this principal the role that 'gpuprov providers azure --policy' prints"
#define ADVICE_LOGIN "run 'az login', or check AZURE_TENANT_ID, AZURE_CLIENT_ID and the secret"
#define ADVICE_NEXT "" /* the engine goes on with the next zone or region by itself */
#define LATER "try again later"

const struct cloud_error azure_errors[] = {
    /* no capacity */
    {"ZonalAllocationFailed", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"OverconstrainedZonalAllocationRequest", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"AllocationFailed", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"OverconstrainedAllocationRequest", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"SkuNotAvailable", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"SpotPriceGreaterThanProvidedMaxPrice", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"AllocationTimeout", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"PreemptedByHigherPriorityVM", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_NEXT},
    {"NotAvailableForSubscription", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO,
     "request access to the size for this subscription, or offer another region"},
    /* quota: of a region */
    {"OperationNotAllowed|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"QuotaExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"SubscriptionQuotaReached", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"PublicIPCountLimitReached", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"PublicIpAddressCountLimitReached", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"NetworkInterfaceCountLimitReached", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"ResourceQuotaExceeded", GP_EQUOTA, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_QUOTA},
    {"SubnetIsFull", GP_ECAPACITY, GP_SCOPE_OFFER, CLOUD_NO, "the subnet has no free addresses: give another one"},
    /* slow down: before the other meanings of OperationNotAllowed */
    {"OperationNotAllowed|server rejected the request because too many requests", GP_ETHROTTLED, GP_SCOPE_REGION,
     CLOUD_SLOW, LATER},
    {"TooManyRequests", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"SubscriptionRequestsThrottled", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"ResourceRequestsThrottled", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"RetryableErrorDueToAnotherOperation", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"RetryableError", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"AnotherOperationInProgress", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    {"ReferencedResourceNotProvisioned", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, LATER},
    /* credentials and permissions */
    {"InvalidAuthenticationToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"ExpiredAuthenticationToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"AuthenticationFailed", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"InvalidAuthenticationTokenTenant", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the token is of another tenant than the subscription: check AZURE_TENANT_ID and AZURE_SUBSCRIPTION_ID"},
    {"AuthorizationFailed|Microsoft.Authorization/role", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO,
     "give this principal the right that docs/azure.md states for nodes that delete themselves"},
    {"AuthorizationFailed", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"RoleAssignmentLimitExceeded", GP_EQUOTA, GP_SCOPE_PROVIDER, CLOUD_NO,
     "remove role assignments of the subscription that nobody uses"},
    {"RoleAssignmentExists", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"LinkedAuthorizationFailed", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO, ADVICE_ROLE},
    {"RequestDisallowedByPolicy", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO,
     "a policy of the subscription forbids it: another region or size may be allowed"},
    {"SubscriptionNotFound", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check AZURE_SUBSCRIPTION_ID"},
    {"InvalidSubscriptionId", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check AZURE_SUBSCRIPTION_ID"},
    {"ReadOnlyDisabledSubscription", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the subscription is disabled: check its payment in the portal"},
    {"SubscriptionNotRegistered", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "run 'az provider register --namespace Microsoft.Compute' and '... Microsoft.Network'"},
    {"MissingSubscriptionRegistration", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "run 'az provider register --namespace Microsoft.Compute' and '... Microsoft.Network'"},
    {"AzureSpotFeatureNotEnabledForSubscription", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO,
     "this subscription cannot buy spot nodes: use market on-demand"},
    {"MarketplacePurchaseEligibilityFailed", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO,
     "accept the image's terms: az vm image terms accept"},
    /* the token service */
    {"invalid_client|AADSTS7000222", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the client secret expired: create a new one"},
    {"invalid_client", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "check AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or the certificate"},
    {"invalid_request|AADSTS90002", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check AZURE_TENANT_ID"},
    {"invalid_request", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_LOGIN},
    {"invalid_grant", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_LOGIN},
    {"unauthorized_client", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_LOGIN},
    {"temporarily_unavailable", GP_EPROTO, GP_SCOPE_PROVIDER, CLOUD_SLOW, LATER},
    /* Azure's own trouble */
    {"InternalServerError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"InternalError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"InternalOperationError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"InternalExecutionError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"ServerTimeout", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"GatewayTimeout", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    {"ServiceUnavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, LATER},
    /* not there */
    {"ResourceGroupNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"ResourceNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"OperationNotAllowed|smaller than the size of the corresponding disk", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO,
     "raise 'disk': the image needs more"},
    {"InvalidResourceReference", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO,
     "correct subnet: it must exist in the offer's region"},
    {"PlatformImageNotFound", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image: the region has no such image"},
    {"ImageNotFound", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image: the region has no such image"},
    {"GalleryImageNotFound", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image: the region has no such image"},
    {"NoRegisteredProviderFound", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "correct regions"},
    {"LocationNotAvailableForResourceGroup", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "correct regions"},
    {"LocationNotAvailableForResourceType", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "correct regions"},
    /* there already, in use, or on its way out */
    {"PreconditionFailed", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"ResourceGroupBeingDeleted", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO,
     "its resource group is being deleted: try again in a few minutes"},
    {"ResourceGroupDeletionBlocked", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO,
     "a lock or a backup keeps its resource group: remove that in the portal"},
    {"ScopeLocked", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO, "a lock keeps it: remove the lock in the portal"},
    {"InvalidResourceGroupLocation", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"OperationNotAllowed|being deleted", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"OperationNotAllowed|does not contain any VM", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"NicInUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InUseNetworkSecurityGroupCannotBeDeleted", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InUseSubnetCannotBeDeleted", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"PublicIPAddressCannotBeDeleted", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"Conflict", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* the request itself */
    {"OperationNotAllowed", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidParameter", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"BadRequest", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidRequestFormat", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidRequestContent", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidZone.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct zones"},
    {"ZonesNotAllowedInLocation", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "leave zones out: the region has none"},
    {"VMSizeDoesntSupportArm64", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image: it is of another architecture"},
};
const size_t azure_error_count = GP_ARRAY_LEN(azure_errors);

/* {"error": {"code", "message"}} of Resource Manager; {"error": "invalid_client", "error_description"} of the token
 * service. Bodies of operations have "error" too, in replies of status 200: those are read by create.c. */
void azure_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    if (resp->status / 100 == 2) return;
    const char *plain = json_str(json, "error", "");
    ret->code = plain[0] != '\0' ? plain : json_str(json, "error.code", json_str(json, "code", ""));
    ret->message = json_str(json, "error_description", json_str(json, "error.message", json_str(json, "message", "")));
    const char *id = http_fields_get(&resp->headers, "x-ms-request-id");
    ret->request_id = id != NULL && strspn(id, "0123456789abcdefABCDEF-") == strlen(id) ? id : "";
}
