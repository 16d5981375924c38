// SPDX-License-Identifier: Apache-2.0
/* Networks of the spec's offers and this controller's own address. */
#include "base/gp_base.h"

#include "providers/common/ssh_from.h"

#include "base/form.h"

static int public_cidr(const struct ssh_from *f, struct gp_error *err) {
    const char *own = getenv("GPUPROV_CHECKIP_URL");
    const char *url = own != NULL && own[0] != '\0' ? own : "https://checkip.amazonaws.com";
    GP_AUTO_RESP struct http_resp resp = {0};
    struct http_req req = {.what = "this controller's public address",
                           .method = "GET",
                           .url = url,
                           .repeatable = true,
                           .tries = 3,
                           .timeout_ms = 10000,
                           .max_body = 4096};
    if (*f->public_cidr != NULL) return 0;
    int r = http_call(f->http, &req, &resp, err);
    if (r != 0) return gp_wrap(err, "access.ssh_from is not given, and");
    char *text = str_trim(resp.body.s != NULL ? resp.body.s : (char[]){0});
    if (resp.status != 200 || !form_address(text))
        return gp_fail(err, GP_EENV,
                       "%s did not return this controller's public address (HTTP %d): set access.ssh_from", url,
                       resp.status);
    *f->public_cidr = xasprintf("%s/%d", text, strchr(text, ':') == NULL ? 32 : 128);
    return 0;
}

static bool may_use(const struct ssh_from *f, const struct spec_offer *o) {
    if (!str_eq(o->provider, f->provider)) return false;
    if (f->region == NULL) return true;
    return o->regions.n > 0 ? strv_has(&o->regions, f->region) : str_eq(f->home, f->region);
}

/* False: it is empty. */
static bool add_all(const struct strv *from, struct strv *ret) {
    for (size_t i = 0; i < from->n; i++)
        if (!strv_has(ret, from->v[i])) strv_add(ret, from->v[i]);
    return from->n > 0;
}

int ssh_from_read(const struct ssh_from *f, struct strv *ret, struct gp_error *err) {
    bool some = false, own = false;
    for (size_t i = 0; i < f->spec->offers.len; i++) {
        if (!may_use(f, &f->spec->offers.items[i])) continue;
        some = true;
        own = !add_all(spec_effective(f->spec, i).ssh_from, ret) || own;
    }
    if (!some) own = !add_all(&f->spec->access.ssh_from, ret);
    int r = own ? public_cidr(f, err) : 0;
    if (r == 0 && own && !strv_has(ret, *f->public_cidr)) strv_add(ret, *f->public_cidr);
    return r;
}

int ssh_from_check_private(const char *provider, const struct spec *spec, size_t index, struct gp_error *err) {
    if (spec->access.public_ip || spec_effective(spec, index).ssh_from->n > 0) return 0;
    gp_fail(err, GP_EUSAGE,
            "%s: access.public_ip is false, so SSH comes from a private address: set access.ssh_from to that of the "
            "bastion, or of this machine in the cloud's network",
            provider);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return -GP_EUSAGE;
}

bool ssh_from_same(const char *x, const char *y) { return form_same_network(x, y); }
