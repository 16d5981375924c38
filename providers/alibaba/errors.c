// SPDX-License-Identifier: Apache-2.0
/* Error codes of ECS, VPC, STS and the API gateway: how far each reaches and what a person does next. Static data. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#define ADVICE_QUOTA "ask for more in the Quota Center, or offer another region"
#define ADVICE_KEYS "check the access key and its profile"
#define ADVICE_POLICY "give this principal the policy that 'gpuprov providers alibaba --policy' prints"
#define ADVICE_TOKEN "get new credentials"
#define ADVICE_MONEY "top up the account, or give it a means of payment"
#define ADVICE_CLOCK "correct this machine's clock"

const struct cloud_error ali_errors[] = {
    /* no capacity: another zone may have it */
    {"OperationDenied.NoStock", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"OperationDenied.PaygNotAvailable", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"OperationDenied.SpotPriceLowerThanPublicPrice", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "raise limits.max_price"},
    {"InvalidSpotPriceLimit.LowerThanPublicPrice", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "raise limits.max_price"},
    {"OperationDenied|usage", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"OperationDenied|sold out", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"Zone.NotOnSale", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"Zone.NotOpen", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"InvalidVSwitchId.IpNotEnough", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO,
     "the VSwitch has no free addresses: use another subnet or zone"},
    {"InvalidPrivateIpAddress.*", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "use another subnet or zone"},
    /* not sold there */
    {"InstanceType.Offline", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "this type is no longer sold"},
    {"InvalidResourceType.NotSupported", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, "this type is not sold in that zone"},
    {"InvalidInstanceType.ZoneNotSupported", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, "this type is not sold in that zone"},
    {"InvalidInstanceType.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct instance_type"},
    {"InvalidSystemDiskCategory.*", GP_EUSAGE, GP_SCOPE_ZONE, CLOUD_NO, "this type cannot have an ESSD there"},
    /* quota: another region has its own */
    {"QuotaExceed.*", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"QuotaExceeded.*", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"OperationDenied.QuotaExceed", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"SecurityGroupInstanceLimitExceed", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, "launch fewer nodes"},
    {"Account.Arrearage", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"InvalidAccountStatus.NotEnoughBalance", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"InvalidAccountStatus.*", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"InsufficientBalance", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"InvalidPayMethod", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"NoPayMethod", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_MONEY},
    {"RealNameAuthenticationError", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "verify the account's identity"},
    /* credentials and permissions */
    {"InvalidSecurityToken.Expired", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_TOKEN},
    {"InvalidSecurityToken.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_TOKEN},
    {"InvalidAccessKeyId.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_KEYS},
    {"SignatureDoesNotMatch", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, ADVICE_KEYS},
    {"IncompleteSignature", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEYS},
    {"InvalidTimeStamp.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, ADVICE_CLOCK},
    {"SignatureNonceUsed", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"Forbidden.RAM", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"Forbidden.SubUser", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"NoPermission", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"NoPermission.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_POLICY},
    {"Forbidden|assume", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check the trust policy of the role"},
    {"AuthenticationFail.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check the token of the identity provider"},
    {"EntityNotExist.*", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, "check the role's ARN"},
    /* slow down */
    {"Throttling.*", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"LastTokenProcessing", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"IdempotentProcessing", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"OperationConflict", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"TaskConflict", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"IncorrectVpcStatus", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    {"IncorrectVSwitchStatus", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again"},
    /* the cloud's own trouble */
    {"InternalError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"ServiceUnavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"UnknownError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    /* what is not there */
    {"InvalidInstanceId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidDiskId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidEniId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidSecurityGroupId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidKeyPairName.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidVpcId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidVpcID.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidVSwitchId.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidVSwitchID.NotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidImageId.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct image.id: an image is in one region only"},
    {"InvalidRamRole.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct role"},
    {"InvalidRegionId.NotFound", GP_EUSAGE, GP_SCOPE_REGION, CLOUD_NO, "correct regions"},
    {"InvalidZoneId.NotFound", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "correct zones"},
    /* it is there already, or still in use */
    {"KeyPair.AlreadyExist", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidKeyPair.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidPermission.Duplicate", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IdempotentParameterMismatch", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IdempotenceParamNotMatch", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"DependencyViolation.*", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"Forbidden.DependencyViolation", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidOperation.DeletionProtection", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO,
     "release protection is on: turn it off in the ECS console"},
    {"IncorrectInstanceStatus.*", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"IncorrectDiskStatus.*", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"InvalidOperation.InvalidEniState", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* the request itself */
    {"InvalidUserData.*", GP_EINTERNAL, GP_SCOPE_NONE, CLOUD_NO, "report this as a bug"},
    {"InvalidAutoReleaseTime.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, "change limits.ttl"},
    {"InvalidParameter.*", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"MissingParameter.*", GP_EINTERNAL, GP_SCOPE_NONE, CLOUD_NO, "report this as a bug"},
    {"DryRunOperation", GP_OK, GP_SCOPE_NONE, CLOUD_NO, ""},
};
const size_t ali_error_count = GP_ARRAY_LEN(ali_errors);
