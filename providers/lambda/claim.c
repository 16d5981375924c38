// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: an SSH key, because Lambda documents no unique names. Every launch has to name exactly one key:
 * it names this one, which nobody can log in with. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/form.h"
#include "ssh/ssh.h"

static int list(void *ctx, void (*each)(void *arg, const char *id, const char *name, const char *line), void *arg,
                struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *data = NULL, *key = NULL;
    size_t i = 0;
    int r = lambda_call(ctx, "GET", "/ssh-keys", NULL, LAMBDA_LIST, &reply, &data, err);
    if (r != 0) return r;
    json_array_foreach(data, i, key)
        each(arg, json_str(key, "id", ""), json_str(key, "name", ""), json_str(key, "public_key", ""));
    return 0;
}

static int add(void *ctx, const char *name, const char *line, char **ret_id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:s}", "name", name, "public_key", line);
    json_t *data = NULL;
    int r = lambda_call(ctx, "POST", "/ssh-keys", body, REST_ONCE, &reply, &data, err);
    *ret_id = xstrdup(json_str(data, "id", ""));
    return r;
}

static int delete_key(void *ctx, const char *id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/ssh-keys/%s", id);
    json_t *data = NULL;
    if (!form_word(id)) return gp_fail(err, GP_EUSAGE, "lambda: '%.80s' is not the id of an SSH key", id);
    return lambda_call(ctx, "DELETE", path, NULL, REST_MISSING, &reply, &data, err);
}

const struct key_claim_ops lambda_claim_ops = {
    .provider = "lambda", .pause_ms = 500, .new_key = ssh_key_make, .list = list, .add = add, .remove = delete_key};

static const char *home_of(const struct spec *spec) {
    for (size_t i = 0; i < spec->offers.len; i++)
        if (str_eq(spec->offers.items[i].provider, "lambda") && spec->offers.items[i].regions.n > 0)
            return spec->offers.items[i].regions.v[0];
    return "us-east-1";
}

int lambda_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    struct stack *s = req->stack;
    if (req->known != NULL) return lambda_firewall_apply(l, req, err);
    if (s->region == NULL || s->region[0] == '\0') resource_set(&s->region, home_of(req->spec));
    return key_claim_take(&l->claims, req, err);
}
