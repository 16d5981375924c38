// SPDX-License-Identifier: Apache-2.0
/* Finds credentials as openstacksdk does: OS_CLOUD names a cloud of clouds.yaml (and secure.yaml); without it the
 * variables of an openrc file; without those the only cloud of clouds.yaml. Reads files and the environment. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/yaml.h"

#define FILE_MAX ((size_t)1 << 20)

/* One setting: its place in os_config, its variable, its key in a cloud of clouds.yaml. */
static const struct setting {
    const char *variable, *key;
    bool in_auth; /* below `auth` */
    bool secret;
    size_t offset;
} settings[] = {
    {"OS_AUTH_URL", "auth_url", true, false, offsetof(struct os_config, auth_url)},
    {"OS_USERNAME", "username", true, false, offsetof(struct os_config, username)},
    {"OS_USER_ID", "user_id", true, false, offsetof(struct os_config, user_id)},
    {"OS_PASSWORD", "password", true, true, offsetof(struct os_config, password)},
    {"OS_USER_DOMAIN_NAME", "user_domain_name", true, false, offsetof(struct os_config, user_domain_name)},
    {"OS_USER_DOMAIN_ID", "user_domain_id", true, false, offsetof(struct os_config, user_domain_id)},
    {"OS_PROJECT_NAME", "project_name", true, false, offsetof(struct os_config, project_name)},
    {"OS_TENANT_NAME", "tenant_name", true, false, offsetof(struct os_config, project_name)},
    {"OS_PROJECT_ID", "project_id", true, false, offsetof(struct os_config, project_id)},
    {"OS_TENANT_ID", "tenant_id", true, false, offsetof(struct os_config, project_id)},
    {"OS_PROJECT_DOMAIN_NAME", "project_domain_name", true, false, offsetof(struct os_config, project_domain_name)},
    {"OS_PROJECT_DOMAIN_ID", "project_domain_id", true, false, offsetof(struct os_config, project_domain_id)},
    {"OS_APPLICATION_CREDENTIAL_ID", "application_credential_id", true, false, offsetof(struct os_config, app_id)},
    {"OS_APPLICATION_CREDENTIAL_NAME", "application_credential_name", true, false,
     offsetof(struct os_config, app_name)},
    {"OS_APPLICATION_CREDENTIAL_SECRET", "application_credential_secret", true, true,
     offsetof(struct os_config, app_secret)},
    {"OS_TOKEN", "token", true, true, offsetof(struct os_config, token)},
    {"OS_SYSTEM_SCOPE", "system_scope", true, false, offsetof(struct os_config, system_scope)},
    {"OS_AUTH_TYPE", "auth_type", false, false, offsetof(struct os_config, auth_type)},
    {"OS_REGION_NAME", "region_name", false, false, offsetof(struct os_config, region)},
    {"OS_INTERFACE", "interface", false, false, offsetof(struct os_config, interface)},
    {"OS_ENDPOINT_TYPE", "endpoint_type", false, false, offsetof(struct os_config, interface)},
    {"OS_CACERT", "cacert", false, false, offsetof(struct os_config, cacert)},
};

void os_config_clear(struct os_config *c) {
    for (size_t i = 0; i < GP_ARRAY_LEN(settings); i++) {
        char *at = (char *)c + settings[i].offset;
        if (settings[i].secret) {
            secret_clear((struct secret *)(void *)at);
        } else {
            free(*(char **)(void *)at);
            *(char **)(void *)at = NULL;
        }
    }
    free(c->source);
    c->source = NULL;
}

