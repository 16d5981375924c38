// SPDX-License-Identifier: Apache-2.0
/* What the verb doctor reports of aws: credentials and their source, account, region, clock. Its one call is STS
 * GetCallerIdentity, which is free and needs no permission. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws.h"

#include "providers/aws/aws_int.h"

#define CLOCK_OFF_S 5 /* less is the time of a call */

static void add_credentials(const struct aws *a, struct str *text) {
    char until[32];
    str_addf(text, "credentials of %s", a->cred.source != NULL ? a->cred.source : "an unknown source");
    if (a->cred.expires_s > 0) {
        time_format_utc(until, sizeof until, a->cred.expires_s);
        str_addf(text, " until %s", until);
    }
    str_addf(text, "\naccount %s, owner %s\n", a->account, a->base.owner);
}

static void add_clock(const struct aws *a, struct str *text) {
    int64_t s = a->base.clock_skew_s;
    if (s > -CLOCK_OFF_S && s < CLOCK_OFF_S) str_add(text, "\nclock agrees with AWS's");
    else
        str_addf(text,
                 "\nthis machine's clock is %lld s %s AWS's: correct it; until then gpuprov corrects its requests",
                 (long long)(s > 0 ? s : -s), s > 0 ? "behind" : "ahead of");
}

int aws_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    *ret_usable = false;
    int r = provider_aws.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    const struct aws *a = aws_of(p);
    add_credentials(a, text);
    if (a->cfg.region != NULL) str_addf(text, "region %s", a->cfg.region);
    else str_add(text, "no region: set AWS_REGION, or give 'regions' in each offer");
    add_clock(a, text);
    *ret_usable = true;
    provider_aws.close(p);
    return 0;
}
