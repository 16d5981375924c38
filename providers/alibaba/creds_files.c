// SPDX-License-Identifier: Apache-2.0
/* Credentials of files: the profiles of the official CLI (~/.aliyun/config.json) and the shared file of the SDKs
 * (~/.alibabacloud/credentials). Read at each renewal, because other programs renew them. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/fs.h"

#define FILE_MAX ((size_t)1 << 20)
#define CHAIN_DEPTH 4

static int from_profile(struct ali *a, const json_t *config, const char *name, int depth, struct ali_cred *ret,
                        struct gp_error *err);

static const json_t *profile_find(const json_t *config, const char *name) {
    json_t *all = json_at(config, "profiles"), *one = NULL;
    size_t i = 0;
    json_array_foreach(all, i, one) if (strcmp(json_str(one, "name", ""), name) == 0) return one;
    return NULL;
}

static int missing(const char *name, const char *key, struct gp_error *err) {
    return gp_fail(err, GP_EAUTH, "alibaba profile '%s': it has no %s: run 'aliyun configure --profile %s'", name, key,
                   name);
}

static int from_keys(const json_t *p, const char *name, bool token, struct ali_cred *ret, struct gp_error *err) {
    const char *id = json_str(p, "access_key_id", ""), *key = json_str(p, "access_key_secret", "");
    if (id[0] == '\0' || key[0] == '\0') return missing(name, "access key", err);
    if (token && json_str(p, "sts_token", "")[0] == '\0') return missing(name, "sts_token", err);
    ali_cred_set(ret, id, key, token ? json_str(p, "sts_token", "") : NULL, xasprintf("profile '%s'", name));
    int64_t until = json_int(p, "sts_expiration", 0);
    if (token && until > 0) ret->expires_s = until;
    return 0;
}

static int from_role(struct ali *a, const json_t *config, const json_t *p, const char *name, const char *mode,
                     int depth, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_CRED struct ali_cred base = {0};
    struct ali_assume how = {.role_arn = json_str(p, "ram_role_arn", ""),
                             .session_name = json_str(p, "ram_session_name", NULL)};
    int r = 0;
    if (how.role_arn[0] == '\0') return missing(name, "ram_role_arn", err);
    if (strcmp(mode, "OIDC") == 0) {
        how.oidc_provider = json_str(p, "oidc_provider_arn", "");
        how.oidc_file = json_str(p, "oidc_token_file", "");
        if (how.oidc_provider[0] == '\0' || how.oidc_file[0] == '\0')
            return missing(name, "oidc_provider_arn and oidc_token_file", err);
    } else {
        how.with = &base;
        if (strcmp(mode, "RamRoleArn") == 0)
            r = from_keys(p, name, json_str(p, "sts_token", "")[0] != '\0', &base, err);
        else if (strcmp(mode, "RamRoleArnWithEcs") == 0)
            r = ali_creds_metadata(a, json_str(p, "ram_role_name", NULL), &base, err);
        else r = from_profile(a, config, json_str(p, "source_profile", ""), depth + 1, &base, err);
        if (r == 0 && base.id == NULL)
            r = gp_fail(err, GP_EAUTH, "alibaba profile '%s': no credentials for its role", name);
    }
    if (r == 0) r = ali_creds_assume(a, &how, ret, err);
    return r != 0 ? gp_wrap(err, "alibaba profile '%s'", name) : 0;
}

static int by_mode(struct ali *a, const json_t *config, const json_t *p, const char *name, int depth,
                   struct ali_cred *ret, struct gp_error *err) {
    const char *mode = json_str(p, "mode", "AK");
    if (strcmp(mode, "AK") == 0) return from_keys(p, name, false, ret, err);
    if (strcmp(mode, "StsToken") == 0) return from_keys(p, name, true, ret, err);
    if (strcmp(mode, "RamRoleArn") == 0 || strcmp(mode, "OIDC") == 0 || strcmp(mode, "ChainableRamRoleArn") == 0 ||
        strcmp(mode, "RamRoleArnWithEcs") == 0)
        return from_role(a, config, p, name, mode, depth, ret, err);
    if (strcmp(mode, "EcsRamRole") == 0) return ali_creds_metadata(a, json_str(p, "ram_role_name", NULL), ret, err);
    if (strcmp(mode, "External") == 0) return ali_creds_process(a, json_str(p, "process_command", ""), ret, err);
    if (strcmp(mode, "CredentialsURI") == 0) return ali_creds_uri(a, json_str(p, "credentials_uri", ""), ret, err);
    return gp_fail(
        err, GP_EAUTH,
        "alibaba profile '%s': mode '%.40s' is not supported here: use AK, StsToken, RamRoleArn, EcsRamRole, "
        "OIDC, External or CredentialsURI",
        name, mode);
}

static int from_profile(struct ali *a, const json_t *config, const char *name, int depth, struct ali_cred *ret,
                        struct gp_error *err) {
    const json_t *p = profile_find(config, name);
    if (p == NULL)
        return gp_fail(err, GP_EAUTH,
                       "alibaba profile '%.80s' does not exist in ~/.aliyun/config.json: correct "
                       "ALIBABA_CLOUD_PROFILE, or run 'aliyun configure'",
                       name);
    if (depth >= CHAIN_DEPTH)
        return gp_fail(err, GP_EAUTH, "alibaba profile '%s': source_profile refers back to itself: correct it", name);
    int r = by_mode(a, config, p, name, depth, ret, err);
    if (r != 0) return r;
    if (ret->id == NULL)
        return gp_fail(err, GP_EAUTH, "alibaba profile '%s': its mode %s found no credentials", name,
                       json_str(p, "mode", "AK"));
    const char *region = json_str(p, "region_id", "");
    if (a->region == NULL && ali_region_valid(region)) a->region = xstrdup(region);
    return 0;
}

int ali_creds_config(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_expand_home("~/.aliyun/config.json");
    GP_AUTO_STR struct str text = {.max = FILE_MAX};
    GP_AUTO_JSON json_t *config = NULL;
    const char *named = ali_env("ALIBABA_CLOUD_PROFILE");
    if (named == NULL) named = ali_env("ALIBABACLOUD_PROFILE");
    struct gp_error e = {0};
    int r = fs_read_text(path, FILE_MAX, &text, &e);
    if (r == -GP_ENOTFOUND && named == NULL) return 0;
    if (r != 0)
        return gp_fail(err, GP_EAUTH, "alibaba credentials: %s%s%s%s: run 'aliyun configure'", e.msg,
                       named != NULL ? " (profile '" : "", named != NULL ? named : "",
                       named != NULL ? "' is wanted)" : "");
    r = json_parse(text.s, text.len, path, &config, &e);
    explicit_bzero(text.s, text.len);
    if (r != 0) return gp_fail(err, GP_EAUTH, "alibaba credentials: %.300s: run 'aliyun configure'", e.msg);
    const char *name = named != NULL ? named : json_str(config, "current", "default");
    const json_t *p = profile_find(config, name);
    /* 'aliyun configure' that was never finished leaves an empty default profile. */
    if (named == NULL &&
        (p == NULL || (strcmp(json_str(p, "mode", "AK"), "AK") == 0 && json_str(p, "access_key_id", "")[0] == '\0')))
        return 0;
    return from_profile(a, config, name, 0, ret, err);
}

