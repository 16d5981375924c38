// SPDX-License-Identifier: Apache-2.0
/* The smaller slots: the console of an instance, what the verb doctor reports, and the RAM policy of an owner. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/hash.h"

#define CONSOLE_BYTES ((size_t)65536)
#define CLOCK_OFF_S 5 /* less is the time of a call */

/* --- console --- */

int ali_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err) {
    struct ali *a = ali_of(p);
    GP_AUTO_STR struct str query = {0}, bytes = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    ali_begin(&query, machine->region);
    ali_param(&query, "InstanceId", machine->id);
    int r = ali_call(a, ALI_ECS, machine->region, "GetInstanceConsoleOutput", &query, REST_OPTIONAL, &reply, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *text = xstrdup(json_str(reply.json, "ConsoleOutput", ""));
    size_t n = 0;
    for (const char *c = text; *c != '\0'; c++)
        if (strchr(" \t\r\n", *c) == NULL) text[n++] = *c;
    if (!base64_bytes(text, n, &bytes))
        return gp_fail(err, GP_EPROTO, "alibaba: the console of %s is not base64", machine->id);
    size_t skip = bytes.len > CONSOLE_BYTES ? bytes.len - CONSOLE_BYTES : 0;
    for (size_t i = skip; i < bytes.len; i++) str_addc(ret, bytes.s[i] != '\0' ? bytes.s[i] : '?');
    return 0;
}

/* --- doctor --- */

int ali_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    char until[32];
    *ret_usable = false;
    int r = provider_alibaba.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    const struct ali *a = ali_of(p);
    int64_t s = a->base.clock_skew_s;
    str_addf(text, "credentials of %s", a->cred.source);
    if (a->cred.expires_s > 0) {
        time_format_utc(until, sizeof until, a->cred.expires_s);
        str_addf(text, " until %s", until);
    }
    str_addf(text, "\naccount %s, owner %s\n", a->account, a->base.owner);
    if (a->region != NULL) str_addf(text, "region %s", a->region);
    else str_add(text, "no region: set ALIBABA_CLOUD_REGION_ID, or give 'regions' in each offer");
    if (s > -CLOCK_OFF_S && s < CLOCK_OFF_S) str_add(text, "\nclock agrees with Alibaba Cloud's");
    else
        str_addf(text,
                 "\nthis machine's clock is %lld s %s Alibaba Cloud's: correct it; until then gpuprov corrects its "
                 "requests",
                 (long long)(s > 0 ? s : -s), s > 0 ? "behind" : "ahead of");
    *ret_usable = true;
    provider_alibaba.close(p);
    return 0;
}

/* --- policy --- */

#define TAG_OF_RESOURCE "acs:ResourceTag/gpuprov:owner"
#define TAG_OF_REQUEST "acs:RequestTag/gpuprov:owner"

static json_t *words(const char *const *list) {
    json_t *a = json_array();
    for (; *list != NULL; list++) json_array_append_new(a, json_string(*list));
    return a;
}

static void allow(json_t *to, const char *const *actions, const char *tag, const char *owner) {
    json_t *one = json_pack("{s:s, s:o, s:s}", "Effect", "Allow", "Action", words(actions), "Resource", "*");
    if (tag != NULL) json_object_set_new(one, "Condition", json_pack("{s:{s:[s]}}", "StringEquals", tag, owner));
    json_array_append_new(to, one);
}

int ali_policy_json(const char *owner, char **ret, struct gp_error *err) {
    static const char *const reads[] = {"ecs:Describe*", "vpc:DescribeVpcs", "vpc:DescribeVSwitches",
                                        "ecs:GetInstanceConsoleOutput", NULL};
    static const char *const creates[] = {"ecs:RunInstances", "ecs:CreateSecurityGroup", "ecs:ImportKeyPair",
                                          "vpc:CreateVpc",    "vpc:CreateVSwitch",       NULL};
    /* A launch into a VSwitch and a group has these as resources too, with their own tags or none. */
    static const char *const own[] = {"ecs:DeleteInstances",
                                      "ecs:DeleteInstance",
                                      "ecs:DeleteDisk",
                                      "ecs:DeleteNetworkInterface",
                                      "ecs:DeleteSecurityGroup",
                                      "ecs:AuthorizeSecurityGroup",
                                      "ecs:RevokeSecurityGroup",
                                      "ecs:DeleteKeyPairs",
                                      "ecs:ModifyInstanceAutoReleaseTime",
                                      "ecs:TagResources",
                                      "vpc:DeleteVSwitch",
                                      "vpc:DeleteVpc",
                                      NULL};
    static const char *const role[] = {"ram:PassRole", NULL};
    /* An interface beside the primary one is created without tags, and gets them after the launch. */
    static const char *const interfaces[] = {"ecs:TagResources", NULL};
    if (!form_owner(owner)) /* '*', '?' and '$' mean something in a policy */
        return gp_fail(err, GP_EUSAGE, "the owner '%.140s' is not valid: give %s", owner != NULL ? owner : "",
                       FORM_OWNER_TEXT);
    json_t *statements = json_array();
    allow(statements, reads, NULL, NULL);
    allow(statements, creates, TAG_OF_REQUEST, owner);
    allow(statements, own, TAG_OF_RESOURCE, owner);
    allow(statements, role, NULL, NULL);
    json_object_set_new(json_array_get(statements, 3), "Condition",
                        json_pack("{s:{s:s}}", "StringEquals", "acs:Service", "ecs.aliyuncs.com"));
    allow(statements, interfaces, TAG_OF_REQUEST, owner);
    json_object_set_new(json_array_get(statements, 4), "Resource", json_string("acs:ecs:*:*:eni/*"));
    GP_AUTO_JSON json_t *policy = json_pack("{s:s, s:o}", "Version", "1", "Statement", statements);
    GP_AUTO_FREE char *text = json_text(policy, 2);
    *ret = xasprintf("%s\n", text);
    return 0;
}
