/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of token and metadata services as a hostile or broken one could send them. The first byte chooses whose. */
#include "base/gp_base.h"

#include "base/json.h"
#include "base/log.h"
#include "providers/alibaba/ali_int.h"
#undef GP_AUTO_CRED /* both have one */
#include "providers/aws/aws_int.h"
#include "providers/azure/azure_int.h"
#include "providers/google/google_int.h"
#include "providers/openstack/os_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIFE_MAX_S ((int64_t)400 * 86400)

/* It becomes a header, and what is computed from its end must not overflow. */
static void check(const struct secret *token, int64_t expires_s, int64_t now_s) {
    const char *s = secret_reveal(token);
    if (token->len == 0 || strlen(s) != token->len || expires_s - now_s > LIFE_MAX_S) abort();
    for (; *s != '\0'; s++)
        if (*s <= ' ' || *s > '~') abort();
}

static void read_google(const json_t *j, bool impersonation) {
    struct google g = {0};
    GP_AUTO_GOOGLE_CRED struct google_cred c = {0};
    struct gp_error err = {0};
    int r = impersonation ? google_cred_from_impersonation(&g, j, "fuzz", &c, &err)
                          : google_cred_from_json(&g, j, "fuzz", &c, &err);
    if (r == 0) check(&c.token, c.expires_s, google_now_s(&g));
}

static void read_azure(const json_t *j) {
    struct azure a = {0};
    GP_AUTO_AZURE_CRED struct azure_cred c = {0};
    struct gp_error err = {0};
    if (azure_cred_from_json(&a, j, "fuzz", &c, &err) != 0) return;
    check(&c.token, c.expires_s, clock_wall_s());
    GP_AUTO_JSON json_t *claims = azure_token_claims(&c.token);
    (void)json_str(claims, "oid", "");
}

static void read_aws(const json_t *j) {
    struct aws_cred c = {0};
    struct gp_error err = {0};
    if (aws_cred_from_json(j, "Token", "fuzz", &c, &err) == 0 && (c.id == NULL || c.key.len == 0)) abort();
    aws_cred_clear(&c);
}

static void read_alibaba(const json_t *j) {
    struct ali_cred c = {0};
    struct gp_error err = {0};
    if (ali_cred_from_json(j, "fuzz", xstrdup("fuzz"), &c, &err) == 0 && (c.id == NULL || c.key.len == 0)) abort();
    ali_cred_clear(&c);
}

/* The token is in a header of the reply. */
static void read_openstack(json_t *j) {
    char url[] = "https://keystone.example/v3", type[] = "v3password", source[] = "fuzz";
    struct os o = {.cfg = {.auth_url = url, .auth_type = type, .source = source}};
    struct rest_reply reply = {.json = j};
    struct gp_error err = {0};
    http_fields_add(&reply.headers, "X-Subject-Token", json_str(j, "header", "token"));
    if (os_take_token(&o, &reply, &err) == 0) {
        const char *s = secret_reveal(&o.token);
        for (; *s != '\0'; s++)
            if (*s <= ' ' || *s > '~') abort();
    }
    http_fields_clear(&reply.headers);
    os_session_clear(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_JSON json_t *j = NULL;
    if (size < 1 || json_parse((const char *)data + 1, size - 1, "the reply", &j, NULL) != 0) return 0;
    switch (data[0]) {
    case 'g': read_google(j, false); break;
    case 'i': read_google(j, true); break;
    case 'z': read_azure(j); break;
    case 'w': read_aws(j); break;
    case 'l': read_alibaba(j); break;
    default: read_openstack(j); break;
    }
    log_close(); /* its list would grow with every input */
    return 0;
}
