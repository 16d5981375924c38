// SPDX-License-Identifier: Apache-2.0
/* What the verb doctor reports of openstack, and the access rules of an application credential that can do what gpuprov
 * does, and no more. The doctor's one call is the login. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#define CLOCK_OFF_S 5 /* less is the time of a call */

int os_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    GP_AUTO_STRV struct strv regions = {0};
    char until[32];
    *ret_usable = false;
    int r = provider_openstack.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    const struct os *o = os_of(p);
    time_format_utc(until, sizeof until, o->token_until_s);
    str_addf(text, "credentials of %s (%s), a token until %s\n", o->cfg.source, o->cfg.auth_type, until);
    str_addf(text, "project %s (%s), owner %s\n", o->project_name, o->project_id, p->owner);
    os_regions(o, &regions);
    GP_AUTO_FREE char *names = strv_join(&regions, ", ");
    if (os_home(o) != NULL) str_addf(text, "region %s of %s", os_home(o), names);
    else str_addf(text, "no region: set OS_REGION_NAME to one of %s, or give 'regions' in each offer", names);
    if (os_home(o) != NULL && os_check_encrypted(o, os_home(o), &why) != 0) str_addf(text, "\n%s", why.msg);
    if (o->restricted)
        str_add(text, "\nthis application credential may not create others: nodes cannot delete themselves ('role: "
                      "self-delete'), and only 'gpuprov gc' terminates them");
    int64_t s = p->clock_skew_s;
    if (s > -CLOCK_OFF_S && s < CLOCK_OFF_S) str_add(text, "\nclock agrees with the cloud's");
    else
        str_addf(text, "\nthis machine's clock is %lld s %s the cloud's: correct it", (long long)(s > 0 ? s : -s),
                 s > 0 ? "behind" : "ahead of");
    *ret_usable = true;
    provider_openstack.close(p);
    return 0;
}

/* Access rules know no tags: another server of the project could be deleted too. */
static const struct {
    const char *service, *method, *path;
} rules[] = {
    {"compute", "GET", "/v2.1/"},
    {"compute", "GET", "/v2.1/flavors/detail"},
    {"compute", "GET", "/v2.1/limits"},
    {"compute", "GET", "/v2.1/os-keypairs"},
    {"compute", "POST", "/v2.1/os-keypairs"},
    {"compute", "GET", "/v2.1/os-keypairs/*"},
    {"compute", "DELETE", "/v2.1/os-keypairs/*"},
    {"compute", "POST", "/v2.1/servers"},
    {"compute", "GET", "/v2.1/servers/detail"},
    {"compute", "GET", "/v2.1/servers/*"},
    {"compute", "DELETE", "/v2.1/servers/*"},
    {"compute", "POST", "/v2.1/servers/*/action"},
    {"compute", "POST", "/v2.1/servers/*/metadata"},
    {"identity", "GET", "/v3/users/*/application_credentials"},
    {"image", "GET", "/v2/images"},
    {"network", "GET", "/v2.0/networks"},
    {"network", "GET", "/v2.0/ports"},
    {"network", "DELETE", "/v2.0/ports/*"},
    {"network", "GET", "/v2.0/floatingips"},
    {"network", "POST", "/v2.0/floatingips"},
    {"network", "DELETE", "/v2.0/floatingips/*"},
    {"network", "GET", "/v2.0/security-groups"},
    {"network", "POST", "/v2.0/security-groups"},
    {"network", "DELETE", "/v2.0/security-groups/*"},
    {"network", "GET", "/v2.0/security-group-rules"},
    {"network", "POST", "/v2.0/security-group-rules"},
    {"network", "DELETE", "/v2.0/security-group-rules/*"},
};

int os_policy(const char *owner, char **ret_json, struct gp_error *err) {
    GP_AUTO_JSON json_t *all = json_array();
    (void)owner;
    (void)err;
    for (size_t i = 0; i < GP_ARRAY_LEN(rules); i++)
        json_array_append_new(all, json_pack("{s:s,s:s,s:s}", "service", rules[i].service, "method", rules[i].method,
                                             "path", rules[i].path));
    *ret_json = json_text(all, 2);
    return 0;
}
