// SPDX-License-Identifier: Apache-2.0
/* The least IAM policy of one owner, for `gpuprov providers aws --policy`. EC2's reads cannot be
 * limited to resources; every statement that creates, changes or destroys is tied to the
 * owner's tag. The tags of ownership (owner, stack, uid) are set at creation
 * and never later. Pure. */
#include "base/gp_base.h"

#include "providers/aws/aws.h"

#include "base/form.h"
#include "base/json.h"
#include "model/tags.h"

#include <stdarg.h>

#define TAG_OF_REQUEST "aws:RequestTag/gpuprov:owner"
#define GROUPS "arn:*:ec2:*:*:security-group/*", "arn:*:ec2:*:*:placement-group/*"
#define IMAGES "arn:*:ec2:*::image/*", "arn:*:ec2:*::snapshot/*"
#define TAG_OF_RESOURCE "aws:ResourceTag/gpuprov:owner"

/* A list of text, ended by NULL. */
static json_t *list(const char *first, ...) {
    json_t *l = json_array();
    va_list ap;
    va_start(ap, first);
    for (const char *s = first; s != NULL; s = va_arg(ap, const char *)) json_array_append_new(l, json_string(s));
    va_end(ap);
    return l;
}

/* Takes over actions, resources and condition (NULL: none). */
static void allow(json_t *statements, const char *sid, json_t *actions, json_t *resources, json_t *condition) {
    json_t *s =
        json_pack("{s:s, s:s, s:o, s:o}", "Sid", sid, "Effect", "Allow", "Action", actions, "Resource", resources);
    if (condition != NULL) json_object_set_new(s, "Condition", condition);
    json_array_append_new(statements, s);
}

static json_t *equals(const char *key, const char *value) { return json_pack("{s:{s:s}}", "StringEquals", key, value); }

/* Only these tags, and at least one: a request without tags would satisfy ForAllValues alone. */
static json_t *own_with_tags(const char *owner, json_t *keys) {
    return json_pack("{s:{s:s}, s:{s:o}, s:{s:s}}", "StringEquals", TAG_OF_RESOURCE, owner, "ForAllValues:StringLike",
                     "aws:TagKeys", keys, "Null", "aws:TagKeys", "false");
}

static void add_reads(json_t *to) {
    allow(to, "Look",
          list("ec2:DescribeCapacityReservations", "ec2:DescribeImages", "ec2:DescribeInstances",
               "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes", "ec2:DescribePlacementGroups",
               "ec2:DescribeRegions", "ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSnapshots",
               "ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets", "ec2:DescribeVolumes", "ec2:DescribeVpcs",
               "servicequotas:GetServiceQuota", NULL),
          list("*", NULL), NULL);
    allow(to, "NamesOfImages", list("ssm:GetParameter", NULL), list("arn:*:ssm:*::parameter/aws/service/*", NULL),
          NULL);
}

static void add_creates(json_t *to, const char *owner) {
    allow(to, "LaunchTagged", list("ec2:RunInstances", NULL),
          list("arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:volume/*", "arn:*:ec2:*:*:network-interface/*",
               "arn:*:ec2:*:*:spot-instances-request/*", NULL),
          equals(TAG_OF_REQUEST, owner));
    allow(to, "LaunchFrom", list("ec2:RunInstances", NULL),
          list("arn:*:ec2:*::image/*", "arn:*:ec2:*:*:subnet/*", "arn:*:ec2:*:*:capacity-reservation/*", NULL), NULL);
    allow(to, "LaunchIntoOwnGroup", list("ec2:RunInstances", NULL), list(GROUPS, NULL), equals(TAG_OF_RESOURCE, owner));
    allow(to, "CreateTagged", list("ec2:CreateSecurityGroup", "ec2:CreatePlacementGroup", "ec2:CreateImage", NULL),
          list(GROUPS, IMAGES, NULL), equals(TAG_OF_REQUEST, owner));
    allow(to, "CreateGroupIn", list("ec2:CreateSecurityGroup", NULL), list("arn:*:ec2:*:*:vpc/*", NULL), NULL);
}

