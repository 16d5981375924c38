/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSH client configuration for a target, so that the user's own ssh, scp, rsync and editors reach
 * it by the same way and trust the same keys. Writes a known_hosts file beside it, and a key file for a
 * key that is only in memory. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/form.h"
#include "base/fs.h"

/* --- allowed values --- */

static int refuse(const struct ssh_target *t, const char *what, const char *value, const char *form,
                  struct gp_error *err) {
    return gp_fail(err, GP_EUSAGE, "%s: '%.80s' cannot be written into an ssh configuration as %s: %s",
                   t->label != NULL ? t->label : "a target", value, what, form);
}

/* ssh expands ${NAME} in a path, and "${" cannot be escaped. */
static int check_path(const struct ssh_target *t, const char *what, const char *path, struct gp_error *err) {
    if (path == NULL) return 0;
    if (path[0] == '\0') return refuse(t, what, path, "it is empty", err);
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f) return refuse(t, what, path, "it has control characters", err);
    return strstr(path, "${") == NULL ? 0 : refuse(t, what, path, "it has '${' in it", err);
}

static int check_host_key(const struct ssh_target *t, const char *key, struct gp_error *err) {
    if (form_fingerprint(key)) return 0;
    GP_AUTO_FREE char *line = NULL;
    if (ssh_host_key_line(key, &line, NULL) == 0) return 0;
    return refuse(t, "a host key", key, "it is neither 'TYPE BASE64' nor 'SHA256:' and 43 of base64", err);
}

/* Checks all values in one place: they come from tags, hosts files and specs, and ssh passes words of its
 * configuration to a shell (ProxyJump, ProxyCommand). */
static int check_target(const struct ssh_target *t, const char *self_exe, struct gp_error *err) {
    if (!form_host(t->host))
        return refuse(t, "a host", t->host != NULL ? t->host : "",
                      "letters, digits and ._:%- , not first '-' or '.', at most 255", err);
    if (t->user != NULL && !form_login(t->user))
        return refuse(t, "a user", t->user, "letters, digits and ._@+- , not first '-', at most 64", err);
    int r = check_path(t, "a key's path", t->key_path, err);
    if (r == 0) r = check_path(t, "a known_hosts path", t->known_hosts, err);
    if (r == 0) r = check_path(t, "a socket", t->dial_socket, err);
    if (r == 0) r = check_path(t, "this program's path", self_exe, err);
    for (size_t i = 0; r == 0 && i < t->host_keys.n; i++) r = check_host_key(t, t->host_keys.v[i], err);
    return r;
}

static int check_alias(const char *alias, struct gp_error *err) {
    size_t n = strspn(alias, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (n > 0 && n <= 128 && alias[n] == '\0' && alias[0] != '-' && alias[0] != '.') return 0;
    return gp_fail(err, GP_EINTERNAL, "'%.80s' is not a name for a Host block", alias);
}

/* --- writing it --- */

/* ssh reads values in double quotes, and only newer versions have escapes in them. A value that would
 * require one is refused. '%' is a token in some values. */
static int put_value(struct str *out, const char *key, const char *value, bool percent, struct gp_error *err) {
    if (strpbrk(value, "\"\\") != NULL)
        return gp_fail(err, GP_EUSAGE,
                       "'%.200s' cannot be written into an ssh configuration as %s: it has "
                       "a quote or a backslash",
                       value, key);
    str_addf(out, "  %s \"", key);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '%' && percent) str_addc(out, '%');
        str_addc(out, *p);
    }
    str_add(out, "\"\n");
    return 0;
}

/* The program of a command that ssh splits itself and starts without a shell; only the words after it have
 * % tokens. */
static void put_program(struct str *out, const char *path) {
    str_add(out, " \"");
    for (const char *p = path; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') str_addc(out, '\\');
        str_addc(out, *p);
    }
    str_addc(out, '"');
}

static char *known_pattern(const struct ssh_target *t) {
    return ssh_port(t) == 22 ? xstrdup(t->host) : xasprintf("[%s]:%u", t->host, (unsigned)ssh_port(t));
}

/* known_hosts cannot have a fingerprint alone: this program compares it with the server's key
 * (verb __known_host). */
static int put_fingerprints(struct str *out, const struct ssh_target *t, const char *self_exe, struct gp_error *err) {
    if (self_exe == NULL) return gp_fail(err, GP_EINTERNAL, "no program for KnownHostsCommand");
    str_add(out, "  KnownHostsCommand");
    put_program(out, self_exe);
    str_add(out, " __known_host");
    for (size_t i = 0; i < t->host_keys.n; i++)
        if (form_fingerprint(t->host_keys.v[i])) str_addf(out, " %s", t->host_keys.v[i]);
    str_add(out, " -- %H %t %K\n");
    return 0;
}

