// SPDX-License-Identifier: Apache-2.0
/* What the verb doctor reports of azure: credentials and their source, subscription, owner, clock. It reads the
 * subscription, which is free. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"

#define CLOCK_OFF_S 5 /* less is the time of a call */

static int describe(struct azure *a, struct str *text, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = azure_url(a, AZURE_SUBSCRIPTIONS, "%s", "");
    char until[32];
    int r = azure_call(a, "GET", url, NULL, 0, &reply, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *name = xstrdup(json_str(reply.json, "displayName", ""));
    GP_AUTO_FREE char *state = xstrdup(json_str(reply.json, "state", "unknown"));
    str_one_line(name);
    str_one_line(state);
    time_format_utc(until, sizeof until, a->cred.expires_s);
    str_addf(text, "credentials of %s until %s\n", a->cred.source, until);
    str_addf(text, "subscription %s (%.80s), %.20s\n", a->subscription, name, state);
    str_addf(text, "owner %s (from the token, not verified)\n", a->base.owner);
    if (a->tenant[0] != '\0') str_addf(text, "tenant %s\n", a->tenant);
    str_add(text, "nodes end by 'gpuprov gc' and 'gpuprov down', and by themselves where the offer has 'role'\n");
    int64_t s = a->base.clock_skew_s;
    if (s > -CLOCK_OFF_S && s < CLOCK_OFF_S) str_add(text, "clock agrees with Azure's");
    else
        str_addf(text, "this machine's clock is %lld s %s Azure's: correct it", (long long)(s > 0 ? s : -s),
                 s > 0 ? "behind" : "ahead of");
    return 0;
}

int azure_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    *ret_usable = false;
    int r = provider_azure.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r == 0) r = describe(azure_of(p), text, &why);
    provider_azure.close(p);
    *ret_usable = r == 0;
    if (r != 0 && err != NULL) *err = why;
    return r;
}
