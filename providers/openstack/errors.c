// SPDX-License-Identifier: Apache-2.0
/* The error table of OpenStack. nova's code is the member that wraps its message ("badRequest"), neutron's the type of
 * its exception, keystone's the title; glance has only a status. Faults of servers come with the code "fault". Pure. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#define ADVICE_LOGIN "check the credentials ('gpuprov doctor' names where they are from) and the access rules"
#define ADVICE_ROLE "the user needs the role member in the project, or the application credential another access rule"
#define ADVICE_QUOTA "end servers, or ask the cloud's operator for more ('openstack quota show')"

const struct cloud_error os_errors[] = {
    /* faults of servers that the cloud had accepted */
    {"fault|No valid host", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO,
     "no host has room for it: try another flavor or zone"},
    {"fault|not enough hosts", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "try another flavor or zone"},
    {"fault|Exceeded maximum number of retries", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "try another flavor or zone"},
    {"fault|Insufficient compute resources", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "try another flavor or zone"},
    {"fault|Exhausted all hosts", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, "try another flavor or zone"},
    {"fault|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"fault|No more IP addresses", GP_ECAPACITY, GP_SCOPE_OFFER, CLOUD_NO, "use another network"},
    {"fault|no fixed IP", GP_ECAPACITY, GP_SCOPE_OFFER, CLOUD_NO, "use another network"},
    {"fault", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO,
     "the cloud could not build the server: try another flavor or zone"},
    /* quota */
    {"forbidden|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"overLimit|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"OverQuota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    {"badRequest|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, ADVICE_QUOTA},
    /* credentials. A path that an access rule forbids is a 401 too: one new login is tried, not more. */
    {"unauthorized", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"Unauthorized", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"HTTP 401", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_LOGIN},
    {"forbidden", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"Forbidden", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"HTTP 403", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    {"PolicyNotAuthorized", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_ROLE},
    /* slow down, or the cloud's own trouble */
    {"overLimit", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"HTTP 429", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"},
    {"computeFault", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"serviceUnavailable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"instanceFault", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"HTTPInternalServerError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"Internal Server Error", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"HTTP 500", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"HTTP 502", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"HTTP 503", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    {"HTTP 504", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, "try again later"},
    /* it is there already, or still in use */
    {"SecurityGroupRuleExists", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"SecurityGroupInUse", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"FloatingIPPortAlreadyAssociated", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"conflictingRequest|locked", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO,
     "the server is locked: unlock it ('openstack server unlock')"},
    {"Conflict", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"conflictingRequest", GP_EEXISTS, GP_SCOPE_NONE, CLOUD_NO, ""},
    /* what is not there */
    {"ExternalGatewayForFloatingIPNotFound", GP_ENOTFOUND, GP_SCOPE_OFFER, CLOUD_NO,
     "connect the network to a router with an external gateway, or set access.public_ip to false"},
    {"itemNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"Not Found", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"HTTP 404", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"SecurityGroupNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"SecurityGroupRuleNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"FloatingIPNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"PortNotFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"NetworkNotFound", GP_ENOTFOUND, GP_SCOPE_OFFER, CLOUD_NO, "correct network"},
    {"IpAddressGenerationFailure", GP_ECAPACITY, GP_SCOPE_OFFER, CLOUD_NO, "the network has no free address"},
    /* the request itself */
    {"HTTPNotAcceptable", GP_EPROTO, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"badRequest", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"Bad Request", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"HTTPBadRequest", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"HTTP 400", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
};
const size_t os_error_count = GP_ARRAY_LEN(os_errors);

/* A reply without an error in JSON has its status only. */
static const char *status_code(int status) {
    static const struct {
        int status;
        const char *code;
    } known[] = {{400, "HTTP 400"}, {401, "HTTP 401"}, {403, "HTTP 403"}, {404, "HTTP 404"}, {429, "HTTP 429"},
                 {500, "HTTP 500"}, {502, "HTTP 502"}, {503, "HTTP 503"}, {504, "HTTP 504"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(known); i++)
        if (known[i].status == status) return known[i].code;
    return status >= 500 ? "HTTP 500" : "HTTP 400";
}

void os_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    const char *id = http_fields_get(&resp->headers, "x-openstack-request-id");
    *ret = (struct cloud_said){"", "", ""};
    if (resp->status < 400) return;
    ret->request_id = id != NULL && strlen(id) <= 64 ? id : "";
    ret->code = status_code(resp->status);
    if (resp->status == 429) { /* whatever stands before the services */
        return;
    }
    const char *type = json_str(json, "NeutronError.type", "");
    const char *title = json_str(json, "error.title", "");
    if (type[0] != '\0') {
        ret->code = type;
        ret->message = json_str(json, "NeutronError.message", "");
    } else if (title[0] != '\0') {
        ret->code = title;
        ret->message = json_str(json, "error.message", "");
    } else if (json_is_object(json) && json_object_size(json) == 1) { /* {"forbidden": {"code": 403, "message": ..}} */
        const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)json));
        const json_t *inner = json_object_get(json, key);
        if (!json_is_string(json_object_get(inner, "message"))) return;
        ret->code = key;
        ret->message = json_str(inner, "message", "");
    }
}

int os_fault(struct gp_error *err, const char *what, const char *message) {
    struct cloud_said said = {"fault", message, ""};
    return cloud_fail(err, what, &said, cloud_error_find(os_errors, os_error_count, &said));
}
