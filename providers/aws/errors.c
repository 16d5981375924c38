// SPDX-License-Identifier: Apache-2.0
/* EC2, STS, SSM and Service Quotas error codes: how far each reaches and what a person does next.
 * By code only: EC2 sends InsufficientInstanceCapacity as HTTP 500 and throttling as 503. Pure. */
#include "base/gp_base.h"

#include "providers/aws/errors.h"

#include "base/str.h"

#define ADVICE_QUOTA "ask for more in Service Quotas, or offer another region"
#define ADVICE_KEYS "check AWS_PROFILE and the access key (aws sts get-caller-identity)"
#define ADVICE_POLICY "give this principal the policy that 'gpuprov providers aws --policy' prints"
#define ADVICE_TOKEN "get new credentials (aws sso login, or your credential_process)"
#define ADVICE_ZONE "" /* the engine goes on with the next zone by itself */

static const struct cloud_error rows[] = {
    /* no capacity: another zone may have it */
    {"InsufficientInstanceCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"InsufficientHostCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"InsufficientCapacityOnHost", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"InsufficientReservedInstanceCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"InsufficientCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"ReservationCapacityExceeded", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"UnfulfillableCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"SpotMaxPriceTooLow", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ADVICE_ZONE},
    {"InsufficientFreeAddressesInSubnet", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO,
     "the subnet has no free addresses: use another subnet or zone"},
    /* never sold there; another zone may sell it */
    {"Unsupported", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, "this type is not sold in that zone"},
    {"UnsupportedOperation", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    /* quota: another region has its own */
    {"VcpuLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"InstanceLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"MaxSpotInstanceCountExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"MaxFleetCountExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"VolumeLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"MaxIOPSLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"NetworkInterfaceLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"SecurityGroupLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO,
     "remove unused security groups, or ask for more in Service Quotas"},
    {"RulesPerSecurityGroupLimitExceeded", GP_EQUOTA, GP_SCOPE_OFFER, CLOUD_NO, "give fewer access.ssh_from entries"},
    {"PlacementGroupLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO,
     "remove unused placement groups: a region has 500"},
    {"AttachmentLimitExceeded", GP_EQUOTA, GP_SCOPE_OFFER, CLOUD_NO, ADVICE_QUOTA},
    {"PendingVerification", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO,
     "AWS is still verifying this account for the region: wait, or offer another region"},
    {"OptInRequired", GP_EAUTH, GP_SCOPE_REGION, CLOUD_NO,
     "enable the region, or accept the product's terms, in the AWS console"},
    /* credentials and permissions: nothing else in this cloud will do */
    {"AuthFailure.ServiceLinkedRoleCreationNotPermitted", GP_EAUTH, GP_SCOPE_OFFER, CLOUD_NO,
     "the account's first spot request needs: aws iam create-service-linked-role "
     "--aws-service-name spot.amazonaws.com"},
    {"AuthFailure.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"UnauthorizedOperation", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"AccessDenied", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"AccessDeniedException", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"NotAuthorized", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"InvalidClientTokenId", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"UnrecognizedClientException", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"InvalidAccessKeyId", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"IncompleteSignature", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"MissingAuthenticationToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"SignatureDoesNotMatch", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, ADVICE_KEYS},
    {"InvalidSignatureException", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, ADVICE_KEYS},
    {"RequestExpired", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, "correct this machine's clock"},
    {"RequestInTheFuture", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, "correct this machine's clock"},
    {"RequestTimeTooSkewed", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, "correct this machine's clock"},
    {"ExpiredToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_TOKEN},
    {"ExpiredTokenException", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_TOKEN},
    {"InvalidIdentityToken", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO,
     "the web identity token is not accepted: check the role's trust policy and the audience"},
    {"IDPRejectedClaim", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check the role's trust policy"},
    {"Blocked", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "AWS has blocked this account: contact AWS"},
    {"RegionDisabledException", GP_EAUTH, GP_SCOPE_REGION, CLOUD_NO, "enable the region for STS"},
    /* slow down */
    {"RequestLimitExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"EC2ThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"Throttling.*", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"ThrottlingException", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"ThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RequestThrottled", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RequestThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"TooManyRequestsException", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"RequestResourceCountExceeded", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "ask for fewer nodes"},
    {"SlowDown", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"ConcurrentTagAccess", GP_ETHROTTLED, GP_SCOPE_OFFER, CLOUD_SLOW, "try again"},
    /* the cloud's own trouble */
    {"InternalError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"InternalFailure", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"InternalServerError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"ServerInternal", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"ServiceUnavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"ServiceUnavailableException", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"Unavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"IDPCommunicationError", GP_EPROTO, GP_SCOPE_PROVIDER, CLOUD_SLOW, "try again later"},
    /* what is not there */
    {"InvalidInstanceID.*", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidGroup.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidGroupId.Malformed", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidSecurityGroupID.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidNetworkInterfaceID.*", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidVolume.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidAMIID.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image.id: an image lives in one region only"},
    {"InvalidInstanceType", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct instance_type"},
    {"InvalidInstanceType.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct instance_type"},
    {"InvalidSubnetID.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct subnet"},
    {"InvalidSubnet.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct subnet"},
    {"InvalidVpcID.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"VPCIdNotSpecified", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "the region has no default VPC: give a subnet"},
    {"MissingInput", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "the region has no default VPC: give a subnet"},
    {"InvalidIamInstanceProfileArn.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct role"},
    {"InvalidPlacementGroup.Unknown", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidCapacityReservationId.*", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO,
     "correct reservation: it lives in one region only"},
    {"InvalidZone.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct zones"},
    {"NoSuchResourceException", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidPermission.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"ParameterNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* it is there already, or still in use */
    {"InvalidGroup.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidPlacementGroup.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidPlacementGroup.InUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidPermission.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IdempotentParameterMismatch", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IdempotentInstanceTerminated", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"DependencyViolation", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidAMIName.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidSnapshot.InUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidAMIID.Unavailable", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidGroup.InUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"VolumeInUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IncorrectState", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"OperationNotPermitted", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO,
     "termination protection is on: turn it off in the AWS console"},
    /* the request itself */
    {"InvalidUserData.*", GP_EINTERNAL, GP_SCOPE_NONE, CLOUD_NO, "report this as a bug"},
    {"InvalidParameterValue", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidParameterCombination", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidParameter.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"InvalidBlockDeviceMapping", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"DryRunOperation", GP_OK, GP_SCOPE_NONE, CLOUD_NO, ""},
};

const struct cloud_error *aws_error_row(const char *code) {
    struct cloud_said said = {code, "", ""};
    return cloud_error_find(rows, GP_ARRAY_LEN(rows), &said);
}

bool aws_said_xml(const struct xml_node *root, struct cloud_said *ret) {
    const struct xml_node *e = NULL;
    if (root == NULL) return false;
    if (strcmp(root->name, "Response") != 0 && strcmp(root->name, "ErrorResponse") != 0) return false;
    e = xml_find(root, "Errors/Error");
    if (e == NULL) e = xml_find(root, "Error");
    if (e == NULL) return false;
    ret->code = xml_str(e, "Code", "");
    ret->message = xml_str(e, "Message", "");
    ret->request_id = xml_str(root, "RequestID", xml_str(root, "RequestId", ""));
    return ret->code[0] != '\0';
}

bool aws_said_json(const json_t *j, struct cloud_said *ret) {
    const char *type = json_str(j, "__type", json_str(j, "code", ""));
    const char *hash = strrchr(type, '#');
    if (type[0] == '\0') return false;
    ret->code = hash != NULL ? hash + 1 : type;
    ret->message = json_str(j, "message", json_str(j, "Message", ""));
    ret->request_id = "";
    return true;
}
