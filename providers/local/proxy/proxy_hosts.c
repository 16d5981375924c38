/* SPDX-License-Identifier: Apache-2.0 */
/* The package proxy's allow list and upstreams, from the machine's own apt, dnf and pip settings. Pure
 * except proxy_configure, which reads files and runs apt-config. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy.h"

#include "base/fs.h"
#include "base/hash.h"
#include "providers/local/ns/userns.h"
#include "providers/local/proxy/proxy_request.h"

#include <glob.h>
#include <strings.h>
#include <unistd.h>

#define REPLY_MS 120000

static bool is_host_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
}

static void add_url(struct proxy_config *cfg, const char *p, const char *port) {
    const char *slash = p + strcspn(p, "/ \t\r\n\"]"), *at = memchr(p, '@', (size_t)(slash - p));
    if (at != NULL) p = at + 1;
    size_t n = 0;
    while (is_host_char(p[n])) n++;
    if (n == 0) return;
    const char *digits = p[n] == ':' ? p + n + 1 : port;
    GP_AUTO_FREE char *entry = xasprintf("%.*s:%.*s", (int)n, p, (int)strspn(digits, "0123456789"), digits);
    if (!strv_has(&cfg->allowed, entry)) strv_add(&cfg->allowed, entry);
}

void proxy_add_hosts(struct proxy_config *cfg, const char *text) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, text, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        const char *line = str_trim(lines.v[i]);
        if (line[0] == '#' || line[0] == ';') continue;
        for (const char *p = line; (p = strstr(p, "://")) != NULL; p += 3) {
            if (p - line >= 5 && strncasecmp(p - 5, "https", 5) == 0) add_url(cfg, p + 3, "443");
            else if (p - line >= 4 && strncasecmp(p - 4, "http", 4) == 0) add_url(cfg, p + 3, "80");
            else if (p - line >= 6 && strncasecmp(p - 6, "mirror", 6) == 0) add_url(cfg, p + 3, "80");
        }
    }
}

static void add_rule(struct proxy_config *cfg, bool https, const char *host, const char *url) {
    struct proxy_rule r = {https, xstrdup(host), xstrdup(url)};
    vec_push(&cfg->rules, r);
}

/* Lines: Acquire::http::Proxy "http://proxy:3142"; Acquire::http::Proxy::some.host "DIRECT"; */
void proxy_add_apt_rules(struct proxy_config *cfg, const char *dump) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, dump, "\n");
    for (int pass = 0; pass < 2; pass++) { /* those for one host go before those for all */
        for (size_t i = 0; i < lines.n; i++) {
            char key[300], value[1000];
            if (sscanf(lines.v[i], "%299s \"%999[^\"]\"", key, value) != 2) continue;
            bool https = strncasecmp(key, "Acquire::https::Proxy", 21) == 0;
            if (!https && strncasecmp(key, "Acquire::http::Proxy", 20) != 0) continue;
            const char *rest = key + (https ? 21 : 20);
            bool one_host = str_starts(rest, "::");
            if ((rest[0] != '\0' && !one_host) || one_host != (pass == 0)) continue;
            add_rule(cfg, https, one_host ? rest + 2 : "", value);
            if (!https && !one_host) /* apt's own rule: https falls back to http's proxy */
                add_rule(cfg, true, "", value);
        }
    }
}

static void add_files(struct proxy_config *cfg, const char *pattern) {
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            GP_AUTO_STR struct str text = {0};
            if (fs_read(g.gl_pathv[i], (size_t)4 << 20, &text, NULL) == 0 && text.s != NULL)
                proxy_add_hosts(cfg, text.s);
        }
    }
    globfree(&g);
}

/* "proxy = URL" in a file of dnf or pip, for both schemes. */
static void add_proxy_of(struct proxy_config *cfg, const char *path) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (fs_read(path, (size_t)1 << 20, &text, NULL) != 0 || text.s == NULL) return;
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        char url[1000];
        if (sscanf(lines.v[i], "proxy = %999s", url) != 1) continue;
        add_rule(cfg, false, "", url);
        add_rule(cfg, true, "", url);
    }
}