/* The first value counts. */
static void set(struct os_config *c, const struct setting *s, const char *value, bool replace) {
    char *at = (char *)c + s->offset;
    if (value == NULL || value[0] == '\0') return;
    if (s->secret) {
        struct secret *to = (struct secret *)(void *)at;
        if (to->len == 0 || replace) secret_set(to, value, strlen(value));
        log_redact(to);
    } else {
        char **to = (char **)(void *)at;
        if (*to != NULL && !replace) return;
        free(*to);
        *to = xstrdup(value);
    }
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* --- clouds.yaml --- */

/* -GP_ENOTFOUND: no such file. */
static int read_yaml(const char *path, struct yaml_node **ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read_text(path, FILE_MAX, &text, &why);
    if (r != 0) return gp_fail(err, why.code, "openstack: %s", why.msg);
    r = yaml_parse(path, text.s, text.len, ret, err);
    explicit_bzero(text.s, text.len);
    return r;
}

/* The first of the places that has NAME.yaml, .yml or .json. *ret_path NULL: none. */
static int find_file(const char *name, const char *chosen, char **ret_path, struct yaml_node **ret,
                     struct gp_error *err) {
    static const char *const ends[] = {"yaml", "yml", "json"};
    const char *xdg = variable("XDG_CONFIG_HOME");
    GP_AUTO_FREE char *home = xdg != NULL ? fs_join(xdg, "openstack") : fs_expand_home("~/.config/openstack");
    const char *folders[] = {".", home, "/etc/openstack"};
    *ret_path = NULL;
    if (chosen != NULL && fs_exists(chosen)) { /* like the SDK: a file that is not there is passed over */
        *ret_path = xstrdup(chosen);
        return read_yaml(chosen, ret, err);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(folders); i++)
        for (size_t k = 0; k < GP_ARRAY_LEN(ends); k++) {
            GP_AUTO_FREE char *file = xasprintf("%s.%s", name, ends[k]);
            GP_AUTO_FREE char *path = fs_join(folders[i], file);
            if (!fs_exists(path)) continue;
            *ret_path = GP_STEAL(path);
            return read_yaml(*ret_path, ret, err);
        }
    return 0;
}

static const struct yaml_node *map_of(const struct yaml_node *map, const char *key) {
    const struct yaml_node *n = map != NULL && map->kind == YAML_MAP ? yaml_get(map, key) : NULL;
    return n != NULL && n->kind == YAML_MAP ? n : NULL;
}

static const char *text_of(const struct yaml_node *map, const char *key) {
    const struct yaml_node *n = map != NULL && map->kind == YAML_MAP ? yaml_get(map, key) : NULL;
    return n != NULL && n->kind == YAML_SCALAR ? n->value : NULL;
}

static void take_cloud(struct os_config *c, const struct yaml_node *cloud, bool replace) {
    const struct yaml_node *auth = map_of(cloud, "auth");
    for (size_t i = 0; i < GP_ARRAY_LEN(settings); i++)
        set(c, &settings[i], text_of(settings[i].in_auth ? auth : cloud, settings[i].key), replace);
}

static int refuse_cloud(const struct os_config *c, const struct yaml_node *cloud, struct gp_error *err) {
    const char *verify = text_of(cloud, "verify"), *profile = text_of(cloud, "profile");
    if (verify != NULL && strcasecmp(verify, "false") == 0)
        return gp_fail(err, GP_EUSAGE,
                       "openstack: %s has 'verify: false', which gives the credentials to anybody in between: give "
                       "the certificate in 'cacert'",
                       c->source);
    if (profile != NULL && c->auth_url == NULL)
        return gp_fail(err, GP_EUSAGE, "openstack: %s has 'profile: %.60s', which is not read: give 'auth_url'",
                       c->source, profile);
    if (c->auth_url == NULL)
        return gp_fail(err, GP_EUSAGE, "openstack: %s has no 'auth' with 'auth_url': add it", c->source);
    return 0;
}

static int no_cloud(const struct yaml_node *clouds, const char *path, const char *name, struct gp_error *err) {
    GP_AUTO_STR struct str names = {0};
    str_add(&names, "");
    for (size_t i = 0; clouds != NULL && i + 1 < clouds->items.len && i < 20; i += 2)
        if (clouds->items.items[i]->value != NULL)
            str_addf(&names, "%s%s", names.len > 0 ? ", " : "", clouds->items.items[i]->value);
    if (path == NULL)
        return gp_fail(err, GP_EAUTH,
                       "openstack: OS_CLOUD is '%.60s', but there is no clouds.yaml in '.', ~/.config/openstack or "
                       "/etc/openstack: write it, or set OS_CLIENT_CONFIG_FILE",
                       name);
    if (name == NULL)
        return gp_fail(err, GP_EAUTH, "openstack: %s has several clouds (%.200s): set OS_CLOUD to one of them", path,
                       names.s);
    return gp_fail(err, GP_EAUTH, "openstack: %s has no cloud '%.60s'; it has: %.200s: correct OS_CLOUD or the file",
                   path, name, names.len > 0 ? names.s : "none");
}

static int from_file(struct os_config *c, const char *name, struct gp_error *err) {
    GP_AUTO_FREE char *path = NULL;
    GP_AUTO_FREE char *secure_path = NULL;
    struct yaml_node *file = NULL, *secure = NULL;
    int r = find_file("clouds", variable("OS_CLIENT_CONFIG_FILE"), &path, &file, err);
    if (r == 0) r = find_file("secure", variable("OS_CLIENT_SECURE_FILE"), &secure_path, &secure, err);
    const struct yaml_node *clouds = map_of(file, "clouds");
    size_t n = clouds != NULL ? clouds->items.len / 2 : 0;
    if (r == 0 && name == NULL && n == 0) {
        r = gp_fail(err, GP_EAUTH,
                    "openstack: no credentials: set OS_CLOUD and write clouds.yaml, or set OS_AUTH_URL and the other "
                    "variables of an openrc file");
        if (err != NULL) str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    } else if (r == 0) {
        if (name == NULL && n == 1) name = clouds->items.items[0]->value;
        const struct yaml_node *cloud = name != NULL ? map_of(clouds, name) : NULL;
        if (cloud == NULL) {
            r = no_cloud(clouds, path, name, err);
        } else {
            c->source = xasprintf("the cloud '%s' of %s", name, path);
            str_one_line(c->source);
            take_cloud(c, cloud, false);
            take_cloud(c, map_of(map_of(secure, "clouds"), name), true);
            r = refuse_cloud(c, cloud, err);
        }
    }
    yaml_node_free(file);
    yaml_node_free(secure);
    return r;
}

/* --- all --- */

static int check(struct os_config *c, struct gp_error *err) {
    const char *type = c->auth_type;
    bool app = c->app_id != NULL || c->app_name != NULL;
    if (type == NULL) type = app ? "v3applicationcredential" : c->token.len > 0 ? "v3token" : "v3password";
    if (str_eq(type, "password")) type = "v3password";
    if (str_eq(type, "token")) type = "v3token";
    const char *lacks = NULL;
    if (str_eq(type, "v3applicationcredential")) {
        if (!app) lacks = "application_credential_id";
        else if (c->app_secret.len == 0) lacks = "application_credential_secret";
        else if (c->app_id == NULL && c->username == NULL && c->user_id == NULL)
            lacks = "username or user_id beside application_credential_name";
    } else if (str_eq(type, "v3token")) {
        if (c->token.len == 0) lacks = "token";
    } else if (str_eq(type, "v3password")) {
        if (c->username == NULL && c->user_id == NULL) lacks = "username";
        else if (c->password.len == 0) lacks = "password";
    } else {
        return gp_fail(err, GP_EUSAGE,
                       "openstack: auth_type '%.40s' of %s is not supported: use password, v3applicationcredential or "
                       "token",
                       type, c->source);
    }
    if (lacks != NULL) return gp_fail(err, GP_EAUTH, "openstack: %s has no %s: add it", c->source, lacks);
    bool scoped = c->project_name != NULL || c->project_id != NULL;
    if (!scoped && !str_eq(type, "v3applicationcredential") && !str_eq(type, "v3token"))
        return gp_fail(err, GP_EAUTH, "openstack: %s names no project: add project_name or project_id", c->source);
    if (c->system_scope != NULL)
        return gp_fail(err, GP_EUSAGE, "openstack: %s has a system scope, in which no servers are: name a project",
                       c->source);
    char *known = xstrdup(type);
    free(c->auth_type);
    c->auth_type = known;
    return 0;
}

int os_config_load(struct os_config *c, struct gp_error *err) {
    const char *name = variable("OS_CLOUD"), *insecure = variable("OS_INSECURE");
    if (name == NULL && variable("OS_AUTH_URL") != NULL) {
        for (size_t i = 0; i < GP_ARRAY_LEN(settings); i++) set(c, &settings[i], variable(settings[i].variable), false);
        c->source = xstrdup("the environment (OS_*)");
        if (insecure != NULL && strcasecmp(insecure, "true") == 0)
            return gp_fail(err, GP_EUSAGE,
                           "openstack: OS_INSECURE is set, which gives the credentials to anybody in "
                           "between: give the certificate in OS_CACERT");
    } else {
        int r = from_file(c, name, err);
        if (r != 0) return r;
    }
    return check(c, err);
}
