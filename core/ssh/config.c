/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSH client configuration for a target, so that the user's own ssh, scp, rsync and editors reach
 * it by the same way and trust the same keys. Writes known_hosts (and, for a key that is only in
 * memory, the key) files beside it. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"

/* ssh reads values in double quotes, and has escapes in them only in newer versions: what would need
 * one is refused. '%' is a token in some values. */
static int put_value(struct str *out, const char *key, const char *value, bool percent,
                     struct gp_error *err) {
    for (const char *p = value; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == '"' || *p == '\\')
            return gp_fail(err, GP_EUSAGE, "'%s' cannot be written into an ssh configuration", value);
    str_addf(out, "  %s \"", key);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '%' && percent) str_addc(out, '%');
        str_addc(out, *p);
    }
    str_add(out, "\"\n");
    return 0;
}

static char *known_pattern(const struct ssh_target *t) {
    return ssh_port(t) == 22 ? xstrdup(t->host)
                             : xasprintf("[%s]:%u", t->host, (unsigned)ssh_port(t));
}

/* A fingerprint alone cannot stand in known_hosts: a command compares what the server shows. */
static void put_fingerprints(struct str *out, const struct ssh_target *t) {
    str_add(out, "  KnownHostsCommand /bin/sh -c \"case $1 in ");
    bool first = true;
    for (size_t i = 0; i < t->host_keys.n; i++) {
        if (!str_starts(t->host_keys.v[i], "SHA256:")) continue;
        size_t n = strcspn(t->host_keys.v[i], "= \t\r\n");
        str_addf(out, "%s%.*s", first ? "" : "|", (int)n, t->host_keys.v[i]);
        first = false;
    }
    str_add(out, ") echo $2 $3 $4;; esac\" sh %f %H %t %K\n");
}

static int put_trust(struct str *out, const struct ssh_target *t, const char *alias,
                     const char *dir, struct gp_error *err) {
    GP_AUTO_FREE char *name = xasprintf("known_hosts.%s", alias);
    GP_AUTO_FREE char *path = fs_join(dir, name);
    GP_AUTO_FREE char *pattern = known_pattern(t);
    GP_AUTO_STR struct str lines = {0};
    bool fingerprints = false;
    for (size_t i = 0; i < t->host_keys.n; i++) {
        if (str_starts(t->host_keys.v[i], "SHA256:")) fingerprints = true;
        else
            str_addf(&lines, "%s %s\n", pattern, t->host_keys.v[i]);
    }
    int r = fs_write_atomic(path, lines.s != NULL ? lines.s : "", lines.len, 0600, err);
    if (r != 0) return r;
    bool pinned = t->host_keys.n > 0;
    const char *file = !pinned && t->known_hosts != NULL ? t->known_hosts : path;
    r = put_value(out, "UserKnownHostsFile", file, true, err);
    if (r != 0) return r;
    if (fingerprints) put_fingerprints(out, t);
    str_add(out, "  GlobalKnownHostsFile /dev/null\n");
    str_add(out, "  UpdateHostKeys no\n");
    str_addf(out, "  StrictHostKeyChecking %s\n",
             !pinned && t->accept_new ? "accept-new" : "yes");
    return 0;
}

static int put_login(struct str *out, const struct ssh_target *t, const char *alias, const char *dir,
                     struct gp_error *err) {
    if (t->key_pem.len > 0) {
        GP_AUTO_FREE char *name = xasprintf("key.%s", alias);
        GP_AUTO_FREE char *path = fs_join(dir, name);
        int r = fs_write_atomic(path, secret_reveal(&t->key_pem), t->key_pem.len, 0600, err);
        if (r == 0) r = put_value(out, "IdentityFile", path, true, err);
        if (r != 0) return r;
    } else if (t->key_path != NULL) {
        int r = put_value(out, "IdentityFile", t->key_path, true, err);
        if (r != 0) return r;
    }
    bool have_key = t->key_pem.len > 0 || t->key_path != NULL;
    if (have_key && !t->use_agent) str_add(out, "  IdentitiesOnly yes\n");
    str_add(out, "  PreferredAuthentications publickey\n");
    return 0;
}

/* ProxyCommand is split by a shell and has % tokens. */
static int put_way(struct str *out, const struct ssh_target *t, const char *alias,
                   const char *self_exe, struct gp_error *err) {
    if (t->bastion != NULL) {
        str_addf(out, "  ProxyJump %s.bastion\n", alias);
        return 0;
    }
    if (t->dial_socket == NULL) {
        str_add(out, "  ProxyCommand none\n  ProxyJump none\n");
        return 0;
    }
    if (self_exe == NULL) return gp_fail(err, GP_EINTERNAL, "no program for ProxyCommand");
    GP_AUTO_STR struct str command = {0};
    str_add_shquoted(&command, self_exe);
    str_add(&command, " __dial ");
    str_add_shquoted(&command, t->dial_socket);
    str_add(out, "  ProxyCommand ");
    for (const char *p = command.s; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ')
            return gp_fail(err, GP_EUSAGE, "'%s' cannot be written into an ssh configuration",
                           command.s);
        if (*p == '%') str_addc(out, '%');
        str_addc(out, *p);
    }
    str_add(out, " %h %p\n  ProxyUseFdpass yes\n");
    return 0;
}

int ssh_client_config(const struct ssh_target *t, const char *alias, const char *dir,
                      const char *self_exe, struct str *out, struct gp_error *err) {
    if (alias[strspn(alias, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] !=
        '\0')
        return gp_fail(err, GP_EINTERNAL, "'%s' is not a name for a Host block", alias);
    int r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    str_addf(out, "Host %s\n", alias);
    r = put_value(out, "HostName", t->host, true, err);
    if (r != 0) return r;
    str_addf(out, "  Port %u\n", (unsigned)ssh_port(t));
    if (t->user != NULL) r = put_value(out, "User", t->user, false, err);
    if (r == 0) r = put_login(out, t, alias, dir, err);
    if (r == 0) r = put_trust(out, t, alias, dir, err);
    if (r == 0) r = put_way(out, t, alias, self_exe, err);
    if (r != 0) return r;
    str_add(out, "  ServerAliveInterval 15\n");
    if (t->bastion == NULL) return 0;
    GP_AUTO_FREE char *outer = xasprintf("%s.bastion", alias);
    return ssh_client_config(t->bastion, outer, dir, self_exe, out, err);
}
