// SPDX-License-Identifier: Apache-2.0
/* What the verb doctor reports of google: credentials and their source, project, owner, clock, whether the project may
 * be read. Its calls are free. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"

#define CLOCK_OFF_S 5 /* less is the time of a call */

static void add_clock(const struct google *g, struct str *text) {
    int64_t s = g->base.clock_skew_s;
    if (s > -CLOCK_OFF_S && s < CLOCK_OFF_S) str_add(text, "clock agrees with Google's");
    else
        str_addf(text,
                 "this machine's clock is %lld s %s Google's: correct it; until then gpuprov corrects its requests",
                 (long long)(s > 0 ? s : -s), s > 0 ? "behind" : "ahead of");
}

static int read_project(struct google *g, struct str *text, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = xasprintf("%sprojects/%s", g->endpoint, g->project);
    int r = google_call(g, "google projects.get", "GET", url, NULL, REST_OPTIONAL, &reply, err);
    if (r != 0) return r;
    const json_t *quota = NULL;
    size_t i = 0;
    json_array_foreach(json_at(reply.json, "quotas"), i,
                       quota) if (strcmp(json_str(quota, "metric", ""), "GPUS_ALL_REGIONS") == 0)
        str_addf(text, "quota of GPUs in all regions: %.0f, used %.0f\n", json_num(quota, "limit", 0),
                 json_num(quota, "usage", 0));
    return 0;
}

int google_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    char until[32];
    *ret_usable = false;
    int r = provider_google.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    struct google *g = google_of(p);
    time_format_utc(until, sizeof until, g->cred.expires_s);
    str_addf(text, "credentials of %s, the token is valid until %s\nproject %s, owner %s\n", g->cred.source, until,
             g->project, g->base.owner);
    r = read_project(g, text, err);
    if (r == 0) {
        add_clock(g, text);
        *ret_usable = true;
    }
    provider_google.close(p);
    return r;
}