static void add_tags(json_t *to, const char *owner) {
    allow(to, "TagWhatIsBeingMade", list("ec2:CreateTags", NULL),
          list("arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:volume/*", "arn:*:ec2:*:*:network-interface/*",
               "arn:*:ec2:*:*:spot-instances-request/*", GROUPS, IMAGES, NULL),
          json_pack("{s:{s:o, s:s}}", "StringEquals", "ec2:CreateAction",
                    list("RunInstances", "CreateSecurityGroup", "CreatePlacementGroup", "CreateImage", NULL),
                    TAG_OF_REQUEST, owner));
    allow(to, "TagClaim", list("ec2:CreateTags", NULL), list("arn:*:ec2:*:*:security-group/*", NULL),
          own_with_tags(owner, list("gpuprov:expires", "gpuprov:deadline", "gpuprov:created", "gpuprov:spec",
                                    "gpuprov:" TAGS_REGION "*", NULL)));
    allow(to, "TagNode", list("ec2:CreateTags", NULL), list("arn:*:ec2:*:*:instance/*", NULL),
          own_with_tags(owner, list("gpuprov:expires", "gpuprov:deadline", "gpuprov:hostkey", "gpuprov:proof", NULL)));
    allow(to, "ProveImage", list("ec2:CreateTags", NULL), list(IMAGES, NULL),
          own_with_tags(owner, list("gpuprov:image", "gpuprov:proof", NULL)));
}

static void add_own(json_t *to, const char *owner) {
    allow(to, "EndBakeOrReadOwn",
          list("ec2:TerminateInstances", "ec2:DeleteVolume", "ec2:DeleteSecurityGroup", "ec2:DeletePlacementGroup",
               "ec2:StopInstances", "ec2:CreateImage", "ec2:DeregisterImage", "ec2:DeleteSnapshot",
               "ec2:GetConsoleOutput", NULL),
          list("arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:volume/*", GROUPS, IMAGES, NULL),
          equals(TAG_OF_RESOURCE, owner));
    allow(to, "RulesOfOwnGroup", list("ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", NULL),
          list("arn:*:ec2:*:*:security-group/*", NULL), equals(TAG_OF_RESOURCE, owner));
}

/* Actions of EC2 on behalf of the caller. */
static void add_through_ec2(json_t *to) {
    static const char kms[] = "arn:*:kms:*:*:key/*";
    allow(to, "FirstSpotRequest", list("iam:CreateServiceLinkedRole", NULL),
          list("arn:*:iam::*:role/aws-service-role/spot.amazonaws.com/*", NULL),
          equals("iam:AWSServiceName", "spot.amazonaws.com"));
    allow(to, "OnlyForOffersWithARole", list("iam:PassRole", NULL), list("arn:*:iam::*:role/*", NULL),
          json_pack("{s:{s:o}}", "StringEquals", "iam:PassedToService",
                    list("ec2.amazonaws.com", "ec2.amazonaws.com.cn", NULL)));
    allow(to, "OnlyForOwnDiskKey",
          list("kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
               "kms:ReEncryptTo", NULL),
          list(kms, NULL),
          json_pack("{s:{s:o}}", "StringLike", "kms:ViaService",
                    list("ec2.*.amazonaws.com", "ec2.*.amazonaws.com.cn", NULL)));
    allow(to, "GrantOwnDiskKey", list("kms:CreateGrant", NULL), list(kms, NULL),
          json_pack("{s:{s:o}, s:{s:s}}", "StringLike", "kms:ViaService",
                    list("ec2.*.amazonaws.com", "ec2.*.amazonaws.com.cn", NULL), "Bool", "kms:GrantIsForAWSResource",
                    "true"));
}

int aws_policy_json(const char *owner, char **ret, struct gp_error *err) {
    if (!form_owner(owner)) /* '*', '?' and '$' mean something in a policy */
        return gp_fail(err, GP_EUSAGE, "the owner '%.140s' is not valid: give %s", owner != NULL ? owner : "",
                       FORM_OWNER_TEXT);
    json_t *statements = json_array();
    add_reads(statements);
    add_creates(statements, owner);
    add_tags(statements, owner);
    add_own(statements, owner);
    add_through_ec2(statements);
    GP_AUTO_JSON json_t *policy = json_pack("{s:s, s:o}", "Version", "2012-10-17", "Statement", statements);
    GP_AUTO_FREE char *text = json_text(policy, 2);
    *ret = xasprintf("%s\n", text);
    return 0;
}