static int put_trust(struct str *out, const struct ssh_target *t, const char *alias, const char *dir,
                     const char *self_exe, struct gp_error *err) {
    GP_AUTO_FREE char *name = xasprintf("known_hosts.%s", alias);
    GP_AUTO_FREE char *path = fs_join(dir, name);
    GP_AUTO_FREE char *pattern = known_pattern(t);
    GP_AUTO_STR struct str lines = {0};
    bool fingerprints = false;
    int r = 0;
    for (size_t i = 0; r == 0 && i < t->host_keys.n; i++) {
        GP_AUTO_FREE char *line = NULL;
        if (form_fingerprint(t->host_keys.v[i])) {
            fingerprints = true;
            continue;
        }
        r = ssh_host_key_line(t->host_keys.v[i], &line, err);
        if (r == 0) str_addf(&lines, "%s %s\n", pattern, line);
    }
    if (r == 0) r = fs_write_changed(path, lines.s != NULL ? lines.s : "", lines.len, 0600, err);
    if (r != 0) return r;
    bool pinned = t->host_keys.n > 0;
    const char *file = !pinned && t->known_hosts != NULL ? t->known_hosts : path;
    r = put_value(out, "UserKnownHostsFile", file, true, err);
    if (r == 0 && fingerprints) r = put_fingerprints(out, t, self_exe, err);
    if (r != 0) return r;
    str_add(out, "  GlobalKnownHostsFile /dev/null\n");
    str_add(out, "  UpdateHostKeys no\n");
    str_addf(out, "  StrictHostKeyChecking %s\n", !pinned && t->accept_new ? "accept-new" : "yes");
    return 0;
}

static int put_login(struct str *out, const struct ssh_target *t, const char *alias, const char *dir,
                     struct gp_error *err) {
    if (t->key_pem.len > 0) {
        GP_AUTO_FREE char *name = xasprintf("key.%s", alias);
        GP_AUTO_FREE char *path = fs_join(dir, name);
        int r = fs_write_changed(path, secret_reveal(&t->key_pem), t->key_pem.len, 0600, err);
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

/* A shell reads ProxyCommand, and % starts a token in it: each word is quoted for the shell, each % doubled,
 * and host and port are those of the target, not ssh's %h and %p. */
static int put_way(struct str *out, const struct ssh_target *t, const char *alias, const char *self_exe,
                   struct gp_error *err) {
    if (t->bastion != NULL) {
        str_addf(out, "  ProxyJump %s.bastion\n", alias);
        return 0;
    }
    if (t->dial_socket == NULL) {
        str_add(out, "  ProxyCommand none\n  ProxyJump none\n");
        return 0;
    }
    if (self_exe == NULL) return gp_fail(err, GP_EINTERNAL, "no program for ProxyCommand");
    /* ssh also splits this line, and reads \' as a quote even between single quotes */
    if (strchr(self_exe, '\\') != NULL) return refuse(t, "ProxyCommand", self_exe, "it has a backslash", err);
    if (strchr(t->dial_socket, '\\') != NULL)
        return refuse(t, "ProxyCommand", t->dial_socket, "it has a backslash", err);
    GP_AUTO_STR struct str command = {0};
    str_add_shquoted(&command, self_exe);
    str_add(&command, " __dial ");
    str_add_shquoted(&command, t->dial_socket);
    str_addc(&command, ' ');
    str_add_shquoted(&command, t->host);
    str_addf(&command, " %u", (unsigned)ssh_port(t));
    str_add(out, "  ProxyCommand ");
    for (const char *p = command.s; *p != '\0'; p++) {
        if (*p == '%') str_addc(out, '%');
        str_addc(out, *p);
    }
    str_add(out, "\n  ProxyUseFdpass yes\n");
    return 0;
}

static int put_block(const struct ssh_target *t, const char *alias, const char *dir, const char *self_exe,
                     struct str *out, struct gp_error *err) {
    str_addf(out, "Host %s\n", alias);
    int r = put_value(out, "HostName", t->host, true, err);
    str_addf(out, "  Port %u\n", (unsigned)ssh_port(t));
    if (r == 0 && t->user != NULL) r = put_value(out, "User", t->user, false, err);
    if (r == 0) r = put_login(out, t, alias, dir, err);
    if (r == 0) r = put_trust(out, t, alias, dir, self_exe, err);
    if (r == 0) r = put_way(out, t, alias, self_exe, err);
    str_add(out, "  ServerAliveInterval 15\n");
    return r;
}

int ssh_client_config(const struct ssh_target *t, const char *alias, const char *dir, const char *self_exe,
                      struct str *out, struct gp_error *err) {
    int r = check_alias(alias, err);
    if (r == 0) r = check_path(t, "the folder", dir, err);
    for (const struct ssh_target *at = t; r == 0 && at != NULL; at = at->bastion) r = check_target(at, self_exe, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_FREE char *name = xstrdup(alias);
    for (; r == 0 && t != NULL; t = t->bastion) {
        r = put_block(t, name, dir, self_exe, &text, err);
        char *outer = xasprintf("%s.bastion", name);
        free(name);
        name = outer;
    }
    if (r == 0) str_add_mem(out, text.s, text.len);
    return r;
}