void proxy_configure(struct proxy_config *cfg, const struct proxy_setup *setup) {
    static const char *const sources[] = {
        "/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources",
        "/etc/apt/mirrors/*",    "/etc/apt/mirrors.txt",           "/etc/yum.repos.d/*.repo"};
    for (size_t i = 0; i < GP_ARRAY_LEN(sources); i++) add_files(cfg, sources[i]);
    for (size_t i = 0; i < setup->indexes->n; i++) proxy_add_hosts(cfg, setup->indexes->v[i]);
    if (access("/usr/bin/apt-config", X_OK) == 0) {
        char *argv[] = {(char[]){"/usr/bin/apt-config"}, (char[]){"dump"}, (char[]){"Acquire"}, NULL};
        GP_AUTO_STR struct str out = {0};
        int status = 0;
        if (ns_run(argv, &out, &status, NULL) == 0 && status == 0 && out.s != NULL) proxy_add_apt_rules(cfg, out.s);
    }
    add_proxy_of(cfg, "/etc/dnf/dnf.conf");
    add_proxy_of(cfg, "/etc/pip.conf");
    cfg->reply_ms = REPLY_MS;
    if (setup->http_proxy[0] != '\0') add_rule(cfg, false, "", setup->http_proxy);
    if (setup->https_proxy[0] != '\0') add_rule(cfg, true, "", setup->https_proxy);
    strv_split(&cfg->no_proxy, setup->no_proxy, ", ");
}

bool proxy_allows(const struct proxy_config *cfg, const char *host, const char *port, bool connect) {
    if (connect && strcmp(port, "443") == 0) return true;
    GP_AUTO_FREE char *entry = xasprintf("%s:%s", host, port);
    for (size_t i = 0; i < cfg->allowed.n; i++)
        if (strcasecmp(cfg->allowed.v[i], entry) == 0) return true;
    return false;
}

static bool wants_direct(const struct proxy_config *cfg, const char *host) {
    for (size_t i = 0; i < cfg->no_proxy.n; i++) {
        const char *s = cfg->no_proxy.v[i];
        if (strcmp(s, "*") == 0) return true;
        if (s[0] == '.') s++;
        size_t n = strlen(host), m = strlen(s);
        if (m > 0 && n >= m && strcasecmp(host + n - m, s) == 0 && (n == m || host[n - m - 1] == '.')) return true;
    }
    return false;
}

/* "http://[user:password@]host[:port][/]"; anything else is no proxy that can be used. */
static bool parse_proxy(const char *url, struct proxy_upstream *ret) {
    struct proxy_upstream u = {.port = "80"};
    if (strncasecmp(url, "http://", 7) == 0) url += 7;
    else if (strstr(url, "://") != NULL) return false;
    GP_AUTO_FREE char *where = xstrndup(url, strcspn(url, "/"));
    char *host = strrchr(where, '@');
    if (host != NULL) {
        size_t n = (size_t)(host - where);
        if (n > 400) return false;
        GP_AUTO_FREE char *coded = base64_text(where, n);
        str_put(u.authorization, sizeof u.authorization, coded);
    }
    host = host != NULL ? host + 1 : where;
    char *colon = strrchr(host, ':');
    if (colon != NULL) {
        *colon = '\0';
        if (!str_put(u.port, sizeof u.port, colon + 1)) return false;
    }
    if (!proxy_host_ok(host) || !proxy_port_ok(u.port)) return false;
    if (!str_put(u.host, sizeof u.host, host)) return false;
    *ret = u;
    return true;
}

void proxy_upstream_for(const struct proxy_config *cfg, const char *host, bool https, struct proxy_upstream *ret) {
    *ret = (struct proxy_upstream){0};
    if (wants_direct(cfg, host)) return;
    for (size_t i = 0; i < cfg->rules.len; i++) {
        const struct proxy_rule *r = &cfg->rules.items[i];
        if (r->https != https || (r->host[0] != '\0' && strcasecmp(r->host, host) != 0)) continue;
        if (strcasecmp(r->url, "DIRECT") == 0 || parse_proxy(r->url, ret)) return;
    }
}

void proxy_config_clear(struct proxy_config *cfg) {
    for (size_t i = 0; i < cfg->rules.len; i++) {
        free(cfg->rules.items[i].host);
        free(cfg->rules.items[i].url);
    }
    vec_free(&cfg->rules);
    strv_clear(&cfg->allowed);
    strv_clear(&cfg->no_proxy);
}
