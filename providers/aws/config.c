// SPDX-License-Identifier: Apache-2.0
/* The AWS CLI's configuration: environment, ~/.aws/config, ~/.aws/credentials,
 * profiles, region and endpoints. Credentials are in creds.c. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/fs.h"

#include <ctype.h>
#include <strings.h>

#define FILE_MAX ((size_t)1 << 20)

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

static int load_file(const char *env_name, const char *def, struct ini *ret, struct gp_error *err) {
    const char *named = env(env_name);
    GP_AUTO_FREE char *path = fs_expand_home(named != NULL ? named : def);
    GP_AUTO_STR struct str text = {0};
    struct gp_error e = {0};
    int r = fs_read_text(path, FILE_MAX, &text, &e);
    if (r == -GP_ENOTFOUND) return 0; /* like the CLI: an absent file counts as empty */
    if (r != 0) return gp_fail(err, GP_EENV, "aws: %s, or set %s to another file", e.msg, env_name);
    r = ini_parse(path, text.s, ret, err);
    explicit_bzero(text.s, text.len);
    return r;
}

static bool has_in_config(const struct aws_config *c, const char *profile) {
    GP_AUTO_FREE char *section = xasprintf("profile %s", profile);
    if (strcmp(profile, "default") == 0 && ini_has_section(&c->config, "default")) return true;
    return ini_has_section(&c->config, section);
}

bool aws_config_has(const struct aws_config *c, const char *profile) {
    return ini_has_section(&c->credentials, profile) || has_in_config(c, profile);
}

const char *aws_config_get(const struct aws_config *c, const char *profile, const char *key) {
    const char *v = ini_get(&c->credentials, profile, key);
    if (v != NULL) return v;
    GP_AUTO_FREE char *section = xasprintf("profile %s", profile);
    v = ini_get(&c->config, section, key);
    if (v == NULL && strcmp(profile, "default") == 0) v = ini_get(&c->config, "default", key);
    return v;
}

/* A region becomes part of a host name. */
bool aws_region_valid(const char *region) {
    size_t n = region != NULL ? strnlen(region, 41) : 0;
    return n >= 4 && n <= 40 && strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && region[0] >= 'a' &&
           region[0] <= 'z' && region[n - 1] != '-';
}

int aws_config_load(struct aws_config *c, struct gp_error *err) {
    const char *profile = env("AWS_PROFILE");
    if (profile == NULL) profile = env("AWS_DEFAULT_PROFILE");
    c->profile_named = profile != NULL;
    c->profile = xstrdup(profile != NULL ? profile : "default");
    int r = load_file("AWS_CONFIG_FILE", "~/.aws/config", &c->config, err);
    if (r == 0) r = load_file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", &c->credentials, err);
    if (r != 0) return r;
    if (c->profile_named && !aws_config_has(c, c->profile) && env("AWS_ACCESS_KEY_ID") == NULL)
        return gp_fail(err, GP_EAUTH,
                       "aws: the profile '%s' (AWS_PROFILE) is in neither "
                       "~/.aws/config nor ~/.aws/credentials: see 'aws configure list-profiles'",
                       c->profile);
    const char *region = env("AWS_REGION");
    if (region == NULL) region = env("AWS_DEFAULT_REGION");
    if (region == NULL) region = aws_config_get(c, c->profile, "region");
    if (region != NULL && !aws_region_valid(region))
        return gp_fail(err, GP_EUSAGE, "aws: '%s' (AWS_REGION or the profile) is not a region", region);
    c->region = xstrdup(region);
    const char *bundle = env("AWS_CA_BUNDLE");
    if (bundle == NULL) bundle = aws_config_get(c, c->profile, "ca_bundle");
    c->ca_bundle = bundle != NULL ? fs_expand_home(bundle) : NULL;
    return 0;
}

static void wipe(struct ini *ini) {
    for (size_t i = 0; i < ini->entries.len; i++)
        if (ini->entries.items[i].value != NULL)
            explicit_bzero(ini->entries.items[i].value, strlen(ini->entries.items[i].value));
    ini_clear(ini);
}

void aws_config_clear(struct aws_config *c) {
    wipe(&c->config);
    wipe(&c->credentials);
    free(c->profile);
    free(c->region);
    free(c->ca_bundle);
    *c = (struct aws_config){0};
}

/* --- endpoints --- */

static const char *suffix_of(const char *region) {
    static const struct {
        const char *prefix, *suffix;
    } partitions[] = {
        {"cn-", "amazonaws.com.cn"},    {"eusc-", "amazonaws.eu"}, {"us-isob-", "sc2s.sgov.gov"},
        {"us-isof-", "csp.hci.ic.gov"}, {"us-iso-", "c2s.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(partitions); i++)
        if (str_starts(region, partitions[i].prefix)) return partitions[i].suffix;
    return "amazonaws.com";
}

/* services = NAME in the profile; [services NAME] holds "ec2 =" with an indented endpoint_url. */
static char *endpoint_in_services(const struct aws_config *c, const char *key) {
    const char *name = aws_config_get(c, c->profile, "services");
    if (name == NULL) return NULL;
    GP_AUTO_FREE char *section = xasprintf("services %s", name);
    const char *nested = ini_get(&c->config, section, key);
    if (nested == NULL) return NULL;
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, nested, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        char *line = str_trim(lines.v[i]);
        char *eq = strchr(line, '=');
        if (eq == NULL) continue;
        *eq = '\0';
        if (strcmp(str_trim(line), "endpoint_url") == 0) return xstrdup(str_trim(eq + 1));
    }
    return NULL;
}

static char *configured_endpoint(const struct aws_config *c, const char *service) {
    const char *ignore = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if (ignore != NULL && strcasecmp(ignore, "true") == 0) return NULL;
    const char *key = strcmp(service, "servicequotas") == 0 ? "service_quotas" : service;
    GP_AUTO_FREE char *name = xasprintf("AWS_ENDPOINT_URL_%s", key);
    for (char *p = name; *p != '\0'; p++) *p = (char)toupper((unsigned char)*p);
    const char *v = env(name);
    if (v == NULL) v = env("AWS_ENDPOINT_URL");
    if (v != NULL) return xstrdup(v);
    char *nested = endpoint_in_services(c, key);
    if (nested != NULL) return nested;
    v = aws_config_get(c, c->profile, "endpoint_url");
    return xstrdup(v);
}

char *aws_endpoint(const struct aws_config *c, const char *service, const char *region) {
    if (!aws_region_valid(region)) return NULL;
    char *own = configured_endpoint(c, service);
    if (own == NULL) return xasprintf("https://%s.%s.%s", service, region, suffix_of(region));
    size_t n = strlen(own);
    while (n > 0 && own[n - 1] == '/') own[--n] = '\0';
    return own;
}