/* [default] type = access_key | sts | ecs_ram_role | ram_role_arn | oidc_role_arn */
int ali_creds_ini(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    const char *own = ali_env("ALIBABA_CLOUD_CREDENTIALS_FILE"), *named = ali_env("ALIBABA_CLOUD_PROFILE");
    GP_AUTO_FREE char *path = fs_expand_home(own != NULL ? own : "~/.alibabacloud/credentials");
    GP_AUTO_STR struct str text = {.max = FILE_MAX};
    struct ini ini = {0};
    const char *section = named != NULL ? named : "default";
    struct gp_error e = {0};
    int r = fs_read_text(path, FILE_MAX, &text, &e);
    if (r == -GP_ENOTFOUND && own == NULL) return 0;
    if (r != 0)
        return gp_fail(err, GP_EAUTH, "alibaba credentials: %s, or set ALIBABA_CLOUD_CREDENTIALS_FILE to another file",
                       e.msg);
    r = ini_parse(path, text.s, &ini, err);
    explicit_bzero(text.s, text.len);
    if (r == 0 && ini_has_section(&ini, section)) {
        const char *type = ini_get(&ini, section, "type"), *id = ini_get(&ini, section, "access_key_id");
        const char *key = ini_get(&ini, section, "access_key_secret"),
                   *token = ini_get(&ini, section, "security_token");
        struct ali_assume how = {.role_arn = ini_get(&ini, section, "role_arn"),
                                 .session_name = ini_get(&ini, section, "role_session_name"),
                                 .oidc_provider = ini_get(&ini, section, "oidc_provider_arn"),
                                 .oidc_file = ini_get(&ini, section, "oidc_token_file_path")};
        GP_AUTO_CRED struct ali_cred base = {0};
        bool keys = id != NULL && key != NULL;
        if (type == NULL) type = "access_key";
        if ((strcmp(type, "access_key") == 0 || strcmp(type, "sts") == 0) && keys)
            ali_cred_set(ret, id, key, token, xasprintf("[%s] of %s", section, path));
        else if (strcmp(type, "ecs_ram_role") == 0)
            r = ali_creds_metadata(a, ini_get(&ini, section, "role_name"), ret, err);
        else if (strcmp(type, "ram_role_arn") == 0 && keys && how.role_arn != NULL) {
            ali_cred_set(&base, id, key, token, xstrdup(""));
            how.with = &base;
            r = ali_creds_assume(a, &how, ret, err);
        } else if (strcmp(type, "oidc_role_arn") == 0 && how.role_arn && how.oidc_provider && how.oidc_file)
            r = ali_creds_assume(a, &how, ret, err);
        else
            r = gp_fail(err, GP_EAUTH, "[%s] of %s: type '%.40s' is not supported, or lacks keys: correct it", section,
                        path, type);
    }
    ini_clear(&ini);
    return r;
}
