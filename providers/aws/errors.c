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

static const struct aws_error_row rows[] = {
    /* no capacity: another zone may have it */
    {"InsufficientInstanceCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"InsufficientHostCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"InsufficientCapacityOnHost", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"InsufficientReservedInstanceCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"InsufficientCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"ReservationCapacityExceeded", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"UnfulfillableCapacity", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"SpotMaxPriceTooLow", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ADVICE_ZONE},
    {"InsufficientFreeAddressesInSubnet", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO,
     "the subnet has no free addresses: use another subnet or zone"},
    {"Unsupported", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, "this type is not sold in that zone"},
    {"UnsupportedOperation", GP_ECAPACITY, GP_SCOPE_ZONE, AWS_NO, ""},
    /* quota: another region has its own */
    {"VcpuLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"InstanceLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"MaxSpotInstanceCountExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"MaxFleetCountExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"VolumeLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"MaxIOPSLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"NetworkInterfaceLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO, ADVICE_QUOTA},
    {"SecurityGroupLimitExceeded", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO,
     "remove unused security groups, or ask for more in Service Quotas"},
    {"RulesPerSecurityGroupLimitExceeded", GP_EQUOTA, GP_SCOPE_OFFER, AWS_NO, "give fewer access.ssh_from entries"},
    {"AttachmentLimitExceeded", GP_EQUOTA, GP_SCOPE_OFFER, AWS_NO, ADVICE_QUOTA},
    {"PendingVerification", GP_EQUOTA, GP_SCOPE_REGION, AWS_NO,
     "AWS is still verifying this account for the region: wait, or offer another region"},
    {"OptInRequired", GP_EAUTH, GP_SCOPE_REGION, AWS_NO,
     "enable the region, or accept the product's terms, in the AWS console"},
    /* credentials and permissions: nothing else in this cloud will do */
    {"AuthFailure.ServiceLinkedRoleCreationNotPermitted", GP_EAUTH, GP_SCOPE_OFFER, AWS_NO,
     "the account's first spot request needs: aws iam create-service-linked-role "
     "--aws-service-name spot.amazonaws.com"},
    {"AuthFailure.*", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"UnauthorizedOperation", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_POLICY},
    {"AccessDenied", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_POLICY},
    {"AccessDeniedException", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_POLICY},
    {"NotAuthorized", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_POLICY},
    {"InvalidClientTokenId", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"UnrecognizedClientException", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"InvalidAccessKeyId", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"IncompleteSignature", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"MissingAuthenticationToken", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, ADVICE_KEYS},
    {"SignatureDoesNotMatch", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_CLOCK, ADVICE_KEYS},
    {"InvalidSignatureException", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_CLOCK, ADVICE_KEYS},
    {"RequestExpired", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_CLOCK, "correct this machine's clock"},
    {"RequestInTheFuture", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_CLOCK, "correct this machine's clock"},
    {"RequestTimeTooSkewed", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_CLOCK, "correct this machine's clock"},
    {"ExpiredToken", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_STALE, ADVICE_TOKEN},
    {"ExpiredTokenException", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_STALE, ADVICE_TOKEN},
    {"InvalidIdentityToken", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO,
     "the web identity token is not accepted: check the role's trust policy and the audience"},
    {"IDPRejectedClaim", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, "check the role's trust policy"},
    {"Blocked", GP_EAUTH, GP_SCOPE_PROVIDER, AWS_NO, "AWS has blocked this account: contact AWS"},
    {"RegionDisabledException", GP_EAUTH, GP_SCOPE_REGION, AWS_NO, "enable the region for STS"},
    /* slow down */
    {"RequestLimitExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"EC2ThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"Throttling.*", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"ThrottlingException", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"ThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"RequestThrottled", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"RequestThrottledException", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"TooManyRequestsException", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"RequestResourceCountExceeded", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_NO, "ask for fewer nodes"},
    {"SlowDown", GP_ETHROTTLED, GP_SCOPE_REGION, AWS_SLOW, "try again later"},
    {"ConcurrentTagAccess", GP_ETHROTTLED, GP_SCOPE_OFFER, AWS_SLOW, "try again"},
    /* the cloud's own trouble */
    {"InternalError", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"InternalFailure", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"InternalServerError", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"ServerInternal", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"ServiceUnavailable", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"ServiceUnavailableException", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"Unavailable", GP_EPROTO, GP_SCOPE_REGION, AWS_TROUBLE, "try again later"},
    {"IDPCommunicationError", GP_EPROTO, GP_SCOPE_PROVIDER, AWS_SLOW, "try again later"},
    /* what is not there */
    {"InvalidInstanceID.*", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidGroup.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidGroupId.Malformed", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidSecurityGroupID.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidNetworkInterfaceID.*", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidVolume.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidAMIID.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct image.id: an image lives in one region only"},
    {"InvalidInstanceType", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct instance_type"},
    {"InvalidInstanceType.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct instance_type"},
    {"InvalidSubnetID.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct subnet"},
    {"InvalidSubnet.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct subnet"},
    {"InvalidVpcID.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, ""},
    {"VPCIdNotSpecified", GP_EUSAGE, GP_SCOPE_REGION, AWS_NO, "the region has no default VPC: give a subnet"},
    {"MissingInput", GP_EUSAGE, GP_SCOPE_REGION, AWS_NO, "the region has no default VPC: give a subnet"},
    {"InvalidIamInstanceProfileArn.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct role"},
    {"InvalidZone.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, "correct zones"},
    {"NoSuchResourceException", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidPermission.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    {"ParameterNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, AWS_NO, ""},
    /* it is there already, or still in use */
    {"InvalidGroup.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidPermission.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"IdempotentParameterMismatch", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"IdempotentInstanceTerminated", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"DependencyViolation", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"InvalidGroup.InUse", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"VolumeInUse", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"IncorrectState", GP_EEXISTS, GP_SCOPE_NONE, AWS_NO, ""},
    {"OperationNotPermitted", GP_EAUTH, GP_SCOPE_NONE, AWS_NO,
     "termination protection is on: turn it off in the AWS console"},
    /* the request itself */
    {"InvalidUserData.*", GP_EINTERNAL, GP_SCOPE_NONE, AWS_NO, "report this as a bug"},
    {"InvalidParameterValue", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, ""},
    {"InvalidParameterCombination", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, ""},
    {"InvalidParameter.*", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, ""},
    {"InvalidBlockDeviceMapping", GP_EUSAGE, GP_SCOPE_OFFER, AWS_NO, ""},
    {"DryRunOperation", GP_OK, GP_SCOPE_NONE, AWS_NO, ""},
};

static const struct aws_error_row unknown = {"", GP_EPROTO, GP_SCOPE_OFFER, AWS_NO, ""};

static bool matches(const char *pattern, const char *code) {
    if (!str_ends(pattern, ".*")) return strcmp(pattern, code) == 0;
    size_t n = strlen(pattern) - 2;
    return strncmp(pattern, code, n) == 0 && (code[n] == '\0' || code[n] == '.');
}

const struct aws_error_row *aws_error_row(const char *code) {
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (matches(rows[i].code, code)) return &rows[i];
    return &unknown;
}

bool aws_said_xml(const struct xml_node *root, struct aws_said *ret) {
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

bool aws_said_json(const json_t *j, struct aws_said *ret) {
    const char *type = json_str(j, "__type", json_str(j, "code", ""));
    const char *hash = strrchr(type, '#');
    if (type[0] == '\0') return false;
    ret->code = hash != NULL ? hash + 1 : type;
    ret->message = json_str(j, "message", json_str(j, "Message", ""));
    ret->request_id = "";
    return true;
}

int aws_fail(struct gp_error *err, const char *what, const struct aws_said *said) {
    const struct aws_error_row *row = aws_error_row(said->code);
    enum gp_code code = row->gp == GP_OK ? GP_EPROTO : row->gp;
    size_t n = strlen(said->message);
    while (n > 0 && (said->message[n - 1] == '.' || said->message[n - 1] == '\n')) n--;
    if (n > 180) n = 180; /* encoded authorization messages have no end */
    int r = gp_fail(err, code, "%s: %s%s%.*s%s%s%s%s%s", what, said->code, n > 0 ? ": " : "", (int)n, said->message,
                    row->advice[0] ? ": " : "", row->advice, said->request_id[0] ? " (request " : "", said->request_id,
                    said->request_id[0] ? ")" : "");
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = row->scope;
        err->retryable = row->class == AWS_SLOW || row->class == AWS_TROUBLE;
        str_put(err->detail, sizeof err->detail, said->code);
    }
    return r;
}
